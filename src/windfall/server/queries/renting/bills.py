"""What everything costs, over HTTP: by job, pool and day, and what was paid for and not used. Decides nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request

from windfall.core.explain.plan import money_of
from windfall.core.renting.fleets import name_of
from windfall.core.renting.shares import FLEET, shares_of
from windfall.core.state.jobs.columns import DONE
from windfall.core.state.renting.fleet import REFUSED, MachineState
from windfall.numeric import np
from windfall.server.queries.pictures.columns_copy import copied
from windfall.server.queries.pictures.series import cycles_of
from windfall.server.queries.renting.money import bill_row
from windfall.server.service import Service

Json = dict[str, Any]
MOST_MACHINES = 5000
"""The newest machines that a bill of everything counts; older ones are in the bills of their jobs."""
MOST_JOBS = 20
"""The newest renting jobs whose waste is told apart."""
TURN = 200


async def bills(service: Service, request: Request) -> tuple[int, Json]:
    """`{"total_usd", "machines", "counted", "jobs", "fleets", "pools", "days", "waste"}`."""
    now = service.driver.clock()
    machines = [machine for machine in service.state.fleet.machines.values() if machine.cause != REFUSED]
    counted = machines[-MOST_MACHINES:]
    rows: list[tuple[MachineState, Json]] = []
    for place, machine in enumerate(counted):
        rows.append((machine, bill_row(machine, now)))
        if place % TURN == TURN - 1:
            await asyncio.sleep(0)  # others are served meanwhile
    pools, days, jobs, idle = Counter[str](), Counter[str](), Counter[int](), Counter[int]()
    for machine, row in rows:
        pools[machine.offer.pool] += row["cost_microusd"]
        for job, microusd in shares_of(service.state, machine, now).items():
            if job == FLEET:
                idle[machine.fleet] += microusd
            else:
                jobs[job] += microusd
        for t, usd in cycles_of(row, 0.0):
            days[datetime.fromtimestamp(t, UTC).date().isoformat()] += round(1e6 * usd)
    newest = sorted(jobs, reverse=True)
    return 200, {
        "total_usd": sum(pools.values()) / 1e6,
        "machines": len(machines),
        "counted": len(counted),
        "jobs": [_job(service, number, jobs[number], now) for number in newest[:200]],
        "fleets": [
            {"fleet": name_of(service.state, number), "idle_usd": microusd / 1e6} for number, microusd in idle.items()
        ],
        "pools": [{"pool": pool, "usd": microusd / 1e6} for pool, microusd in pools.most_common()],
        "days": [{"day": day, "usd": microusd / 1e6} for day, microusd in sorted(days.items())[-90:]],
        "waste": [await _waste(service, number, rows) for number in newest[:MOST_JOBS] if _has_own(service, number)],
    }


def _has_own(service: Service, job: int) -> bool:
    """Whether a job has a fleet of its own: what a shared one wastes is not one job's."""
    return service.state.fleet.serving(job) == job


def _job(service: Service, number: int, microusd: int, now: float) -> Json:
    bag = service.state.bags[number]
    money = money_of(service.state, bag, now) or {}
    return {
        "job": number,
        "name": bag.rules.name,
        "state": bag.state,
        "usd": microusd / 1e6,
        "budget_usd": money.get("budget_usd"),
        "forecast_usd": money.get("forecast_usd"),
    }


async def _waste(service: Service, number: int, rows: list[tuple[MachineState, Json]]) -> Json:
    """Paid core-seconds of a job by what they went into; dollars in the same proportion.

    `tasks`: results that count. `boot`: from the order to the first ask for work. `remainder`: of begun cycles, what
    was not used. `idle`: the rest, which is waiting and attempts that were lost, failed or were replicas.
    """
    mine = [(machine, row) for machine, row in rows if machine.fleet == number]
    bag = service.state.bags[number]
    hosts = {machine.host for machine, _ in mine if machine.host}
    busy_s = await asyncio.to_thread(_busy_s, copied(service, bag), hosts)
    paid = sum(row["cycles"] * row["cycle_s"] * row["cores"] for _, row in mine)
    boot = sum(
        ((row["ready_s"] if row["ready_s"] is not None else row["requested_s"] + row["billed_s"]) - row["requested_s"])
        * row["cores"]
        for machine, row in mine
        if row["cycles"] and machine.offer.bills_boot
    )
    unused = sum(max(0.0, row["cycles"] * row["cycle_s"] - row["billed_s"]) * row["cores"] for _, row in mine)
    boot = min(boot, paid)
    unused = min(unused, paid - boot)
    tasks = min(busy_s, paid - boot - unused)
    usd = sum(row["cost_microusd"] for _, row in mine) / 1e6
    parts = {"tasks": tasks, "boot": boot, "remainder": unused, "idle": paid - boot - unused - tasks}
    return {
        "job": number,
        "name": bag.rules.name,
        "paid_core_s": paid,
        "attempts_lost": sum(bag.tally.lost_by_pool.values()),
        "replicas": bag.tally.waste,
        "parts": [
            {"what": what, "core_s": core_s, "usd": usd * core_s / paid if paid else 0.0}
            for what, core_s in parts.items()
        ],
    }


def _busy_s(copy: Any, hosts: set[int]) -> float:
    """Seconds of accepted results on these hosts."""
    state = np.frombuffer(copy.state, np.uint8)
    counts = (state == DONE) & np.isin(np.frombuffer(copy.host, np.uint32), list(hosts))
    return float((np.frombuffer(copy.end, np.float64)[counts] - np.frombuffer(copy.start, np.float64)[counts]).sum())
