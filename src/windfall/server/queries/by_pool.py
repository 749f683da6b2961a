"""What each pool has done for a job, over HTTP: tasks, lost attempts, throughput, cost. Decides nothing."""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter
from collections.abc import Iterable
from math import inf
from typing import Any

from msgspec import Struct, field
from starlette.requests import Request

from windfall.api.answers import JobPool, JobPools
from windfall.core.renting import money
from windfall.core.renting.machines import machines_of
from windfall.core.renting.shares import shares_of
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import DONE
from windfall.numeric import np
from windfall.server.service import Service

Json = dict[str, Any]
MANY_TASKS = 20_000
FORGOTTEN = "(forgotten)"
"""The pool of hosts that have been forgotten because they were away for days."""


class PoolSum(Struct):
    """Tasks done in one pool: how many, for how long they ran, from when to when, on which hosts."""

    done: int = 0
    run_s: float = 0.0
    first_t: float = inf
    last_t: float = -inf
    hosts: set[int] = field(default_factory=set)


async def pools(service: Service, request: Request) -> tuple[int, JobPools]:
    bag = service.bag(request.path_params["job"])
    return 200, {"job": bag.number, "name": bag.rules.name, "pools": await rows(service, bag)}


async def rows(service: Service, bag: Bag) -> list[JobPool]:
    """One row for each pool that has done something for the job, the one with the most tasks first."""
    columns = bag.columns
    # Copies, for a thread: a million tasks take a while, and the loop must not wait.
    parts = (columns.state[:], columns.host[:], columns.start[:], columns.end[:])
    names = {host.number: host.pool for host in service.state.hosts.values()}
    sums = await asyncio.to_thread(_sums, *parts, names)
    owed, machines = _owed(service, bag)
    lost = bag.tally.lost_by_pool
    found: list[JobPool] = []
    for pool in dict.fromkeys([*sums, *lost, *owed]):
        mine = sums.get(pool, PoolSum())
        span_s = mine.last_t - mine.first_t
        found.append(
            {
                "pool": pool,
                "tasks_done": mine.done,
                "attempts_lost": lost.get(pool, 0),
                "hosts": len(mine.hosts),
                "run_s": mine.run_s,
                "tasks_per_s": mine.done / span_s if mine.done and span_s > 0 else None,
                "machines": machines.get(pool, 0),
                "cost_usd": money.usd(owed.get(pool, 0)),
            }
        )
    return sorted(found, key=lambda row: (-row["tasks_done"], row["pool"]))


def _sums(
    states: array[int], hosts: array[int], starts: array[float], ends: array[float], names: dict[int, str]
) -> dict[str, PoolSum]:
    """By pool. A million tasks take numpy 0.1 s, which it takes without holding up other threads for long."""
    if len(states) < MANY_TASKS:
        return _counted(states, hosts, starts, ends, names)
    done = np.frombuffer(states, np.uint8) == DONE
    host = np.frombuffer(hosts, np.uint32)[done]
    start, end = np.frombuffer(starts, np.float64)[done], np.frombuffer(ends, np.float64)[done]
    counts = np.bincount(host)
    run_s = np.bincount(host, weights=end - start)
    first_t, last_t = np.full(len(counts), inf), np.full(len(counts), -inf)
    np.minimum.at(first_t, host, start)
    np.maximum.at(last_t, host, end)
    sums: dict[str, PoolSum] = {}
    for number in np.flatnonzero(counts).tolist():
        of = sums.setdefault(names.get(number, FORGOTTEN), PoolSum())
        of.done += int(counts[number])
        of.run_s += float(run_s[number])
        of.first_t, of.last_t = min(of.first_t, float(first_t[number])), max(of.last_t, float(last_t[number]))
        of.hosts.add(number)
    return sums


def _counted(
    states: Iterable[int], hosts: Iterable[int], starts: Iterable[float], ends: Iterable[float], names: dict[int, str]
) -> dict[str, PoolSum]:
    """The same, task by task: a small job is counted before numpy is loaded."""
    sums: dict[str, PoolSum] = {}
    for state, host, start, end in zip(states, hosts, starts, ends, strict=False):
        if state == DONE:
            of = sums.setdefault(names.get(host, FORGOTTEN), PoolSum())
            of.done += 1
            of.run_s += end - start
            of.first_t, of.last_t = min(of.first_t, start), max(of.last_t, end)
            of.hosts.add(host)
    return sums


def _owed(service: Service, bag: Bag) -> tuple[dict[str, int], dict[str, int]]:
    """Micro-dollars and machines by pool."""
    now = service.driver.clock()
    owed, machines = Counter[str](), Counter[str]()
    for machine in machines_of(service.state, service.state.fleet.serving(bag.number)):
        if machine.id:
            share = shares_of(service.state, machine, now)
            owed[machine.offer.pool] += share.get(bag.number, 0)
            machines[machine.offer.pool] += bag.number in share
    return dict(owed), dict(machines)
