"""What jobs cost, over HTTP: the ledger by machine, offer and pool, the last plans, what is left. Decides nothing."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable
from math import isinf
from typing import TYPE_CHECKING

from msgspec import to_builtins
from msgspec.structs import replace
from starlette.requests import Request

from windfall.api.asking import KnownOffer, OpenClass, Unfinished
from windfall.api.renting import BillSum, JobCost, JobMachineBill, MachineBill, PastPlan, Stranger
from windfall.core.explain import plan as explain_plan
from windfall.core.renting import money
from windfall.core.renting.fleets import name_of
from windfall.core.renting.machines import machines_of, pools_of
from windfall.core.renting.runtimes import Outlook
from windfall.core.renting.shares import charged_to_job_microusd, shares_of
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import HELD, WAITING
from windfall.core.state.renting.fleet import MachineState, machine_of, owed_microusd, tariff_of
from windfall.core.state.state import State
from windfall.planning.contract import SPOT
from windfall.planning.offers import Offer
from windfall.server.queries.renting.graph_left import graph_of
from windfall.server.queries.renting.past_plans import newest_plans
from windfall.server.service import Service

if TYPE_CHECKING:
    from windfall.planning.spot.live import Learner

LAST_PLANS = 5


async def cost(service: Service, request: Request) -> tuple[int, JobCost]:
    """The exact ledger of one job: every machine with its cycles, sums that are sums of these."""
    bag = service.bag(request.path_params["job"])
    await service.driver.settled()
    return 200, ledger(service, bag)


def ledger(service: Service, bag: Bag) -> JobCost:
    """A public contract: docs/reference/cli.md, `windfall cost --json`."""
    now = service.driver.clock()
    machines = _rows(service, bag, now)
    known = explain_plan.money_of(service.state, bag, now)
    spent = sum(row["share_microusd"] for row in machines)
    forecast_usd = known["forecast_usd"] if known else None
    paid_core_s = sum(row["cycles"] * row["cycle_s"] * row["cores"] for row in machines)
    return {
        "job": bag.number,
        "name": bag.rules.name,
        "state": bag.state,
        "fleet": name_of(service.state, service.state.fleet.serving(bag.number)),
        "spent_usd": money.usd(spent),
        "budget_usd": known["budget_usd"] if known else None,
        "forecast_usd": forecast_usd,
        "to_come_usd": None if forecast_usd is None else max(0.0, forecast_usd - money.usd(spent)),
        "first_forecast_usd": known["first_forecast_usd"] if known else None,
        "held_by_budget": known["held_by_budget"] if known else False,
        "after_stop_usd": known["after_stop_usd"] if known else 0.0,
        "run_s": bag.tally.run_s,
        "paid_core_s": paid_core_s,
        "machines": machines,
        "offers": _sums(machines, by_offer=True),
        "pools": _sums(machines, by_offer=False),
        "strangers": strangers(service, bag),
    }


def _rows(service: Service, bag: Bag, now: float) -> list[JobMachineBill]:
    """The machines of a job; of a shared fleet, those that it has a share of. Its share is all of its own ones."""
    rows: list[JobMachineBill] = []
    for machine in machines_of(service.state, service.state.fleet.serving(bag.number)):
        share = shares_of(service.state, machine, now).get(bag.number)
        if share is not None:
            rows.append({**bill_row(machine, now), "share_microusd": share, "share_usd": money.usd(share)})
    return rows


def strangers(service: Service, bag: Bag) -> list[Stranger]:
    """Machines in the pools of a job that are not this server's, or were forgotten by it."""
    return [
        {"pool": pool, "id": id, "about": about}
        for pool in pools_of(service.state, bag)
        for id, about in service.state.fleet.strangers.get(pool, ())
    ]


def bill_row(machine: MachineState, now: float) -> MachineBill:
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


