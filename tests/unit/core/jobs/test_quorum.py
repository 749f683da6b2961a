"""Results of volunteers' hosts: who may have a task, how many must agree, what becomes of those that do not."""

from __future__ import annotations

import pytest

from tests.support.engine.hand import Hand
from windfall.core.decisions import ACCEPTED, FAILED_FOR_GOOD, RETRIED, VOTED
from windfall.core.events import PoolsConfigured, TaskClass
from windfall.core.jobs.quorum import VALID_IN_A_ROW
from windfall.core.liveness import timeouts
from windfall.core.liveness.leases import VOLUNTEER_LEASE_S
from windfall.core.state.hosts.learned import Advice
from windfall.core.state.hosts.pools import PoolRules
from windfall.core.state.jobs.columns import DONE, FAILED, HELD, WAITING
from windfall.core.state.snapshot import load, save
from windfall.timeouts.learning.online import Sketch
from windfall.wire.messages import CAUSES


def volunteer(hand: Hand, owner: str, want: int = 1, name: str = ""):
    return hand.tasks(name or f"host-{owner}", want, slots=want, pool="boinc", owner=owner)


def test_volunteers_get_only_tasks_of_jobs_that_say_so():
    hand = Hand()
    hand.submit(5)
    assert volunteer(hand, "1", 5) == []
    meant = hand.submit(2, quorum=2)
    assert [key[0] for key in volunteer(hand, "1", 5)] == [meant.number] * 2
    assert len(hand.tasks("trusted", 5, slots=5)) == 5


def test_a_result_is_accepted_when_hosts_of_two_owners_agree():
    hand = Hand()
    bag = hand.submit(1, quorum=2)
    (first,) = volunteer(hand, "1")
    assert hand.report("host-1", first, digest="a", cpu_s=3.0) == [VOTED]
    assert bag.counts[WAITING] == 1
    assert volunteer(hand, "1", name="other-host-of-1") == [] == volunteer(hand, "1")
    (second,) = volunteer(hand, "2")
    assert second[:2] == first[:2] and second[2] == 2
    assert hand.report("host-2", second, digest="a", cpu_s=9.0) == [ACCEPTED]
    assert bag.counts[DONE] == 1 and not bag.progress.votes
    records = [hand.state.host(f"host-{owner}").record for owner in "12"]
    assert [record.valid for record in records] == [1, 1]
    # All are credited the least that one claims.
    assert [record.granted_s for record in records] == [3.0, 3.0]


def test_a_lie_is_outvoted_and_costs_the_liar_its_standing():
    hand = Hand()
    bag = hand.submit(1, quorum=2)
    for owner, digest in (("1", "lie"), ("2", "truth")):
        (key,) = volunteer(hand, owner)
        assert hand.report(f"host-{owner}", key, digest=digest) == [VOTED]
    (key,) = volunteer(hand, "3")
    assert hand.report("host-3", key, digest="truth") == [ACCEPTED]
    liar, honest = hand.state.host("host-1").record, hand.state.host("host-2").record
    assert (liar.valid, liar.invalid, liar.granted_s) == (0, 1, 0.0) and liar.error_weight > 0
    assert (honest.valid, honest.invalid) == (1, 0)
    assert bag.columns.attempt[0] == key[2]


def test_a_trusted_host_decides_alone_and_shows_who_lied():
    hand = Hand()
    hand.submit(1, quorum=3)
    (key,) = volunteer(hand, "1")
    hand.report("host-1", key, digest="lie")
    (key,) = hand.tasks("worker")
    assert hand.report("worker", key, digest="truth") == [ACCEPTED]
    assert hand.state.host("host-1").record.invalid == 1


def test_a_host_with_a_record_is_believed_alone_but_now_and_then():
    hand = Hand()
    bag = hand.submit(200, quorum=2)
    for _ in range(VALID_IN_A_ROW):
        for owner in "12":
            (key,) = volunteer(hand, owner)
            hand.report(f"host-{owner}", key, digest=str(key[1]))
    assert hand.state.host("host-2").record.valid >= VALID_IN_A_ROW // 2
    hand.state.host("host-2").record.valid = VALID_IN_A_ROW
    verdicts = []
    for _ in range(100):
        (key,) = volunteer(hand, "2")
        verdicts += hand.report("host-2", key, digest=str(key[1]))
    believed = verdicts.count(ACCEPTED)
    assert 70 <= believed < 100 and verdicts.count(VOTED) == 100 - believed
    assert bag.counts[DONE] >= believed


