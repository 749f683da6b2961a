"""Silence, losses and blame: what a host's behaviour comes to."""

from __future__ import annotations

from tests.support.engine.hand import Hand
from windfall.core.decisions import LOST_FOR_GOOD, OTHERS_RUN, REQUEUED, RETURNED
from windfall.core.events import HostUnblocked, TaskClass
from windfall.core.liveness.reliability import FIRST_PROBATION_S, LONGEST_PROBATION_S, probation_s
from windfall.core.state.hosts.hosts import GONE, LIVE, UNKNOWN
from windfall.core.state.jobs.columns import DONE, FAILED


def test_a_silent_host_is_unknown_then_lost_and_only_then_is_its_task_given_to_another():
    hand = Hand(lease_s=10)
    bag = hand.submit(1)
    hand.tasks("a")
    hand.wait(11)
    assert hand.state.host("a").state == UNKNOWN and bag.waiting == 0
    hand.wait(10)
    assert hand.state.host("a").state == GONE and bag.waiting == 1 and bag.columns.losses[0] == 1


def test_a_host_that_comes_back_from_silence_keeps_its_work():
    hand = Hand(lease_s=10)
    bag = hand.submit(1)
    (key,) = hand.tasks("a")
    hand.wait(15)
    hand.ask("a", want=0)
    assert hand.state.host("a").state == LIVE
    hand.wait(9)
    hand.report("a", key)
    assert bag.state == "done" and bag.columns.losses[0] == 0


def test_a_restarted_worker_loses_what_the_old_process_held_at_once():
    hand = Hand()
    bag = hand.submit(2)
    hand.tasks("a", want=2, slots=2)
    hand.ask("a", want=0, slots=2, boot="second")
    assert bag.waiting == 2 and list(bag.columns.losses) == [1, 1]


def test_losses_do_not_burn_failures_and_are_bounded_themselves():
    hand = Hand()
    bag = hand.submit(1, [TaskClass(max_failures=1, max_losses=3)])
    for boot in ("first", "second", "third"):
        hand.ask("a", want=1, boot=boot)
        assert bag.counts[FAILED] == 0
        hand.ask("a", want=1, boot=boot)
    hand.ask("a", want=1, boot="fourth")
    assert bag.columns.failures[0] == 0
    assert bag.counts[FAILED] == 1
    assert hand.log[-1].decided.lost[0][3] == LOST_FOR_GOOD


def test_a_task_whose_working_directory_is_missing_on_the_only_host_fails_at_once():
    hand = Hand()
    bag = hand.submit(1)
    (key,) = hand.tasks("a")
    assert hand.report("a", key, cause="no-cwd", run_s=0.0) == [LOST_FOR_GOOD]
    assert bag.counts[FAILED] == 1
    assert (bag.columns.failures[0], bag.columns.losses[0]) == (0, 1)


def test_a_working_directory_that_one_host_lacks_is_looked_for_on_another():
    hand = Hand()
    bag = hand.submit(1)
    hand.ask("b", want=0)
    (key,) = hand.tasks("a")
    assert hand.report("a", key, cause="no-cwd", run_s=0.0) == [REQUEUED]
    hand.report("b", *hand.tasks("b"), cause="done")
    assert bag.counts[DONE] == 1


def test_a_working_directory_that_is_nowhere_is_not_looked_for_for_ever():
    hand = Hand()
    bag = hand.submit(1)
    hand.ask("b", want=0)
    for _ in range(3):
        (key,) = hand.tasks("a")
        hand.report("a", key, cause="no-cwd", run_s=0.0)
    assert bag.counts[FAILED] == 1
    assert (bag.columns.failures[0], bag.columns.losses[0]) == (0, 3)


def test_a_task_handed_back_unstarted_costs_it_nothing():
    hand = Hand()
    bag = hand.submit(1)
    (key,) = hand.tasks("a")
    assert hand.report("a", key, cause="preempted", run_s=0.0) == [RETURNED]
    assert bag.waiting == 1 and bag.columns.losses[0] == 0


def test_when_a_host_says_goodbye_what_it_still_holds_is_lost_at_once():
    hand = Hand()
    bag = hand.submit(1)
    hand.tasks("a")
    hand.ask("a", want=0, leaving="signal")
    assert bag.waiting == 1 and hand.state.host("a").state == GONE


def black_hole(hand: Hand, good: int, bad: int) -> None:
    """A bag on one good host and one that fails everything it gets, quickly."""
    for _ in range(20):
        for host, count in (("good", good), ("bad", bad)):
            keys = hand.tasks(host, want=count, slots=count)
            hand.report(host, *keys, cause="done" if host == "good" else "exit")
        hand.wait(1)


def test_a_black_hole_is_starved_and_says_why():
    hand = Hand()
    hand.submit(300, [TaskClass(max_failures=10)])
    black_hole(hand, good=4, bad=2)
    bad = hand.state.host("bad")
    assert bad.record.probation_until is not None and bad.record.suspicion
    assert hand.tasks("bad", want=2, slots=2) == []


