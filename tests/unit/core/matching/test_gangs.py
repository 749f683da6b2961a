"""Tasks that take whole hosts: which hosts they get, what the hosts wait for, and what ends an attempt."""

from __future__ import annotations

from tests.support.engine.hand import Hand
from windfall.core.decisions import ACCEPTED, FAILED_FOR_GOOD, PART, REQUEUED, RETRIED, RETURNED, STALE
from windfall.core.events import HostDrained, JobCancelled, PoolsConfigured, TaskClass
from windfall.core.explain.jobs import host_reasons
from windfall.core.explain.story import story
from windfall.core.state.hosts.pools import PoolRules
from windfall.core.state.invariants import problems
from windfall.core.state.snapshot import load, save
from windfall.core.supply.pools import look

TWO = TaskClass(nodes=2, max_failures=2)


def running(hand: Hand, *hosts: str) -> None:
    """All hosts of a task are given their parts and told to begin."""
    for _ in range(2):
        for host in hosts:
            hand.ask(host, want=2, slots=2)


def test_all_parts_are_given_in_one_decision_and_begin_when_the_last_host_has_its_own():
    hand = Hand()
    hand.submit(1, [TWO])
    assert hand.ask("a", 2, 2).assigned == []
    lead = hand.ask("b", 2, 2)
    assert lead.gang.hosts == [2, 1] and lead.begin == (), "one holds its part, the other has not been told of its own"
    other = hand.ask("a", 2, 2)
    assert [piece.attempt for piece in other.assigned] == [2] and other.begin == ((1, 0, 2),)
    assert hand.ask("b", 2, 2).begin == ((1, 0, 1),)


def test_hosts_of_two_pools_do_not_share_a_task():
    hand = Hand()
    hand.submit(1, [TWO])
    hand.ask("a", 2, 2, pool="p")
    assert hand.ask("b", 2, 2, pool="q").gang is None
    assert hand.ask("c", 2, 2, pool="p").gang.hosts == [3, 1]


def test_a_busy_host_gets_nothing_of_a_lower_rank_while_a_task_waits_for_it():
    hand = Hand()
    hand.submit(10, name="small")
    assert len(hand.tasks("a", 2, 2)) == 2
    assert len(hand.tasks("c", 3, 3)) == 3
    hand.ask("b", 0, 2)
    hand.submit(1, [TWO], name="wide", priority=5.0)
    assert hand.tasks("b", 2, 2) == [], "b waits for a"
    hand.report("a", (1, 0, 1))
    assert hand.tasks("a", 1, 2) == [], "a is not filled again"
    hand.report("c", (1, 2, 1))
    assert hand.tasks("c", 1, 3), "two hosts are enough: a third one works"
    hand.report("a", (1, 1, 1))
    assert hand.ask("a", 2, 2).gang.hosts == [1, 3]


def test_where_the_pool_has_too_few_hosts_none_waits():
    hand = Hand()
    hand.submit(1, [TaskClass(nodes=3)], name="wide", priority=5.0)
    hand.submit(10, name="small")
    hand.ask("a", 0, 2)
    assert len(hand.tasks("b", 2, 2)) == 2


def test_a_task_succeeds_when_all_its_hosts_have_and_the_first_ones_are_free_meanwhile():
    hand = Hand()
    bag = hand.submit(1, [TWO])
    running(hand, "a", "b")
    assert hand.report("a", (1, 0, 2)) == [PART]
    hand.submit(1, name="small")
    assert hand.tasks("a", 2, 2) == [(2, 0, 1)]
    assert hand.report("b", (1, 0, 1)) == [ACCEPTED]
    assert bag.state == "done" and bag.columns.attempt[0] == 1, "what is shown of it is that of rank 0"


def test_a_success_before_all_hosts_have_their_parts_is_a_loss_of_that_attempt():
    for reporter, number in (("b", 1), ("a", 2)):
        hand = Hand()
        bag = hand.submit(1, [TWO])
        hand.ask("a", 2, 2)
        assert hand.ask("b", 2, 2).gang.hosts == [2, 1], "b holds its part, and a was not given its own"
        assert hand.report(reporter, (1, 0, number)) == [REQUEUED]
        assert not problems(hand.state) and bag.columns.losses[0] == 1 and not bag.columns.failures[0]
        running(hand, "a", "b")
        assert sorted(bag.attempts.gangs[0].joined) == [0, 1], "it is given out again"


def test_a_failure_on_one_host_ends_the_attempt_on_all():
    hand = Hand()
    bag = hand.submit(1, [TWO])
    running(hand, "a", "b")
    assert hand.report("a", (1, 0, 2), cause="exit") == [RETRIED]
    assert bag.columns.failures[0] == 1
    assert hand.ask("b", 2, 2).cancel == [(1, 0, 1)]
    assert hand.report("b", (1, 0, 1)) == [STALE], "what it did is gone with the other's"
    running(hand, "a", "b")
    assert hand.report("a", (1, 0, 4), cause="exit") == [FAILED_FOR_GOOD]
    assert bag.state == "failed" and hand.ask("b", 2, 2).cancel == [(1, 0, 3)]