def test_a_task_on_which_too_many_disagree_has_failed():
    hand = Hand()
    bag = hand.submit(1, [TaskClass(max_failures=1)], quorum=2)
    verdicts = []
    for owner in "123":
        (key,) = volunteer(hand, owner)
        verdicts += hand.report(f"host-{owner}", key, digest=owner)
    assert verdicts == [VOTED, VOTED, FAILED_FOR_GOOD]
    assert bag.counts[FAILED] == 1 and CAUSES[bag.columns.cause[0]] == "disagreed"


def test_a_late_vote_leaves_a_task_where_it_is():
    hand = Hand(lease_s=10.0)
    hand.step(PoolsConfigured(hand.t, [PoolRules("boinc", "boinc", 10, joins_itself=True, deadline_s=50.0)]))
    bag = hand.submit(1, quorum=2)
    (first,) = volunteer(hand, "1")
    hand.wait(60.0)
    assert bag.counts[WAITING] == 1
    (second,) = volunteer(hand, "2")
    assert hand.report("host-1", first, digest="a") == [VOTED]
    assert bag.counts[HELD] == 1
    assert hand.report("host-2", second, digest="a") == [ACCEPTED]


def test_a_silent_volunteer_keeps_its_tasks_until_their_report_deadline():
    hand = Hand(lease_s=1000.0)
    rules = PoolRules("boinc", "boinc", 10, joins_itself=True, deadline_s=5000.0, least_deadline_s=4000.0)
    hand.step(PoolsConfigured(hand.t, [rules]))
    bag = hand.submit(1, quorum=1)
    hand.tasks("worker", 0)
    volunteer(hand, "1")
    hand.wait(4900.0)
    assert hand.state.host("host-1").state == "live" and hand.state.host("worker").state == "gone"
    assert bag.counts[HELD] == 1
    hand.wait(200.0)
    assert bag.counts[WAITING] == 1
    hand.wait(VOLUNTEER_LEASE_S + 100.0)
    assert hand.state.host("host-1").state == "gone"


def test_votes_survive_a_snapshot():
    hand = Hand()
    bag = hand.submit(1, quorum=2)
    (key,) = volunteer(hand, "1")
    hand.report("host-1", key, digest="a")
    hand.state = load(save(hand.state))
    assert hand.state.bags[bag.number].progress.votes == bag.progress.votes
    (key,) = volunteer(hand, "2")
    assert hand.report("host-2", key, digest="a") == [ACCEPTED]


def test_a_result_that_a_validator_refused_costs_its_host_the_standing():
    hand = Hand()
    bag = hand.submit(1, [TaskClass(max_failures=3)], quorum=1)
    hand.tasks("host-1", 0, pool="boinc", owner="1")
    hand.state.host("host-1").record.valid = VALID_IN_A_ROW
    (key,) = volunteer(hand, "1")
    assert hand.report("host-1", key, cause="disagreed") == [RETRIED]
    record = hand.state.host("host-1").record
    assert (record.valid, record.invalid) == (0, 1) and bag.counts[WAITING] == 1


def test_as_many_volunteers_as_must_agree_run_a_task_at_the_same_time():
    hand = Hand()
    bag = hand.submit(1, quorum=2)
    (first,) = volunteer(hand, "1")
    assert volunteer(hand, "1", name="other-host-of-1") == []
    (second,) = volunteer(hand, "2")
    assert second[:2] == first[:2]
    # Two are enough while nobody disagrees.
    assert volunteer(hand, "3") == []
    assert hand.report("host-1", first, digest="a") == [VOTED]
    assert volunteer(hand, "3") == [] and bag.counts[HELD] == 1
    assert hand.report("host-2", second, digest="b") == [VOTED]
    (third,) = volunteer(hand, "3")
    assert hand.report("host-3", third, digest="a") == [ACCEPTED]


