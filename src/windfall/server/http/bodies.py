"""Bodies of requests, read within the limit and turned into typed values. Touches the request only."""

from __future__ import annotations

from typing import TypeVar

from starlette.requests import Request

from windfall.bounds import MAX_BODY_BYTES, read_json
from windfall.errors import BadInput

T = TypeVar("T")


class TooLarge(BadInput):
    """A body over its limit: `limit` bytes."""

    code = "too-large"

    def __init__(self, message: str, *, limit: int = MAX_BODY_BYTES) -> None:
        super().__init__(message, hint=f"at most {limit:,} bytes")
        self.limit = limit


async def limited_body(request: Request) -> bytes:
    """The whole body; TooLarge as soon as it is, also where no length was announced."""
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise TooLarge(f"a body of more than {MAX_BODY_BYTES:,} bytes")
        pieces.append(piece)
    return b"".join(pieces)


async def typed_body(request: Request, type_: type[T]) -> T:
    """A JSON object as a struct; no body stands for an empty object."""
    return read_json(await limited_body(request) or b"{}", type_, "the body")
