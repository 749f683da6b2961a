"""Content-addressed files over HTTP: inputs down, outputs up. Touches the store's blobs only."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from queue import Queue
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from windfall.errors import BadInput
from windfall.server.service import NotFound, Service

PIECE_BYTES = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


def _sha(request: Request) -> str:
    sha: str = request.path_params["sha"]
    if not _SHA256.match(sha):
        raise BadInput("a blob is named by the 64 hexadecimal digits of its sha256")
    return sha


async def head(service: Service, request: Request) -> Response:
    size = service.store.blob_size(_sha(request))
    return Response(status_code=404) if size is None else Response(headers={"x-blob-bytes": str(size)})


async def get(service: Service, request: Request) -> Response:
    sha = _sha(request)
    size = service.store.blob_size(sha)
    if size is None:
        raise NotFound(f"there is no blob {sha[:12]}", code="no-such-blob")
    headers = {"content-length": str(size)}
    return StreamingResponse(_pieces(service, sha), headers=headers, media_type="application/octet-stream")


def _pieces(service: Service, sha: str) -> Iterator[bytes]:
    with service.store.open_blob(sha) as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


async def put(service: Service, request: Request) -> tuple[int, dict[str, Any]]:
    """Written while it arrives; a wrong hash leaves nothing behind."""
    sha = _sha(request)
    if service.store.has_blob(sha):
        async for _ in request.stream():
            pass
        return 200, {"sha256": sha, "bytes": service.store.blob_size(sha)}
    # The store writes in a thread of its own while pieces arrive; the short queue slows a sender that is too fast.
    pieces: Queue[bytes | None] = Queue(maxsize=8)
    writing = asyncio.create_task(run_in_threadpool(service.store.put_blob, sha, iter(pieces.get, None)))
    try:
        async for piece in request.stream():
            if writing.done():
                break
            if piece:
                await run_in_threadpool(pieces.put, piece, timeout=60)
    finally:
        pieces.put(None)
    return 201, {"sha256": sha, "bytes": await writing}
