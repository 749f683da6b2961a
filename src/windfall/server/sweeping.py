"""Files that no job names any more are removed, and the database gives unused space back. Touches the store.

A file may come before the job that names it. So one is removed only if nobody named, sent or asked for it between two
looks that lie `GRACE_S` apart. The jobs are read in a thread, beside the server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from windfall.errors import WindfallError
from windfall.server.job_files import files_of
from windfall.server.service import Service
from windfall.store.contract import Store

log = logging.getLogger(__name__)

GRACE_S = 3600.0
"""Seconds between two looks: a client or a worker that has sent a file names it much sooner."""
BREATH_S = 0.05
"""Seconds between two steps in which the database gives space back: each keeps commits waiting for milliseconds."""


class Sweeper:
    """Looks for files that nobody needs, once an hour, if there may be some since the last look found nothing.

    There may be where jobs were forgotten, checkpoints replaced, or results not taken whose files had come.
    """

    def __init__(self, service: Service, grace_s: float = GRACE_S) -> None:
        self._service, self._grace_s = service, grace_s
        self._candidates: set[str] = set()
        self._seen = (-1, -1)
        """Jobs that had been forgotten when the last look began, and how often something had lost its name."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._grace_s)
            try:
                await self.look()
            except WindfallError as error:
                log.warning("files that nobody needs could not be looked for: %s", error.message)

    async def look(self) -> int:
        """Remove what was not needed at the last look either; how many files."""
        service = self._service
        removed = await self._remove(self._candidates) if self._candidates else 0
        forgotten = service.state.bags.next - len(service.state.bags)
        seen = (forgotten, service.uploads.unnamed)
        if self._candidates or seen != self._seen:
            service.uploads.touched.clear()
            kept = {blob for bag in service.state.bags.values() for blob in bag.progress.checkpoints.values()}
            unneeded = await asyncio.to_thread(_unneeded, service.store, list(service.state.bags), kept)
            self._candidates, self._seen = unneeded - service.uploads.touched, seen
            await give_back(service.store)
        else:
            service.uploads.touched.clear()  # nothing is to be removed: it would grow for ever
        return removed

    async def _remove(self, candidates: set[str]) -> int:
        """Those that are needed since, or were sent or asked for, stay."""
        service, uploads = self._service, self._service.uploads
        kept = {blob for bag in service.state.bags.values() for blob in bag.progress.checkpoints.values()}
        still = await asyncio.to_thread(_unneeded, service.store, list(service.state.bags), kept)
        # Nothing is awaited from here to the mark, and a request for a marked file is told to come back.
        removing = uploads.removing = (candidates & still) - uploads.touched - uploads.awaited()
        try:
            count, size = await asyncio.to_thread(_removed, service.store, removing)
        finally:
            uploads.removing = set()
        uploads.removed(removing, size)
        if count:
            log.info("%d files (%d bytes) that no job names were removed", count, size)
        return count


async def give_back(store: Store) -> None:
    """Give all unused space of the database back to the disk, in small steps."""
    while await asyncio.to_thread(store.shrink):
        await asyncio.sleep(BREATH_S)


def _removed(store: Store, blobs: set[str]) -> tuple[int, int]:
    count, total = 0, 0
    for blob in sorted(blobs):
        size = store.blob_size(blob)
        if size is not None:
            store.remove_blob(blob)
            count, total = count + 1, total + size
    return count, total


def _unneeded(store: Store, jobs: list[int], kept: set[str]) -> set[str]:
    """Blobs that neither these jobs name nor `kept`."""
    blobs = {blob for blob, _ in store.blobs()} - kept
    for job in jobs:
        if not blobs:
            break
        blobs.difference_update(named_files(store, job))
    return blobs


def named_files(store: Store, job: int) -> Iterator[str]:
    """The files that a job takes and has made."""
    return (sha256 for sha256, _ in files_of(store, job))
