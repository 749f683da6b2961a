"""What jobs cost, over HTTP: the ledger by machine, offer and pool, the last plans, what is left. Decides nothing."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from math import isinf
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace
from starlette.requests import Request

from windfall.core.decisions import PlanTaken
from windfall.core.events import PlanProposed
from windfall.core.explain import plan as explain_plan
from windfall.core.records import decode_record
from windfall.core.renting import money
from windfall.core.renting.fleets import name_of
from windfall.core.renting.machines import machines_of, pools_of
from windfall.core.renting.runtimes import Outlook
from windfall.core.renting.shares import charged_to_job_microusd, shares_of
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import HELD, WAITING
from windfall.core.state.renting.fleet import MachineState, owed_microusd, tariff_of
from windfall.planning.contract import SPOT, Market
from windfall.planning.offers import Offer
from windfall.server.queries.renting.graph_left import graph_of
from windfall.server.service import Service

Json = dict[str, Any]
LAST_PLANS = 5
PAGE = 5000


async def cost(service: Service, request: Request) -> tuple[int, Json]:
    """The exact ledger of one job: every machine with its cycles, sums that are sums of these."""
    bag = service.bag(request.path_params["job"])
    await service.driver.settled()
    return 200, ledger(service, bag)


def ledger(service: Service, bag: Bag) -> Json:
    """A public contract: docs/reference/cli.md, `windfall cost --json`."""
    now = service.driver.clock()
    machines = _rows(service, bag, now)
    known = explain_plan.money_of(service.state, bag, now) or {"budget_usd": None, "forecast_usd": None}
    spent = sum(row["share_microusd"] for row in machines)
    forecast_usd = known["forecast_usd"]
    paid_core_s = sum(row["cycles"] * row["cycle_s"] * row["cores"] for row in machines)
    return {
        "job": bag.number,
        "name": bag.rules.name,
        "state": bag.state,
        "fleet": name_of(service.state, service.state.fleet.serving(bag.number)),
        "spent_usd": money.usd(spent),
        "budget_usd": known["budget_usd"],
        "forecast_usd": forecast_usd,
        "to_come_usd": None if forecast_usd is None else max(0.0, forecast_usd - money.usd(spent)),
        "first_forecast_usd": known.get("first_forecast_usd"),
        "held_by_budget": known.get("held_by_budget", False),
        "after_stop_usd": known.get("after_stop_usd", 0.0),
        "run_s": bag.tally.run_s,
        "paid_core_s": paid_core_s,
        "machines": machines,
        "offers": _sums(machines, ("pool", "offer", "market")),
        "pools": _sums(machines, ("pool",)),
        "strangers": strangers(service, bag),
    }


def _rows(service: Service, bag: Bag, now: float) -> list[Json]:
    """The machines of a job; of a shared fleet, those that it has a share of. Its share is all of its own ones."""
    rows = []
    for machine in machines_of(service.state, service.state.fleet.serving(bag.number)):
        share = shares_of(service.state, machine, now).get(bag.number)
        if share is not None:
            rows.append({**bill_row(machine, now), "share_microusd": share, "share_usd": money.usd(share)})
    return rows


def strangers(service: Service, bag: Bag) -> list[Json]:
    """Machines in the pools of a job that are not this server's, or were forgotten by it."""
    return [
        {"pool": pool, "id": id, "about": about}
        for pool in pools_of(service.state, bag)
        for id, about in service.state.fleet.strangers.get(pool, ())
    ]


def bill_row(machine: MachineState, now: float) -> Json:
    """One machine: how long it was held, the cycles that were begun, what they cost at the prices of their time."""
    end_t = machine.ended_t if machine.ended_t is not None else now
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
        "cycles": money.owed_cycles(tariff_of(machine.offer), machine.meter, end_t),
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
            "cost_usd": money.usd(sum(int(row["share_microusd"]) for row in rows)),
        }
        for values, rows in groups.items()
    ]


async def last_plans(service: Service, bag: Bag) -> list[Json]:
    """The last plans of a job that did something or were refused something, the newest first."""
    if service.state.fleet.plan_of(bag.number) is None:
        return []
    return await asyncio.to_thread(_last_plans, service, service.state.fleet.serving(bag.number))