def test_a_volunteer_with_a_record_is_not_doubled():
    hand = Hand()
    hand.submit(1, quorum=2)
    hand.tasks("host-1", 0, pool="boinc", owner="1")
    hand.state.host("host-1").record.valid = VALID_IN_A_ROW
    assert len(volunteer(hand, "1")) == 1
    assert volunteer(hand, "2") == []


def test_what_is_unsent_goes_before_a_second_vote():
    hand = Hand()
    hand.submit(2, quorum=2)
    (first,) = volunteer(hand, "1")
    (second,) = volunteer(hand, "2")
    assert first[1] != second[1]


def test_two_hosts_of_one_owner_never_make_a_quorum_even_with_a_late_report():
    """The first is given up at its deadline, so that the second gets the task; then both report the same."""
    hand = Hand(lease_s=10.0)
    hand.step(PoolsConfigured(hand.t, [PoolRules("boinc", "boinc", 10, joins_itself=True, deadline_s=50.0)]))
    bag = hand.submit(1, [TaskClass(max_failures=1)], quorum=2)
    (first,) = volunteer(hand, "1", name="a")
    hand.wait(60.0)
    (second,) = volunteer(hand, "1", name="b")
    assert hand.report("a", first, digest="x") == [VOTED] == hand.report("b", second, digest="x")
    assert bag.counts[DONE] == 0
    # Nor do they count twice among those who disagree: the task has failed with three owners, not with three votes.
    (third,) = volunteer(hand, "2")
    assert hand.report("host-2", third, digest="y") == [VOTED]
    (fourth,) = volunteer(hand, "3")
    assert hand.report("host-3", fourth, digest="x") == [ACCEPTED]


def test_one_owner_with_many_hosts_is_outvoted_by_two():
    hand = Hand()
    bag = hand.submit(1, quorum=2)
    (key,) = volunteer(hand, "1", name="a")
    assert hand.report("a", key, digest="lie") == [VOTED]
    assert all(volunteer(hand, "1", name=name) == [] for name in "bcde")
    for owner, verdict in (("2", VOTED), ("3", ACCEPTED)):
        (key,) = volunteer(hand, owner)
        assert hand.report(f"host-{owner}", key, digest="truth") == [verdict]
    assert bag.counts[DONE] == 1 and hand.state.host("a").record.invalid == 1


def test_a_contradiction_ends_the_belief_in_a_host_with_a_record():
    hand = Hand()
    hand.submit(200, quorum=2)
    hand.tasks("host-1", 0, pool="boinc", owner="1")
    record = hand.state.host("host-1").record
    record.valid = VALID_IN_A_ROW
    while True:
        (key,) = volunteer(hand, "1")
        if hand.report("host-1", key, digest="lie") == [VOTED]:
            break
    for owner in "23":
        while True:
            (other,) = volunteer(hand, owner)
            hand.report(f"host-{owner}", other, digest="truth")
            if other[1] == key[1]:
                break
    assert (record.valid, record.invalid) == (0, 1)
    (key,) = volunteer(hand, "1")
    assert hand.report("host-1", key, digest="truth") == [VOTED]


def test_a_volunteer_has_the_deadline_of_its_pool_while_too_few_came_back_to_learn_from():
    hand, week_s = Hand(), 7 * 86400.0
    hand.step(PoolsConfigured(hand.t, [PoolRules("boinc", "boinc", 10, joins_itself=True, deadline_s=week_s)]))
    bag = hand.submit(5, quorum=2)
    prior = Sketch().best_timeout(prior_s=timeouts.PRIOR_S, floor_s=timeouts.FLOOR_S, cap_s=timeouts.CAP_S)
    hand.state.learned.take(Advice("boinc", bag.rules.name, prior, None))
    (piece,) = hand.ask("host-1", 1, slots=1, pool="boinc", owner="1").assigned
    assert prior.basis == "prior" and piece.deadline == hand.t + week_s


@pytest.mark.parametrize("owner", [[1], {"a": 1}, 5, True])
def test_a_host_of_an_older_log_whose_owner_is_no_text_is_trusted_like_any_worker(owner):
    hand = Hand()
    hand.submit(1, quorum=2)
    (key,) = volunteer(hand, owner, name="worker")
    assert hand.report("worker", key, digest="a") == [ACCEPTED]
    assert save(load(save(hand.state))) == save(hand.state)
