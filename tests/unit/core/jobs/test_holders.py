"""Only its holder says how an attempt ended."""

from __future__ import annotations

import pytest

from tests.support.engine.hand import Hand
from windfall.core.decisions import ACCEPTED, STALE
from windfall.core.events import JobCancelled, TaskClass


@pytest.mark.parametrize("reporter", ["h2", "nobody"])
def test_nobody_ends_an_attempt_of_another_host(reporter):
    hand = Hand()
    hand.submit(2)
    keys = hand.tasks("h1")
    hand.tasks("h2")
    for cause in ("exit", "cancelled", "lost", "done"):
        hand.report(reporter, *keys, cause=cause)
    assert keys[0] in hand.state.hosts.by_name["h1"].held
    assert hand.report("h1", *keys) == [ACCEPTED]


@pytest.mark.parametrize("parting", [{"boot": "b2"}, {"leaving": "stopped"}])
def test_a_late_success_counts_from_the_host_that_had_the_attempt_alone(parting):
    hand = Hand()
    bag = hand.submit(1)
    keys = hand.tasks("h1")
    hand.ask("h2", want=0)
    hand.ask("h1", want=0, **parting)
    assert bag.waiting == 1
    for reporter in ("h2", "nobody"):
        assert hand.report(reporter, *keys) == [STALE]
    assert bag.waiting == 1 and bag.attempts.released
    assert hand.report("h1", *keys) == [ACCEPTED]
    assert bag.state == "done" and not bag.attempts.released


def test_a_host_that_said_how_an_attempt_ended_cannot_say_it_again():
    hand = Hand()
    bag = hand.submit(1, [TaskClass(max_failures=5)])
    keys = hand.tasks("h1")
    hand.report("h1", *keys, cause="exit")
    assert hand.report("h1", *keys) == [STALE]
    assert bag.waiting == 1


def test_holders_of_tasks_that_have_ended_are_not_remembered():
    hand = Hand()
    bag = hand.submit(2)
    hand.tasks("h1", want=2, slots=2)
    hand.ask("h1", want=0, slots=2, boot="b2")
    assert len(bag.attempts.released) == 2
    hand.step(JobCancelled(hand.t, bag.number, [0]))
    assert list(bag.attempts.released) == [1]
    hand.step(JobCancelled(hand.t, bag.number))
    assert not bag.attempts.released


def test_a_worker_that_takes_a_name_over_has_none_of_the_attempts_of_the_one_before():
    hand = Hand()
    bag = hand.submit(2)
    first, second = hand.tasks("h1", want=1, secret="a"), hand.tasks("h2", want=1, secret="b")
    hand.ask("h1", want=0, leaving="bye")
    hand.ask("h2", want=0, leaving="bye")
    hand.ask("h1", want=0, boot="b2", secret="c")
    assert hand.report("h1", *first) == [STALE]
    hand.ask("h2", want=0, boot="b2")
    assert hand.report("h2", *second) == [ACCEPTED], "it is the one that it was"
    assert bag.waiting == 1 and not bag.attempts.released
