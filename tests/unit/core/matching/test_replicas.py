"""Algorithm 2: expired deadlines, speculative replicas, the first result wins."""

from __future__ import annotations

from itertools import accumulate, pairwise
from math import ceil

from hypothesis import given
from hypothesis.strategies import floats, integers, lists

from tests.support.engine.hand import Hand
from windfall.core.decisions import ACCEPTED, STALE, WASTE
from windfall.core.events import TaskClass, TimerFired
from windfall.core.matching.policy import DefaultPolicy
from windfall.core.matching.replicas import LOOKED_AT, LOOKED_AT_IN_ALL, slow_after_s
from windfall.core.matching.tail import TailRule, in_tail
from windfall.core.matching.turnarounds import cell_of, quantile_s
from windfall.core.state.jobs.bags import ENDED_KEPT
from windfall.core.state.jobs.columns import DONE
from windfall.core.state.snapshot import load, save
from windfall.core.wishes import wake_at
from windfall.policy.compiled import compile_policies


class Eager(DefaultPolicy):
    def match_replica(self, host, job, bag, queue, pool, now):
        return bag["Tail"] and job["NumberOfReplicas"] < 3

    def deadline_s(self, host, job, bag, pool, now, queue=None):
        return 50.0 if "Deadline" in self.expressions else None


REPLICATE = {"ReplicationRequirements": "yes"}
REPLICATE_WITH = {"ReplicationRequirements": "Job.NumberOfReplicas < 3"}


def test_no_replica_while_unsent_tasks_remain():
    hand = Hand(Eager)
    hand.submit(10, policies=REPLICATE)
    hand.tasks("a", want=4, slots=4)
    keys = hand.tasks("b", want=4, slots=4)
    assert {key[2] for key in keys} == {1}


def test_in_the_tail_a_running_task_is_replicated_on_another_host_but_never_twice_on_one():
    hand = Hand(Eager)
    hand.submit(1, policies=REPLICATE)
    assert hand.tasks("a", want=2, slots=2) == [(1, 0, 1)]
    assert hand.tasks("a", want=2, slots=2) == []
    assert hand.tasks("b", want=2, slots=2) == [(1, 0, 2)]


def test_tasks_with_the_fewest_replicas_come_first_and_the_cap_holds():
    hand = Hand(Eager, max_replicas=3)
    hand.submit(2, policies=REPLICATE)
    hand.tasks("a", want=2, slots=2)
    assert hand.tasks("b") == [(1, 0, 2)]
    assert hand.tasks("c") == [(1, 1, 2)]
    assert len(hand.tasks("d", want=9, slots=9)) == 2
    assert hand.tasks("e", want=9, slots=9) == []


def test_a_replica_goes_before_unsent_tasks_of_a_lower_rank_and_after_those_of_its_own():
    for priority, expected in ((1.0, (1, 0, 2)), (2.0, (2, 0, 1)), (3.0, (2, 0, 1))):
        hand = Hand(Eager)
        hand.submit(1, priority=2.0, policies=REPLICATE)
        assert hand.tasks("a") == [(1, 0, 1)]
        hand.submit(50, priority=priority)
        assert hand.tasks("b") == [expected]


def test_what_a_host_wants_beyond_the_replicas_of_a_high_rank_comes_from_the_next_rank():
    hand = Hand(Eager)
    hand.submit(2, priority=2.0, policies=REPLICATE)
    hand.tasks("a", want=2, slots=2)
    hand.submit(50, priority=1.0)
    keys = hand.tasks("b", want=4, slots=4)
    assert keys[:2] == [(1, 0, 2), (1, 1, 2)] and [key[0] for key in keys[2:]] == [2, 2]


def test_the_rank_of_replicas_may_depend_on_the_host():
    policies = REPLICATE_WITH | {"Rank": 'Host.Pool == "near" ? 9 : 0'}
    for pool, job in (("near", 1), ("far", 2)):
        hand = Hand(compile_policies)
        hand.submit(1, policies=policies)
        hand.tasks("a")
        hand.submit(50, priority=5.0)
        assert hand.tasks("b", pool=pool)[0][0] == job


