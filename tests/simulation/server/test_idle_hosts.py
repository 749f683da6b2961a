"""A host that waits for work gets a replica as soon as an attempt is slow: live, and the same in the simulator."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.engine.virtual_loop import run_virtually
from windfall.core import events as ev
from windfall.core.engine import Engine
from windfall.core.events import HostAsked, Settings
from windfall.drivers.realtime import Realtime
from windfall.policy import compile_policies
from windfall.server.service import Service
from windfall.sim.scenario import check
from windfall.sim.world import World
from windfall.store.memory import MemoryStore
from windfall.wire.messages import CAUSES, DONE

RUN_S, TASKS = 4.0, 8


async def live() -> list[ev.Key]:
    """What host `b` gets when it is woken: it has asked when one attempt of `a` was out, and had just begun."""
    loop = asyncio.get_running_loop()
    driver = Realtime(MemoryStore(), Engine(compile_policies), Settings(lease_s=3600.0))
    driver.clock = loop.time  # type: ignore[assignment]
    driver.restore()
    service = Service(driver, driver.store)
    await driver.start()
    await driver.submit([ev.JobSubmitted(loop.time(), ev.JobRules("bag"), [ev.TaskClass()])])
    await driver.submit([ev.TasksAdded(loop.time(), 1, TASKS), ev.JobSealed(loop.time(), 1)])
    for n in range(1, TASKS + 1):
        (record,) = await driver.submit([HostAsked(loop.time(), "a", "b", n, 1, 1, {} if n == 1 else None)])
        (piece,) = record.decided.assigned
        if n < TASKS:
            await asyncio.sleep(RUN_S)
            result = ev.Result(1, piece.first, 1, CAUSES.index(DONE), 0, loop.time() - RUN_S, loop.time())
            await driver.submit([ev.ResultsReported(loop.time(), "a", [result])])
    (record,) = await driver.submit([HostAsked(loop.time(), "b", "b", 1, 1, 1, {})])
    assert record.decided.assigned == []
    await service.host_waits("b", record.seq, 1000.0)
    (record,) = await driver.submit([HostAsked(loop.time(), "b", "b", 2, 1, 1)])
    await driver.stop()
    return [(piece.job, piece.first, piece.attempt) for piece in record.decided.assigned]


def test_the_open_request_of_an_idle_worker_is_answered_with_the_replica():
    assert run_virtually(live()) == [(1, TASKS - 1, 2)]


async def lost() -> list[str]:
    """Who waits after the connection of the only waiting worker was lost."""
    driver = Realtime(MemoryStore(), Engine(compile_policies), Settings(lease_s=3600.0))
    driver.restore()
    service = Service(driver, driver.store)
    await driver.start()
    (record,) = await driver.submit([HostAsked(driver.clock(), "a", "b", 1, 1, 1, {})])
    waits = asyncio.create_task(service.host_waits("a", record.seq, 1000.0))
    await asyncio.sleep(0)
    assert list(service.idle.since) == ["a"]
    waits.cancel()
    await asyncio.gather(waits, return_exceptions=True)
    await driver.stop()
    return list(service.idle.since)


def test_a_worker_whose_connection_is_lost_waits_no_more():
    """It would be woken in the place of one that does."""
    assert asyncio.run(lost()) == []


def finished_t(seed: int, **pool) -> float:
    document = {
        "server": {"lease": "1h"},
        "pool": [{"name": "grid", "hosts": 30, "poll": "5m", "stragglers": 0.05, "straggler_factor": 100.0} | pool],
        "bag": [{"name": "bag", "tasks": 60, "run": "4s"}],
    }
    made = World(check(document | {"until": "1h"}, Path("test.toml")), seed)
    made.run()
    ended_t = made.driver.state.bags[1].finished_t
    assert ended_t is not None
    return ended_t


def test_hosts_of_the_simulator_hear_of_a_slow_attempt_at_once_unless_their_pool_does_not_wait():
    seeds = range(1, 31)
    waiting = [finished_t(seed) for seed in seeds]
    # Two rounds of 4 s, and a replica of what began last once it is late, and of that one in turn.
    assert max(waiting) < 18.0, waiting
    asking = [finished_t(seed, long_poll=False) for seed in seeds]
    assert sum(asking) > 1.3 * sum(waiting), "hosts that ask again later would show what this test is about"


def test_hosts_that_wait_hear_at_once_of_a_job_and_of_a_task_that_was_given_up():
    pool = {"name": "grid", "hosts": 30, "poll": "1h", "poll_max": "1h", "stragglers": 0.5, "straggler_factor": 1e6}
    bag = {"name": "late", "tasks": 2, "run": "4s", "submit": "10m", "max_losses": 100}
    policy = {"Deadline": "30", "ReplicationRequirements": "false"}
    document = {"pool": [pool], "bag": [bag | {"policy": policy}]}
    made = World(check(document | {"until": "1d"}, Path("test.toml")), 1)
    made.run()
    bag = made.driver.state.bags[1]
    assert bag.state == "done" and bag.tally.attempts > 2
    assert bag.finished_t is not None and bag.finished_t < 600.0 + 31.0 * bag.tally.attempts


def test_the_loser_of_two_replicas_is_cancelled_at_once_and_its_host_is_free():
    ran = []
    pool = {"name": "grid", "hosts": 30, "poll": "5m", "stragglers": 0.1, "straggler_factor": 100.0}
    document = {"pool": [pool], "bag": [{"name": "bag", "tasks": 60, "run": "4s"}]}
    made = World(check(document, Path("test.toml")), 1, watch=lambda *told: ran.append(told))
    made.run()
    done = {key[:2]: end_s for _, key, _, end_s, cause in ran if cause == CAUSES.index(DONE)}
    losers = [(key, end_s) for _, key, _, end_s, cause in ran if cause == CAUSES.index("cancelled")]
    assert losers and all(end_s == done[key[:2]] for key, end_s in losers)
