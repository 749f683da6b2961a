"""Hosts that wait for work are asked to ask again when there may be some, and no others are."""

from __future__ import annotations

from math import inf

from tests.support.engine.hand import Hand
from windfall.core.events import TimerFired
from windfall.core.idle_hosts import FEW_TAILS, HOSTS_LOOKED_AT, PAUSE_S, IdleHosts
from windfall.core.matching.matcher import AVOID_S
from windfall.core.matching.replicas import slow_after_s
from windfall.policy.compiled import compile_policies


class Waiters(Hand):
    """A hand that also plays the driver: hosts that get nothing wait, and ask when they are named."""

    def __init__(self, **settings):
        super().__init__(compile_policies, **settings)
        self.idle = IdleHosts(self.engine.policies)
        self.asks = 0

    def step(self, event):
        record = super().step(event)
        if hasattr(self, "idle"):
            self.idle.heed(self.state, record)
        return record

    def wait_for_work(self, *hosts, **more):
        for host in hosts:
            assert self.tasks(host, **more) == []
            self.idle.begin(host, self.state.seq, self.t)

    def woken(self):
        """What the hosts that are named get, until no more are named."""
        found = {}
        while names := self.idle.look(self.state, self.t)[0]:
            for name in names:
                self.asks += 1
                found[name] = self.tasks(name)
                if not found[name]:
                    self.idle.begin(name, self.state.seq, self.t)
        return found

    def look_t(self):
        return self.idle.look(self.state, self.t)[1]


def in_its_tail(tasks=6, **rules):
    """Host `a` has done all tasks but the last, which it has run for no time yet."""
    hand = Waiters()
    bag = hand.submit(tasks, **rules)
    for _ in range(tasks - 1):
        (key,) = hand.tasks("a")
        hand.t += 10.0
        hand.report("a", key)
    ((_, task, _),) = hand.tasks("a")
    return hand, bag, task


def test_as_many_hosts_are_named_as_there_are_tasks_the_longest_waiting_first():
    hand = Waiters()
    hand.wait_for_work("a", "b", "c")
    assert hand.woken() == {}
    hand.submit(2)
    assert list(hand.woken()) == ["a", "b"]
    assert list(hand.idle.since) == ["c"]


def test_where_the_first_host_may_not_run_the_task_the_others_are_asked_each_once():
    hand = Waiters()
    hand.wait_for_work("a", "b", "c", pool="here")
    hand.wait_for_work("d", pool="there")
    hand.submit(1, policies={"JobRequirements": 'Host.Pool == "there"'})
    assert hand.woken() == {"a": [], "b": [], "c": [], "d": [(1, 0, 1)]}


def test_hosts_that_no_task_suits_are_asked_once_more_and_not_for_ever():
    hand = Waiters()
    hand.wait_for_work("a", "b", pool="here")
    hand.submit(1, policies={"JobRequirements": 'Host.Pool == "there"'})
    hand.woken()
    assert hand.asks == 2
    for _ in range(10):
        hand.t += AVOID_S
        hand.woken()
    assert hand.asks == 4


def test_a_task_that_failed_goes_back_to_the_only_waiting_host_as_soon_as_it_may():
    hand = Waiters()
    hand.submit(2)
    (key,) = hand.tasks("a")
    hand.tasks("b")
    hand.t += 1.0
    hand.report("a", key, cause="exit")
    hand.wait_for_work("a")
    assert hand.woken() == {}
    hand.t = hand.look_t()
    assert hand.woken() == {"a": [(1, 0, 2)]}


def test_an_idle_host_gets_a_replica_at_the_moment_at_which_an_attempt_has_become_slow():
    hand, bag, task = in_its_tail()
    sent_t = hand.t
    hand.wait_for_work("b", "c")
    assert hand.woken() == {}
    look_t = hand.look_t()
    assert look_t == sent_t + slow_after_s(hand.state, bag)
    hand.t = look_t
    assert hand.woken() == {"b": [(1, task, 2)]}, "one host for one replica"


def test_a_host_that_runs_the_slow_attempt_itself_is_passed_over():
    hand, _, task = in_its_tail()
    hand.wait_for_work("a", want=1, slots=2)
    hand.wait_for_work("b")
    hand.t = hand.look_t()
    assert hand.woken() == {"b": [(1, task, 2)]}


def test_an_attempt_that_nobody_may_replicate_makes_no_host_ask_and_no_driver_look():
    hand, _, _ = in_its_tail()
    hand.wait_for_work("a", want=1, slots=2)
    hand.t = hand.look_t()
    assert hand.woken() == {} and hand.asks == 0
    assert hand.look_t() == inf


def test_of_many_hosts_that_may_not_every_look_tries_others():
    hand, _, task = in_its_tail(policies={"JobRequirements": 'Host.Pool != "here"', "Deadline": "1000"})
    hand.wait_for_work(*(f"h{n}" for n in range(HOSTS_LOOKED_AT + 1)), pool="here")
    hand.wait_for_work("z", pool="there")
    hand.t = hand.look_t()
    assert hand.woken() == {}
    hand.step(TimerFired(hand.t))
    assert hand.woken() == {"z": [(1, task, 2)]}


def test_a_policy_for_replicas_is_asked_when_something_has_happened():
    hand, _, task = in_its_tail(policies={"ReplicationRequirements": "Job.NumberOfReplicas < 2"})
    assert hand.tasks("b") == [(1, task, 2)]
    hand.wait_for_work("c")
    assert hand.woken() == {}
    hand.ask("b", leaving="its owner is back")
    assert hand.woken() == {"c": [(1, task, 3)]}


def test_a_deadline_that_has_passed_and_a_host_that_is_lost_wake_a_waiting_host():
    for policies in ({"Deadline": "30", "ReplicationRequirements": "false"}, {"ReplicationRequirements": "false"}):
        hand = Waiters(lease_s=40.0)
        hand.submit(1, policies=policies)
        hand.tasks("a")
        hand.t += 30.0
        hand.wait_for_work("b")
        assert hand.woken() == {}
        hand.wait(60.0)
        assert hand.woken() == {"b": [(1, 0, 2)]}, policies


def test_a_replica_that_waits_in_the_queue_wakes_a_waiting_host():
    hand = Waiters(replication="queued", replication_cycle_s=60.0)
    hand.submit(1, policies={"ReplicationRequirements": "Job.NumberOfReplicas < 2"}, replication="queued")
    hand.tasks("a")
    hand.wait_for_work("b")
    hand.wait(61.0)
    assert hand.woken() == {"b": [(1, 0, 2)]}


def test_looks_change_nothing_that_is_decided():
    hand, _, _ = in_its_tail()
    hand.wait_for_work("b")
    before = hand.state.seq
    hand.t = hand.look_t()
    hand.idle.look(hand.state, hand.t)
    assert hand.state.seq == before and hand.state.host("b").held == {}


def test_jobs_in_their_tails_are_looked_through_no_more_often_than_their_number_allows():
    hand, jobs = Waiters(), FEW_TAILS + 1
    for _ in range(jobs):
        hand.submit(1)
    for number in range(jobs):
        assert len(hand.tasks(f"busy-{number}")) == 1
    hand.wait_for_work("idle")
    assert len(hand.state.bags.tails) == jobs
    began_t = hand.t
    assert hand.look_t() == inf
    hand.t += PAUSE_S
    assert hand.look_t() == began_t + PAUSE_S * jobs
    hand.t = began_t + PAUSE_S * jobs
    assert hand.look_t() == inf
