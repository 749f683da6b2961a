"""`explain` answers from the code that decides: its reasons are the ones that keep hosts away."""

from __future__ import annotations

from tests.support.engine.hand import Hand
from windfall.core.events import HostBlocked, JobChanged, JobRules, OverlayDue, PoolAnswered, PoolsConfigured, TaskClass
from windfall.core.explain.jobs import explain
from windfall.core.state.hosts.pools import PoolRules
from windfall.core.supply.overlay import ERRORS_TO_OPEN
from windfall.policy.compiled import compile_policies


def told(hand: Hand, bag, task=None):
    return explain(hand.state, hand.engine.policies, bag, task, hand.t, hand.log)


def test_without_hosts_the_way_to_get_one_is_named():
    hand = Hand()
    waiting = told(hand, hand.submit(1))["waiting"]
    assert waiting["because"] == "no host is connected" and "windfall worker" in waiting["try"][0]


def test_too_little_memory_is_counted_with_the_nearest_miss():
    hand = Hand()
    for name, memory in (("a", 1024), ("b", 4096), ("c", 2048)):
        hand.ask(name, want=0, memory_mb=memory)
    bag = hand.submit(1, [TaskClass(memory_bytes=8 << 30)])
    waiting = told(hand, bag, 0)["waiting"]
    (reason,) = [r for r in waiting["reasons"] if r["what"] == "memory"]
    assert waiting["waits"] and waiting["willing"] == 0
    assert (reason["hosts"], reason["missing"], reason["example"]) == (3, 4096.0, "b")
    assert any("4096M" in text for text in waiting["try"])


def test_tasks_that_a_host_holds_beyond_its_slots_are_said_to_wait():
    hand = Hand()
    bag = hand.submit(10)
    assert len(hand.tasks("a", want=5, slots=2)) == 5
    assert told(hand, bag)["waiting"]["because"] == "2 tasks run, 8 wait: all slots are busy"


def test_each_clause_of_a_policy_says_how_many_hosts_it_excludes():
    hand = Hand(compile_policies)
    hand.ask("a", want=0, memory_mb=4096, tags={"site": "haifa"})
    hand.ask("b", want=0, memory_mb=16384, tags={"site": "madison"})
    bag = hand.submit(1, policies={"JobRequirements": 'Host.Memory >= 8192 && Host.site == "haifa"'})
    reasons = {r["clause"]: r["hosts"] for r in told(hand, bag)["waiting"]["reasons"]}
    assert reasons == {"Host.Memory >= 8192": 1, 'Host.site == "haifa"': 1}
    assert hand.tasks("a") == [] and hand.tasks("b") == []


def test_a_blocked_host_and_a_paused_job_are_named():
    hand = Hand()
    hand.ask("a", want=0)
    bag = hand.submit(1)
    hand.step(HostBlocked(hand.t, "a", "bad disk"))
    assert "bad disk" in told(hand, bag)["waiting"]["reasons"][0]["detail"]
    hand.step(JobChanged(hand.t, bag.number, JobRules("bag", paused=True)))
    assert told(hand, bag)["waiting"]["because"] == "the job is paused"


def test_a_job_behind_a_higher_ranked_one_is_told_so():
    hand = Hand()
    hand.submit(5, name="urgent", priority=5.0)
    bag = hand.submit(5)
    hand.ask("a", want=0)
    (reason,) = told(hand, bag)["waiting"]["reasons"]
    assert reason["what"] == "rank" and "urgent" in reason["detail"]


def test_a_host_that_explain_calls_willing_is_given_the_task_when_it_asks():
    hand = Hand()
    bag = hand.submit(1)
    hand.ask("a", want=0)
    assert told(hand, bag, 0)["waiting"]["willing"] == 1
    assert hand.tasks("a") == [(1, 0, 1)]


def test_the_story_of_a_task_names_every_attempt_and_why_it_was_made():
    hand = Hand(lease_s=10)
    bag = hand.submit(1)
    (first,) = hand.tasks("a")
    hand.report("a", first, cause="exit")
    (second,) = hand.tasks("b")
    hand.wait(30)
    (third,) = hand.tasks("c")
    hand.report("c", third)
    story = told(hand, bag, 0)["story"]
    assert [(step["what"], step.get("host")) for step in story] == [
        ("sent", "a"), ("retried", "a"), ("sent", "b"), ("given up", None), ("sent", "c"), ("accepted", "c"),
    ]  # fmt: skip
    assert story[0]["why"] == "first attempt" and story[3]["why"] == "its host fell silent"
    assert second[2] == 2


