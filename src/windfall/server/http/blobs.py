"""Content-addressed files over HTTP: inputs down, outputs up. Touches the store's blobs only."""

from __future__ import annotations

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
from windfall.wire import HOST_SECRET, WORKER_AGENT

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


def _sha(request: Request) -> str:
    sha: str = request.path_params["sha"]
    if not _SHA256.match(sha):
        raise BadInput("a blob is named by the 64 hexadecimal digits of its sha256")
    return sha


async def _size(service: Service, request: Request, sha: str) -> int | None:
    """Bytes of a blob; None if there is none, or if the sender of the request may not read it."""
    if scoped.may_read(service, request, sha):
        return await service.uploads.look(sha)
    if isinstance(service.driver, Following):
        raise service.driver.refusal()  # it may not know yet what the host was given
    return None


def _note_sender(service: Service, request: Request, sha: str) -> None:
    """A worker has a blob: it may name it. What clients have sent is not theirs that show no secret."""
    secret = request.headers.get(HOST_SECRET, "")
    is_worker = request.state.bearer.role in scoped.WORKERS or request.headers.get("user-agent") == WORKER_AGENT
    if secret or is_worker:
        service.senders.add(secret, sha)


async def head(service: Service, request: Request) -> Response:
    sha = _sha(request)
    size = await _size(service, request, sha)
    if size is not None:
        _note_sender(service, request, sha)  # a worker need not send what it may read
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
    """Written while it arrives; a wrong hash leaves nothing behind. Who may not read a blob has to send all of it.

    What a host sends for an attempt that it has counts towards the quota of the job.
    """
    sha, uploads = _sha(request), service.uploads
    length = request.headers.get("content-length", "")
    announced = int(length[:18]) if length.isdecimal() else 0
    if announced > uploads.max_bytes:
        raise TooLarge(f"a blob of {length[:18]} bytes", limit=uploads.max_bytes)
    size = await _size(service, request, sha)
    if size is not None:
        _note_sender(service, request, sha)
        return 200, {"sha256": sha, "bytes": size}
    key = scoped.attempt_of(service, request) if service.job_files.is_limited else None
    sending = None if key is None else await service.job_files.sending(key, sha)
    try:
        if sending is not None:
            sending.announce(announced)
        async with uploads.turn():
            pieces = request.stream().__aiter__()
            size = await uploads.receive(sha, pieces, None if sending is None else sending.take)
        if sending is not None:
            sending.kept(size)
    finally:
        if sending is not None:
            sending.end()
    _note_sender(service, request, sha)
    return 201, {"sha256": sha, "bytes": size}
