"""What everything costs, over HTTP: by job, pool and day, and what was paid for and not used. Decides nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request

from windfall.api.answers import Picture
from windfall.api.renting import BilledJob, BilledMonth, Bills, MachineBill, Waste
from windfall.core.explain.plan import money_of
from windfall.core.renting.fleets import name_of
from windfall.core.renting.settling import month_of
from windfall.core.renting.shares import FLEET, shares_of
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import DONE
from windfall.core.state.renting.fleet import REFUSED, MachineState, owed_microusd
from windfall.core.state.renting.ledger import PaidJob
from windfall.core.state.state import State
from windfall.figures.charts import bars_chart
from windfall.numeric import np
from windfall.server.queries.pictures.columns_copy import copied
from windfall.server.queries.pictures.series import cycles_of
from windfall.server.queries.renting.money import bill_row
from windfall.server.service import Service
from windfall.units import show_usd

MOST_MACHINES = 5000
"""The newest machines that a bill of everything counts; older ones are in the bills of their jobs."""
MOST_BILLED_JOBS = 200
MOST_JOBS = 20
"""The newest renting jobs and fleets whose waste is told apart."""
MOST_FLEET_JOBS = 500
"""The newest jobs of a shared fleet whose tasks are counted."""
PARTS = {
    "tasks": ("counted results", "done"), "idle": ("idle", "idle"), "boot": ("boots", "boot"),
    "remainder": ("rest of cycles", "hibernated"), "lost": ("lost attempts", "lost"),
    "failed": ("failed attempts", "failed"), "replica": ("replicas", "spot"),
    "cancelled": ("cancelled work", "cancelled"),
}  # fmt: skip
"""What paid time goes into: in words, and the class of its bar."""
WASTED = ("lost", "failed", "replica", "cancelled")
TURN = 200


async def bills(service: Service, request: Request) -> tuple[int, Bills]:
    """What everything costs: by job, fleet, pool and day, and by what it went into."""
    now = service.driver.clock()
    machines = [machine for machine in service.state.fleet.machines.values() if machine.cause != REFUSED]
    counted = machines[-MOST_MACHINES:]
    rows: list[tuple[MachineState, MachineBill]] = []
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
    ledger = service.state.fleet.ledger
    pools.update(ledger.pools())
    newest = sorted((job for job in jobs if job in service.state.bags), reverse=True)
    fleets = dict.fromkeys(service.state.fleet.serving(job) for job in newest)
    waste = [await _waste(service, number, rows) for number in list(fleets)[:MOST_JOBS]]
    return 200, {
        "total_usd": sum(pools.values()) / 1e6,
        "machines": len(machines) + ledger.machines,
        "counted": len(counted) + ledger.machines,
        "jobs": _jobs(service, jobs, now),
        "fleets": [
            {"fleet": name_of(service.state, number), "idle_usd": microusd / 1e6} for number, microusd in idle.items()
        ],
        "pools": [{"pool": pool, "usd": microusd / 1e6} for pool, microusd in pools.most_common()],
        "months": _months(service.state, machines, now),
        "days": [{"day": day, "usd": microusd / 1e6} for day, microusd in sorted(days.items())[-90:]],
        "waste": waste,
        "pictures": [_picture(waste)] if waste else [],
    }


def _picture(waste: list[Waste]) -> Picture:
    """What the rows of `waste` together went into."""
    sums = [sum(row["parts"][place]["usd"] for row in waste) for place in range(len(PARTS))]
    total = sum(sums) or 1.0
    rows = [
        (words, usd, kind, f"{show_usd(usd)} ({usd / total:.0%})")
        for (words, kind), usd in zip(PARTS.values(), sums, strict=True)
    ]
    says = "Paid for: " + ", ".join(f"{words} {text}" for words, _, _, text in rows) + "."
    return {"name": "What the money went into", "html": bars_chart(rows, says), "says": says}


def _months(state: State, machines: list[MachineState], now: float) -> list[BilledMonth]:
    """By the month in which machines ended, of forgotten jobs, too; those that are there are in the present one."""
    months = Counter({month: sum(pools.values()) for month, pools in state.fleet.ledger.months.items()})
    for machine in machines:
        end_t = now if machine.ended_t is None else machine.ended_t
        months[month_of(end_t)] += owed_microusd(machine, end_t)
    return [{"month": month, "usd": microusd / 1e6} for month, microusd in sorted(months.items())]


def _jobs(service: Service, jobs: Counter[int], now: float) -> list[BilledJob]:
    """The newest that have rented something, those that were forgotten included."""
    paid = service.state.fleet.ledger.jobs
    newest = sorted({*jobs, *paid}, reverse=True)[:MOST_BILLED_JOBS]
    return [
        _job(service, number, jobs[number], now) if number in service.state.bags
        else _forgotten(number, paid.get(number), jobs.get(number))
        for number in newest
    ]  # fmt: skip


def _forgotten(number: int, paid: PaidJob | None, share: int | None) -> BilledJob:
    """`share`: what the machines of a named fleet say."""
    microusd = share if share is not None else 0 if paid is None else paid.microusd
    return {
        "job": number, "name": "" if paid is None else paid.name, "state": "forgotten", "usd": microusd / 1e6,
        "budget_usd": None, "forecast_usd": None,
    }  # fmt: skip


def _job(service: Service, number: int, microusd: int, now: float) -> BilledJob:
    bag = service.state.bags[number]
    money: Mapping[str, Any] = money_of(service.state, bag, now) or {}
    return {
        "job": number,
        "name": bag.rules.name,
        "state": bag.state,
        "usd": microusd / 1e6,
        "budget_usd": money.get("budget_usd"),
        "forecast_usd": money.get("forecast_usd"),
    }


async def _waste(service: Service, number: int, rows: list[tuple[MachineState, MachineBill]]) -> Waste:
    """Paid core-seconds of a fleet (a job's own, or a shared one) by what they went into; dollars in proportion.

    `tasks`: results that count, and attempts that run. `boot`: from the order to the first ask for work. `remainder`:
    of begun cycles, what was not used. `lost`, `failed`, `replica`, `cancelled`: attempts whose results do not count.
    `idle`: the rest. The parts add up to the bill.
    """
    mine = [(machine, row) for machine, row in rows if machine.fleet == number]
    jobs = _jobs_of(service, number)
    paid = sum(row["cycles"] * row["cycle_s"] * row["cores"] for _, row in mine)
    boot = min(paid, sum(_boot_core_s(machine, row) for machine, row in mine))
    unused = sum(max(0.0, row["cycles"] * row["cycle_s"] - row["billed_s"]) * row["cores"] for _, row in mine)
    unused = min(unused, paid - boot)
    hosts = {machine.host for machine, _ in mine if machine.host}
    busy = 0.0
    for bag in jobs:
        busy += await asyncio.to_thread(_busy_core_s, copied(service, bag), _cores(bag), hosts)
    busy += sum(_running_core_s(service, machine) for machine, _ in mine if machine.there)
    tasks = min(busy, paid - boot - unused)
    parts = {"tasks": tasks, "boot": boot, "remainder": unused, **_wasted(jobs, paid - boot - unused - tasks)}
    parts["idle"] = max(0.0, paid - sum(parts.values()))
    usd = sum(row["cost_microusd"] for _, row in mine) / 1e6
    fleet = name_of(service.state, number)
    return {
        "job": None if fleet else number,
        "fleet": fleet,
        "name": fleet or jobs[0].rules.name,
        "usd": usd,
        "paid_core_s": paid,
        "attempts_lost": sum(sum(bag.tally.lost_by_pool.values()) for bag in jobs),
        "replicas": sum(bag.tally.waste for bag in jobs),
        "parts": [
            {"what": what, "core_s": parts[what], "usd": usd * parts[what] / paid if paid else 0.0} for what in PARTS
        ],
    }


def _jobs_of(service: Service, number: int) -> list[Bag]:
    """The newest jobs of a fleet; one, if it is a job's own."""
    state = service.state
    if number in state.bags:
        return [state.bags[number]]
    of_fleet = [job for job, fleet in state.fleet.book.of_job.items() if fleet == number and job in state.bags]
    return [state.bags[job] for job in sorted(of_fleet)[-MOST_FLEET_JOBS:]]


def _boot_core_s(machine: MachineState, row: MachineBill) -> float:
    """Paid core-seconds before a machine asked for work."""
    if not row["cycles"] or not machine.offer.bills_boot:
        return 0.0
    ready_s = row["ready_s"] if row["ready_s"] is not None else row["requested_s"] + row["billed_s"]
    return float((ready_s - row["requested_s"]) * row["cores"])


def _running_core_s(service: Service, machine: MachineState) -> float:
    """Core-seconds of the attempts that a machine holds, from their sending on."""
    host, now, total = service.state.hosts.get(machine.host), service.driver.clock(), 0.0
    for job, task, number in host.held if host is not None else ():
        bag = service.state.bags[job]
        attempt = bag.attempts.find(task, number)
        if attempt is not None:
            total += max(0.0, now - attempt.sent) * bag.classes[bag.class_of(task)].cpus
    return total


def _wasted(jobs: list[Bag], most: float) -> dict[str, float]:
    """Core-seconds of attempts whose results do not count, by why; at most `most` in all.

    An attempt that waited on its host behind others counts from its sending on, so that they can add up to more.
    """
    found = {why: sum(bag.tally.wasted_core_s.get(why, 0.0) for bag in jobs) for why in WASTED}
    scale = min(1.0, most / max(sum(found.values()), 1e-9))
    return {why: core_s * scale for why, core_s in found.items()}


def _cores(bag: Bag) -> Any:
    """Cores of each task, in order; or of all, where they are equal."""
    cpus = [rules.cpus for rules in bag.classes]
    if len(set(cpus)) == 1:
        return float(cpus[0])
    cores = np.empty(bag.total)
    edges = [*(first for first, _ in bag.columns.segments), bag.total]
    for (first, index), until in zip(bag.columns.segments, edges[1:], strict=True):
        cores[first:until] = cpus[index]
    return cores


def _busy_core_s(copy: Any, cores: Any, hosts: set[int]) -> float:
    """Core-seconds of accepted results on these hosts."""
    state = np.frombuffer(copy.state, np.uint8)
    counts = (state == DONE) & np.isin(np.frombuffer(copy.host, np.uint32), list(hosts))
    seconds = np.frombuffer(copy.end, np.float64) - np.frombuffer(copy.start, np.float64)
    return float((seconds * cores)[counts].sum())