def test_a_pool_that_will_give_clients_keeps_a_job_from_being_stuck_and_one_that_fails_does_not():
    hand = Hand(compile_policies)
    hand.step(PoolsConfigured(hand.t, [PoolRules("p", limit=2), PoolRules("q", limit=2)]))
    bag = hand.submit(1, policies={"GridPolicy": 'Pool.Name == "p"'})
    waiting = told(hand, bag)["waiting"]
    assert not waiting["stuck"]
    assert waiting["pools"] == [
        {"pool": "p", "what": "a worker is asked for"},
        {"pool": "q", "what": "GridPolicy does not admit it"},
    ]
    for _ in range(ERRORS_TO_OPEN):
        hand.step(OverlayDue(hand.t))
        hand.step(PoolAnswered(hand.t, "p", 1, "quota exceeded"))
    waiting = told(hand, bag)["waiting"]
    assert waiting["stuck"] and "quota exceeded" in waiting["pools"][0]["what"]


def test_a_host_that_merely_is_busy_leaves_no_job_stuck():
    hand = Hand()
    hand.submit(1)
    hand.tasks("a")
    waiting = told(hand, hand.submit(1))["waiting"]
    assert waiting["waits"] and not waiting["stuck"] and waiting["reasons"][0]["what"] == "busy"


def test_a_task_that_is_due_for_the_fail_over_pool_says_so():
    hand = Hand(failover_pool="home")
    bag = hand.submit(1, [TaskClass(max_failures=5)])
    for host in ("a", "b"):
        (key,) = hand.tasks(host, pool="grid")
        hand.report(host, key, cause="exit")
    waiting = told(hand, bag, 0)["waiting"]
    assert {reason["what"] for reason in waiting["reasons"]} == {"failover"} and waiting["stuck"]
    assert hand.tasks("a") == hand.tasks("b") == []


def test_the_nearest_miss_counts_only_hosts_that_lack_nothing_else():
    hand = Hand(compile_policies)
    hand.ask("a", want=0, memory_mb=7000, tags={"site": "rio"})
    hand.ask("b", want=0, memory_mb=6000, tags={"site": "haifa"})
    bag = hand.submit(1, policies={"JobRequirements": 'Host.Memory >= 8192 && Host.site == "haifa"'})
    assert told(hand, bag)["waiting"]["nearest"] == "1 host fails 'Host.Memory >= 8192' alone, b by 2192"


def test_what_to_try_is_the_condition_without_the_clause_that_fails():
    hand = Hand(compile_policies)
    hand.ask("a", want=0, memory_mb=4096, tags={"site": "rio"})
    bag = hand.submit(1, policies={"JobRequirements": 'Host.Memory >= 8192 &&  (Host.site == "rio" || BOT.Tail)'})
    (tried,) = told(hand, bag)["waiting"]["try"]
    assert tried == "windfall change 1 --require '(Host.site == \"rio\" || BOT.Tail)'"


def test_two_clauses_that_fail_on_one_host_are_advised_against_together():
    hand = Hand(compile_policies)
    hand.ask("a", want=0, memory_mb=4096, tags={"site": "rio"})
    condition = 'Host.Memory >= 8192 && Host.site == "haifa" && Host.Slots >= 1'
    bag = hand.submit(1, policies={"JobRequirements": condition})
    waiting = told(hand, bag)["waiting"]
    assert {reason["clause"] for reason in waiting["reasons"]} == {"Host.Memory >= 8192", 'Host.site == "haifa"'}
    assert waiting["try"] == ["windfall change 1 --require 'Host.Slots >= 1'"]


def test_a_clause_that_alone_keeps_some_host_away_is_advised_against_alone():
    hand = Hand(compile_policies)
    hand.ask("a", want=0, memory_mb=4096, tags={"site": "rio"})
    hand.ask("b", want=0, memory_mb=16384, tags={"site": "rio"})
    bag = hand.submit(1, policies={"JobRequirements": 'Host.Memory >= 8192 && Host.site == "haifa"'})
    assert "windfall change 1 --require 'Host.Memory >= 8192'" in told(hand, bag)["waiting"]["try"]


def test_too_little_memory_and_a_failing_clause_are_advised_against_together():
    hand = Hand(compile_policies)
    hand.ask("a", want=0, memory_mb=4096, tags={"site": "rio"})
    bag = hand.submit(1, [TaskClass(memory_bytes=8 << 30)], policies={"JobRequirements": 'Host.site == "haifa"'})
    waiting = told(hand, bag, 0)["waiting"]
    assert {reason["what"] for reason in waiting["reasons"]} == {"memory", "policy"}
    assert waiting["try"] == ["windfall change 1 --memory 4096M --require ''"]
