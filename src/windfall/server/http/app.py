"""The HTTP application: routes, roles, limits, errors as JSON. Hands everything on; see docs/reference/http-api.md."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from windfall.bags.chunks import TooLong
from windfall.drivers.failures import ServerFailed, Uncommitted, Unwritable
from windfall.drivers.following import Following
from windfall.errors import BadCredentials, BadInput, WindfallError
from windfall.pools.kinds import Front
from windfall.server.auth import Forbidden
from windfall.server.http import scoped, submission
from windfall.server.http.bodies import read_body
from windfall.server.http.console import sessions
from windfall.server.http.problems import TooLate, TooSlow, problem
from windfall.server.http.routes import METRICS, PUT_BLOB, Route, Router, handler_of
from windfall.server.http.uploads import Stalled
from windfall.server.http.workers import exchange
from windfall.server.limits import RETRY_AFTER_S, Reading, TooBusy, TooLarge
from windfall.server.pool_admin import PoolBusy
from windfall.server.pool_tokens import OtherPool
from windfall.server.service import NotFound, Service
from windfall.store.contract import StoreFull
from windfall.wire import HOST_SECRET, frames

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode


class Busy(WindfallError):
    """The store cannot take anything at the moment."""

    code = "store-full"
    retryable = True


def json_response(body: Mapping[str, Any], status: int = 200) -> Response:
    return Response(_encode(body), status, media_type="application/json")


def error_response(error: WindfallError) -> Response:
    status = {
        Forbidden: 403,
        OtherPool: 403,
        BadCredentials: 401,
        NotFound: 404,
        TooLarge: 413,
        TooLong: 413,
        TooBusy: 429,
        Stalled: 408,
        StoreFull: 507,
        BadInput: 400,
        exchange.WrongVersion: 426,
        exchange.UsedId: 409,
        TooSlow: 503,
        PoolBusy: 409,
        submission.StillNeeded: 409,
        TooLate: 409,
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
    if isinstance(error, TooLate):
        body["admission"] = error.admission
    response = problem(body, code)
    if code in (429, 503, 507):
        response.headers["retry-after"] = str(getattr(error, "retry_after_s", RETRY_AFTER_S))
    return response


async def handled(service: Service, route: Route, request: Request) -> Response:
    """What the handler answers, after what all of them need: a role, a body within limits, a store that works."""
    if route.role and not (route.handler == METRICS and service.open_metrics):
        scoped.admit(service, request, route.path, sessions.require(service, request, route.role))
    length, limit = request.headers.get("content-length", ""), service.intake.limits.body_bytes
    if route.handler != PUT_BLOB and length.isdecimal() and int(length[:18]) > limit:
        raise TooLarge(f"a body of {length[:18]} bytes", limit=limit)
    if route.writes or service.driver.failure is not None:
        refuse_while_in_trouble(service)
    reading = request.state.reading = service.intake.reading()
    try:
        answer = await handler_of(route.handler)(service, request)
    finally:
        reading.end()
    return answer if isinstance(answer, Response) else json_response(answer[1], answer[0])


def refuse_while_in_trouble(service: Service) -> None:
    if isinstance(service.driver, Following):
        raise service.driver.refusal()
    if service.driver.trouble:
        raise Busy(service.driver.trouble, hint="nothing is lost; it goes on by itself when there is space again")


def nothing_there(method: str, path: str, status: int) -> Response:
    message = f"there is nothing at {method} {path}"
    return problem({"code": "no-such-path", "kind": "user", "message": message, "hint": ""}, status)


def broken(error: Exception) -> Response:
    body = {"code": "internal", "kind": "ours", "message": f"the server failed: {error!r}", "hint": "see its log"}
    return problem(body, 500)


class Application:
    """The exchange comes thousands of times a second and goes around what the other requests need."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._router = Router()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["path"] == "/v1/exchange" and scope["method"] == "POST":
            return self._exchange(scope, receive, send)
        if self._service.fronts and (front := self._front(scope["path"])) is not None:
            return front(scope, receive, send)
        return self._other(scope, receive, send)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        route, scope["path_params"], is_there = self._router.find(method, path)
        try:
            if route is None:
                response = nothing_there(method, path, 405 if is_there else 404)
            else:
                response = await handled(self._service, route, Request(scope, receive, send))
        except WindfallError as error:
            response = error_response(error)
        except ClientDisconnect:
            response = Response(status_code=499)
        except Exception as error:
            log.error("%s %s failed", method, path, exc_info=error)
            response = broken(error)
        await response(scope, receive, send)

    def _front(self, path: str) -> Front | None:
        """The application of the pool to which the first part of the path belongs."""
        return self._service.fronts.get(path[: path.find("/", 1) + 1])

    async def exchange(
        self, body: bytes, headers: dict[bytes, bytes], receive: Receive | None = None
    ) -> bytes | Response:
        """The frame of the answer, or what is wrong (`server/asking.py`). `receive`: the body is still to come."""
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