def test_concurrency_memory_and_slots_hold_for_replicas():
    wide = TaskClass(cpus=2.0, memory_bytes=1 << 30)
    hand = Hand(compile_policies)
    hand.submit(8, [wide], policies=REPLICATE_WITH)
    hand.tasks("a", want=16, slots=16)
    assert len(hand.tasks("b", want=5, slots=5)) == 2
    assert len(hand.tasks("c", want=16, slots=16, memory_mb=3072)) == 3
    hand = Hand(compile_policies)
    hand.submit(8, [wide], policies=REPLICATE_WITH | {"Concurrency": 'Host.Name == "b" ? 1 : 99'})
    hand.tasks("a", want=16, slots=16)
    assert len(hand.tasks("b", want=16, slots=16, name="b")) == 1


def test_requirements_that_speak_of_the_replicas_are_asked_of_the_task_itself():
    hand = Hand(compile_policies)
    first = 'Job.NumberOfReplicas == 0 && Host.Pool == "x" || Job.NumberOfReplicas > 0 && Host.Pool == "y"'
    hand.submit(1, policies=REPLICATE_WITH | {"JobRequirements": first})
    assert hand.tasks("b", pool="y") == [] and hand.tasks("a", pool="x") == [(1, 0, 1)]
    assert hand.tasks("c", pool="x") == [] and hand.tasks("b") == [(1, 0, 2)]


def test_the_first_result_wins_and_the_others_are_cancelled_at_their_next_exchange():
    hand = Hand(Eager)
    bag = hand.submit(1, policies=REPLICATE)
    (slow,) = hand.tasks("a")
    (quick,) = hand.tasks("b")
    assert hand.report("b", quick) == [ACCEPTED]
    assert hand.ask("a", want=0).cancel == [slow]
    assert hand.report("a", slow) == [WASTE]
    assert bag.counts[DONE] == 1 and bag.tally.waste == 1


def test_an_expired_deadline_puts_the_task_back_and_a_late_result_is_still_welcome():
    hand = Hand(Eager)
    bag = hand.submit(1, policies={"Deadline": "50"})
    (silent,) = hand.tasks("a")
    hand.wait(49)
    assert bag.waiting == 0
    hand.ask("a", want=0)
    hand.wait(2)
    assert bag.waiting == 1 and bag.columns.losses[0] == 1
    assert hand.report("a", silent) == [ACCEPTED]
    assert bag.state == "done"


def test_a_late_result_of_a_given_up_attempt_cancels_its_replacement():
    hand = Hand(Eager)
    hand.submit(1, policies={"Deadline": "50"})
    (silent,) = hand.tasks("a")
    hand.wait(51)
    (replacement,) = hand.tasks("b")
    assert hand.report("a", silent) == [ACCEPTED]
    assert hand.ask("b", want=0).cancel == [replacement]


def test_a_late_failure_of_a_given_up_attempt_changes_nothing():
    hand = Hand(Eager)
    bag = hand.submit(1, policies={"Deadline": "50"})
    (silent,) = hand.tasks("a")
    hand.wait(51)
    assert hand.report("a", silent, cause="exit") == [STALE]
    assert bag.columns.failures[0] == 0 and bag.waiting == 1


def test_a_bag_without_a_policy_replicates_only_what_is_slow_by_its_own_measure():
    hand = Hand()
    hand.submit(11, [TaskClass()])
    keys = hand.tasks("a", want=10, slots=20)
    hand.wait(10)
    hand.report("a", *keys, run_s=10)
    (straggler,) = hand.tasks("a")
    hand.wait(10)
    assert hand.tasks("b") == []
    hand.wait(10)
    assert hand.tasks("b") == [(1, straggler[1], 2)]


@given(unsent=lists(integers(0, 5_000)), enter=integers(0, 1_500), gap=integers(0, 1_500))
def test_the_tail_changes_at_most_once_per_crossing_of_the_gap(unsent, enter, gap):
    rule = TailRule(enter, leave=enter + gap)
    phases = list(accumulate(unsent, lambda tail, n: in_tail(tail, n, rule), initial=False))
    crossings, side = 0, False
    for n in unsent:
        now = True if n <= enter else False if n > enter + gap else side
        crossings += now != side
        side = now
    assert sum(a != b for a, b in pairwise(phases)) <= crossings


