"""The keeper of machines and a provider that misbehaves: nothing leaks, nothing is billed twice, no starts run away."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from random import Random

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from hypothesis.strategies import integers, sampled_from

from tests.support.clouds.kept import begun, plan, switch
from tests.support.engine.virtual_loop import run_virtually
from windfall.core.events import (
    TimerFired,
)
from windfall.core.state.hosts.pools import ENDING
from windfall.core.state.invariants import problems
from windfall.core.state.renting.fleet import REFUSED, owed_microusd
from windfall.planning.offers import Offer
from windfall.pools.contract import CAPACITY, RUNNING, TRANSIENT, Check, Order, PoolError, Seen

OFFER = Offer(name="vm", price_usd=0.1, cores=1, pool="cloud")
GOOD, FAILS, FULL, RAISES, EMPTY, LOSES, TWICE, DEAF, UNHEARD = (
    "good", "fails", "full", "raises", "empty", "loses", "twice", "deaf", "unheard",
)  # fmt: skip
MOODS = (GOOD, FAILS, FULL, RAISES, EMPTY, LOSES, TWICE, DEAF, UNHEARD)


class Bad:
    """A provider that keeps its promises only in the mood `good`; `there` is what really exists, by id."""

    offers = (OFFER,)

    def __init__(self, interval_s: float = 0.0, gap_s: float = 0.0) -> None:
        self.interval_s, self.gap_s = interval_s, gap_s
        self.mood, self.retry_after_s = GOOD, 0.0
        self.there: dict[str, str] = {}
        self.ever: dict[str, list[str]] = {}
        """Ids of all that was ever started, by the name of the order."""
        self.calls: list[tuple[str, float]] = []
        self.clock = lambda: 0.0
        self.rng = Random(1)

    def _called(self, what: str) -> PoolError | None:
        self.calls.append((what, self.clock()))
        if self.mood == RAISES:
            raise RuntimeError("a bug of the provider")
        return PoolError("not now", TRANSIENT, self.retry_after_s) if self.mood == FAILS else None

    def start(self, order: Order) -> str | PoolError:
        if error := self._called("start"):
            return error
        if self.mood == FULL:
            return PoolError("no capacity", CAPACITY)
        known = self.ever.setdefault(order.host, [])
        if not known or self.mood == TWICE:
            known.append(f"i-{order.host}-{len(known)}")
            self.there[known[-1]] = order.host
        return PoolError("timed out", TRANSIENT) if self.mood == UNHEARD else known[0]

    def stop(self, id: str, gently: bool = False) -> PoolError | None:
        if error := self._called("stop"):
            return error
        if self.mood != DEAF:
            self.there.pop(id, None)
        return None

    def list(self):
        if error := self._called("list"):
            return error
        if self.mood == LOSES and self.there:
            self.there.pop(self.rng.choice(sorted(self.there)))
        rows = [Seen(id, RUNNING, self.clock(), host) for id, host in self.there.items()]
        rows += [Seen("i-theirs", RUNNING, 0.0, None, about="of somebody else")]
        self.rng.shuffle(rows)  # out of order
        return [] if self.mood == EMPTY else rows

    def doctor(self) -> list[Check]:
        return []

    def close(self) -> None:
        pass


class Story(RuleBasedStateMachine):
    """Plans start and stop machines while the provider changes its mood between two looks."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.pool = Bad()
        self.driver, self.keeper = self.loop.run_until_complete(begun(self.pool))
        self.keeper._begin = lambda: None
        self.loop.run_until_complete(self.keeper.start())

    def do(self, work) -> None:
        self.loop.run_until_complete(work)
        state = self.driver.state
        assert problems(state) == []
        assert {*self.pool.ever} <= {machine.host_name for machine in state.fleet.machines.values()}, "a runaway start"
        ids = [machine.id for machine in state.fleet.machines.values() if machine.id]
        assert len(set(ids)) == len(ids), "one machine is billed under two numbers"

    @rule(mood=sampled_from(MOODS))
    def change_mood(self, mood) -> None:
        self.pool.mood = mood

    @rule()
    def look(self) -> None:
        before = len(self.pool.calls)
        self.do(self.keeper.look("cloud"))
        new = [what for what, _ in self.pool.calls[before:]]
        assert new.count("list") == 1 and new.count("start") <= len(self.driver.state.fleet.machines)

    @rule(starts=integers(1, 3))
    def start(self, starts) -> None:
        self.do(plan(self.driver, OFFER, starts))

    @rule(which=integers(0, 9))
    def stop(self, which) -> None:
        there = [machine.number for machine in self.driver.state.fleet.there.values()]
        if there:
            self.do(plan(self.driver, OFFER, stop=[there[which % len(there)]]))

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.mood = GOOD
        self.do(switch(self.driver, ENDING))
        for _ in range(4):
            if "cloud" in self.keeper.pools:
                self.do(self.keeper.look("cloud"))
        assert self.pool.there == {}, "something is left behind"
        fleet = self.driver.state.fleet
        assert not fleet.there and "cloud" not in self.keeper.pools, "the pool goes with its last machine"
        never = [machine for machine in fleet.machines.values() if machine.cause == REFUSED]
        assert all(owed_microusd(machine, 1e12) == 0 for machine in never), "what never came costs nothing"
        self.loop.run_until_complete(self.keeper.stop())
        self.loop.run_until_complete(self.driver.stop())
        self.loop.close()


