"""Sign-in of the console: a token becomes a cookie of limited life, or a link that works once. Touches tokens only.

The cookie holds no token. It names the token's id and its own end, signed with the stored hash of the token: it
survives a restart of the server, and it is worthless once the token is revoked.
"""

from __future__ import annotations

import hmac
import os
from hashlib import sha256

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from windfall.api.about import Link, Session
from windfall.bounds import Text
from windfall.errors import BadCredentials, BadInput
from windfall.server.auth import ALLOWED, Bearer, Forbidden, Tokens
from windfall.server.http.bodies import typed_body
from windfall.server.http.console.links import LINK_LIFE_S
from windfall.server.service import Service

COOKIE = "windfall_console"
LIFE_S = 12 * 3600.0
"""Seconds for which a sign-in is good."""
MARK = "x-windfall-console"
"""Only a script of our own pages can send this header: a form or a link of another site cannot."""


def signature(hash_: str, ident: str, ends_s: int) -> str:
    return hmac.new(hash_.encode(), f"console {ident} {ends_s}".encode(), sha256).hexdigest()


def make_cookie(tokens: Tokens, ident: str, now: float) -> str:
    """What the cookie of this token's holder says."""
    row = tokens.row(ident)
    assert row is not None
    ends_s = int(now + LIFE_S)
    return f"{ident}.{ends_s}.{signature(row.hash, ident, ends_s)}"


def read_cookie(tokens: Tokens, value: str, now: float) -> tuple[str, Bearer]:
    """The id of the token and who shows it. BadCredentials if it has ended or was never given."""
    ident, _, rest = value.partition(".")
    ends, _, given = rest.partition(".")
    row = tokens.row(ident)
    good = ends.isdecimal() and len(ends) <= 12
    made = signature(row.hash if row else "", ident, int(ends) if good else 0)
    if not hmac.compare_digest(made.encode(), given.encode()) or row is None or not good:
        raise BadCredentials("you are not signed in", hint="sign in again", code="signed-out")
    if now >= int(ends):
        raise BadCredentials("your sign-in has ended", hint="sign in again", code="expired-token")
    return ident, tokens.bearer_by_id(ident)


def is_secure(request: Request) -> bool:
    """Whether the browser speaks TLS, to us or to a reverse proxy that we believe: by default one on this machine."""
    client, said = request.scope.get("client"), request.headers.get("x-forwarded-proto")
    if said is not None and client is not None:
        trusted = [part.strip() for part in os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1,::1").split(",")]
        if "*" in trusted or any(_lies_in(client[0], part) for part in trusted):
            return said.rpartition(",")[2].strip().lower() == "https"
    return bool(request.scope["scheme"] == "https")


def _lies_in(address: str, network: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return address == network


def cookie_of(request: Request) -> str:
    """The value of the console's cookie; empty without one. It is never quoted.

    Read here, not by `http.cookies`: before a sender is known that took minutes for 60 kB of backslashes.
    """
    for part in request.headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def require(service: Service, request: Request, what: str) -> Bearer:
    """Who asks, by the `Authorization` header or by the console's cookie, if that is allowed."""
    header = request.headers.get("authorization")
    value = "" if header else cookie_of(request)
    if not value:
        return service.tokens.require(header, what)
    if request.method not in ("GET", "HEAD"):
        refuse_foreign(request)
    _, bearer = read_cookie(service.tokens, value, service.driver.clock())
    if bearer.role not in ALLOWED[what]:
        needed = ", ".join(sorted(ALLOWED[what]))
        raise Forbidden(
            f"a token of role '{bearer.role}' may not do this (needed: {needed})",
            hint=f"sign in with another one: windfall token create --role {sorted(ALLOWED[what])[-1]}",
        )
    return bearer


def refuse_foreign(request: Request) -> None:
    """A request that changes something comes from our own pages, whatever the browser thinks of cookies."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    if request.headers.get(MARK) != "1" or site not in ("same-origin", "none"):
        raise Forbidden("this request does not come from the console", code="foreign-request")


class SignInBody(Struct):
    """`POST /v1/console/session`: a token, or the code of a link."""

    token: Text = ""
    code: Text = ""


async def sign_in(service: Service, request: Request) -> Response:
    """A cookie for a token, or for the code of a link."""
    body = await typed_body(request, SignInBody)
    refuse_foreign(request)
    now = service.driver.clock()
    if body.code:
        ident = service.links.use(body.code, now)
    elif body.token:
        service.tokens.require(f"Bearer {body.token.strip()}", "read")
        ident = body.token.strip().split("_")[1]
    else:
        raise BadInput("a token is needed", hint="make one: windfall token create --role read")
    row = service.tokens.row(ident)
    if row is None:
        raise BadCredentials("the token of this link is gone", hint="make another one: windfall console")
    user = service.tokens.bearer_by_id(ident).user
    if row.role not in ALLOWED["read"]:
        raise Forbidden(f"a token of role '{row.role}' may not look at jobs", hint="use one of role read")
    response = _answer(row.role, row.name, user)
    response.set_cookie(
        COOKIE, make_cookie(service.tokens, ident, now), max_age=int(LIFE_S), path="/", httponly=True,
        samesite="strict", secure=is_secure(request),
    )  # fmt: skip
    return response


async def session(service: Service, request: Request) -> Response:
    """Who is signed in, and what that allows; an empty role for a request without cookie and token."""
    value = cookie_of(request)
    if not value and not request.headers.get("authorization"):
        return _answer("", "")
    bearer = require(service, request, "read")
    name = ""
    if value:
        ident, _ = read_cookie(service.tokens, value, service.driver.clock())
        row = service.tokens.row(ident)
        name = row.name if row is not None else ""
    return _answer(bearer.role, name, bearer.user)


def _answer(role: str, name: str, user: str = "") -> Response:
    told: Session = {
        "role": role, "name": name, "user": user,
        "may": {"jobs": role in ALLOWED["submit"], "hosts": role in ALLOWED["admin"]},
    }  # fmt: skip
    return Response(msgspec.json.encode(told), media_type="application/json", headers={"cache-control": "no-store"})


async def sign_out(service: Service, request: Request) -> Response:
    refuse_foreign(request)
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response


async def make_link(service: Service, request: Request) -> tuple[int, Link]:
    """A code that signs its user in once, as the holder of the token that this request carries."""
    header = request.headers.get("authorization") or ""
    bearer = service.tokens.require(header, "read")
    ident = header.partition(" ")[2].strip().split("_")[1]
    code = service.links.make(ident, service.driver.clock())
    return 201, {"code": code, "role": bearer.role, "life_s": LINK_LIFE_S}
