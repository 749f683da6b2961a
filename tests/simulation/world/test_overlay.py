"""The overlay in virtual time: pools with queues, errors and prices around the real engine, for hours in a second."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from windfall.core.engine import Engine
from windfall.core.events import (
    HostAsked,
    JobRules,
    JobSealed,
    JobSubmitted,
    OverlayDue,
    PoolAnswered,
    PoolsConfigured,
    Result,
    ResultsReported,
    TaskClass,
    TasksAdded,
)
from windfall.core.state.hosts.pools import PoolRules
from windfall.drivers.simulated import Simulated
from windfall.policy import compile_policies

EVERY_S, IDLE_EXIT_S, POLL_S = 2.0, 60.0, 5.0
CHEAP = PoolRules("cheap", "simulated", limit=8, slots=1, price_usd=0.1, per_minute=30.0)
DEAR = PoolRules("dear", "simulated", limit=20, slots=2, price_usd=1.0, per_minute=60.0)
BROKEN = PoolRules("broken", "simulated", limit=50, slots=4, price_usd=0.01, per_minute=600.0)


class World:
    """Pools whose clients come after a wait, run tasks, and leave when they have been idle for a while."""

    def __init__(self, *pools: PoolRules, seed: int = 1, run_s: float = 60.0) -> None:
        self.rng = np.random.default_rng(seed)
        self.driver = Simulated(Engine(compile_policies))
        self.run_s = run_s
        self.requests: Counter[str] = Counter()
        self.came: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.gone = 0
        self.driver.submit(PoolsConfigured(0.0, list(pools)))
        self.driver.at(0.0, self.look)

    def submit(self, tasks: int, **rules: object) -> None:
        now = self.driver.now
        job = self.driver.submit(JobSubmitted(now, JobRules("bag", **rules), [TaskClass()])).decided.job
        self.driver.submit(TasksAdded(now, job, tasks))
        self.driver.submit(JobSealed(now, job))

    def look(self) -> None:
        driver, state = self.driver, self.driver.state
        for ask in driver.submit(OverlayDue(driver.now)).decided.asks:
            self.requests[ask.pool] += 1
            if ask.pool == "broken":
                driver.submit(PoolAnswered(driver.now, ask.pool, ask.count, "the scheduler does not answer"))
                continue
            for _ in range(ask.count):
                self.came[ask.pool] += 1
                driver.after(
                    float(self.rng.exponential(30.0)), self.come, ask.pool, f"{ask.pool}-{self.came[ask.pool]}"
                )
        for name, pool in state.supply.pools.items():
            self.most[name] = max(self.most[name], pool.queued + state.hosts.by_pool.get(name, 0))
        driver.after(EVERY_S, self.look)

    def come(self, pool: str, name: str) -> None:
        self.ask(name, 1, self.driver.state.supply.pools[pool].rules.slots, {"pool": pool}, self.driver.now)

    def ask(self, name: str, n: int, free: int, ad: dict[str, object] | None, idle_since: float) -> None:
        driver = self.driver
        host = driver.state.host(name)
        slots = free if host is None else host.slots
        if host is not None and not host.held and driver.now - idle_since >= IDLE_EXIT_S:
            driver.submit(HostAsked(driver.now, name, "b", n, 0, slots, None, "idle"))
            self.gone += 1
            return
        answer = driver.submit(HostAsked(driver.now, name, "b", n, free, slots, ad)).decided
        for piece in answer.assigned:
            for task in range(piece.first, piece.first + piece.count):
                driver.after(self.run_s, self.report, name, (piece.job, task, piece.attempt))
                free -= 1
                idle_since = driver.now
        held = bool(driver.state.host(name).held)
        free = max(0, slots - len(driver.state.host(name).held))
        driver.after(POLL_S, self.ask, name, n + 1, free, None, driver.now if held else idle_since)

    def report(self, name: str, key: tuple[int, int, int]) -> None:
        now = self.driver.now
        self.driver.submit(ResultsReported(now, name, [Result(*key, 0, 0, now - self.run_s, now)]))

    @property
    def done(self) -> bool:
        return all(bag.finished_t is not None for bag in self.driver.state.bags.values())


@pytest.mark.parametrize("seed", range(5))
def test_clients_come_as_tasks_wait_within_every_limit_and_leave_when_none_do(seed):
    world = World(CHEAP, DEAR, seed=seed)
    world.submit(300)
    world.driver.run(until=4 * 3600, done=lambda: world.done)
    assert world.done
    assert world.most["cheap"] <= CHEAP.limit and world.most["dear"] <= DEAR.limit
    assert world.came["cheap"] >= CHEAP.limit and world.came["dear"] > 0, "the cheap pool alone was not enough"
    world.driver.run(until=world.driver.now + 600)
    assert world.gone == world.came.total() and not world.driver.state.hosts.by_pool


def test_a_few_tasks_cost_only_clients_of_the_cheapest_pool():
    world = World(DEAR, CHEAP)
    world.submit(6)
    world.driver.run(until=3600, done=lambda: world.done)
    assert world.done and world.came == {"cheap": 6}


@pytest.mark.parametrize("tasks", [20, 2000])
def test_a_scheduler_that_answers_with_errors_for_hours_is_asked_a_few_times_and_the_others_do_the_work(tasks):
    world = World(BROKEN, CHEAP)
    world.submit(tasks)
    world.driver.run(until=6 * 3600, done=lambda: world.done)
    assert world.done, "although the cheapest pool by far gave nothing"
    assert world.requests["broken"] <= 12


def test_a_bag_gets_clients_only_of_the_pools_that_its_grid_policy_admits():
    world = World(CHEAP, DEAR)
    world.submit(40, policies={"GridPolicy": 'Pool.Name == "dear"'})
    world.driver.run(until=3600, done=lambda: world.done)
    assert world.done and world.came["cheap"] == 0
