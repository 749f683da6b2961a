"""Pictures of jobs and machines over HTTP, drawn by `windfall.figures`. Decides nothing.

A picture is drawn again when its job has changed; pages that look at the same job share it.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from windfall.api.renting import MachinePictures
from windfall.core.state.renting.fleet import REFUSED
from windfall.figures.fleet import fleet_pictures
from windfall.figures.graph import graph_picture
from windfall.figures.job import machine_pictures, pictures
from windfall.figures.timeline import Axis
from windfall.server.http import workflows
from windfall.server.http.supply.fleets import found
from windfall.server.queries.pictures.fleet_series import fleet_series
from windfall.server.queries.pictures.gantt import machine_series
from windfall.server.queries.pictures.series import job_series
from windfall.server.service import Service

Json = dict[str, Any]
FRESH_S = 4.0
"""Seconds for which a picture of a running job is shown again although time has gone on."""
KEPT = 32
SHOWN = 60
MOST_IN_GRAPH = 20_000
"""Of a workflow with more tasks no graph is drawn for a page."""


async def of_job(service: Service, request: Request) -> tuple[int, Json]:
    """`{"job", "name", "series", "pictures": [{"name", "html", "says"}]}`."""
    bag = service.bag(request.path_params["job"])
    await service.driver.settled()
    async with service.drawing:
        version, now = service.versions.get(bag.number, 0), service.driver.clock()
        known = service.drawn.get(bag.number)
        if known is not None and known[0] == version and (bag.finished_t is not None or now - known[1] < FRESH_S):
            return 200, known[2]
        series = await job_series(service, bag)
        drawn = pictures(series)
        if bag.shape is not None and bag.total <= MOST_IN_GRAPH:
            drawn.insert(0, graph_picture(workflows.described(service, bag)))
        told = {"job": bag.number, "name": bag.rules.name, "series": series, "pictures": drawn}
        while len(service.drawn) >= KEPT:
            del service.drawn[next(iter(service.drawn))]
        service.drawn[bag.number] = (version, now, told)
    return 200, told


async def of_machines(service: Service, request: Request) -> tuple[int, MachinePictures]:
    """The newest machines of all jobs, or of one fleet, over time, with the price of all of them an hour."""
    now = service.driver.clock()
    name = request.query_params.get("fleet")
    number = found(service, name).number if name else None
    known = service.state.fleet.machines.values()
    came = [machine for machine in known if machine.cause != REFUSED and number in (None, machine.fleet)]
    shown = came[-SHOWN:]
    if not shown:
        return 200, {"pictures": [], "since_s": now, "machines": 0}
    since_t = min(machine.requested_t for machine in shown)
    end_t = max(now if machine.ended_t is None else machine.ended_t for machine in shown)
    drawn = await machine_series(service, shown, since_t, end_t)
    series = {**drawn, "end_s": end_t - since_t, "machines_total": len(came)}
    axis = Axis(max(end_t - since_t, 1e-3))
    shows = machine_pictures(series, axis)
    if number is not None:
        shows += fleet_pictures(fleet_series(service.state, number, shown, since_t, end_t), axis)
    return 200, {"pictures": shows, "since_s": since_t, "machines": len(came)}