def _last_plans(service: Service, job: int) -> list[Json]:
    found: list[Json] = []
    after = 0
    while rows := service.store.records(after, PAGE, job, ("PlanProposed",)):
        for row in rows:
            record = decode_record(row.data)
            event, taken = record.event, record.decided
            if isinstance(event, PlanProposed) and isinstance(taken, PlanTaken) and event.job == job:
                found.append(explain_plan.told(event, taken))
        after = rows[-1].seq
        acted = [plan for plan in found if plan["started"] or plan["stopped"] or plan["moved"] or plan["refused"]]
        found = acted[-LAST_PLANS:]
    return found[::-1]


async def unfinished(service: Service, request: Request) -> tuple[int, Json]:
    """What is left of a job and what may be rented for it, as its planner knows it: enough to simulate the rest."""
    bag = service.bag(request.path_params["job"])
    await service.driver.settled()
    return 200, left_of(service, bag)


def left_of(service: Service, bag: Bag) -> Json:
    """The tasks of a job by class (unfinished ones, and `of` all), its deadline and budget from now on, and the offers
    of its pools; `graph` of a workflow that is small enough to simulate."""
    now, state, rules = service.driver.clock(), service.state, bag.rules
    open_ = Counter(bag.class_of(task) for task, value in enumerate(bag.columns.state) if value in (WAITING, HELD))
    all_ = Counter(bag.class_of(task) for task in range(bag.total))
    spent = charged_to_job_microusd(state, bag.number, now)
    return {
        "job": bag.number,
        "name": rules.name,
        "state": bag.state,
        "workflow": bag.shape is not None,
        "planner": rules.planner,
        "confidence": rules.confidence,
        "deadline_in_s": None if rules.deadline_s is None else bag.submitted_t + rules.deadline_s - now,
        "deadline_s": rules.deadline_s,
        "spent_usd": money.usd(spent),
        "budget_usd": None if rules.budget_microusd is None else money.usd(rules.budget_microusd),
        "budget_left_usd": None if rules.budget_microusd is None else money.usd(max(0, rules.budget_microusd - spent)),
        "machines": len(state.fleet.there_of.get(state.fleet.serving(bag.number), {})),
        "classes": [_class(service, bag, index, open_[index]) | {"of": count} for index, count in sorted(all_.items())],
        "graph": graph_of(state, bag),
        "offers": [
            offer_told(service, offer) for pool in pools_of(state, bag) for offer in state.fleet.offers.get(pool, ())
        ],
    }


def _class(service: Service, bag: Bag, index: int, count: int) -> Json:
    """Unfinished tasks of one class, and what was learned of how long they take on a machine of speed 1."""
    learned = service.state.learned.run_times.get(bag.class_key(index))
    rules = bag.classes[index]
    outlook = Outlook(service.state, bag, index, bag.rules.confidence, service.state.t)
    return {
        "tasks": count,
        "estimate_s": outlook.mean_s if learned else rules.estimate_s,
        "run_times_s": list(learned.seconds) if learned else [],
        "memory_bytes": rules.memory_for(1),
        "cpus": rules.cpus,
        "resources": {
            name: amount / 1000 for name, amount in rules.needs if name not in service.state.settings.resources
        },
    }


def offer_told(service: Service, offer: Offer) -> Json:
    """An offer with the rates of interruption that were learned of it."""
    if offer.market == SPOT:
        from windfall.planning.spot.live import learned_rates

        markets: dict[str, Market] = {
            key: seen.market() for key, seen in service.state.fleet.markets.items() if key.startswith(f"{offer.pool}/")
        }
        law = learned_rates(offer, markets)
        offer = replace(
            offer, interruptions_per_h=3600.0 * law.interrupts_per_s, resumes_per_h=3600.0 * law.resumes_per_s
        )
    from windfall.server.queries.renting.market import price_law  # not above: it loads the libraries of numbers

    if (moves := price_law(service.state.fleet.markets.get(offer.key))) is not None:
        offer = replace(offer, price_moves=moves)
    told: Json = to_builtins(offer)
    return told | {"memory_gb": None if isinf(offer.memory_gb) else offer.memory_gb}
