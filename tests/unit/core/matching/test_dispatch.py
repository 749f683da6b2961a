"""Algorithm 1: who gets what, in which order, and how much of it."""

from __future__ import annotations

from tests.support.engine.hand import Hand
from windfall.core.engine import Engine
from windfall.core.events import (
    HostAsked,
    JobCancelled,
    JobChanged,
    JobRetried,
    JobRules,
    JobSealed,
    JobSubmitted,
    Result,
    ResultsReported,
    TaskClass,
    TasksAdded,
)
from windfall.core.matching.policy import DefaultPolicy, Verdict
from windfall.core.state.state import State
from windfall.policy.compiled import compile_policies


class Table(DefaultPolicy):
    """A policy by its numbers: Rank and Concurrency as plain texts, JobRequirements as a host's pool."""

    def match(self, host, bag, queue, pool, now, job=None, seen=None):
        texts = self.expressions
        wanted = texts.get("JobRequirements")
        return Verdict(
            wanted is None or host["Pool"] == wanted, float(texts.get("Rank", 0)), int(texts.get("Concurrency", 99))
        )


def test_fifty_ranked_bags_of_many_tasks_run_strictly_in_order():
    hand = Hand(Table)
    bags = [hand.submit(24, policies={"Rank": str(rank)}) for rank in range(1, 51)]
    order = []
    while keys := hand.tasks("h", want=7, slots=7):
        order += [key[0] for key in keys]
        hand.report("h", *keys)
    expected = [bag.number for bag in reversed(bags) for _ in range(24)]
    assert order == expected


def test_bags_of_equal_rank_share_a_host_evenly():
    hand = Hand()
    first, second = hand.submit(100), hand.submit(100)
    jobs = [key[0] for key in hand.tasks("h", want=10, slots=10)]
    assert jobs.count(first.number) == jobs.count(second.number) == 5


def test_the_highest_ranked_bags_concurrency_caps_the_lower_ranked_ones():
    hand = Hand(Table)
    hand.submit(2, policies={"Rank": "9", "Concurrency": "3"})
    hand.submit(50, policies={"Rank": "1", "Concurrency": "40"})
    assert len(hand.tasks("h", want=20, slots=20)) == 3


def test_what_runs_already_counts_towards_concurrency():
    hand = Hand(Table)
    hand.submit(50, policies={"Concurrency": "3"})
    assert len(hand.tasks("h", want=2, slots=9)) == 2
    assert len(hand.tasks("h", want=9, slots=9)) == 1
    assert hand.tasks("h", want=9, slots=9) == []


def test_a_host_that_no_bag_wants_is_turned_away():
    hand = Hand(Table)
    hand.submit(5, policies={"JobRequirements": "cloud"})
    assert hand.tasks("h", want=5, slots=5, pool="campus") == []
    assert len(hand.tasks("c", want=5, slots=5, pool="cloud")) == 5


def test_a_changed_policy_takes_effect_at_the_next_ask():
    hand = Hand(Table)
    bag = hand.submit(5, policies={"JobRequirements": "cloud"})
    assert hand.tasks("h", pool="campus") == []
    hand.step(JobChanged(hand.t, bag.number, JobRules("bag", policies={"JobRequirements": "campus"})))
    assert len(hand.tasks("h", pool="campus")) == 1


def test_the_last_tasks_spread_over_the_hosts_instead_of_piling_up_on_the_first():
    hand = Hand()
    hand.ask("a", want=0, slots=2)
    hand.ask("b", want=0, slots=2)
    hand.submit(8)
    assert len(hand.tasks("a", want=100, slots=2)) <= 4
    assert len(hand.tasks("b", want=100, slots=2)) >= 2


def test_a_task_that_needs_more_than_a_host_has_is_not_sent_there():
    hand = Hand()
    hand.submit(3, [TaskClass(cpus=4.0, memory_bytes=8 << 30)])
    assert hand.tasks("few-cores", want=4, slots=2, memory_mb=16384) == []
    assert hand.tasks("little-memory", want=4, slots=8, memory_mb=4096) == []
    assert len(hand.tasks("right", want=8, slots=8, memory_mb=10000)) == 1, "two would need 16 GB"


