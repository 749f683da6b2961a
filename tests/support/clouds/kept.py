"""A live driver with one job and the keeper of the machines that it rents from one pool, `cloud`. Touches the pool."""

from __future__ import annotations

from windfall.core.engine import Engine
from windfall.core.events import (
    JobRules,
    JobSealed,
    JobSubmitted,
    PlanProposed,
    PoolSwitched,
    Settings,
    TaskClass,
    TasksAdded,
)
from windfall.drivers.keepers.machines import MachineKeeper
from windfall.drivers.realtime import Realtime
from windfall.planning.contract import Plan, Start
from windfall.planning.offers import Offer
from windfall.pools.contract import Pool
from windfall.store.memory import MemoryStore


async def begun(pool: Pool) -> tuple[Realtime, MachineKeeper]:
    """Both are there and the job is submitted; the keeper has not started."""
    driver = Realtime(MemoryStore(), Engine(), Settings())
    await driver.start()
    keeper = MachineKeeper(driver, {"cloud": pool})
    now = driver.clock()
    job = JobSubmitted(now, JobRules("bag", rent_from=["cloud"]), [TaskClass()])
    await driver.submit([job, TasksAdded(now, 1, 50), JobSealed(now, 1)])
    return driver, keeper


async def plan(driver: Realtime, offer: Offer, starts: int = 0, stop: list[int] | None = None) -> None:
    wanted = Plan(start=[Start(f"new-{n}", offer) for n in range(starts)], stop=[str(n) for n in stop or []])
    await driver.submit([PlanProposed(driver.clock(), 1, driver.state.seq, wanted)])


async def switch(driver: Realtime, mode: str) -> None:
    await driver.submit([PoolSwitched(driver.clock(), "cloud", mode)])
