"""The live driver and the simulated one make the same records of the same events.

A script plays the world: it submits jobs, asks as hosts, reports results, falls silent, drains, and says what providers
of machines and agents of a site would say. What it does next depends on a seed and on the state, so two drivers that
make the same records meet the same world. The drivers add what is theirs: wake-ups, plans, requests to pools and what
comes of them. The live driver runs on a loop in virtual time.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace

import pytest

from tests.support.engine.virtual_loop import run_virtually
from windfall.core import events as ev
from windfall.core.engine import Engine
from windfall.core.events import HostAsked, JobRules, Result, Settings, TaskClass
from windfall.core.records import Record
from windfall.core.renting import plans
from windfall.core.sites.instances import HOLDING, InstanceEnd, SiteRules, Wish
from windfall.core.state.hosts.hosts import GONE
from windfall.core.state.hosts.pools import PoolRules
from windfall.core.state.state import State
from windfall.core.wishes import AskWish, PlanWish
from windfall.drivers import asking, thinking
from windfall.drivers.asking import PoolWorker, Started
from windfall.drivers.keepers import planner_process, pools
from windfall.drivers.keepers.plans import PlanKeeper
from windfall.drivers.realtime import Realtime
from windfall.drivers.simulated import Simulated
from windfall.planning.offers import Offer
from windfall.planning.registry import planner_named
from windfall.policy import compile_policies
from windfall.sim.hosts.pools import PoolKeeper
from windfall.store.memory import MemoryStore
from windfall.wire.messages import CAUSES, DONE, EXIT, NO_WORK, PREEMPTED

START_T = float(1 << 14)
"""Far from zero: two times that are close differ by an exact number, so no clock rounds."""
COUNT_EVERY_S = 1.75 + 2.0**-20
"""Not the period of the engine's own look at the pools: no rule says which of two calls of one moment comes first."""
STEPS, LONGEST_STEP_S = 120, 45.0
SETTINGS = Settings(lease_s=30.0)
CHEAP = PoolRules("cheap", "fake", limit=6, slots=1, price_usd=0.1, per_minute=20.0)
DEAR = PoolRules("dear", "fake", limit=4, slots=2, price_usd=1.0, per_minute=60.0)
FREE = PoolRules("free", "fake", joins_itself=True)
SPOT = Offer(name="spot", price_usd=0.03, cores=2, market="spot", pool="cloud", when_taken="hibernate", limit=3)
STEADY = Offer(name="steady", price_usd=0.1, cores=2, pool="cloud")
SITE = SiteRules("lab", {"vcpu": 1.0})

Submit = Callable[[ev.AnyEvent], None]


