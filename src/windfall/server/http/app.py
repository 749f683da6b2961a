"""The HTTP application: routes, roles, limits, errors as JSON. Hands everything on; see docs/reference/http-api.md."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from windfall import __version__
from windfall.bounds import Name, Seconds, Text
from windfall.core import events as ev
from windfall.drivers.failures import ServerFailed, Uncommitted, Unwritable
from windfall.drivers.following import Following
from windfall.errors import BadCredentials, BadInput, WindfallError
from windfall.pools.kinds import Front
from windfall.server.auth import Forbidden
from windfall.server.http import (
    blobs,
    console,
    doctor,
    exchange,
    fleets,
    machines,
    market,
    openapi,
    pools,
    scoped,
    sessions,
    submission,
    workflows,
)
from windfall.server.http.bodies import read_body, typed_body
from windfall.server.http.problems import problem
from windfall.server.http.uploads import Stalled
from windfall.server.limits import RETRY_AFTER_S, Reading, TooBusy, TooLarge
from windfall.server.pool_admin import PoolBusy
from windfall.server.pool_tokens import OtherPool
from windfall.server.queries import (
    bills,
    by_pool,
    decisions,
    money,
    pictures,
    system,
    table,
    trying,
    volunteers,
    what_if,
)
from windfall.server.queries import jobs as queries
from windfall.server.queries.metrics import metrics
from windfall.server.service import NotFound, Service
from windfall.server.sites import api as site_api
from windfall.server.sites import exchange as site_exchange
from windfall.store.contract import StoreFull
from windfall.wire import HOST_SECRET, VERSION, frames

log = logging.getLogger(__name__)

Answer = Response | tuple[int, dict[str, Any]]
Handler = Callable[[Service, Request], Awaitable[Answer]]
_encode = msgspec.json.Encoder().encode


class Busy(WindfallError):
    """The store cannot take anything at the moment."""

    code = "store-full"
    retryable = True


def json_response(body: dict[str, Any], status: int = 200) -> Response:
    return Response(_encode(body), status, media_type="application/json")


def error_response(error: WindfallError) -> Response:
    status = {
        Forbidden: 403,
        OtherPool: 403,
        BadCredentials: 401,
        NotFound: 404,
        TooLarge: 413,
        TooBusy: 429,
        Stalled: 408,
        StoreFull: 507,
        BadInput: 400,
        exchange.WrongVersion: 426,
        exchange.UsedId: 409,
        what_if.TooSlow: 503,
        PoolBusy: 409,
        submission.StillNeeded: 409,
        Busy: 503,
        Uncommitted: 503,
        ServerFailed: 503,
        Unwritable: 422,
    }
    code = next((status[kind] for kind in type(error).__mro__ if kind in status), 503 if error.retryable else 500)
    body: dict[str, Any] = {
        "code": error.code,
        "kind": error.kind,
        "message": error.message,
        "hint": error.hint,
        "retryable": error.retryable,
    }
    if isinstance(error, TooLarge):
        body["limit"] = error.limit
    response = problem(body, code)
    if code in (429, 503, 507):
        response.headers["retry-after"] = str(getattr(error, "retry_after_s", RETRY_AFTER_S))
    return response


def handled(service: Service, handler: Handler, role: str, writes: bool) -> Callable[[Request], Awaitable[Response]]:
    """A handler with what all of them need: a role, a body within limits, errors in words, a store that works."""

    async def endpoint(request: Request) -> Response:
        try:
            if role and not (handler is metrics and service.open_metrics):
                scoped.admit(service, request, sessions.require(service, request, role))
            length, limit = request.headers.get("content-length", ""), service.intake.limits.body_bytes
            if handler is not blobs.put and length.isdecimal() and int(length[:18]) > limit:
                raise TooLarge(f"a body of {length[:18]} bytes", limit=limit)
            if writes or service.driver.failure is not None:
                refuse_while_in_trouble(service)
            reading = request.state.reading = service.intake.reading()
            try:
                answer = await handler(service, request)
            finally:
                reading.end()
        except WindfallError as error:
            return error_response(error)
        return answer if isinstance(answer, Response) else json_response(answer[1], answer[0])

    return endpoint


def refuse_while_in_trouble(service: Service) -> None:
    if isinstance(service.driver, Following):
        raise service.driver.refusal()
    if service.driver.trouble:
        raise Busy(service.driver.trouble, hint="nothing is lost; it goes on by itself when there is space again")


async def healthz(service: Service, request: Request) -> Answer:
    """Well only if commits happen: a server that cannot write anything down takes nothing on."""
    about: dict[str, Any] = {"version": __version__, "protocol": VERSION}
    if isinstance(service.driver, Following):
        about["standby_of"] = service.driver.leader.url
    if service.driver.snapshot_error:
        about["snapshot_error"] = service.driver.snapshot_error
    if illness := service.driver.illness():
        error = {"code": "not-well", "kind": "ours", "message": illness, "hint": "see its log", "retryable": True}
        return 503, {"ok": False, **about, "error": error}
    return 200, {"ok": True, **about}


async def readyz(service: Service, request: Request) -> Answer:
    """Ready only once pools and plans have begun, while commits happen, and until it is told to stop."""
    why = "the server stops" if service.stopping else "" if service.serving else "the server starts"
    if isinstance(service.driver, Following):
        why = service.driver.refusal().message
    why = why or service.driver.illness()
    if why:
        error = {"code": "not-ready", "kind": "ours", "message": why, "hint": "ask again", "retryable": True}
        return 503, {"ok": False, "error": error}
    return 200, {"ok": True}


async def worker_file(service: Service, request: Request) -> Answer:
    from windfall.pools.starting.workerfile import worker_pyz

    return Response(worker_pyz(), media_type="application/zip")


class TokenBody(Struct):
    """`POST /v1/tokens`."""

    role: Name
    name: Name = ""
    user: Name = ""
    life_s: Seconds | None = None


class RotateBody(Struct):
    """`POST /v1/tokens/ID/rotate`."""

    grace_s: Seconds = 0.0


async def create_token(service: Service, request: Request) -> Answer:
    body = await typed_body(request, TokenBody)
    if not body.name.isprintable() or not body.user.isprintable():
        raise BadInput("the name and the user of a token have only printable characters")
    token = service.tokens.create(body.role, body.name, service.driver.clock(), body.life_s, body.user)
    return 201, {"token": token, "id": token.split("_")[1]}


async def rotate_token(service: Service, request: Request) -> Answer:
    body, ident = await typed_body(request, RotateBody), request.path_params["id"]
    token = service.tokens.rotate(ident, service.driver.clock(), body.grace_s)
    if token is None:
        raise NotFound(f"there is no token '{ident}'", hint="see them: windfall token list", code="no-such-token")
    return 201, {"token": token, "id": token.split("_")[1]}


async def list_tokens(service: Service, request: Request) -> Answer:
    return 200, {"tokens": service.tokens.listing()}


async def revoke_token(service: Service, request: Request) -> Answer:
    ident = request.path_params["id"]
    if not service.tokens.revoke(ident):
        raise NotFound(f"there is no token '{ident}'", hint="see them: windfall token list", code="no-such-token")
    return 200, {"revoked": ident}


class HostBody(Struct):
    """`POST /v1/hosts/NAME/block`, `unblock` and `drain`."""

    reason: Text | None = None
    for_s: Seconds | None = None


async def host_action(service: Service, request: Request) -> Answer:
    name, action = request.path_params["host"], request.path_params["action"]
    if service.state.host(name) is None:
        raise NotFound(f"there is no host '{name}'", hint="see them: windfall host list", code="no-such-host")
    body = await typed_body(request, HostBody)
    now = service.driver.clock()
    if action == "block":
        until = None if body.for_s is None else now + body.for_s
        event: ev.AnyEvent = ev.HostBlocked(now, name, body.reason or "blocked by hand", until)
    elif action == "unblock":
        event = ev.HostUnblocked(now, name)
    elif action == "drain":
        event = ev.HostDrained(now, name)
    else:
        raise NotFound(f"a host cannot be told to '{action}'", hint="block, unblock, drain")
    await service.driver.submit([event])
    return await queries.host(service, request)


TOKEN_BODIES: dict[Handler, type] = {create_token: TokenBody, rotate_token: RotateBody, host_action: HostBody}

# path, method, handler, role ("" for none), does it write
ROUTES: list[tuple[str, str, Handler, str, bool]] = [
    ("/", "GET", console.page, "", False),
    ("/console/{file}", "GET", console.static, "", False),
    ("/v1/console/session", "POST", sessions.sign_in, "", False),
    ("/v1/console/session", "GET", sessions.session, "", False),
    ("/v1/console/session", "DELETE", sessions.sign_out, "", False),
    ("/v1/console/links", "POST", sessions.make_link, "read", False),
    ("/v1/stream", "GET", console.stream, "read", False),
    ("/openapi.json", "GET", openapi.document, "", False),
    ("/healthz", "GET", healthz, "", False),
    ("/readyz", "GET", readyz, "", False),
    ("/worker.pyz", "GET", worker_file, "", False),
    ("/metrics", "GET", metrics, "read", False),
    ("/v1/jobs", "POST", submission.submit, "submit", True),
    ("/v1/jobs", "GET", queries.jobs, "read", False),
    ("/v1/jobs/{job}", "GET", queries.job, "read", False),
    ("/v1/jobs/{job}", "DELETE", submission.forget, "submit", True),
    ("/v1/jobs/{job}/spec", "GET", queries.job_spec, "read", False),
    ("/v1/jobs/{job}/parameters", "GET", queries.parameters, "read", False),
    ("/v1/jobs/{job}/tasks", "POST", submission.add_tasks, "submit", True),
    ("/v1/jobs/{job}/tasks", "GET", queries.tasks, "read", False),
    ("/v1/jobs/{job}/seal", "POST", submission.seal, "submit", True),
    ("/v1/jobs/{job}/cancel", "POST", submission.cancel, "submit", True),
    ("/v1/jobs/{job}/retry", "POST", submission.retry, "submit", True),
    ("/v1/jobs/{job}/change", "POST", submission.change, "submit", True),
    ("/v1/jobs/{job}/groups", "GET", queries.groups, "read", False),
    ("/v1/jobs/{job}/results", "GET", queries.results, "read", False),
    ("/v1/jobs/{job}/completed", "GET", queries.completed, "read", False),
    ("/v1/jobs/{job}/commands", "GET", table.commands, "read", False),
    ("/v1/jobs/{job}/usage", "GET", table.usage, "read", False),
    ("/v1/jobs/{job}/output/{task}", "GET", queries.output, "read", False),
    ("/v1/jobs/{job}/render/{task}", "GET", queries.render, "read", False),
    ("/v1/jobs/{job}/explain", "GET", queries.explain, "read", False),
    ("/v1/jobs/{job}/cost", "GET", money.cost, "read", False),
    ("/v1/jobs/{job}/pools", "GET", by_pool.pools, "read", False),
    ("/v1/jobs/{job}/pictures", "GET", pictures.of_job, "read", False),
    ("/v1/jobs/{job}/unfinished", "GET", money.unfinished, "read", False),
    ("/v1/jobs/{job}/workflow", "GET", workflows.graph, "read", False),
    ("/v1/classes", "GET", workflows.classes, "read", False),
    ("/v1/classes/{name}", "GET", workflows.one_class, "read", False),
    ("/v1/events", "GET", queries.events, "read", False),
    ("/v1/timeouts", "GET", queries.learned_timeouts, "read", False),
    ("/v1/hosts", "GET", queries.hosts, "read", False),
    ("/v1/hosts/{host}", "GET", queries.host, "read", False),
    ("/v1/hosts/{host}/{action}", "POST", host_action, "admin", True),
    ("/v1/pools", "GET", pools.listed, "read", False),
    ("/v1/pools", "POST", pools.add, "admin", True),
    ("/v1/pools/{pool}", "DELETE", pools.remove, "admin", True),
    ("/v1/fleets", "GET", fleets.fleets, "read", False),
    ("/v1/fleets", "POST", fleets.create, "admin", True),
    ("/v1/fleets/{fleet}", "GET", fleets.one, "read", False),
    ("/v1/fleets/{fleet}", "DELETE", fleets.delete, "admin", True),
    ("/v1/fleets/{fleet}/cost", "GET", fleets.cost, "read", False),
    ("/v1/fleets/{fleet}/snapshot", "GET", fleets.snapshot, "read", False),
    ("/v1/fleets/{fleet}/{action}", "POST", fleets.switch, "admin", True),
    ("/v1/machines", "GET", machines.machines, "read", False),
    ("/v1/machines/pictures", "GET", pictures.of_machines, "read", False),
    ("/v1/market", "GET", market.show, "read", False),
    ("/v1/market", "POST", market.import_, "admin", True),
    ("/v1/bills", "GET", bills.bills, "read", False),
    ("/v1/system", "GET", system.system, "read", False),
    ("/v1/volunteers", "GET", volunteers.volunteers, "read", False),
    ("/v1/decisions", "GET", decisions.decisions, "read", False),
    ("/v1/policies/test", "POST", trying.test, "read", False),
    ("/v1/what-if", "POST", what_if.what_if, "read", False),
    ("/v1/pools/{pool}/doctor", "POST", doctor.doctor, "admin", True),
    ("/v1/pools/{pool}/front/{what}", "POST", pools.front, "admin", True),
    ("/v1/pools/{pool}/{action}", "POST", pools.switch, "admin", True),
    ("/v1/pools/{pool}/machines/{machine}/{what}", "POST", machines.poke, "admin", True),
    ("/v1/sites", "POST", site_api.create, "admin", True),
    ("/v1/sites", "GET", site_api.sites, "read", False),
    ("/v1/sites/{site}", "GET", site_api.one_site, "read", False),
    ("/v1/site/exchange", "POST", site_exchange.exchange, "site", True),
    ("/v1/site/requests", "POST", site_api.ask, "submit", True),
    ("/v1/site/requests", "GET", site_api.requests, "read", False),
    ("/v1/site/requests/{request}", "GET", site_api.one_request, "read", False),
    ("/v1/site/requests/{request}/cancel", "POST", site_api.cancel, "submit", True),
    ("/v1/site/requests/{request}/output", "GET", site_api.output, "read", False),
    ("/v1/tokens", "POST", create_token, "admin", True),
    ("/v1/tokens", "GET", list_tokens, "admin", False),
    ("/v1/tokens/{id}", "DELETE", revoke_token, "admin", True),
    ("/v1/tokens/{id}/rotate", "POST", rotate_token, "admin", True),
    ("/v1/blobs/{sha}", "HEAD", blobs.head, "blobs", False),
    ("/v1/blobs/{sha}", "GET", blobs.get, "blobs", False),
    ("/v1/blobs/{sha}", "PUT", blobs.put, "blobs", True),
]


async def _not_there(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = f"there is nothing at {request.method} {request.url.path}"
    return problem({"code": "no-such-path", "kind": "user", "message": message, "hint": ""}, status)


async def _broken(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return broken(error)


def broken(error: Exception) -> Response:
    body = {"code": "internal", "kind": "ours", "message": f"the server failed: {error!r}", "hint": "see its log"}
    return problem(body, 500)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)


class Application:
    """Starlette for everything but the exchange, which comes thousands of times a second and goes around it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        # What a reverse proxy on this machine says of its client matters to pages alone (sessions.py).
        trusted = os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1,::1")
        self._others = ProxyHeadersMiddleware(other_routes(service), trusted)  # type: ignore[arg-type]

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and scope["path"] == "/v1/exchange" and scope["method"] == "POST":
            return self._exchange(scope, receive, send)
        if self._service.fronts and scope["type"] == "http" and (front := self._front(scope["path"])) is not None:
            return front(scope, receive, send)
        return self._others(scope, receive, send)  # type: ignore[arg-type]

    def _front(self, path: str) -> Front | None:
        """The application of the pool to which the first part of the path belongs."""
        return self._service.fronts.get(path[: path.find("/", 1) + 1])

    async def exchange(
        self, body: bytes, headers: dict[bytes, bytes], receive: Receive | None = None
    ) -> bytes | Response:
        """The frame of the answer, or what is wrong (`server/connection.py`). `receive`: the body is still to come."""
        service = self._service
        reading: Reading | None = None
        try:
            authorization = headers[AUTH].decode("latin-1") if AUTH in headers else None
            secret = headers[SECRET].decode("latin-1") if SECRET in headers else ""
            bearer = service.tokens.require(authorization, "worker")
            if service.driver.trouble:
                refuse_while_in_trouble(service)
            reading = service.intake.reading()
            if receive is None:
                reading.take(len(body))
            else:
                body = await read_body(receive, reading)
            return await exchange.exchange(service, body, bearer.of, secret)
        except WindfallError as error:
            return error_response(error)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            log.exception("an exchange failed")
            return broken(error)
        finally:
            if reading is not None:
                reading.end()

    async def _exchange(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An exchange through ASGI: a large one, or one that comes in parts."""
        said = await self.exchange(b"", dict(scope["headers"]), receive)
        answer = said if isinstance(said, Response) else Response(said, media_type=frames.CONTENT_TYPE)
        await answer(scope, receive, send)


AUTH = b"authorization"
SECRET = HOST_SECRET.lower().encode()


def other_routes(service: Service) -> Starlette:
    # GET is matched before HEAD: Starlette would answer HEAD with the GET handler otherwise.
    routes = [
        Route(path, handled(service, handler, role, writes), methods=[method])
        for path, method, handler, role, writes in ROUTES
    ]
    return Starlette(
        routes=routes,
        exception_handlers={
            404: _not_there,
            405: _not_there,
            ClientDisconnect: _gone,
            Exception: _broken,
        },
    )