def test_a_bag_without_a_leave_threshold_never_leaves_its_tail():
    assert in_tail(True, unsent=10**9, rule=TailRule(enter=1_500))


def test_the_tail_is_entered_and_left_in_recorded_answers_as_the_operator_has_set_it():
    hand = Hand(tail_enter=1.0, tail_leave=2.0)
    bag = hand.submit(12, [TaskClass(max_failures=9)])
    keys = hand.tasks("a", want=6, slots=4)
    assert not bag.tail, "six wait for four slots"
    keys += hand.tasks("a", want=3, slots=4)
    assert hand.log[-1].decided.tails == ((bag.number, True),) and bag.tail, "three wait for four slots"
    hand.report("a", *keys, cause="exit")
    hand.ask("a", want=1, slots=4)
    assert hand.log[-1].decided.tails == ((bag.number, False),) and not bag.tail, "eleven wait for four slots"


def test_a_deadline_of_an_ended_attempt_writes_no_record():
    hand = Hand(Eager)
    hand.submit(3, policies={"Deadline": "50"})
    first, second = hand.tasks("a", want=2, slots=2)
    hand.wait(10.0)
    (third,) = hand.tasks("b")
    hand.report("a", first, second)
    saved = load(save(hand.state))
    assert [entry[1:] for entry in saved.bags.deadlines] == [third], "it is not saved either"
    records = len(hand.log)
    hand.wait(45.0)
    assert len(hand.log) == records and [entry[1:] for entry in hand.state.bags.deadlines] == [third]


def test_deadlines_of_ended_attempts_are_forgotten_long_before_they_come():
    hand = Hand(Eager)
    hand.submit(3 * ENDED_KEPT, policies={"Deadline": "50"})
    most = 0
    for _ in range(3 * ENDED_KEPT):
        hand.report("a", *hand.tasks("a"))
        most = max(most, len(hand.state.bags.deadlines))
    assert most <= ENDED_KEPT


def test_silence_is_late_enough_at_the_very_time_that_was_asked_for():
    """Sums that round differently must not wake the engine for ever: 0.7 + 0.1 is not 0.8."""
    for t in (0.7, 1000.7, 2028.351833, 1e6 / 3):
        hand = Hand(lease_s=0.1)
        hand.t = t
        hand.ask("a")
        hand.t = wake_at(hand.state)
        hand.step(TimerFired(hand.t))
        assert wake_at(hand.state) > hand.t


def test_a_replica_gets_as_long_as_the_first_attempt_before_there_is_another():
    hand = Hand()
    hand.submit(11, [TaskClass()])
    keys = hand.tasks("a", want=10, slots=20)
    hand.wait(10)
    hand.report("a", *keys, run_s=10)
    (straggler,) = hand.tasks("a")
    hand.wait(20)
    assert hand.tasks("b") == [(1, straggler[1], 2)]
    assert hand.tasks("c") == []
    hand.wait(20)
    assert hand.tasks("c") == [(1, straggler[1], 3)]


def test_the_longer_the_bag_the_sooner_its_tail_may_be_replicated():
    """The budget is a share of the bag: a long bag can afford to run its whole tail twice, a short one cannot."""
    bags = []
    for tasks in (40, 4000):
        hand = Hand()
        bag = hand.submit(tasks)
        hand.ask("a", want=0, slots=100)
        bag.tally.turnarounds = {cell_of(float(seconds), 16): 1 for seconds in range(10, 20)}
        bag.counts[DONE] = 10
        bags.append(slow_after_s(hand.state, bag))
    assert bags[0] > bags[1] >= 14.0


@given(lists(floats(0.001, 1e7), min_size=1, max_size=200), floats(0.01, 1.0))
def test_a_quantile_of_turnarounds_lies_at_most_a_cell_above_the_true_one(times, share):
    cells: dict[int, int] = {}
    for seconds in times:
        cells[cell_of(seconds, 16)] = cells.get(cell_of(seconds, 16), 0) + 1
    true = sorted(times)[max(0, ceil(share * len(times) - 1e-9) - 1)]
    assert true <= quantile_s(cells, share, 16) <= true * (1 + 1 / 15)


