"""Pools over HTTP: listed, added, paused, resumed, drained, removed. Hands everything on to the server's PoolAdmin."""

from __future__ import annotations

from starlette.requests import Request

from windfall.api.about import FrontAnswer
from windfall.api.answers import NeverCame, PoolRow, Pools, RentingPool
from windfall.api.requests import AddBody, FrontBody, RemoveBody, SwitchBody
from windfall.api.small import AddedPools, RemovedPool
from windfall.core.state.hosts.pools import DRAINING, NEVER_CAME_KEPT, OPEN, PAUSED
from windfall.core.state.renting.fleet import MachineState
from windfall.errors import BadInput
from windfall.server.http.bodies import typed_body
from windfall.server.pool_admin import PoolAdmin
from windfall.server.queries.status import mode_fields, pool_rows
from windfall.server.service import NotFound, Service

MODES = {"pause": PAUSED, "resume": OPEN, "drain": DRAINING}


async def listed(service: Service, request: Request) -> tuple[int, Pools]:
    """Pools that are asked for workers, and those that rent machines."""
    return 200, {"pools": pool_rows(service), "renting": renting_rows(service)}


def renting_rows(service: Service) -> list[RentingPool]:
    """Pools that rent machines for plans: how many there are, and what the last ones said that never came."""
    state, names = service.state, service.rented.pools if service.rented is not None else {}
    rows: list[RentingPool] = []
    for name in names:
        mine = [machine for machine in state.fleet.machines.values() if machine.offer.pool == name]
        there = [machine for machine in mine if machine.there]
        config = service.admin.configs.get(name) if isinstance(service.admin, PoolAdmin) else None
        rows.append(
            {
                "pool": name,
                "kind": "" if config is None else config.kind,
                "machines": len(there),
                "pending": sum(machine.ready_t is None for machine in there),
                **mode_fields(service, name),
                "never_came": [_never_came(machine) for machine in mine if _failed_early(machine)][-NEVER_CAME_KEPT:],
            }
        )
    return rows


def _failed_early(machine: MachineState) -> bool:
    return not machine.there and machine.ready_t is None and bool(machine.error)


def _never_came(machine: MachineState) -> NeverCame:
    return {"at_s": machine.ended_t, "host": machine.host_name, "said": machine.error}


def _admin(service: Service) -> PoolAdmin:
    if not isinstance(service.admin, PoolAdmin):
        raise NotFound("this server has no pools", code="no-such-pool")
    return service.admin


async def add(service: Service, request: Request) -> tuple[int, AddedPools]:
    body = await typed_body(request, AddBody)
    names = await _admin(service).add(body.pools, body.base)
    return 201, {"added": names}


async def switch(service: Service, request: Request) -> tuple[int, PoolRow | RentingPool]:
    name, action = request.path_params["pool"], request.path_params["action"]
    if action not in MODES:
        raise NotFound(f"a pool cannot be told to '{action}'", hint="pause, resume, drain, doctor")
    body = await typed_body(request, SwitchBody)
    if not body.reason.isprintable():
        raise BadInput("a reason has only printable characters")
    await _admin(service).switch(name, MODES[action], body.reason)
    rows: list[PoolRow | RentingPool] = [*pool_rows(service), *renting_rows(service)]
    return 200, next(row for row in rows if row["pool"] == name)


async def front(service: Service, request: Request) -> tuple[int, FrontAnswer]:
    """What an operator says to the front of a pool whose hosts speak a protocol of their own."""
    name, body = request.path_params["pool"], await typed_body(request, FrontBody)
    return 200, await _admin(service).front(name).administer(request.path_params["what"], body)


async def remove(service: Service, request: Request) -> tuple[int, RemovedPool]:
    name, body = request.path_params["pool"], await typed_body(request, RemoveBody)
    left = await _admin(service).remove(name, body.now, body.wait_s)
    return 200, {"pool": name, "removed": not left, "left": left}
