"""Whose output is shown as a task's: that of the attempt that counted, however many were begun after it."""

from __future__ import annotations

from tests.support.engine.hand import Hand
from windfall.core.state.jobs.columns import DONE
from windfall.server.queries.jobs import counting_attempt


def test_the_output_of_a_task_is_that_of_the_attempt_that_counted():
    hand = Hand()
    bag = hand.submit(1)
    (first,) = hand.tasks("a")
    hand.ask("a", boot="another")  # it has lost what it held, or so it seems
    (second,) = hand.tasks("b")
    assert (first[2], second[2]) == (1, 2) and counting_attempt(bag, 0) == 2, "of one that runs, the newest"
    hand.report("a", first)
    assert bag.columns.state[0] == DONE and counting_attempt(bag, 0) == 1


def test_a_task_that_was_never_begun_has_none():
    assert counting_attempt(Hand().submit(1), 0) == 0