def test_a_bag_whose_policy_rules_replicas_out_is_not_asked_for_any():
    for text, asked in (("false", []), ("1 > 2", []), ("Job.NumberOfReplicas < 2", [1])):
        hand = Hand(compile_policies)
        hand.submit(1, policies={"ReplicationRequirements": text})
        hand.tasks("a")
        groups = list(hand.engine.policies.ranking(hand.state).by_rank(({}, {}, {}), hand.t, {}))
        assert [bag.number for group in groups for bag, *_ in group] == asked


def test_however_many_bags_end_at_once_an_ask_looks_at_a_bounded_number_of_tasks():
    hand = Hand(compile_policies)
    for _ in range(LOOKED_AT_IN_ALL // LOOKED_AT + 2):
        hand.submit(2 * LOOKED_AT, policies={"ReplicationRequirements": "Now > 1e9"})
    hand.tasks("a", want=10_000, slots=10_000)
    looked = []
    policy = hand.engine.policies.of({"ReplicationRequirements": "Now > 1e9"})
    policy.match_replica = lambda *ads: looked.append(ads)
    assert hand.tasks("b", want=5, slots=5) == [] and len(looked) == LOOKED_AT_IN_ALL


QUEUED = {"replication": "queued", "policies": {"ReplicationRequirements": "true", "Deadline": "100000"}}


def test_a_queued_replica_waits_for_its_cycle_and_for_another_host():
    hand = Hand(compile_policies, replication_cycle_s=60.0)
    bag = hand.submit(1, **QUEUED)
    bag.queues.replicated_t = hand.t
    assert hand.tasks("a", want=2, slots=2) == [(1, 0, 1)]
    assert hand.tasks("b") == []
    hand.wait(60)
    assert bag.queues.replicas == {0: 1}
    assert hand.tasks("a", want=1, slots=2) == []
    assert hand.tasks("b") == [(1, 0, 2)]
    assert bag.queues.replicas == {}


def test_a_queued_replica_leaves_the_queue_with_the_result_of_its_task_or_when_the_task_waits_again():
    for cause in ("done", "exit"):
        hand = Hand(compile_policies, replication_cycle_s=60.0)
        bag = hand.submit(2, **QUEUED)
        first, _ = hand.tasks("a", want=2, slots=2)
        hand.wait(1)
        assert bag.queues.replicas == {0: 1, 1: 1}
        hand.report("a", first, cause=cause)
        assert bag.queues.replicas == {1: 1}


def test_job_requirements_choose_the_host_of_a_queued_replica_and_its_own_cap_bounds_it():
    hand = Hand(compile_policies, replication_cycle_s=60.0)
    wanted = 'Job.NumberOfReplicas == 0 || Host.Pool == "good"'
    bag = hand.submit(1, max_replicas=2, replication="queued",
                      policies=QUEUED["policies"] | {"JobRequirements": wanted})  # fmt: skip
    hand.tasks("a")
    hand.wait(1)
    assert hand.tasks("b", pool="bad") == []
    assert hand.tasks("c", pool="good") == [(1, 0, 2)]
    hand.wait(600)
    assert bag.queues.replicas == {}


def test_memory_of_a_replica_counts_for_what_the_host_gets_after_it():
    hand = Hand(compile_policies)
    gib = 1 << 30
    hand.submit(1, [TaskClass(memory_bytes=gib)], priority=1.0, policies={"ReplicationRequirements": "true"})
    hand.tasks("a", want=4, slots=4)
    hand.submit(1, [TaskClass(memory_bytes=gib // 4)])
    assert hand.tasks("b", want=4, slots=4, memory_mb=1024) == [(1, 0, 2)]


def test_bags_with_unsent_tasks_are_not_ranked_anew_when_their_only_attempt_ends():
    hand = Hand()
    bag = hand.submit(2)
    (key,) = hand.tasks("a")
    assert bag.number in hand.state.bags.tails
    ranked = hand.engine.policies.ranking(hand.state)
    hand.report("a", key)
    assert bag.number not in hand.state.bags.tails
    assert hand.engine.policies.ranking(hand.state) is ranked
    (key,) = hand.tasks("a")
    hand.report("a", key)
    assert hand.engine.policies.ranking(hand.state) is not ranked