TestStory = Story.TestCase
TestStory.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def spaced(pool: Bad, seconds: float) -> None:
    """Let the real loop of the keeper run while events that wake it come ten times a second."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        pool.clock = loop.time
        driver, keeper = await begun(pool)
        driver.clock = loop.time
        await keeper.start()
        await plan(driver, OFFER, 8)
        for _ in range(int(seconds * 10)):
            await driver.submit([TimerFired(driver.clock())])
            await asyncio.sleep(0.1)
        await keeper.stop()
        await driver.stop()

    run_virtually(story())


def gaps(pool: Bad, *what: str) -> list[float]:
    times = [t for name, t in pool.calls if name in what]
    return [later - earlier for earlier, later in pairwise(times)]


def test_a_pool_is_listed_no_more_often_than_it_allows_however_often_the_keeper_is_woken():
    pool = Bad(interval_s=5.0)
    spaced(pool, 60.0)
    assert min(gaps(pool, "list")) >= 5.0 - 1e-6 and len(gaps(pool, "list")) >= 10
    assert sum(name == "start" for name, _ in pool.calls) == 8, "orders do not wait for the next list, and come once"


def test_starts_and_stops_are_as_far_apart_as_the_pool_wants():
    pool = Bad(interval_s=1.0, gap_s=2.0)
    spaced(pool, 30.0)
    assert min(gaps(pool, "start", "stop")) >= 2.0 - 1e-6 and len(pool.there) == 8


def test_a_pool_that_fails_is_asked_less_and_less_often_and_not_before_it_wants_to_be():
    pool = Bad(interval_s=1.0)
    pool.mood = FAILS
    spaced(pool, 120.0)
    waits = gaps(pool, "list")
    assert waits == sorted(waits) and len(waits) <= 8 and not pool.there
    patient = Bad(interval_s=1.0)
    patient.mood, patient.retry_after_s = FAILS, 45.0
    spaced(patient, 120.0)
    assert min(gaps(patient, "list")) >= 45.0 - 1e-6


def test_machines_that_cannot_be_listed_when_the_server_stops_are_ended_all_the_same():
    async def story() -> None:
        pool = Bad()
        driver, keeper = await begun(pool)
        keeper._begin = lambda: None
        await keeper.start()
        await plan(driver, OFFER, 3)
        await keeper.look("cloud")
        assert len(pool.there) == 3
        pool.list = lambda: PoolError("not now", TRANSIENT)
        await keeper.stop(release=True)
        assert pool.there == {}
        await driver.stop()

    asyncio.run(story())
