"""Tokens, and what is told to hosts. Touches tokens and, through the driver, the log."""

from __future__ import annotations

from starlette.requests import Request

from windfall.api.answers import NewToken, OneHost, Revoked
from windfall.api.requests import HostBody, RotateBody, TokenBody
from windfall.api.small import Tokens
from windfall.core import events as ev
from windfall.errors import BadInput
from windfall.server.http.bodies import typed_body
from windfall.server.queries import jobs as queries
from windfall.server.service import NotFound, Service


async def create_token(service: Service, request: Request) -> tuple[int, NewToken]:
    body = await typed_body(request, TokenBody)
    if not body.name.isprintable() or not body.user.isprintable():
        raise BadInput("the name and the user of a token have only printable characters")
    token = service.tokens.create(body.role, body.name, service.driver.clock(), body.life_s, body.user)
    return 201, {"token": token, "id": token.split("_")[1]}


async def rotate_token(service: Service, request: Request) -> tuple[int, NewToken]:
    body, ident = await typed_body(request, RotateBody), request.path_params["id"]
    token = service.tokens.rotate(ident, service.driver.clock(), body.grace_s)
    if token is None:
        raise NotFound(f"there is no token '{ident}'", hint="see them: windfall token list", code="no-such-token")
    return 201, {"token": token, "id": token.split("_")[1]}


async def list_tokens(service: Service, request: Request) -> tuple[int, Tokens]:
    return 200, {"tokens": service.tokens.listing()}


async def revoke_token(service: Service, request: Request) -> tuple[int, Revoked]:
    ident = request.path_params["id"]
    if not service.tokens.revoke(ident):
        raise NotFound(f"there is no token '{ident}'", hint="see them: windfall token list", code="no-such-token")
    return 200, {"revoked": ident}


async def host_action(service: Service, request: Request) -> tuple[int, OneHost]:
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
