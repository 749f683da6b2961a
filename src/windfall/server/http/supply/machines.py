"""Rented machines over HTTP: offers, machines, strangers, and poking an emulated cloud. Touches that cloud."""

from __future__ import annotations

import asyncio
import math
from itertools import islice
from typing import Any

from starlette.requests import Request

from windfall.api.renting import MachineRow, Machines, Offered, OfferRow, Stranger
from windfall.api.small import Poked
from windfall.bags.spec import JobSpec
from windfall.bounds import MAX_INTEGER
from windfall.core.renting import money
from windfall.core.renting.fleets import name_of
from windfall.core.state.hosts.hosts import GONE
from windfall.core.state.renting.fleet import MachineState, owed_microusd, paid_until_t, queue_of
from windfall.errors import BadInput
from windfall.planning.contract import BAG, ONDEMAND, WORKFLOW
from windfall.planning.offers import Offer
from windfall.server.queries.jobs import whole
from windfall.server.service import NotFound, Service, decimal

Json = dict[str, Any]


def check_rented(service: Service, spec: JobSpec, is_workflow: bool) -> None:
    """Refuse a job that would wait for ever: pools that rent nothing here, an unknown planner."""
    for pool in spec.pools:
        renting = service.rented.pools if service.rented is not None else {}
        if pool not in renting:
            names = ", ".join(renting)
            hint = f"those that do: {names}" if names else "name the file that describes it: --pools pools.toml"
            raise BadInput(f"there is no pool '{pool}' that rents machines", hint=hint, code="no-such-pool")
    check_sets(service, spec, spec.pools, is_workflow)
    if spec.planner:
        from windfall.planning.registry import planner_named

        planner_named(spec.planner, WORKFLOW if is_workflow else BAG)


def check_sets(service: Service, spec: JobSpec, pools: list[str], is_workflow: bool) -> None:
    """Refuse a job whose tasks take more machines at once than any offer of these pools has.

    In a workflow on-demand machines are such sets, and other tasks need a machine beside them.
    """
    classes = spec.task_classes()
    nodes = max((needs.nodes for needs in classes), default=0)
    if not nodes or not pools:
        return
    if is_workflow and spec.fleet:
        hint = f"name pools instead of fleet '{spec.fleet}', or submit these tasks as a job of their own"
        raise BadInput("nodes: fleets do not rent several machines for one task of a workflow", hint=hint)
    offers = [offer for pool in pools for offer in service.state.fleet.offers.get(pool, ())]
    steady = [offer for offer in offers if offer.market == ONDEMAND]
    able = steady if is_workflow else [offer for offer in offers if offer in steady or offer.when_taken == "terminate"]
    most = max((math.inf if offer.most is None else offer.most for offer in able), default=0)
    beside = int(is_workflow and not all(needs.nodes for needs in classes))
    if offers and nodes + beside > most:
        names, few = ", ".join(pools), f"at most {most:g} {'on-demand ' * is_workflow}machines of one offer"
        more = ", other tasks of the workflow take one more" if beside else ""
        raise BadInput(
            f"nodes: a task takes {nodes} machines at once{more}, and {names} rents {few}",
            hint=f"ask for at most {most - beside:g}, or raise the limit of the pool" if most > beside else
            f"rent on-demand machines{'' if is_workflow else ', or spot machines that do not hibernate'}",
            code="too-few-machines",
        )  # fmt: skip


async def machines(service: Service, request: Request) -> tuple[int, Machines]:
    """What is offered and what was rented, the newest first; `pool`, `job` and `there=1` narrow it down."""
    query = request.query_params
    limit = whole(request, "limit", MAX_INTEGER)
    fleet = service.state.fleet.serving(service.bag(query["job"]).number) if query.get("job") else None
    found = (
        machine
        for machine in reversed(service.state.fleet.machines.values())
        if query.get("pool") in (None, "", machine.offer.pool)
        and fleet in (None, machine.fleet)
        and (machine.there or not query.get("there"))
    )
    rows = [machine_row(service, machine) for machine in islice(found, limit)]
    of_server = {name: amount / 1000 for name, amount in service.state.settings.resources.items()}
    return 200, {"machines": rows, **rented(service, query.get("pool")), "resources": of_server}


