"""Content-addressed files over HTTP: inputs down, outputs up. Touches the store's blobs only."""

from __future__ import annotations

import asyncio
import re
from typing import Any, BinaryIO

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from windfall.drivers.following import Following
from windfall.errors import BadInput
from windfall.server.http import scoped
from windfall.server.http.uploads import PIECE_BYTES
from windfall.server.limits import TooLarge
from windfall.server.service import NotFound, Service
from windfall.wire import HOST_SECRET, WORKER_AGENT

BINARY = "application/octet-stream"
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
    answer = None if size is None else await BlobResponse.of(service, sha, size)
    if answer is None:
        raise NotFound(f"there is no blob {sha[:12]}", code="no-such-blob")
    return answer


class BlobResponse(StreamingResponse):
    """A blob. Its file is opened before the answer begins, and closed also if the peer has gone in the middle."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        headers = {"content-length": str(size)}
        super().__init__(iter(lambda: file.read(PIECE_BYTES), b""), headers=headers, media_type=BINARY)
        self._file = file

    @classmethod
    async def of(cls, service: Service, sha: str, size: int) -> BlobResponse | None:
        """The answer; None if the blob was removed meanwhile."""
        try:
            return cls(await asyncio.to_thread(service.store.open_blob, sha), size)
        except KeyError:
            return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()


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
    key = scoped.attempt_of(service, request)
    sending = await service.job_files.sending(key, sha) if key is not None and service.job_files.is_limited else None
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
    if key is not None:
        uploads.wait_for_result(sha)
    # Who makes up many secrets could crowd out what hosts have sent.
    if key is not None or scoped.is_of_host(service, request):
        _note_sender(service, request, sha)
    return 201, {"sha256": sha, "bytes": size}
