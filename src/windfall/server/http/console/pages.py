"""The console's files and its stream of news. Touches sockets; the files are read once, when the server starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from windfall.console import KINDS, read_static
from windfall.errors import BadCredentials, WindfallError
from windfall.figures.look import PALETTE, STYLE
from windfall.server.http.console import sessions
from windfall.server.service import NotFound, Service

MOST_LISTENERS = 100
PAUSE_S = 1.0
"""Seconds between two messages to a listener: many commits make one message."""
QUIET_S = 15.0
"""Seconds after which a listener hears something in any case, so that both ends notice a dead connection."""
MOST_NAMED = 200
"""Jobs that a message names; of more it says that any may have changed."""

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


class TooManyListeners(WindfallError):
    """As many pages are open as the server tells news to."""

    code = "too-many-listeners"
    retryable = True
    retry_after_s = 15


async def page(service: Service, request: Request) -> Response:
    return _file(service, request, "index.html")


async def static(service: Service, request: Request) -> Response:
    return _file(service, request, request.path_params["file"])


def _file(service: Service, request: Request, name: str) -> Response:
    if not service.pages:
        style = f"{PALETTE}\n{STYLE}".encode()
        service.pages = {**read_static(), "charts.css": (style, KINDS[".css"], f'"{sha256(style).hexdigest()[:16]}"')}
    if name not in service.pages:
        raise NotFound(f"the console has no file '{name[:80]}'", code="no-such-path")
    data, kind, tag = service.pages[name]
    headers = {**HEADERS, "etag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=kind, headers=headers)


async def stream(service: Service, request: Request) -> Response:
    """News as server-sent events: which jobs have changed since the last message. At most one message a second."""
    if service.listeners >= MOST_LISTENERS:
        raise TooManyListeners(
            f"{MOST_LISTENERS} pages already listen", hint="close some; this page asks again by itself"
        )
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_news(service, request), media_type="text/event-stream", headers=headers)


async def _news(service: Service, request: Request) -> AsyncIterator[bytes]:
    """Asks for what is new when it can send; it is never sent to, so a slow listener holds up nobody."""
    service.listeners += 1
    try:
        seq = service.committed
        yield b"retry: 2000\n\n" + _message("hello", {"seq": seq})
        while not service.stopping:
            await service.change(lambda: service.committed > seq, QUIET_S)  # noqa: B023
            if service.stopping:
                return
            try:
                user = sessions.require(service, request, "read").user
            except BadCredentials:
                yield _message("signed-out", {})
                return
            now_seq = service.committed
            if now_seq > seq:
                changed = [job for job, version in service.versions.items() if version > seq]
                if user:
                    own = service.state.bags
                    changed = [job for job in changed if job in own and own[job].rules.owner == user]
                yield _message("change", {"seq": now_seq, "jobs": changed if len(changed) <= MOST_NAMED else None})
                seq = now_seq
                await asyncio.sleep(PAUSE_S)
            else:
                yield b": still here\n\n"
    finally:
        service.listeners -= 1


def _message(event: str, data: dict[str, Any]) -> bytes:
    return f"event: {event}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"