def test_a_silent_host_ends_the_attempt_on_all_and_its_late_result_counts_for_nothing():
    hand = Hand(lease_s=10.0)
    bag = hand.submit(1, [TWO])
    running(hand, "a", "b")
    for _ in range(5):
        hand.wait(5.0)
        answer = hand.ask("b", 2, 2)
        if answer.cancel:
            break
    assert answer.cancel == [(1, 0, 1)] and bag.columns.losses[0] == 1
    assert hand.report("a", (1, 0, 2)) == [STALE]
    assert bag.waiting == 1


def test_a_host_that_is_lost_before_all_have_begun_costs_the_task_nothing():
    hand = Hand(lease_s=10.0)
    bag = hand.submit(1, [TWO])
    hand.ask("a", 2, 2)
    assert hand.ask("b", 2, 2).gang is not None
    hand.ask("a", 0, 2, boot="another")
    assert bag.columns.losses[0] == 0 and bag.waiting == 1
    lost = [loss for record in hand.log for loss in getattr(record.decided, "lost", [])]
    assert [loss[3] for loss in lost] == [RETURNED]
    assert hand.ask("b", 2, 2).cancel == [(1, 0, 1)]


def test_a_host_that_is_drained_is_still_given_its_part():
    hand = Hand()
    hand.submit(1, [TWO])
    hand.ask("a", 2, 2)
    hand.ask("b", 2, 2)
    hand.step(HostDrained(hand.t, "a"))
    answer = hand.ask("a", 2, 2)
    assert answer.begin == ((1, 0, 2),) and not answer.stop


def test_preempted_parts_are_losses_and_cancelled_jobs_free_all_hosts():
    hand = Hand()
    hand.submit(1, [TWO])
    running(hand, "a", "b")
    assert hand.report("a", (1, 0, 2), cause="preempted") == [REQUEUED]
    hand.ask("b", 2, 2)
    running(hand, "a", "b")
    hand.step(JobCancelled(hand.t, 1))
    assert hand.ask("a", 2, 2).cancel and hand.ask("b", 2, 2).cancel
    assert all(host.gang is None and not host.held for host in hand.state.hosts.values())


def test_a_restarted_server_still_tells_hosts_of_their_parts():
    hand = Hand()
    hand.submit(1, [TWO])
    hand.ask("a", 2, 2)
    hand.ask("b", 2, 2)
    hand.state = load(save(hand.state))
    assert list(hand.state.hosts.to_tell) == [1]
    assert hand.ask("a", 2, 2).begin == ((1, 0, 2),)


def test_licences_are_counted_for_all_hosts_of_a_task():
    hand = Hand(resources={"licence": 1000})
    hand.submit(1, [TaskClass(nodes=2, needs=(("licence", 1000),))])
    hand.ask("a", 2, 2)
    assert hand.ask("b", 2, 2).gang is None, "two hosts with one licence each are two licences"


def test_explain_says_how_many_hosts_are_there_and_how_many_are_idle():
    hand = Hand()
    bag = hand.submit(1, [TaskClass(nodes=3)], name="wide", priority=5.0)
    hand.submit(1, name="small")
    hand.ask("a", 0, 2)
    hand.ask("b", 2, 2)

    def reason(host: str) -> str:
        (found,) = host_reasons(hand.state, hand.engine.policies, bag, None, hand.state.hosts.by_name[host], hand.t)
        return found.detail

    assert reason("a") == "pool default has 2 hosts for it; asked for: 3 at once"
    hand.ask("c", 0, 2)
    assert reason("c") == "2 of 3 hosts of pool default are idle; they start together"


def test_the_story_of_a_task_names_each_of_its_hosts():
    hand = Hand()
    bag = hand.submit(1, [TWO])
    running(hand, "a", "b")
    told = [entry for entry in story(hand.state, hand.log, bag, 0) if entry.get("why") == "one host of several"]
    assert sorted(entry["host"] for entry in told) == ["a", "b"]


def test_workers_are_asked_of_pools_that_may_have_enough_of_them():
    hand = Hand()
    pools = [PoolRules("few", limit=1, slots=2, per_minute=60.0), PoolRules("many", limit=5, slots=2, per_minute=60.0)]
    hand.step(PoolsConfigured(hand.t, pools))
    hand.submit(1, [TWO])
    _, asks = look(hand.state, hand.engine.policies, hand.t)
    assert [(ask.pool, ask.count) for ask in asks if ask.count] == [("many", 2)]


def test_a_small_job_hears_which_job_its_free_host_is_kept_for():
    hand = Hand()
    small = hand.submit(10, name="small")
    hand.tasks("a", 2, 2)
    hand.ask("b", 0, 2)
    hand.submit(1, [TWO], name="wide")
    assert hand.tasks("b", 2, 2) == [], "b waits for a"
    (why,) = host_reasons(hand.state, hand.engine.policies, small, None, hand.state.host("b"), hand.t)
    assert (why.what, why.detail) == ("kept", "job 2 waits until 2 hosts of pool default are idle at once")
