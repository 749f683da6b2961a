"""Results that are reported together: each task is counted once, whatever is said of it."""

from __future__ import annotations

import pytest

from tests.support.engine.hand import Hand
from windfall.core.decisions import ACCEPTED, STALE
from windfall.core.state.invariants import problems
from windfall.core.state.jobs.columns import DONE


@pytest.mark.parametrize("cause", ["done", "exit", "lost"])
def test_of_two_results_of_one_task_in_one_report_the_first_counts(cause):
    hand = Hand()
    bag = hand.submit(2)
    first, second = hand.tasks("a", want=2, slots=2)
    verdicts = hand.report("a", first, first, second, cause=cause)
    assert verdicts[1] == STALE and verdicts[0] == verdicts[2] != STALE
    assert problems(hand.state) == []
    while bag.finished_t is None:
        assert all(verdict == ACCEPTED for key in hand.tasks("a") for verdict in hand.report("a", key))
    assert list(bag.columns.state) == [DONE, DONE]
