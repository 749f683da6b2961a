"""The tasks of an answer: indices become command lines here, and only here. A task that cannot be rendered fails alone.

Decides nothing: what cannot be rendered is reported as a failed attempt, and the engine judges that like any other.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from msgspec import Struct, field

from windfall.bags.rendering import Renderer
from windfall.bounds import MAX_INTEGER
from windfall.core.decisions import MEMBER, Assigned
from windfall.core.events import Key, Result, ResultsReported
from windfall.core.records import Record
from windfall.core.state.jobs.bags import Bag
from windfall.errors import BadInput
from windfall.server.service import Service
from windfall.store.contract import Batch, OutputRow, StoreError
from windfall.wire import frames
from windfall.wire.messages import BAD_TASK, CAUSES, PREEMPTED

log = logging.getLogger(__name__)

MAX_TASK_BYTES = frames.MAX_HEADER_BYTES - (1 << 20)
"""One task with the specification of its job: a worker reads no larger header."""
ROW_BYTES = 64
"""The numbers of a task, at most about this long."""
NOBODY = ""
"""The host that a task failed on which reached none: nobody is to blame."""
MAX_WHY_CHARS = 500
_BAD_TASK, _PREEMPTED = CAUSES.index(BAD_TASK), CAUSES.index(PREEMPTED)
_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode


class HandedOut(Struct):
    """What the worker is sent, and the attempts that could not be made into commands, each with the reason."""

    jobs: dict[int, msgspec.Raw] = field(default_factory=dict)
    rows: list[list[Any]] = field(default_factory=list)
    attachments: list[bytes] = field(default_factory=list)
    failed: dict[Key, str] = field(default_factory=dict)
    beyond: list[Key] = field(default_factory=list)
    """Attempts that would make the answer too large: their tasks follow in another answer."""
    size: int = 0
    """Bytes of what is sent; above the limit if something is left out."""


def hand_out(service: Service, assigned: list[Assigned], most_bytes: int = MAX_INTEGER) -> HandedOut:
    """Render what a host was given, up to `most_bytes`, but at least one task.

    Nothing is rendered beyond that. StoreError: nothing could be read now, and the worker asks again.
    """
    out, bags = HandedOut(), service.driver.state.bags
    for piece in assigned:
        job, attempt = piece.job, piece.attempt
        bag = bags.get(job)
        if bag is None:  # cancelled and forgotten while the record was being written
            continue
        progress = bag.progress
        is_part = piece.why == MEMBER
        has_own = progress.checkpoints or progress.memory or piece.checkpoint_s is not None or piece.units or is_part
        renderer: Renderer | None = None
        for task in range(piece.first, piece.first + piece.count):
            if out.size >= most_bytes and not is_part:
                out.beyond.append((job, task, attempt))
                continue
            try:
                if renderer is None:
                    renderer = service.renderer(job)
                argv, payload, overrides = renderer.task(task, attempt)
                if has_own:
                    overrides = _with_own(service, bag, piece, task, overrides)
                size = _size_of(argv, overrides, 0 if job in out.jobs else renderer.spec_bytes)
            except StoreError:
                raise
            except Exception as error:
                # Whatever it is, it is about this task: the others of the answer must reach their host.
                if not out.failed:
                    log.warning("task %d.%d cannot be rendered: %r", job, task, error)
                out.failed[job, task, attempt] = f"{error or type(error).__name__}"[:MAX_WHY_CHARS]
                continue
            out.size += size + len(payload)
            if out.rows and out.size > most_bytes and not is_part:
                out.beyond.append((job, task, attempt))
                continue
            out.jobs[job] = renderer.spec_for_worker
            out.rows.append([job, task, attempt, argv, overrides, len(payload)])
            if payload:
                out.attachments.append(payload)
    return out


def _size_of(argv: list[str] | None, overrides: dict[str, Any] | None, spec_bytes: int) -> int:
    """Bytes of a task in the header of an answer. What cannot be sent fails here, not with the whole answer."""
    size = len(_encode(argv)) + spec_bytes + ROW_BYTES
    if overrides:
        size += len(_encode(overrides))
    if size > MAX_TASK_BYTES:
        raise BadInput(f"a command of {size:,} bytes, with its environment, is more than a worker reads")
    return size


def _with_own(
    service: Service, bag: Bag, piece: Assigned, task: int, overrides: dict[str, Any] | None
) -> dict[str, Any] | None:
    """With what became of the task so far: its checkpoint, how often to save one, its memory, units and other hosts."""
    own: dict[str, Any] = {}
    if task in bag.progress.checkpoints:
        own["checkpoint"] = bag.progress.checkpoints[task]
    if piece.checkpoint_s is not None:
        own["checkpoint_s"] = piece.checkpoint_s
    if piece.units:
        own["units"] = piece.units
    if task in bag.progress.memory:
        own["memory_bytes"] = bag.memory_for(task, piece.attempt)
    if piece.why == MEMBER and task in bag.attempts.gangs:
        gang = bag.attempts.gangs[task]
        rank = piece.attempt - gang.first
        own["gang"] = {"rank": rank, "hosts": [_address(service, number) for number in gang.hosts]}
        if rank:
            own["outputs"] = []  # the files of a task are those of rank 0
    return {**(overrides or {}), **own} if own else overrides


def _address(service: Service, number: int) -> tuple[str, str]:
    """Name and network address of a host; its name again where its worker did not say from where it asks."""
    host = service.state.hosts[number]
    return host.name, str(host.ad.get("address") or host.name)


async def fail(service: Service, failed: dict[Key, str]) -> None:
    """Report attempts that no host could be told to run, with what is to be shown of each."""
    now = service.driver.clock()
    results = [Result(*key, _BAD_TASK, None, now, now) for key in failed]
    outputs = [
        OutputRow(*key, _pack([b"", b"", b"", {"text": f"the task cannot be rendered: {why}"}]))
        for key, why in failed.items()
    ]

    def rows(made: list[Record]) -> Batch:
        return Batch(outputs=outputs)

    await service.driver.submit([ResultsReported(now, NOBODY, results)], rows)


async def take_back(service: Service, keys: list[Key]) -> None:
    """Let attempts go that their host was not told of: their tasks wait again, at no cost to their budgets."""
    if keys:
        now = service.driver.clock()
        results = [Result(*key, _PREEMPTED, None, now, now) for key in keys]
        await service.driver.submit([ResultsReported(now, NOBODY, results)])