def test_after_probation_a_host_gets_one_test_task_and_a_success_clears_it():
    hand = Hand()
    hand.submit(300, [TaskClass(max_failures=10)])
    black_hole(hand, good=4, bad=2)
    hand.wait(61)
    keys = hand.tasks("bad", want=2, slots=2)
    assert len(keys) == 1
    assert hand.tasks("bad", want=2, slots=2) == []
    hand.report("bad", *keys)
    assert len(hand.tasks("bad", want=2, slots=2)) == 2


def test_each_failed_test_doubles_the_wait():
    hand = Hand()
    hand.submit(300, [TaskClass(max_failures=10)])
    black_hole(hand, good=4, bad=2)
    waits = []
    for _ in range(3):
        until = hand.state.host("bad").record.probation_until
        hand.wait(until - hand.t + 0.5)
        hand.ask("good", want=0, slots=4)
        (key,) = hand.tasks("bad", want=2, slots=2)
        hand.report("bad", key, cause="exit")
        waits.append(hand.state.host("bad").record.probation_until - hand.t)
    assert waits[1] > 1.5 * waits[0] and waits[2] > 1.5 * waits[1]


def test_a_bag_that_fails_everywhere_blames_no_host():
    hand = Hand()
    hand.submit(60, [TaskClass(max_failures=2)])
    for _ in range(60):
        for host in "abc":
            hand.report(host, *hand.tasks(host, want=2, slots=2), cause="exit")
    assert all(host.record.probation_until is None for host in hand.state.hosts.values())
    assert all(host.record.error_rate == 0 for host in hand.state.hosts.values())


def test_most_of_a_pool_is_never_starved():
    hand = Hand()
    hand.submit(3000, [TaskClass(max_failures=100)])
    for _ in range(40):
        hand.report("good", *hand.tasks("good", want=9, slots=1))
        for host in ("x", "y", "z"):
            hand.report(host, *hand.tasks(host, want=2, slots=1), cause="exit")
    starved = [host.name for host in hand.state.hosts.values() if host.record.probation_until is not None]
    assert len(starved) <= 2


def test_a_person_can_vouch_for_a_starved_host():
    hand = Hand()
    hand.submit(300, [TaskClass(max_failures=10)])
    black_hole(hand, good=4, bad=2)
    hand.step(HostUnblocked(hand.t, "bad"))
    assert len(hand.tasks("bad", want=2, slots=2)) == 2


def test_a_failed_replica_does_not_requeue_a_task_that_still_runs_elsewhere():
    hand = Hand()
    bag = hand.submit(11)
    keys = hand.tasks("a", want=10, slots=20)
    hand.wait(5)
    hand.report("a", *keys, run_s=5)
    hand.tasks("a")
    hand.wait(100)
    (replica,) = hand.tasks("b")
    assert hand.report("b", replica, cause="exit") == [OTHERS_RUN]
    assert bag.waiting == 0 and bag.counts[DONE] == 10


def fail_in_a_row(hand, count: int) -> None:
    for _ in range(count):
        (key,) = hand.tasks("hole")
        hand.wait(1)
        hand.report("hole", key, cause="exit")


def test_a_black_hole_is_starved_before_another_host_is_done():
    """Others have been running since before its failures began: that is witness enough."""
    hand = Hand()
    hand.submit(50, [TaskClass(max_failures=9)])
    hand.tasks("good", want=6, slots=6)
    hand.wait(1)
    fail_in_a_row(hand, 5)
    answer = hand.ask("hole")
    assert answer.assigned == [] and "5 tasks failed" in answer.probation[1]


def test_no_host_is_starved_for_a_bag_that_fails_everywhere_at_once():
    hand = Hand()
    hand.submit(50, [TaskClass(max_failures=9)])
    for _ in range(6):
        keys = hand.tasks("other", want=6, slots=6)
        hand.wait(1)
        hand.report("other", *keys, cause="exit")
        fail_in_a_row(hand, 1)
    assert hand.ask("hole").probation is None


def test_a_black_hole_that_failed_a_hundred_tasks_needs_no_hundred_witnesses():
    hand = Hand()
    bag = hand.submit(300, [TaskClass(max_failures=9)])
    fail_in_a_row(hand, 100)
    keys = hand.tasks("good", want=5, slots=5)
    hand.wait(1)
    hand.report("good", *keys)
    assert bag.counts[DONE] == 5
    assert hand.ask("hole").probation is not None


def test_a_host_that_fails_its_tests_for_months_waits_the_longest_time_again():
    assert probation_s(0) == FIRST_PROBATION_S
    assert [probation_s(failed) for failed in (6, 1023, 1024, 10**6)] == [LONGEST_PROBATION_S] * 4