def rented(service: Service, pool: str | None = None) -> Offered:
    """Offers and strangers by pool."""
    offers = [
        offer_row(offer)
        for name, list_ in service.state.fleet.offers.items()
        if pool in (None, "", name)
        for offer in list_
    ]
    strangers: list[Stranger] = [
        {"pool": name, "id": id, "about": about}
        for name, list_ in service.state.fleet.strangers.items()
        if pool in (None, "", name)
        for id, about in list_
    ]
    return {"offers": offers, "strangers": strangers}


def offer_row(offer: Offer) -> OfferRow:
    return {
        "pool": offer.pool,
        "offer": offer.name,
        "market": offer.market,
        "cores": offer.cores,
        "memory_gb": None if math.isinf(offer.memory_gb) else offer.memory_gb,
        "price_usd": offer.price_usd,
        "cycle_s": offer.cycle_s,
        "lag_s": offer.lag_s,
        "limit": offer.limit,
        "speed": offer.speed,
        "minimum_s": offer.minimum_s,
        "bills_boot": offer.bills_boot,
        "free_if_taken": offer.free_if_taken,
        "free_if_taken_within_s": offer.free_if_taken_within_s,
        "when_taken": offer.when_taken,
        "interruptions_per_h": offer.interruptions_per_h,
        "resumes_per_h": offer.resumes_per_h,
        "pool_limit": offer.pool_limit,
        "gpus": offer.gpus,
        "resources": offer.resources,
        "region": offer.region,
        "data_usd_per_gb": offer.data_usd_per_gb,
        "data_mb_per_s": offer.data_mb_per_s,
    }


def machine_row(service: Service, machine: MachineState) -> MachineRow:
    now = service.driver.clock()
    host = service.state.hosts.get(machine.host)
    ends_t = machine.ended_t if machine.ended_t is not None else now
    paid_t = paid_until_t(machine, now) if machine.there else math.inf
    return {
        "machine": machine.number,
        "pool": machine.offer.pool,
        "id": machine.id,
        "offer": machine.offer.name,
        "market": machine.offer.market,
        "job": machine.fleet if machine.fleet in service.state.bags else None,
        "fleet": name_of(service.state, machine.fleet),
        "phase": "stopping" if machine.stopping and machine.there else machine.phase,
        "running": len(host.held) if host is not None and host.state != GONE else 0,
        "waiting": len(queue_of(service.state, machine)) if machine.there else 0,
        "requested_s": machine.requested_t,
        "ready_s": machine.ready_t,
        "ended_s": machine.ended_t,
        "held_s": ends_t - machine.requested_t,
        "paid_for_s": None if math.isinf(paid_t) else max(0.0, paid_t - now),
        "cost_usd": money.usd(owed_microusd(machine, ends_t)),
        "hibernations": len(machine.sleeps),
        "sleeps": len(machine.sleeps),  # its former name: programs may read it
        "taken_in_s": None if machine.noticed_t is None or not machine.there else machine.noticed_t - now,
        "cause": machine.cause,
        "error": machine.error,
    }


async def poke(service: Service, request: Request) -> tuple[int, Poked]:
    """Do to a machine of an emulated cloud what a provider would do."""
    from windfall.pools.emulated.cloud import EmulatedPool

    name, reference = request.path_params["pool"], request.path_params["machine"]
    pool = service.rented.pools.get(name) if service.rented is not None else None
    if pool is None:
        raise NotFound(f"there is no pool '{name}' that rents machines", hint="see them: windfall pool list")
    if not isinstance(pool, EmulatedPool):
        raise BadInput(f"pool '{name}' is a real one", hint="only machines of an emulated cloud can be poked")
    what = request.path_params["what"]
    known = service.state.fleet.machines.get(decimal(reference.removeprefix("m")) or 0)
    id = known.id if known is not None and known.offer.pool == name else reference
    await asyncio.to_thread(pool.poke, id, what)
    return 200, {"pool": name, "id": id, "what": what}
