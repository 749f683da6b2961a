"""Bodies of requests, read within the limits and turned into typed values. Touches the request only."""

from __future__ import annotations

from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from windfall.bounds import read_json
from windfall.server.json_limits import check_json
from windfall.server.limits import Reading

T = TypeVar("T")


async def read_body(receive: Receive, reading: Reading) -> bytes:
    """The whole body; TooLarge as soon as it is, also where no length was announced."""
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece: bytes = message.get("body", b"")
        reading.take(len(piece))
        if not message.get("more_body"):
            return b"".join([*pieces, piece]) if pieces else piece
        pieces.append(piece)


async def limited_body(request: Request) -> bytes:
    """The whole body of a request that `handled` (app.py) lets in."""
    return await read_body(request.receive, request.state.reading)


async def typed_body(request: Request, type_: type[T]) -> T:
    """A JSON object as a struct; no body stands for an empty object."""
    body = await limited_body(request) or b"{}"
    check_json(body, request.state.reading.limits, "the body")
    return read_json(body, type_, "the body")
