"""No task starts on a host that ends before the task would: the learned quantile of its run time decides."""

from __future__ import annotations

from tests.support.engine.hand import Hand
from windfall.core.events import OverlayDue, PoolAnswered, PoolsConfigured, TaskClass
from windfall.core.explain.jobs import host_reasons
from windfall.core.matching import lifetimes
from windfall.core.state.hosts.pools import PoolRules
from windfall.policy.compiled import compile_policies


def taught(seconds: float, classes: list[TaskClass] | None = None, **rules) -> tuple[Hand, object]:
    """A bag of 20 tasks, of which six are done and took this long."""
    hand = Hand(compile_policies)
    bag = hand.submit(20, classes, **rules)
    keys = hand.tasks("steady", want=6, slots=6)
    hand.t += seconds
    hand.report("steady", *keys, run_s=seconds)
    return hand, bag


def test_a_task_does_not_start_on_a_host_that_ends_before_the_task_would():
    hand, _ = taught(100.0)
    assert hand.tasks("short", lifetime_s=90.0) == []
    assert len(hand.tasks("long", lifetime_s=120.0)) == 1
    assert len(hand.tasks("endless")) == 1


def test_what_is_left_of_a_lifetime_counts_and_not_what_the_host_said_at_first():
    hand, _ = taught(100.0)
    assert len(hand.tasks("long", slots=2, lifetime_s=150.0)) == 1
    hand.t += 60.0
    assert hand.tasks("long", slots=2) == []


def test_a_host_that_ends_soon_gets_what_it_finishes_however_much_it_asks_for():
    """Its tasks so far were short, so it asks for several a slot; those of this bag are long."""
    hand = Hand(compile_policies)
    hand.submit(200, [TaskClass(estimate_s=10.0)])
    assert len(hand.tasks("soon", want=6, slots=2, lifetime_s=11.0)) == 2
    assert len(hand.tasks("later", want=6, slots=2, lifetime_s=25.0)) == 4
    assert len(hand.tasks("endless", want=6, slots=2)) == 6


def test_while_nothing_is_known_a_task_starts_and_an_estimate_counts_until_more_is_known():
    hand = Hand(compile_policies)
    hand.submit(1)
    assert len(hand.tasks("short", lifetime_s=10.0)) == 1
    hand.submit(1, [TaskClass(estimate_s=60.0)])
    assert hand.tasks("other", lifetime_s=10.0) == []
    assert len(hand.tasks("longer", lifetime_s=61.0)) == 1


def test_a_wall_time_bounds_what_was_learned():
    hand, bag = taught(100.0, [TaskClass(wall_s=50.0)])
    assert lifetimes.needed_s(hand.state, bag, bag.classes[0]) == 50.0


def test_a_task_that_checkpoints_may_start_on_any_host():
    hand, _ = taught(100.0, [TaskClass(checkpoint_mb=1.0)])
    assert len(hand.tasks("short", lifetime_s=20.0)) == 1


def test_no_replica_starts_that_cannot_finish():
    hand, bag = taught(100.0)
    rest = hand.tasks("steady", want=14, slots=14)
    assert len(rest) == 14 and bag.tail
    hand.t += 1000.0
    assert hand.tasks("short", lifetime_s=20.0) == []
    assert len(hand.tasks("long", lifetime_s=2000.0)) == 1


def test_a_host_that_is_too_short_lived_for_all_that_waits_is_replaced():
    hand, _ = taught(100.0)
    hand.step(PoolsConfigured(hand.t, [PoolRules("queue", "slurm", limit=2, slots=8)]))
    hand.ask("short", want=0, slots=8, pool="queue", lifetime_s=50.0)
    (ask,) = hand.step(OverlayDue(hand.t)).decided.asks
    assert ask.count == 1, "its 8 free slots are of no use to anybody"
    hand.step(PoolAnswered(hand.t, "queue", 1, ask=ask.number))


def test_why_waiting_names_the_lifetime_that_is_missing():
    hand, bag = taught(100.0)
    hand.ask("short", want=0, lifetime_s=30.0)
    (reason,) = host_reasons(hand.state, hand.engine.policies, bag, None, hand.state.host("short"), hand.t)
    assert (reason.what, reason.example) == ("lifetime", "short")
    assert reason.detail == "short ends in 30.0 s; a task of this job takes up to 1m44s"
