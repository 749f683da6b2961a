"""What jobs cost, over HTTP: the ledger by machine, offer and pool, and the last plans. Decides nothing."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from msgspec.structs import replace
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from windfall.core import explain_plan, money
from windfall.core.events import PlanProposed, PlanTaken, decode_record
from windfall.core.fleet import REFUSED, MachineState, owed_microusd, tariff_of
from windfall.core.machines import machines_of
from windfall.core.state import Bag
from windfall.server.site import Site

Json = dict[str, Any]
LAST_PLANS = 5
PAGE = 5000


async def cost(site: Site, request: Request) -> tuple[int, Json]:
    """The exact ledger of one job: every machine with its cycles, sums that are sums of these."""
    bag = site.bag(request.path_params["job"])
    await site.driver.settled()
    return 200, ledger(site, bag)


def ledger(site: Site, bag: Bag) -> Json:
    """A public contract: docs/reference/cli.md, `windfall cost --json`."""
    now = site.driver.clock()
    machines = [_row(machine, now) for machine in machines_of(site.state, bag.number) if machine.cause != REFUSED]
    known = explain_plan.money_of(site.state, bag, now) or {"budget_usd": None, "forecast_usd": None}
    spent = sum(row["cost_microusd"] for row in machines)
    forecast_usd = known["forecast_usd"]
    paid_core_s = sum(row["cycles"] * row["cycle_s"] * row["cores"] for row in machines)
    return {
        "job": bag.number,
        "name": bag.rules.name,
        "state": bag.state,
        "spent_usd": money.usd(spent),
        "budget_usd": known["budget_usd"],
        "forecast_usd": forecast_usd,
        "to_come_usd": None if forecast_usd is None else max(0.0, forecast_usd - money.usd(spent)),
        "first_forecast_usd": known.get("first_forecast_usd"),
        "held_by_budget": known.get("held_by_budget", False),
        "run_s": bag.run_s,
        "paid_core_s": paid_core_s,
        "machines": machines,
        "offers": _sums(machines, ("pool", "offer", "market")),
        "pools": _sums(machines, ("pool",)),
        "strangers": [
            {"pool": pool, "id": id, "about": about}
            for pool in bag.rules.rent_from
            for id, about in site.state.strangers.get(pool, ())
        ],
    }


def _row(machine: MachineState, now: float) -> Json:
    """One machine: how long it was held, the cycles that were begun, what they cost at the prices of their time."""
    end_t = machine.ended_t if machine.ended_t is not None else now
    unit = replace(tariff_of(machine.offer), cycle_microusd=1)
    owed = owed_microusd(machine, end_t)
    return {
        "machine": machine.number,
        "pool": machine.offer.pool,
        "offer": machine.offer.name,
        "market": machine.offer.market,
        "phase": machine.phase,
        "cause": machine.cause,
        "cores": machine.offer.cores,
        "requested_s": machine.requested_t,
        "ready_s": machine.ready_t,
        "ended_s": machine.ended_t,
        "billed_s": money.held_s(machine.meter, end_t),
        "slept_s": machine.slept_s(machine.requested_t, end_t),
        "cycle_s": machine.offer.cycle_s,
        "cycles": money.owed_microusd(unit, machine.meter, end_t),
        "price_usd": machine.offer.price_usd,
        "cost_microusd": owed,
        "cost_usd": money.usd(owed),
    }


def _sums(machines: list[Json], keys: tuple[str, ...]) -> list[Json]:
    groups: defaultdict[tuple[str, ...], list[Json]] = defaultdict(list)
    for row in machines:
        groups[tuple(row[key] for key in keys)].append(row)
    return [
        {
            **dict(zip(keys, values, strict=True)),
            "machines": len(rows),
            "cycles": sum(row["cycles"] for row in rows),
            "billed_s": sum(row["billed_s"] for row in rows),
            "cost_usd": money.usd(sum(row["cost_microusd"] for row in rows)),
        }
        for values, rows in groups.items()
    ]


async def last_plans(site: Site, bag: Bag) -> list[Json]:
    """The last plans of a job that did something or were refused something, the newest first."""
    if bag.number not in site.state.plans:
        return []
    return await run_in_threadpool(_last_plans, site, bag.number)


def _last_plans(site: Site, job: int) -> list[Json]:
    found: list[Json] = []
    after = 0
    while rows := site.store.records(after, PAGE, None, ("PlanProposed",)):
        for row in rows:
            record = decode_record(row.data)
            event, taken = record.event, record.decided
            if isinstance(event, PlanProposed) and isinstance(taken, PlanTaken) and event.job == job:
                found.append(explain_plan.told(event, taken))
        after = rows[-1].seq
        acted = [plan for plan in found if plan["started"] or plan["stopped"] or plan["moved"] or plan["refused"]]
        found = acted[-LAST_PLANS:]
    return found[::-1]
