"""Tasks that take whole hosts under random events: all their hosts begin or none, and a lost one ends the attempt."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from tests.support.engine.engine_machine import LICENCES, EngineSteps, FakeHost
from windfall.core.decisions import ACCEPTED, MEMBER
from windfall.core.events import (
    HostAsked,
    HostsEnded,
    JobRules,
    JobSealed,
    JobSubmitted,
    Result,
    ResultsReported,
    TaskClass,
    TasksAdded,
)  # fmt: skip
from windfall.core.matching.policy import DefaultPolicy
from windfall.wire.messages import CAUSES

HOSTS = 5


class WholeHost(FakeHost):
    """A host whose worker holds a part until it is told to begin it."""

    def __init__(self, name: str, pool: str) -> None:
        super().__init__(name, slots=2)
        self.ad = {"pool": pool, "resources": {"gpus": 2}}
        self.parts: set[tuple[int, int, int]] = set()
        self.begun: set[tuple[int, int, int]] = set()

    def restart(self) -> None:
        super().restart()
        self.parts, self.begun = set(), set()


class GangMachine(EngineSteps):
    jobs = EngineSteps.jobs
    policy = DefaultPolicy

    def make_hosts(self):
        self.succeeded: set[tuple[int, int, int]] = set()
        self.formed: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
        """By each part: all parts of its task."""
        self.given: set[tuple[int, int, int]] = set()
        return [WholeHost(f"h{i}", "cheap" if i < 4 else "dear") for i in range(HOSTS)]

    @rule(target=jobs, count=st.integers(1, 3), nodes=st.integers(1, 4), failures=st.integers(1, 3),
          losses=st.integers(1, 3), priority=st.integers(0, 1),
          needs=st.sampled_from([(), (("gpus", 2000),), (("licence", 1000),)]))  # fmt: skip
    def submit(self, count, nodes, failures, losses, priority, needs):
        whole = TaskClass(max_failures=failures, max_losses=losses, nodes=nodes, needs=needs)
        classes = [whole, TaskClass(), TaskClass(needs=(("gpus", 1000),))]
        job = self.step(JobSubmitted(self.t, JobRules("j", priority=float(priority)), classes)).decided.job
        for klass, tasks in enumerate((count, 2, 1)):
            self.step(TasksAdded(self.t, job, tasks, klass))
        self.step(JobSealed(self.t, job))
        return job

    @rule(index=st.integers(0, HOSTS - 1), want=st.integers(0, 2), leaving=st.sampled_from([None] * 9 + ["signal"]))
    def ask(self, index, want, leaving, room=0):
        host = self.hosts[index]
        host.n += 1
        holds = [*host.held, *host.ending] if host.told else None
        event = HostAsked(self.t, host.name, str(host.boot), host.n, want, host.slots, host.ad, leaving, holds)
        answer = self.step(event).decided
        assert not answer.refused and not answer.repeat
        host.told = answer.tell
        for key in answer.cancel:
            host.parts.discard(key)
            host.begun.discard(key)
            if key in host.held:
                host.held.remove(key)
                host.ending.append(key)
        for assigned in answer.assigned:
            for task in range(assigned.first, assigned.first + assigned.count):
                assert (assigned.job, task) not in self.accepted
                host.held.append((assigned.job, task, assigned.attempt))
            if assigned.units:
                host.units[assigned.job, assigned.first, assigned.attempt] = assigned.units
            if assigned.why == MEMBER:
                assert assigned.count == 1 and len(host.held) == 1, "a part has the whole host"
                host.parts.add((assigned.job, assigned.first, assigned.attempt))
                self.given.add((assigned.job, assigned.first, assigned.attempt))
        if answer.gang is not None:
            gang = answer.gang
            parts = [(gang.job, gang.task, gang.first + rank) for rank in range(len(gang.hosts))]
            self.formed |= dict.fromkeys(parts, parts)
            assert len({self.state.hosts[number].pool for number in gang.hosts}) == 1
            assert self.state.hosts.shared()["licence"] <= LICENCES
        for key in answer.begin:
            assert key in host.parts
            assert set(self.formed[key]) <= self.given, "none begins before every host was given its part"
            host.begun.add(key)
        if leaving:
            host.restart()

    @rule(index=st.integers(0, HOSTS - 1))
    def ask_again_with_the_same_number(self, index):
        host = self.hosts[index]
        known = self.state.host(host.name)
        session = None if known is None else known.session
        if not host.n or session is None or not (session.assigned or session.cancelled or session.begun):
            return
        if session.boot != str(host.boot):
            return
        answer = self.step(HostAsked(self.t, host.name, str(host.boot), host.n, 2, host.slots)).decided
        assert answer.repeat and not answer.assigned and not answer.begin

    @rule(
        place=st.integers(0, HOSTS - 1), late=st.booleans(), lies=st.sampled_from([False] * 5 + [True]),
        cause=st.sampled_from(["done"] * 4 + ["exit", "preempted", "lost"]),
    )  # fmt: skip
    def report(self, place, cause, late, lies=False):
        busy = [host for host in self.hosts if host.held]
        if not busy:
            return
        host = busy[place % len(busy)]
        key = host.held[0]
        early = key in host.parts and key not in host.begun
        if early and not lies:
            cause, late = "preempted", False  # what has not begun is only handed back
        code = 0 if cause == "done" else 1
        (verdict,) = self.step(
            ResultsReported(self.t, host.name, [Result(*key, CAUSES.index(cause), code, self.t - late, self.t)])
        ).decided.verdicts
        host.held.remove(key)
        host.units.pop(key, None)
        host.parts.discard(key)
        if cause == "done" and not early:
            self.succeeded.add(key)
        if verdict == ACCEPTED:
            assert set(self.formed.get(key, [key])) <= self.succeeded, "accepted before every host has succeeded"
            self.accepted_twice |= key[:2] in self.accepted
            self.accepted.add(key[:2])

    @rule(host=st.integers(0, HOSTS - 1))
    def end_a_host(self, host, pool=""):
        """Its pool shows that its worker has ended, and so it has."""
        ended = self.hosts[host]
        self.step(HostsEnded(self.t, ended.ad["pool"], [(ended.name, "its job was cancelled")]))
        ended.restart()

    @rule(seconds=st.sampled_from([0.0, 5.0]))
    def all_ask(self, seconds):
        """As on a live server: hosts wait for an answer, and are woken."""
        self.t += seconds
        for index in [*range(HOSTS), *range(HOSTS)]:
            self.ask(index, 2, None)

    @rule(count=st.integers(1, 3), place=st.integers(0, HOSTS - 1))
    def go_on(self, count, place):
        """Some hosts succeed, and all ask."""
        for _ in range(count):
            self.report(place, "done", True)
        self.all_ask(1.0)

    @initialize(jobs=st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=3))
    def start(self, jobs):
        """Hypothesis leaves out rules at random: most runs would have no job, or none that gets hosts."""
        super().start()
        for nodes, first in jobs:
            self.submit(2, nodes, 2, 2, int(first), ())
        self.all_ask(0.0)

    @invariant()
    def a_host_with_a_part_has_nothing_else(self):
        for host in getattr(self, "hosts", ()):
            known = self.state.host(host.name)
            if known is not None and known.gang is not None:
                assert list(known.held) == [known.gang]


TestGangs = GangMachine.TestCase
TestGangs.settings = settings(max_examples=60, stateful_step_count=60)
