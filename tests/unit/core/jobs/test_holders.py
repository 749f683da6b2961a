"""Only its holder says how an attempt ended."""

from __future__ import annotations

import pytest

from tests.support.engine.hand import Hand
from windfall.core.decisions import ACCEPTED, STALE
from windfall.core.events import JobCancelled, JobChanged, JobForgotten, TaskClass
from windfall.core.state.hosts.hosts import GONE
from windfall.core.state.invariants import problems
from windfall.core.state.snapshot import load, save


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


@pytest.mark.parametrize("boot", ["b", "b2"])
def test_of_a_silent_host_whose_name_another_worker_takes_no_attempt_is_left_when_its_job_is_forgotten(boot):
    """It was left in what the host holds, and the server stopped when the host fell silent again."""
    hand = Hand(lease_s=10.0)
    bag = hand.submit(1)
    hand.ask("h1", want=1, secret="one", memory_mb=100)
    hand.wait(60)
    assert bag.attempts.given_up and hand.state.host("h1").held
    hand.ask("h1", want=0, boot=boot, secret="another", memory_mb=100)
    assert not hand.state.host("h1").held
    hand.step(JobCancelled(hand.t, bag.number))
    assert not hand.step(JobForgotten(hand.t, bag.number)).decided.refused
    hand.wait(60)
    assert hand.state.host("h1").state == GONE


@pytest.mark.parametrize(("before", "after"), [(1, 8), (3, 1), (3, 0), (0, 3)])
def test_memory_that_a_running_task_asks_for_later_is_given_back_as_it_is_counted(before, after):
    hand = Hand()
    bag = hand.submit(4, [TaskClass(memory_bytes=before << 30)])
    keys = hand.tasks("h1", want=1, slots=4, memory_mb=4096)
    hand.step(JobChanged(hand.t, bag.number, bag.rules, [TaskClass(memory_bytes=after << 30)]))
    assert hand.state.host("h1").memory_held == after << 30
    hand.report("h1", *keys)
    assert hand.state.host("h1").memory_held == 0


def test_a_state_in_which_a_host_holds_what_nobody_knows_is_read_as_if_it_did_not():
    hand = Hand()
    bag = hand.submit(4, [TaskClass(memory_bytes=1 << 30)])
    hand.tasks("h1", want=2, slots=2, memory_mb=4096)
    host = hand.state.host("h1")
    whole = save(hand.state)
    host.held[bag.number, 3, 7] = host.held[99, 0, 1] = None
    host.memory_held = -1
    assert problems(hand.state)
    assert save(load(save(hand.state))) == whole
