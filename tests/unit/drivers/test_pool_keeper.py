"""The keeper of the pools: it carries out what the engine asks, reports what comes of it, and never runs away."""

from __future__ import annotations

import asyncio

import pytest

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
from windfall.core.supply.overlay import ERRORS_TO_OPEN
from windfall.core.wishes import AskWish
from windfall.drivers.asking import PoolWorker, Started
from windfall.drivers.keepers.pools import PoolKeeper
from windfall.drivers.realtime import Realtime
from windfall.store.memory import MemoryStore


class FakePool:
    """A pool that does as it is told: `mood` is how start answers, `workers` what list tells."""

    interval_s = 0.05

    def __init__(self) -> None:
        self.error = ""
        self.requests: list[int] = []
        self.workers: list[PoolWorker] = []
        self.stopped = 0

    def start(self, ask: AskWish) -> Started:
        count = ask.count
        self.requests.append(count)
        if self.error:
            return Started([], self.error)
        hosts = [f"c{len(self.requests)}-{i}" for i in range(count)]
        self.workers += [PoolWorker(host) for host in hosts]
        return Started(hosts)

    def list(self) -> list[PoolWorker]:
        told, self.workers = self.workers, [worker for worker in self.workers if worker.alive]
        return told

    def stop(self, grace_s: float) -> None:
        self.stopped += 1


async def look(driver: Realtime, keeper: PoolKeeper) -> None:
    """The engine looks at the pools, and the keeper carries out what it wishes for."""
    await driver.submit([OverlayDue(driver.clock())])
    await keeper.look()


async def kept(pool: FakePool, story) -> Realtime:
    """A driver and a keeper that looks only when `story(driver, keeper)` tells it to."""
    driver = Realtime(MemoryStore(), Engine(), Settings())
    await driver.start()
    keeper = PoolKeeper(driver, [PoolRules("p", limit=10, per_minute=600.0)], {"p": pool})
    keeper._begin = lambda: None
    await keeper.start()
    job = JobSubmitted(driver.clock(), JobRules("bag"), [TaskClass()])
    await driver.submit([job, TasksAdded(job.t, 1, 4), JobSealed(job.t, 1)])
    await story(driver, keeper)
    await keeper.stop()
    await driver.stop()
    return driver


def test_what_is_missing_is_asked_for_once_and_reported():
    pool = FakePool()

    async def story(driver, keeper):
        await look(driver, keeper)
        await look(driver, keeper)
        assert driver.state.supply.pools["p"].queued == 4
        await driver.submit([HostAsked(driver.clock(), "c1-0", "b", 1, 0, 1, {"pool": "p"})])
        await look(driver, keeper)
        assert driver.state.supply.pools["p"].queued == 3

    asyncio.run(kept(pool, story))
    assert pool.requests == [4] and pool.stopped == 1


def test_a_pool_that_refuses_is_asked_a_few_times_and_then_left_alone():
    pool = FakePool()
    pool.error = "quota exceeded"

    async def story(driver, keeper):
        for _ in range(20):
            await look(driver, keeper)

    driver = asyncio.run(kept(pool, story))
    assert len(pool.requests) == ERRORS_TO_OPEN
    assert driver.state.supply.pools["p"].last_error == "quota exceeded"


@pytest.mark.parametrize(("error", "told"), [("no python there", "no python there"), ("", "reached the server")])
def test_clients_that_end_before_they_come_count_as_errors(error, told):
    pool = FakePool()

    async def story(driver, keeper):
        for _ in range(20):
            await look(driver, keeper)
            pool.workers = [PoolWorker(worker.host, alive=False, error=error) for worker in pool.workers]

    driver = asyncio.run(kept(pool, story))
    assert len(pool.requests) == ERRORS_TO_OPEN
    assert told in driver.state.supply.pools["p"].last_error and driver.state.supply.pools["p"].queued == 0


def test_a_client_that_ends_after_it_came_is_no_error_of_the_pool():
    pool = FakePool()

    async def story(driver, keeper):
        await look(driver, keeper)
        await driver.submit([HostAsked(driver.clock(), "c1-0", "b", 1, 0, 1, {"pool": "p"})])
        pool.workers[0] = PoolWorker("c1-0", alive=False, error="killed")
        await look(driver, keeper)

    driver = asyncio.run(kept(pool, story))
    assert driver.state.supply.pools["p"].errors == 0
