"""Whether the server is well and ready, and the worker that it hands out. Touches nothing."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from windfall import __version__
from windfall.api.about import Health
from windfall.drivers.following import Following
from windfall.server.http.problems import problem
from windfall.server.http.routes import Answer
from windfall.server.service import Service
from windfall.wire import VERSION


async def healthz(service: Service, request: Request) -> Answer:
    """Well only if commits happen: a server that cannot write anything down takes nothing on."""
    about: Health = {"ok": True, "version": __version__, "protocol": VERSION}
    if isinstance(service.driver, Following):
        about["standby_of"] = service.driver.leader.url
    if service.driver.snapshots.error:
        about["snapshot_error"] = service.driver.snapshots.error
    if illness := service.driver.illness():
        error = {"code": "not-well", "kind": "ours", "message": illness, "hint": "see its log", "retryable": True}
        return problem(error, 503, {**about, "ok": False})
    return 200, about


async def readyz(service: Service, request: Request) -> Answer:
    """Ready only once pools and plans have begun, while commits happen, and until it is told to stop."""
    why = "the server stops" if service.stopping else "" if service.serving else "the server starts"
    if isinstance(service.driver, Following):
        why = service.driver.refusal().message
    why = why or service.driver.illness()
    if why:
        error = {"code": "not-ready", "kind": "ours", "message": why, "hint": "ask again", "retryable": True}
        return problem(error, 503, {"ok": False})
    return 200, {"ok": True}


async def worker_file(service: Service, request: Request) -> Answer:
    from windfall.pools.starting.workerfile import worker_pyz

    return Response(worker_pyz(), media_type="application/zip")
