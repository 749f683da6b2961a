"""Keepers and pools that misbehave in every way: slow, failing, lying, losing, starting twice, raising."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis.strategies import integers, lists, sampled_from

from windfall.core.engine import Engine
from windfall.core.events import (
    HostAsked,
    JobRules,
    JobSealed,
    JobSubmitted,
    OverlayDue,
    Settings,
    TaskClass,
    TasksAdded,
)
from windfall.core.state.hosts.pools import PoolRules
from windfall.core.wishes import AskWish
from windfall.drivers.keepers import supply
from windfall.drivers.keepers.pools import PoolKeeper
from windfall.drivers.keepers.supply import LONGEST_WAIT_S, Backoff, OrderedWorkers
from windfall.drivers.realtime import Realtime
from windfall.pools.contract import ENDED, FAILED, KINDS_OF_ERROR, RUNNING, TRANSIENT, Check, Order, PoolError, Seen
from windfall.store.memory import MemoryStore

LIMIT = 6
TASKS = 20
GOOD, SLOW, REFUSES, RAISES, LIES, LOSES, TWICE, STRANGER = (
    "good", "slow", "refuses", "raises", "lies", "loses", "twice", "stranger",
)  # fmt: skip
MOODS = (GOOD, SLOW, REFUSES, RAISES, LIES, LOSES, TWICE, STRANGER)


class Misbehaving:
    """A provider that keeps its promises only in the mood `good`; `there` is what really exists."""

    offers = ()
    interval_s = 0.1

    def __init__(self, seed: int = 0) -> None:
        self.mood, self.kind = GOOD, TRANSIENT
        self.there: dict[str, Seen] = {}
        self.starts: list[str] = []
        self.rng = Random(seed)

    def _behave(self) -> PoolError | None:
        if self.mood == SLOW:
            time.sleep(0.01)
        if self.mood == RAISES:
            raise RuntimeError("a bug of the provider")
        return PoolError("not now", self.kind) if self.mood == REFUSES else None

    def start(self, order: Order) -> str | PoolError:
        if error := self._behave():
            return error
        self.starts.append(order.host)
        self.there[order.host] = Seen(f"i-{order.host}", RUNNING, 0.0, order.host)
        if self.mood == TWICE:
            self.there[order.host + "'"] = Seen(f"i2-{order.host}", RUNNING, 0.0, order.host)
        return f"i-{order.host}"

    def stop(self, id: str, gently: bool = False) -> PoolError | None:
        if error := self._behave():
            return error
        self.there = {key: row for key, row in self.there.items() if row.id != id}
        return None

    def list(self):
        if error := self._behave():
            return error
        rows = [*self.there.values()]
        self.rng.shuffle(rows)
        if self.mood == LIES:
            return []
        if self.mood == LOSES and rows:
            gone = rows.pop()
            self.there = {key: row for key, row in self.there.items() if row.id != gone.id}
            rows.append(Seen(gone.id, ENDED, 1.0, gone.host, FAILED, None, "its host has vanished"))
        if self.mood == STRANGER:
            rows.append(Seen("i-theirs", RUNNING, 0.0, None, about="of somebody else"))
        return rows

    def doctor(self) -> list[Check]:
        return []

    def close(self) -> None:
        pass


class Kept:
    """A driver and a keeper whose looks the test makes."""

    def __init__(self, pool: Misbehaving) -> None:
        self.pool, self.driver = pool, Realtime(MemoryStore(), Engine(), Settings())
        rules = [PoolRules("p", limit=LIMIT, per_minute=6000.0)]
        self.keeper = PoolKeeper(self.driver, rules, {"p": OrderedWorkers("p", 1, pool)})
        self.keeper._begin = lambda: None

    async def __aenter__(self) -> Kept:
        await self.driver.start()
        await self.keeper.start()
        job = JobSubmitted(self.driver.clock(), JobRules("bag"), [TaskClass()])
        await self.driver.submit([job, TasksAdded(job.t, 1, TASKS), JobSealed(job.t, 1)])
        return self

    async def look(self) -> None:
        await self.driver.submit([OverlayDue(self.driver.clock())])
        await self.keeper.look()

    async def __aexit__(self, *_: object) -> None:
        self.pool.mood = GOOD
        await self.keeper.stop()
        await self.driver.stop()


@settings(max_examples=40, deadline=None)
@given(
    moods=lists(sampled_from(MOODS), min_size=1, max_size=12), kind=sampled_from(KINDS_OF_ERROR), seed=integers(0, 99)
)
@example(moods=["twice", "loses", "good"], kind="capacity", seed=0)
def test_whatever_a_pool_does_the_server_goes_on_and_never_orders_more_than_the_limit(moods, kind, seed):
    async def story() -> None:
        pool = Misbehaving(seed)
        pool.kind = kind
        async with Kept(pool) as kept:
            for mood in moods:
                pool.mood = mood
                before = len(pool.starts)
                await kept.look()
                queued = kept.driver.state.supply.pools["p"].queued
                assert queued >= 0 and len(pool.starts) - before <= LIMIT
                # Only a list that leaves out what is there can make the engine ask for it again.
                assert queued <= LIMIT or LIES in moods
            assert len(set(pool.starts)) == len(pool.starts), "an answered request is not repeated"
        assert pool.there == {}, "the keeper ends what it has started"

    asyncio.run(story())


def test_a_list_that_fails_is_no_list_of_nothing():
    async def story() -> None:
        pool = Misbehaving()
        async with Kept(pool) as kept:
            await kept.look()
            assert kept.driver.state.supply.pools["p"].queued == LIMIT
            pool.mood = REFUSES
            for _ in range(5):
                await kept.look()
            state = kept.driver.state.supply.pools["p"]
            assert state.queued == LIMIT and "cannot be listed: not now" in state.last_error
            assert len(pool.starts) == LIMIT

    asyncio.run(story())


def test_a_worker_that_a_pool_started_twice_counts_once_and_both_are_ended():
    async def story() -> None:
        pool = Misbehaving()
        pool.mood = TWICE
        async with Kept(pool) as kept:
            await kept.look()
            await kept.look()
            assert kept.driver.state.supply.pools["p"].queued == LIMIT and len(pool.starts) == LIMIT
        assert pool.there == {}

    asyncio.run(story())


def test_a_request_whose_answer_was_lost_is_repeated_under_the_same_names():
    pool = Misbehaving()
    for _ in range(2):
        OrderedWorkers("p", 1, pool).start(AskWish("p", 7, 2))
    assert pool.starts == ["p-7-1", "p-7-2", "p-7-1", "p-7-2"] and len(pool.there) == 2


def test_of_several_workers_that_are_being_started_when_the_server_stops_none_is_left():
    pool, begun = Misbehaving(), threading.Event()
    start, end = pool.start, time.monotonic() + 60

    def slow(order: Order) -> str | PoolError:
        begun.set()
        while not source._stops and time.monotonic() < end:
            time.sleep(0.001)
        return start(order)

    pool.start = slow
    source = OrderedWorkers("p", 1, pool)
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(source.start, AskWish("p", 1, 3))
        assert begun.wait(60)
        source.stop(1.0)
        assert asked.result(60).error == "the server stops"
    assert pool.starts == ["p-1-1"] and pool.there == {}


def test_what_cannot_be_listed_when_the_server_stops_is_ended_all_the_same(monkeypatch):
    monkeypatch.setattr(supply, "_END_S", 0.2)
    pool = Misbehaving()
    source = OrderedWorkers("p", 1, pool)
    source.start(AskWish("p", 1, 2))
    source.list()
    source.start(AskWish("p", 2, 1))
    pool.list = lambda: PoolError("not now", TRANSIENT)
    source.stop(0.0)
    assert len(pool.starts) == 3 and pool.there == {}


def test_a_worker_that_came_and_vanished_is_asked_for_again():
    async def story() -> None:
        pool = Misbehaving()
        async with Kept(pool) as kept:
            await kept.look()
            host = pool.starts[0]
            await kept.driver.submit([HostAsked(kept.driver.clock(), host, "b", 1, 0, 1, {"pool": "p"})])
            assert kept.driver.state.supply.pools["p"].queued == LIMIT - 1
            del pool.there[host]
            await kept.look()
            assert kept.driver.state.supply.pools["p"].errors == 0, "its record as a host says what became of it"

    asyncio.run(story())


@pytest.mark.parametrize("interval_s", [0.25, 5.0, 30.0, 600.0])
def test_the_wait_doubles_with_each_failure_up_to_a_bound_and_is_the_interval_again_after_a_success(interval_s):
    backoff = Backoff(lambda: interval_s)
    assert backoff.wait_s == interval_s
    waits = []
    for _ in range(20):
        backoff.note(failed=True)
        waits.append(backoff.wait_s)
    assert waits == sorted(waits) and waits[0] >= interval_s and waits[-1] == max(interval_s, LONGEST_WAIT_S)
    backoff.note(failed=False)
    assert backoff.wait_s == interval_s