def test_memory_that_grows_by_attempt_moves_a_task_to_a_larger_host():
    hand = Hand()
    hand.submit(1, [TaskClass(memory_bytes=2 << 30, memory_per_attempt=True)])
    (key,) = hand.tasks("small", memory_mb=3000)
    hand.report("small", key, cause="oom")
    hand.ask("large", want=0, memory_mb=5000)
    assert hand.tasks("small") == []
    assert hand.tasks("large") == [(1, 0, 2)]


def test_a_failed_task_goes_rather_to_another_host():
    hand = Hand()
    hand.ask("b", want=0)
    hand.submit(1)
    (key,) = hand.tasks("a")
    hand.report("a", key, cause="exit")
    assert hand.tasks("a") == []
    assert hand.tasks("b") == [(1, 0, 2)]


def test_a_failed_task_does_not_wait_for_a_host_that_is_live_by_its_lease_alone():
    hand = Hand(lease_s=60)
    hand.ask("dead", want=0)
    hand.submit(1)
    hand.wait(40)
    (key,) = hand.tasks("a")
    hand.report("a", key, cause="exit")
    assert hand.tasks("a") == [(1, 0, 2)]


def test_a_failed_task_waits_only_a_little_for_another_host():
    hand = Hand()
    hand.ask("other", want=0)
    hand.submit(1)
    (key,) = hand.tasks("a")
    hand.report("a", key, cause="exit")
    assert hand.tasks("a") == []
    hand.wait(6)
    assert hand.tasks("a") == [(1, 0, 2)]


def test_a_task_that_failed_on_every_host_does_not_wait_for_another_one():
    hand = Hand()
    hand.ask("b", want=0)
    hand.submit(1)
    for host in ("a", "b"):
        hand.report(host, *hand.tasks(host), cause="exit")
    assert hand.tasks("b") == [(1, 0, 3)]


def test_a_lone_host_gets_a_failed_task_again():
    hand = Hand()
    hand.submit(1)
    (key,) = hand.tasks("a")
    hand.report("a", key, cause="exit")
    assert hand.tasks("a") == [(1, 0, 2)]


def test_tasks_that_fail_repeatedly_go_to_the_fail_over_pool():
    hand = Hand(failover_pool="home")
    hand.ask("safe", want=0, pool="home")
    hand.submit(1, [TaskClass(max_failures=5)])
    for host in ("a", "b"):
        (key,) = hand.tasks(host, pool="grid")
        hand.report(host, key, cause="exit")
    assert hand.tasks("c", pool="grid") == []
    assert hand.tasks("safe") == [(1, 0, 3)]


def test_a_repeated_exchange_is_answered_from_memory_and_gives_nothing_new():
    hand = Hand()
    hand.submit(5)
    first = hand.tasks("a", want=2, slots=2)
    hand._n["a"] -= 1
    again = hand.ask("a", want=2, slots=2)
    host = hand.state.host("a")
    assert again.repeat and again.assigned == []
    assert [(1, host.session.assigned[0].first + i, 1) for i in range(2)] == first


def test_an_answer_hands_out_nothing_of_a_job_that_stops_with_it():
    """A new boot takes a task with it for good, which stops the job: its other tasks are not for this answer."""
    hand = Hand()
    bag = hand.submit(2, [TaskClass(max_losses=1)], max_failed_tasks=0)
    hand.tasks("a")
    assert hand.ask("a", boot="c").assigned == []
    assert bag.stopped


