"""Content-addressed files over HTTP: inputs down, outputs up. Touches the store's blobs only."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from windfall.drivers.following import Following
from windfall.errors import BadInput
from windfall.server.http import scoped
from windfall.server.http.uploads import PIECE_BYTES
from windfall.server.limits import TooLarge
from windfall.server.service import NotFound, Service

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


def _sha(request: Request) -> str:
    sha: str = request.path_params["sha"]
    if not _SHA256.match(sha):
        raise BadInput("a blob is named by the 64 hexadecimal digits of its sha256")
    return sha


async def _size(service: Service, request: Request, sha: str) -> int | None:
    """Bytes of a blob; None if there is none, or if the sender of the request may not read it."""
    if scoped.may_read(service, request, sha):
        service.uploads.touch(sha)
        return await asyncio.to_thread(service.store.blob_size, sha)  # a database or an object store is asked
    if isinstance(service.driver, Following):
        raise service.driver.refusal()  # it may not know yet what the host was given
    return None


async def head(service: Service, request: Request) -> Response:
    size = await _size(service, request, _sha(request))
    return Response(status_code=404) if size is None else Response(headers={"x-blob-bytes": str(size)})


async def get(service: Service, request: Request) -> Response:
    sha = _sha(request)
    size = await _size(service, request, sha)
    if size is None:
        raise NotFound(f"there is no blob {sha[:12]}", code="no-such-blob")
    headers = {"content-length": str(size)}
    return StreamingResponse(pieces_of(service, sha), headers=headers, media_type="application/octet-stream")


def pieces_of(service: Service, sha: str) -> Iterator[bytes]:
    with service.store.open_blob(sha) as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


async def put(service: Service, request: Request) -> tuple[int, dict[str, Any]]:
    """Written while it arrives; a wrong hash leaves nothing behind. Who may not read a blob has to send all of it."""
    sha, uploads = _sha(request), service.uploads
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:18]) > uploads.max_bytes:
        raise TooLarge(f"a blob of {length[:18]} bytes", limit=uploads.max_bytes)
    size = await _size(service, request, sha)
    if size is not None:
        return 200, {"sha256": sha, "bytes": size}
    async with uploads.turn():
        return 201, {"sha256": sha, "bytes": await uploads.receive(sha, request.stream().__aiter__())}