def _sums(machines: list[JobMachineBill], by_offer: bool) -> list[BillSum]:
    """By pool, or by pool, offer and market."""
    groups: defaultdict[tuple[str, str, str], list[JobMachineBill]] = defaultdict(list)
    for row in machines:
        groups[(row["pool"], row["offer"] if by_offer else "", row["market"] if by_offer else "")].append(row)
    sums: list[BillSum] = []
    for (pool, offer, market), rows in groups.items():
        made: BillSum = {
            "pool": pool,
            "machines": len(rows),
            "cycles": sum(row["cycles"] for row in rows),
            "billed_s": sum(row["billed_s"] for row in rows),
            "cost_usd": money.usd(sum(row["share_microusd"] for row in rows)),
        }
        sums.append({**made, "offer": offer, "market": market} if by_offer else made)
    return sums


async def last_plans(service: Service, bag: Bag) -> list[PastPlan]:
    """The last plans of a job that did something or were refused something, the newest first."""
    if service.state.fleet.plan_of(bag.number) is None:
        return []
    fleet = service.state.fleet.serving(bag.number)
    found, _ = await asyncio.to_thread(newest_plans, service, fleet, LAST_PLANS, True)
    return found


async def unfinished(service: Service, request: Request) -> tuple[int, Unfinished]:
    """What is left of a job and what may be rented for it, as its planner knows it: enough to simulate the rest."""
    bag = service.bag(request.path_params["job"])
    await service.driver.settled()
    return 200, left_of(service, bag)


def left_of(service: Service, bag: Bag) -> Unfinished:
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
        "classes": [_class(service, bag, index, open_[index], of) for index, of in sorted(all_.items())],
        "graph": graph_of(state, bag),
        "free_slots": free_slots(state, bag.number),
        "of_server": {name: amount / 1000 for name, amount in state.settings.resources.items()},
        "offers": offers_told(service, pools_of(state, bag)),
    }


def free_slots(state: State, job: int = 0) -> list[int]:
    """Slots of each free host that are idle or work for this job."""
    hosts = [host for number in state.hosts.live if not (host := state.hosts[number]).access.draining]
    free = [host.slots - sum(key[0] != job for key in host.held) for host in hosts if machine_of(state, host) is None]
    return [slots for slots in free if slots > 0]


def _class(service: Service, bag: Bag, index: int, count: int, of: int) -> OpenClass:
    """Unfinished tasks of one class, and what was learned of how long they take on a machine of speed 1."""
    learned = service.state.learned.run_times.get(bag.class_key(index))
    rules = bag.classes[index]
    outlook = Outlook(service.state, bag, index, bag.rules.confidence, service.state.t)
    of_server = service.state.settings.resources
    return {
        "tasks": count,
        "of": of,
        "estimate_s": outlook.mean_s if learned else rules.estimate_s,
        "run_times_s": list(learned.seconds) if learned else [],
        "memory_bytes": rules.memory_for(1),
        "cpus": rules.cpus,
        "resources": {name: amount / 1000 for name, amount in rules.needs if name not in of_server},
        "of_server": {name: amount / 1000 for name, amount in rules.needs if name in of_server},
        "spread": rules.spread,
    }


def offers_told(service: Service, pools: Iterable[str]) -> list[KnownOffer]:
    """The offers of these pools, with the rates of interruption that were learned of them: those of `market show`."""
    from windfall.server.queries.renting.market import learner_of  # not above: it loads the libraries of numbers

    state = service.state
    offers = [offer for pool in pools for offer in state.fleet.offers.get(pool, ())]
    learner = learner_of(state, service.driver.clock()) if offers else None
    return [_offer_told(state, offer, learner) for offer in offers if learner is not None]


def _offer_told(state: State, offer: Offer, learner: Learner) -> KnownOffer:
    from windfall.server.queries.renting.market import price_law

    if offer.market == SPOT:
        law = learner.rates(offer)
        offer = replace(
            offer, interruptions_per_h=3600.0 * law.interrupts_per_s, resumes_per_h=3600.0 * law.resumes_per_s
        )
    if (moves := price_law(state.fleet.markets.get(offer.key))) is not None:
        offer = replace(offer, price_moves=moves)
    told: KnownOffer = to_builtins(offer)
    return {**told, "memory_gb": None if isinf(offer.memory_gb) else offer.memory_gb}
