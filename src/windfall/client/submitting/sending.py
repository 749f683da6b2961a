"""A bag on its way to the server: job, files, chunks of tasks, seal. Touches the network and the files sent along.

The job's key makes it one submission however often it is sent: what arrived before an interruption is not sent again.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from windfall.api.asking import Admission
from windfall.bags.chunks import Chunk
from windfall.bags.outline import MOST_TASKS, Outline, outlined
from windfall.bags.spec import JobSpec
from windfall.bags.submission import Submission
from windfall.client.transport import Transport
from windfall.errors import BadInput
from windfall.graph import Graph

_REQUEST_BYTES = 8 << 20


class Sent(Struct, frozen=True):
    """What became of a submission. `known`: its key had been seen before, and this is the job of that time."""

    job: int
    known: bool
    total: int
    admission: Admission | None = None
    """What its fleet said of its deadline, if it was asked."""


def send(
    transport: Transport,
    spec: JobSpec,
    chunks: Iterable[Chunk] = (),
    *,
    count: int = 0,
    seal: bool = True,
    shape: Graph | None = None,
    estimates: bytes = b"",
    late: str = "accept",
    outline: Outline | None = None,
    on_progress: Callable[[int], None] = lambda total: None,
) -> Sent:
    """Submit a job whole. `count`: tasks that need no chunk (a range). `on_progress` hears how many tasks are there."""
    body = {"spec": msgspec.to_builtins(spec), "count": count, "seal": seal and count > 0}
    if shape is not None:
        body["shape"] = [zlib.compress(column.tobytes()) for column in (shape.offsets, shape.children)]
    if estimates:
        body["estimates"] = zlib.compress(estimates)
    if late != "accept":
        body["late"] = late
        if outline is not None:
            body["outline"] = msgspec.to_builtins(outline, str_keys=True)
    answer = transport.post("/v1/jobs", body)
    job, known, total, admission = answer["job"], answer["known"], answer["total"], answer.get("admission")
    if count or spec.like:
        return Sent(job, known, total, admission)
    have = total if known else 0
    missing = (chunk for chunk in chunks if chunk.first + chunk.count > have)
    total = send_chunks(transport, job, missing, seal=seal, on_progress=on_progress)
    return Sent(job, known, total, admission)


def late_of(bag: Submission, reject: bool, accept_late: bool) -> tuple[str, Outline | None]:
    """What the server does with a job whose fleet would not be in time, and what it is to ask the fleet.

    A job whose run times are not estimated cannot be laid out; with `reject` that is an error.
    """
    if reject and accept_late:
        raise BadInput("--reject and --accept-late exclude each other", hint="leave one of them out")
    if (reject or accept_late) and not bag.spec.fleet:
        option = "--reject" if reject else "--accept-late"
        raise BadInput(f"{option} goes with --fleet", hint="try: windfall submit ... --fleet NAME --deadline 2h")
    if accept_late or not bag.spec.fleet or bag.spec.deadline_s is None:
        return "accept", None
    late = "reject" if reject else "tell"
    if bag.spec.like:
        return late, None  # the server knows the tasks of the class
    outline = outlined(bag.spec, bag.count, bag.chunks, bag.shape, bag.estimates)
    if outline is None and reject:
        if bag.count > MOST_TASKS:
            raise BadInput(f"{bag.count:,} tasks are too many to be laid out", hint="leave --reject out")
        raise BadInput("--reject needs to know how long the tasks take", hint="as in: --estimate 5m")
    return ("accept", None) if outline is None else (late, outline)


def send_chunks(
    transport: Transport,
    job: int,
    chunks: Iterable[Chunk],
    *,
    seal: bool = False,
    append: bool = False,
    on_progress: Callable[[int], None] = lambda total: None,
) -> int:
    """Chunks in requests of a few megabytes. Returns how many tasks the job has then."""
    total, size = 0, 0
    batch: list[Chunk] = []
    for chunk in chunks:
        if batch and size + len(chunk.data) > _REQUEST_BYTES:
            total = _post(transport, job, batch, append=append)
            on_progress(total)
            batch, size = [], 0
        batch.append(chunk)
        size += len(chunk.data)
    if batch or seal:
        total = _post(transport, job, batch, seal=seal, append=append)
        on_progress(total)
    return total


def append_chunks(transport: Transport, job: int, chunks: Iterable[Chunk]) -> int:
    """Chunks for a job that was complete. Returns how many tasks it has then."""
    return send_chunks(transport, job, chunks, append=True)


def _post(transport: Transport, job: int, chunks: list[Chunk], *, seal: bool = False, append: bool = False) -> int:
    rows = [
        {"first": c.first, "count": c.count, "klass": c.klass, "codec": c.codec, "bytes": len(c.data)} for c in chunks
    ]
    head = {"chunks": rows, "seal": seal, **({"append": True} if append else {})}
    answer = transport.post_frame(f"/v1/jobs/{job}/tasks", head, [c.data for c in chunks])
    total: int = answer["total"]
    return total


def put_blob(transport: Transport, sha256: str, data: bytes) -> None:
    transport.request("PUT", f"/v1/blobs/{sha256}", body=data, content_type="application/octet-stream")


def send_file(transport: Transport, sha256: str, path: Path) -> None:
    """Send a file's content unless the server has it."""
    if transport.exists(f"/v1/blobs/{sha256}"):
        return
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BadInput(f"input {path} changed while it was being sent", hint="try again when it stands still")
    put_blob(transport, sha256, data)
