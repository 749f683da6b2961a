"""The files that an exchange names: they must have come, and must not be more than their jobs may have.

Decides nothing of the engine: what does not hold is reported as a failure, or left out. Touches the store's blobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from windfall.core.events import Key
from windfall.core.jobs.attempts import last_holder
from windfall.core.state.hosts.hosts import Host
from windfall.server.http.scoped import takes
from windfall.server.service import Service
from windfall.store.contract import OutputRow
from windfall.wire.messages import DONE, LOST, OUTPUTS, QUOTA

if TYPE_CHECKING:
    from windfall.server.http.workers.exchange import Ask, CheckpointRow, More, ResultRow

Sent = dict[Key, dict[str, int]]
"""By attempt, the sizes of the files that its result names; empty where it may name none."""


async def check_outputs(service: Service, ask: Ask) -> Sent:
    """What the results name, with true sizes. A success whose files are not here is lost; with too many it failed.

    Results of attempts that the host does not have are left to the engine, which counts them for nothing.
    """
    found: Sent = {}
    for place, row in enumerate(ask.results):
        key, cause, more = row[:3], row[3], row[12]
        if more is None and cause == QUOTA and not service.job_files.why_refused(key):
            ask.results[place] = (*row[:3], OUTPUTS, *row[4:])
        if more is None or not (more.outputs or cause == QUOTA) or (host := _holder(service, ask.host, key)) is None:
            continue
        if cause == DONE:
            ask.results[place], found[key] = await _checked(service, host, row, more)
        else:
            if cause == QUOTA and not (why := service.job_files.why_refused(key)):
                # A host alone cannot say so: the task would not be tried again.
                cause, why = OUTPUTS, more.text or ""
            elif cause != QUOTA:
                why = more.text or ""
            ask.results[place], found[key] = _failed(row, more, cause, why), {}
    return found


async def _checked(service: Service, host: Host, row: ResultRow, more: More) -> tuple[ResultRow, dict[str, int]]:
    sizes: dict[str, int] = {}
    for name, sha256, _, _ in more.outputs or ():
        if sha256 not in sizes:
            size = await _size(service, host, row[:3], sha256)
            if size is None:
                # Not the task's doing. An honest host may have sent it to a server that had been replaced.
                return _failed(row, more, LOST, f"its output '{name}' has not reached this server"), {}
            sizes[sha256] = size
    if service.job_files.is_limited and (why := await service.job_files.admit(row[:3], sizes)):
        return _failed(row, more, QUOTA if service.job_files.why_refused(row[:3]) else OUTPUTS, why), {}
    true = [(name, sha256, sizes[sha256], mode) for name, sha256, _, mode in more.outputs or ()]
    return (*row[:12], msgspec.structs.replace(more, outputs=true)), sizes


def _failed(row: ResultRow, more: More, cause: str, why: str) -> ResultRow:
    return (*row[:3], cause, *row[4:12], msgspec.structs.replace(more, outputs=None, text=why or None))


def judged(service: Service, sent: Sent, kept: list[OutputRow]) -> None:
    """The results are in the log: count what they name. The sweeper looks for the rest."""
    rows = {(row.job, row.task, row.attempt) for row in kept}
    for key, sizes in sent.items():
        named = sizes if key in rows else {}
        service.job_files.judged(key, named)
        service.uploads.unnamed += not named


async def check_checkpoints(service: Service, ask: Ask) -> list[CheckpointRow]:
    """Those of attempts that the host has whose files are here, and not more than their jobs may have."""
    found = []
    for row in ask.checkpoints:
        key, sha256 = row[:3], row[3]
        host = _holder(service, ask.host, key)
        size = None if host is None else await _size(service, host, key, sha256)
        bag = service.state.bags.get(key[0])
        if bag is None or size is None:
            continue
        if service.job_files.is_limited and not await service.job_files.admit_checkpoint(key, sha256, size):
            continue
        service.uploads.unnamed += bag.progress.checkpoints.get(key[1], sha256) != sha256
        found.append(row)
    return found


def _holder(service: Service, name: str, key: Key) -> Host | None:
    """The host of this name, if it has this attempt, or had it until it restarted or left."""
    bag, host = service.state.bags.get(key[0]), service.state.host(name)
    return host if bag and host and last_holder(bag, *key[1:]) == host.number else None


async def _size(service: Service, host: Host, key: Key, sha256: str) -> int | None:
    """Bytes of a file that a host names; None if it is not here, or the host has not sent it and may not read it."""
    senders = service.senders
    if senders.knows_of(key) and not senders.has_sent(host, sha256) and not takes(service, host, sha256):
        return None
    service.uploads.named(sha256)
    return await service.uploads.size(sha256)