def test_fifty_bags_of_1200_tasks_with_classad_ranks_run_strictly_in_order_on_several_hosts():
    """GridBot's experiment on priorities, at its size."""
    engine, state = Engine(compile_policies), State()
    for number in range(50):
        engine.step(
            state, JobSubmitted(0.0, JobRules(f"b{number}", policies={"Rank": str(50 - number)}), [TaskClass()])
        )
        engine.step(state, TasksAdded(0.0, number + 1, 1200))
        engine.step(state, JobSealed(0.0, number + 1))
    order: list[int] = []
    for exchange in range(1, 10_000):
        t, host = float(exchange), f"h{exchange % 3}"
        ask = HostAsked(t, host, "b", (exchange + 2) // 3, 100, 100, {} if exchange <= 3 else None)
        pieces = engine.step(state, ask).decided.assigned
        if not pieces:
            break
        order += [piece.job for piece in pieces for _ in range(piece.count)]
        done = [Result(p.job, p.first + i, p.attempt, 0, 0, t, t) for p in pieces for i in range(p.count)]
        engine.step(state, ResultsReported(t, host, done))
    assert order == [job for job in range(1, 51) for _ in range(1200)]


def test_a_retry_that_finds_nothing_leaves_a_cancelled_job_cancelled():
    hand = Hand()
    bag = hand.submit(2)
    hand.step(JobCancelled(hand.t, bag.number))
    hand.step(JobRetried(hand.t, bag.number))
    assert bag.stopped and bag.state == "cancelled"


def test_a_task_that_is_named_twice_in_a_retry_is_counted_once():
    hand = Hand()
    bag = hand.submit(1)
    hand.step(JobCancelled(hand.t, bag.number, [0]))
    retried = hand.step(JobRetried(hand.t, bag.number, [0, 0, 0], cancelled=True)).decided
    assert retried.tasks == [0] and bag.counts == [1, 0, 0, 0, 0]
    hand.report("h", *hand.tasks("h"))
    assert bag.state == "done"


def test_what_a_steady_policy_said_is_asked_again_when_ad_rules_or_phase_have_changed():
    hand = Hand(compile_policies)
    texts = {"JobRequirements": 'Host.Pool == "a" && !BOT.Tail', "Concurrency": "9", "Deadline": "Host.Speed * 100"}
    bag = hand.submit(10, policies=texts)
    deadline_of = lambda answer: answer.assigned[0].deadline - hand.t  # noqa: E731
    assert deadline_of(hand.ask("h", slots=3, pool="a", speed=1.0)) == 100.0
    assert deadline_of(hand.ask("h", slots=3)) == 100.0
    assert deadline_of(hand.ask("h", slots=3, pool="a", speed=2.0)) == 200.0
    assert not hand.ask("h", slots=3, pool="b").assigned
    assert deadline_of(hand.ask("h", slots=3, pool="a", speed=2.0)) == 200.0
    hand.step(JobChanged(hand.t, bag.number, JobRules("bag", policies=texts | {"Deadline": "50"})))
    assert deadline_of(hand.ask("h", slots=3)) == 50.0
    assert not bag.tail
    assert hand.ask("h", want=2, slots=3).tails == ((bag.number, True),)
    assert not hand.ask("h", slots=9).assigned, "its requirements do not hold in the tail"


def test_a_decision_that_was_never_applied_changes_no_later_one():
    hand = Hand(compile_policies)
    hand.submit(10, policies={"JobRequirements": 'Host.Pool == "a"'})
    asked = [HostAsked(hand.t, "h", "b", 1, 1, 1, {"pool": pool}) for pool in ("a", "b", "a")]
    answers = [hand.engine.decide(hand.state, event).decided.assigned for event in asked]
    assert [bool(assigned) for assigned in answers] == [True, False, True]


def test_hosts_that_policies_tell_the_same_share_one_list_of_bags():
    hand = Hand(compile_policies)
    hand.submit(100, policies={"Concurrency": 'Host.Pool == "few" ? 1 : 2'})
    given = {name: len(hand.tasks(name, want=3, slots=3, pool=pool)) for name, pool in
             (("a", "few"), ("b", "few"), ("c", "many"))}  # fmt: skip
    assert given == {"a": 1, "b": 1, "c": 2}
    ranking = hand.engine.policies.ranking(hand.state)
    a, b, c = (ranking.known[hand.state.host(name).number] for name in "abc")
    assert a.groups is b.groups and a.groups is not c.groups
