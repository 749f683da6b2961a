"""A state machine (hypothesis) that sends random events to the engine and checks its promises after every step."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from windfall.core.decisions import ACCEPTED, Units
from windfall.core.engine import Engine
from windfall.core.events import (
    HostAsked,
    HostsEnded,
    JobCancelled,
    JobChanged,
    JobForgotten,
    JobRetried,
    JobRules,
    JobSealed,
    JobSubmitted,
    OverlayDue,
    PoolAdded,
    PoolAnswered,
    PoolCounted,
    PoolRemoved,
    PoolsConfigured,
    PoolSwitched,
    Result,
    ResultsReported,
    SeriesImported,
    ServerStarted,
    Settings,
    TaskClass,
    TasksAdded,
)
from windfall.core.matching.policy import DefaultPolicy
from windfall.core.records import decode_record, encode_record
from windfall.core.state.hosts.pools import DRAINING, ENDING, OPEN, PAUSED, PoolRules
from windfall.core.state.invariants import over_budget, problems
from windfall.core.state.snapshot import load, save
from windfall.core.state.state import State
from windfall.core.wishes import due, wake_at
from windfall.planning.counts import PriceCounts, SeriesSource
from windfall.wire.messages import CAUSES

POLICIES = [{}, {"Concurrency": "5"}, {"ReplicationRequirements": "true", "Deadline": "7"}, {"GridPolicy": "dear"}]


LICENCES = 2000
"""Thousandths, for the whole server."""
SETTINGS = Settings(lease_s=10.0, resources={"licence": LICENCES}, hosts_kept=1)


class Eager(DefaultPolicy):
    """A policy that always wants replicas, gives attempts up after seven seconds, and admits one pool."""

    def wants_pool(self, bag, pool, now, queue=None):
        return pool["Name"] == "dear"

    def match_replica(self, host, job, bag, queue, pool, now):
        return True

    def deadline_s(self, host, job, bag, pool, now, queue=None):
        return 7.0


class FakeHost:
    """A host as the wire sees it: it answers for what it was given, or forgets it."""

    def __init__(self, name: str, slots: int) -> None:
        self.name, self.slots = name, slots
        self.ad = {
            "memory_mb": 100, "round_trip_s": 0.5, "pool": ("cheap", "dear", "volunteers")[slots - 1],
            "resources": {"gpus": slots},
        }  # fmt: skip
        if slots == 3:
            self.ad["owner"] = "1"
        self.boot, self.n = 1, 0
        self.told = False
        """It is to say what it holds."""
        self.held: list[tuple[int, int, int]] = []
        self.ending: list[tuple[int, int, int]] = []
        """Cancelled, and not yet ended: their processes have their units still."""
        self.units: dict[tuple[int, int, int], Units] = {}

    def restart(self) -> None:
        self.boot, self.n, self.held, self.ending, self.units = self.boot + 1, 0, [], [], {}
        self.told = False

    def used(self) -> Counter[tuple[str, int]]:
        """Thousandths of each unit that the processes on this host have."""
        found: Counter[tuple[str, int]] = Counter()
        for units in self.units.values():
            for name, index, amount in units:
                found[name, index] += amount
        return found


class EngineSteps(RuleBasedStateMachine):
    """What machines share: the clock, hosts that restart and fall silent, jobs that are cancelled, what must hold."""

    jobs = Bundle("jobs")
    policy: type[DefaultPolicy] = Eager

    @initialize()
    def start(self) -> None:
        self.engine = Engine(self.policy)
        self.state = State()
        self.t = 0.0
        self.log: list[bytes] = []
        self.accepted: set[tuple[int, int]] = set()
        self.accepted_twice = False
        self.hosts = self.make_hosts()
        self.step(ServerStarted(0.0, SETTINGS))

    def make_hosts(self) -> list[FakeHost]:
        return [FakeHost(f"h{i}", slots=i + 1) for i in range(3)]

    def step(self, event):
        before = save(self.state)
        record = self.engine.decide(self.state, event)
        assert save(self.state) == before, "deciding changes nothing"
        self.engine.apply(self.state, record)
        self.log.append(encode_record(record))
        return record

    @rule(index=st.integers(0, 2))
    def end_what_was_cancelled(self, index):
        host = self.hosts[index]
        results = [Result(*key, CAUSES.index("cancelled"), None, self.t, self.t) for key in host.ending[:1]]
        if results:
            self.step(ResultsReported(self.t, host.name, results))
            host.units.pop(host.ending.pop(0), None)

    @invariant()
    def two_tasks_never_share_a_whole_unit(self):
        for host in getattr(self, "hosts", ()):
            for (name, index), amount in host.used().items():
                assert index < 0 or (index < host.slots and amount <= 1000), f"{host.name}: {amount} of {name} {index}"

    @rule(index=st.integers(0, 2))
    def restart_host(self, index):
        self.hosts[index].restart()

    @rule(seconds=st.sampled_from([0.1, 3.0, 11.0, 25.0]))
    def wait(self, seconds):
        self.t += seconds
        while (at := wake_at(self.state)) <= self.t:
            before = len(self.log)
            for event in due(self.state, self.t):
                self.step(event)
            assert wake_at(self.state) != at or len(self.log) == before, "a timer must not fire for ever"

    @rule(job=jobs, tasks=st.one_of(st.none(), st.lists(st.integers(0, 5), unique=True)))
    def cancel(self, job, tasks):
        if job in self.state.bags:
            self.step(JobCancelled(self.t, job, tasks))

    @rule(job=jobs, cancelled=st.booleans())
    def retry(self, job, cancelled):
        if job in self.state.bags:
            self.step(JobRetried(self.t, job, None, cancelled))

    @rule()
    def restart_server(self):
        """A restart is a snapshot: nothing may be lost in it."""
        data = save(self.state)
        self.state = load(data)
        assert save(self.state) == data
        self.step(ServerStarted(self.t, SETTINGS))

    @invariant()
    def promises_hold(self):
        if hasattr(self, "state"):
            assert problems(self.state) == [] == over_budget(self.state)
            assert not self.accepted_twice
            done = {(b.number, i) for b in self.state.bags.values() for i, s in enumerate(b.columns.state) if s == 2}
            assert done == self.accepted

    def teardown(self):
        if not hasattr(self, "state"):
            return
        replayed, decided_again = State(), State()
        engine = Engine(self.policy)
        for data in self.log:
            engine.apply(replayed, decode_record(data))
            assert encode_record(engine.step(decided_again, decode_record(data).event)) == data
        assert save(replayed) == save(self.state) == save(decided_again)


class EngineMachine(EngineSteps):
    jobs = EngineSteps.jobs

    @rule(target=jobs, count=st.integers(1, 12), failures=st.integers(1, 3), losses=st.integers(1, 3),
          limit=st.sampled_from([None, None, 0, 2]), priority=st.integers(0, 2), streaming=st.booleans(),
          policies=st.sampled_from(POLICIES), gpus=st.sampled_from([300, 500, 1000, 1500, 2000]),
          licences=st.sampled_from([0, 500, 1000]), quorum=st.sampled_from([0, 1, 2]))  # fmt: skip
    def submit(self, count, failures, losses, limit, priority, streaming, policies, gpus, licences, quorum):
        rules = JobRules(
            "j", priority=float(priority), max_failed_tasks=limit, streaming=streaming, policies=policies, quorum=quorum
        )
        needs = (("gpus", gpus), ("licence", licences))[: 1 + (licences > 0)]
        classes = [
            TaskClass(1.0, max_failures=failures, max_losses=losses),
            TaskClass(2.0),
            TaskClass(1.0, needs=needs),
        ]
        job = self.step(JobSubmitted(self.t, rules, classes)).decided.job
        self.step(TasksAdded(self.t, job, count, 0))
        self.step(TasksAdded(self.t, job, 2, 1))
        self.step(TasksAdded(self.t, job, 4, 2))
        self.step(JobSealed(self.t, job))
        return job

    @rule(index=st.integers(0, 2), want=st.integers(0, 6), leaving=st.sampled_from([None] * 9 + ["signal"]),
          room=st.sampled_from([0, 0, 3, 9]))  # fmt: skip
    def ask(self, index, want, leaving, room=0):
        host = self.hosts[index]
        for _ in range(2):
            host.n += 1
            holds = [*host.held, *host.ending] if host.told else None
            event = HostAsked(
                self.t, host.name, str(host.boot), host.n, want, host.slots, host.ad, leaving, holds, room
            )
            answer = self.step(event).decided
            assert not answer.refused and not answer.repeat
            host.told = answer.tell
            if not host.told:  # else it was forgotten, and says what it holds
                break
        assert set(answer.hand_back) <= set(host.held)
        for assigned in answer.assigned:
            for task in range(assigned.first, assigned.first + assigned.count):
                assert (assigned.job, task) not in self.accepted
                host.held.append((assigned.job, task, assigned.attempt))
            if assigned.units:
                host.units[assigned.job, assigned.first, assigned.attempt] = assigned.units
        if any(name == "licence" for assigned in answer.assigned for name, *_ in assigned.units):
            assert self.state.hosts.shared()["licence"] <= LICENCES, "more licences are out than there are"
        for key in answer.cancel:
            if key in host.held:
                host.held.remove(key)
                host.ending.append(key)
        if leaving:
            host.restart()

    @rule(index=st.integers(0, 2))
    def ask_again_with_the_same_number(self, index):
        host = self.hosts[index]
        known = self.state.host(host.name)
        session = None if known is None else known.session
        if not host.n or session is None or not (session.assigned or session.cancelled or session.handed_back):
            return
        before = save(self.state)
        answer = self.step(HostAsked(self.t, host.name, str(host.boot), host.n, 5, host.slots)).decided
        assert answer.repeat and not answer.assigned
        assert len(save(self.state)) >= len(before) - 64

    @rule(place=st.integers(0, 527), hours=st.floats(0.0, 200.0), has_prices=st.booleans())
    def import_a_series(self, place, hours, has_prices):
        prices = PriceCounts(3, 3600.0, 100.0, 5.0, 0.01, 0.04) if has_prices else None
        source = SeriesSource("series.json", f"{self.state.seq:064x}", hours, 1.0)
        self.step(SeriesImported(self.t, "cheap/spot", source, [(place, 1.0, hours)], prices))
        assert self.state.fleet.markets["cheap/spot"].sources[-1] == source

    @rule(index=st.integers(0, 2), count=st.integers(1, 4), cause=st.sampled_from(CAUSES), late=st.booleans(),
          digest=st.sampled_from("ab"))  # fmt: skip
    def report(self, index, count, cause, late, digest="a"):
        host = self.hosts[index]
        chosen: dict[tuple[int, int], tuple[int, int, int]] = {key[:2]: key for key in host.held[:count]}
        keys = list(chosen.values())
        code = 0 if cause == "done" else 1
        results = [Result(*key, CAUSES.index(cause), code, self.t - late, self.t, digest=digest) for key in keys]
        record = self.step(ResultsReported(self.t, host.name, results))
        for key, verdict in zip(keys, record.decided.verdicts, strict=True):
            host.held.remove(key)
            host.units.pop(key, None)
            if verdict == ACCEPTED:
                self.accepted_twice |= key[:2] in self.accepted
                self.accepted.add(key[:2])

    @rule(index=st.integers(0, 2), cause=st.sampled_from(CAUSES))
    def report_of_what_another_holds(self, index, cause):
        """Any worker may say anything; an attempt that is out on another host stays there."""
        other = self.hosts[index - 1]
        known = self.state.host(other.name)
        key = other.held[0] if other.held else None
        if known is None or key not in known.held or self.state.host(self.hosts[index].name) is None:
            return
        code = 0 if cause == "done" else 1
        result = Result(*key, CAUSES.index(cause), code, self.t, self.t)
        self.step(ResultsReported(self.t, self.hosts[index].name, [result]))
        assert key in known.held

    @rule(job=jobs, paused=st.booleans())
    def pause(self, job, paused):
        if job not in self.state.bags:
            return
        rules = self.state.bags[job].rules
        self.step(JobChanged(self.t, job, msgspec.structs.replace(rules, paused=paused)))

    @rule(job=jobs)
    def forget(self, job):
        bag = self.state.bags.get(job)
        refused = self.step(JobForgotten(self.t, job)).decided.refused
        if not refused:
            assert bag is not None and bag.finished_t is not None and self.state.was_forgotten(job)
            assert all(key[0] != job for host in self.state.hosts.values() for key in host.held)
            self.accepted = {key for key in self.accepted if key[0] != job}

    @rule(limits=st.tuples(st.integers(0, 3), st.integers(0, 3)))
    def configure_pools(self, limits):
        rules = [
            PoolRules("cheap", limit=limits[0], slots=1, per_minute=3.0),
            PoolRules("dear", limit=limits[1], slots=2, price_usd=1.0),
            PoolRules("volunteers", kind="self", joins_itself=True),
        ]
        self.step(PoolsConfigured(self.t, rules))

    @rule(pool=st.sampled_from(["cheap", "dear", "volunteers"]), mode=st.sampled_from([OPEN, PAUSED, DRAINING, ENDING]))
    def switch_a_pool(self, pool, mode):
        self.step(PoolSwitched(self.t, pool, mode))

    @rule(pool=st.sampled_from(["cheap", "dear"]))
    def add_a_pool(self, pool):
        self.step(PoolAdded(self.t, pool, "{}"))

    @rule(pool=st.sampled_from(["cheap", "dear"]))
    def remove_a_pool(self, pool):
        there = self.state.hosts.by_pool.get(pool, 0)
        if not self.step(PoolRemoved(self.t, pool)).decided.refused:
            assert not there and pool not in self.state.supply.pools

    @rule()
    def look_at_the_overlay(self):
        for ask in self.step(OverlayDue(self.t)).decided.asks:
            assert ask.pool not in self.state.supply.modes, "nothing is asked of a pool that is not open"
            pool, clients = self.state.supply.pools[ask.pool], self.state.hosts.by_pool.get(ask.pool, 0)
            assert ask.count > 0 and pool.queued + clients <= pool.rules.limit

    @rule(pool=st.sampled_from(["cheap", "dear", "gone"]), count=st.integers(1, 3), error=st.sampled_from(["", "no"]))
    def answer_of_a_pool(self, pool, count, error):
        self.step(PoolAnswered(self.t, pool, count, error))

    @rule(pool=st.sampled_from(["cheap", "dear", "gone"]), host=st.integers(0, 3))
    def end_a_host(self, pool, host):
        before = self.state.host(f"h{host}")
        # One that fell silent before is gone already, and what it holds may still be reported.
        was_there = before is not None and before.state != "gone" and before.pool == pool
        self.step(HostsEnded(self.t, pool, [(f"h{host}", "its job was cancelled")]))
        known = self.state.host(f"h{host}")
        assert not was_there or (known.state == "gone" and not known.held)

    @rule(pool=st.sampled_from(["cheap", "dear", "gone"]), pending=st.integers(0, 3))
    def count_a_pool(self, pool, pending):
        self.step(PoolCounted(self.t, pool, pending))