class FakePool:
    """A pool whose workers come when the script says so; every fourth request is refused in part."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests = self.made = 0
        self.workers: dict[str, PoolWorker] = {}

    def start(self, count: int) -> Started:
        self.requests += 1
        given = count // 2 if self.requests % 4 == 0 else count
        hosts = [f"{self.name}-{self.made + i}" for i in range(given)]
        self.made += given
        self.workers |= {host: PoolWorker(host) for host in hosts}
        return Started(hosts, "" if given == count else "the queue is full")

    def list(self) -> list[PoolWorker]:
        told = list(self.workers.values())
        self.workers = {worker.host: worker for worker in told if worker.alive}
        return told

    def stop(self, grace_s: float) -> None:
        pass


class LivePool(FakePool):
    """The same, as the keeper of a live server asks it."""

    interval_s = 0.0  # the simulator's pools may be asked at any time

    def start(self, ask: AskWish) -> Started:
        return super().start(ask.count)


class Script:
    """The world outside the server, under one seed."""

    def __init__(self, seed: int, pool: type[FakePool] = FakePool) -> None:
        self.rng = random.Random(seed)
        self.pools = {rules.name: pool(rules.name) for rules in (CHEAP, DEAR)}
        self.boots: dict[str, int] = {}
        self.exchanges: dict[str, int] = {}
        self.agents: dict[str, int] = {}
        self.done: set[ev.Key] = set()
        moment, self.times = START_T, []
        for _ in range(STEPS):
            moment += round(self.rng.uniform(0.01, LONGEST_STEP_S) * (1 << 20)) / (1 << 20)
            self.times.append(moment)

    def begin(self, submit: Submit, t: float) -> None:
        submit(ev.OffersConfigured(t, "cloud", [SPOT, STEADY]))
        submit(ev.SiteCreated(t, SITE))

    def act(self, state: State, submit: Submit, t: float) -> None:
        """What happens at one moment: a few things of different kinds."""
        kinds = [
            self.come, self.ask, self.ask, self.ask, self.report, self.report, self.report, self.submit_job,
            self.leave, self.drain, self.orders, self.orders, self.fate, self.agent, self.agent, self.owner,
            self.change, self.stillborn,
        ]  # fmt: skip
        for _ in range(self.rng.randint(1, 6)):
            self.rng.choice(kinds)(state, submit, t)

    # --- hosts ---

    def come(self, state: State, submit: Submit, t: float) -> None:
        """A worker that a pool was asked for, one that came by itself, or that of a machine."""
        asked = [(name, host) for name, pool in self.pools.items() for host in pool.workers if host not in self.boots]
        booted = [m for m in state.fleet.there.values() if m.id and m.host_name not in self.boots]
        if asked and self.rng.random() < 0.7:
            pool, host = self.rng.choice(asked)
            slots = {"cheap": 1, "dear": 2}[pool]
            self.exchange(state, submit, t, host, {"pool": pool, "cpus": slots}, slots)
        elif booted:
            machine = self.rng.choice(booted)
            ad = {"pool": "cloud", "machine": machine.number, "cpus": 2}
            self.exchange(state, submit, t, machine.host_name, ad, 2)
        elif len(self.boots) < 40:
            self.exchange(state, submit, t, f"free-{len(self.boots)}", {"pool": "free"}, 1)

    def ask(self, state: State, submit: Submit, t: float) -> None:
        names = [name for name in self.boots if (host := state.host(name)) is not None and host.state != GONE]
        if names:
            name = self.rng.choice(names)
            self.exchange(state, submit, t, name, None, state.host(name).slots)

    def exchange(
        self, state: State, submit: Submit, t: float, name: str, ad: dict | None, slots: int, leaving: str | None = None
    ) -> None:
        if name not in self.boots or self.rng.random() < 0.05:
            self.boots[name], self.exchanges[name] = self.boots.get(name, 0) + 1, 0
        self.exchanges[name] += 1
        host = state.host(name)
        want = 0 if leaving else max(0, slots - (len(host.held) if host is not None else 0))
        submit(HostAsked(t, name, str(self.boots[name]), self.exchanges[name], want, slots, ad, leaving))

    def report(self, state: State, submit: Submit, t: float) -> None:
        held = [(host, key) for host in state.hosts.values() for key in host.held if key not in self.done]
        if held:
            host, key = self.rng.choice(held)
            self.done.add(key)
            cause = self.rng.choice([DONE, DONE, DONE, DONE, EXIT, PREEMPTED])
            run_s = self.rng.randint(1, 90)
            result = Result(*key, CAUSES.index(cause), 0 if cause == DONE else 1, t - run_s, t, float(run_s))
            submit(ev.ResultsReported(t, host.name, [result]))

    def leave(self, state: State, submit: Submit, t: float) -> None:
        names = [host.name for host in state.hosts.values() if host.state != GONE]
        if names and self.rng.random() < 0.4:
            name = self.rng.choice(names)
            self.exchange(state, submit, t, name, None, state.host(name).slots, NO_WORK)
            for pool in self.pools.values():
                if name in pool.workers:
                    pool.workers[name] = PoolWorker(name, alive=False)

    def drain(self, state: State, submit: Submit, t: float) -> None:
        names = [host.name for host in state.hosts.values() if host.state != GONE]
        if names and self.rng.random() < 0.3:
            submit(ev.HostDrained(t, self.rng.choice(names)))

    def stillborn(self, state: State, submit: Submit, t: float) -> None:
        """A worker on its way ends; its pool tells so when it is counted."""
        coming = [(pool, host) for pool in self.pools.values() for host in pool.workers if host not in self.boots]
        if coming and self.rng.random() < 0.5:
            pool, host = self.rng.choice(coming)
            pool.workers[host] = PoolWorker(host, alive=False, error="held for ever")

    # --- jobs ---

    def submit_job(self, state: State, submit: Submit, t: float) -> None:
        if len(state.bags) >= 8:
            return
        rents = self.rng.random() < 0.5
        planner = self.rng.choice(["windfall", "on-demand", "no-such-planner"]) if rents else ""
        rules = JobRules(
            f"job-{len(state.bags)}", deadline_s=self.rng.choice([3600.0, 7200.0]) if rents else None, planner=planner,
            rent_from=["cloud"] if rents else [],
            policies=self.rng.choice([{}, {"GridPolicy": 'Pool.Name == "dear"'}, {"Deadline": "60"}]),
        )  # fmt: skip
        job = len(state.bags) + 1
        submit(ev.JobSubmitted(t, rules, [TaskClass(estimate_s=60.0, max_losses=50)]))
        submit(ev.TasksAdded(t, job, self.rng.randint(1, 20)))
        submit(ev.JobSealed(t, job))

    def change(self, state: State, submit: Submit, t: float) -> None:
        if state.bags and self.rng.random() < 0.2:
            job = self.rng.choice(list(state.bags))
            event = self.rng.choice([ev.JobCancelled(t, job), ev.JobRetried(t, job, cancelled=True)])
            submit(event)

    # --- a provider of machines ---

    def orders(self, state: State, submit: Submit, t: float) -> None:
        """The provider answers what is ordered, and ends what is given back."""
        for number in list(state.fleet.to_order):
            if self.rng.random() < 0.2:
                submit(ev.MachineRefused(t, number, "no capacity"))
            else:
                submit(ev.MachineStarted(t, number, f"i-{number}", t))
        for number in list(state.fleet.to_end):
            submit(ev.MachineEnded(t, number, t, ""))

    def fate(self, state: State, submit: Submit, t: float) -> None:
        machines = [m for m in state.fleet.there.values() if m.id and m.offer.market == "spot"]
        if not machines or self.rng.random() < 0.5:
            return
        machine = self.rng.choice(machines)
        if machine.phase == "hibernated":
            submit(ev.MachineResumed(t, machine.number, t))
        else:
            hibernated, noticed = (
                ev.MachineHibernated(t, machine.number, t),
                ev.MachineNoticed(t, machine.number, t + 60),
            )
            submit(self.rng.choice([hibernated, noticed, ev.MachineEnded(t, machine.number, t, "taken")]))

    # --- a site ---

    def agent(self, state: State, submit: Submit, t: float) -> None:
        """An agent reports what it has started, and sometimes that something has ended."""
        name = f"owned-{self.rng.randint(1, 3)}"
        self.agents[name] = n = self.agents.get(name, 0) + 1
        site = state.sites["lab"]
        here = site.on(name)
        started = [(one.number, t) for one in here if one.state in HOLDING and one.started_t is None]
        ended = [InstanceEnd(one.number, DONE, 0, t, t) for one in here if self.rng.random() < 0.3]
        capacity = {"vcpu": 2.0} if n == 1 else None
        submit(ev.SiteHostReported(t, "lab", name, "b", n, capacity, [] if n == 1 else None, started, ended))

    def owner(self, state: State, submit: Submit, t: float) -> None:
        submit(ev.InstanceRequested(t, "lab", Wish({"vcpu": 1.0}, ["true"])))


def simulated(seed: int) -> list[Record]:
    script, records = Script(seed), list[Record]()
    driver = Simulated(
        Engine(compile_policies), SETTINGS, records.append, planner_named
    )  # fmt: skip
    keeper = PoolKeeper(SimpleNamespace(driver=driver, cut_off_until=0.0))
    keeper.rules, keeper.pools = [CHEAP, DEAR, FREE], dict(script.pools)
    driver.carry_out = keeper.carry_out
    driver.at(0.0, keeper.open)
    driver.at(START_T, lambda: script.begin(driver.submit, driver.now))
    for t in script.times:
        driver.at(t, lambda: script.act(driver.state, driver.submit, driver.now))
    driver.run(until=script.times[-1] + LONGEST_STEP_S)
    return records


class InlinePlanning:
    """Asks planners in this process."""

    def warm(self) -> None:
        pass

    def propose(self, wish: PlanWish, asked):
        return thinking.answer(wish, asked, planner_process.think, planner_process.think)

    def close(self) -> None:
        pass

    def clear(self) -> None:
        pass


async def live(seed: int) -> list[Record]:
    script, records, loop = Script(seed, LivePool), list[Record](), asyncio.get_running_loop()
    driver = Realtime(MemoryStore(), Engine(compile_policies), SETTINGS)
    driver.clock = loop.time
    driver.on_commit.append(records.extend)
    await driver.start()
    keeper, planner = (
        pools.PoolKeeper(driver, [CHEAP, DEAR, FREE], script.pools),
        PlanKeeper(driver, 1.0, InlinePlanning()),
    )
    await keeper.start()
    await planner.start()

    def submit(event: ev.AnyEvent) -> None:
        driver.submit([event])

    loop.call_at(START_T, lambda: script.begin(submit, loop.time()))
    for t in script.times:
        loop.call_at(t, lambda: script.act(driver.state, submit, loop.time()))
    await asyncio.sleep(script.times[-1] + LONGEST_STEP_S - loop.time())
    for part in (keeper, planner, driver):
        await part.stop()
    return records


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 12, 13, 39])
def test_both_drivers_make_the_same_records(seed, monkeypatch):
    monkeypatch.setattr(asking, "EVERY_S", COUNT_EVERY_S)
    ours, theirs = simulated(seed), run_virtually(live(seed))
    kinds = {type(record.event).__name__ for record in ours}
    assert len(ours) > 150 and {"TimerFired", "OverlayDue", "SiteLooked", "PoolAnswered", "PlanProposed"} <= kinds
    assert_same(ours, theirs)


@pytest.mark.parametrize("seed", [1, 3])
def test_both_drivers_pause_between_two_plans_of_a_job(seed, monkeypatch):
    """Much happens within a second: plans are due before the pause after the last one has ended."""
    monkeypatch.setattr(asking, "EVERY_S", COUNT_EVERY_S)
    monkeypatch.setattr(sys.modules[__name__], "LONGEST_STEP_S", 0.5)
    monkeypatch.setattr(plans, "PAUSE_S", 0.125)  # no clock rounds it
    ours, theirs = simulated(seed), run_virtually(live(seed))
    planned: dict[int, list[float]] = {}
    for record in ours:
        if isinstance(record.event, ev.PlanProposed):
            planned.setdefault(record.event.job, []).append(record.event.t)
    pauses = [later - t for times in planned.values() for t, later in pairwise(times)]
    assert min(pauses) == plans.PAUSE_S
    assert_same(ours, theirs)


def assert_same(ours: list[Record], theirs: list[Record]) -> None:
    for mine, other in zip(ours, theirs, strict=False):
        assert mine == other
    assert len(ours) == len(theirs)
