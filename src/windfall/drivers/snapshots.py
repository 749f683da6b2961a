"""Snapshots of a live driver's state, and the log behind them: pruned and packed. Touches the store and processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from windfall.core.state.snapshot import pieces
from windfall.drivers import copying
from windfall.drivers.log_rows import HEARTBEAT
from windfall.errors import WindfallError
from windfall.store.contract import StoreError

if TYPE_CHECKING:
    from windfall.drivers.realtime import Realtime

log = logging.getLogger(__name__)

SNAPSHOT_RECORDS = 100_000
SNAPSHOT_BYTES = 64 << 20
"""Records, and bytes of them, between two snapshots: a restart applies about as much, whatever the load was.

A large state is copied by a forked process (windfall.drivers.copying)."""
PRUNED_RECORDS = 20_000
"""Records that are looked at for heartbeats in one transaction: 4 ms. A log of 10 million would take 2 s at once."""
PACK_PAUSE_S = 0.005
"""Seconds between two packs of old records."""

Copied = Callable[[], bytes | memoryview]
"""Gives the state as it was, encoded. May wait for a process."""


@dataclass(slots=True)
class Grown:
    """Records, and bytes of them, that a restart would apply behind the newest snapshot."""

    records: int = 0
    size_bytes: int = 0

    def add(self, records: int, size_bytes: int) -> None:
        self.records += records
        self.size_bytes += size_bytes


class Snapshots:
    """Takes a snapshot of the driver's state when the log has grown by `records` or `size_bytes`."""

    def __init__(self, driver: Realtime, records: int, size_bytes: int) -> None:
        self.error = ""
        """Why the last snapshot could not be taken, if so: the log holds everything, a restart takes longer."""
        self.behind = Grown()
        self.taking: asyncio.Task[None] | None = None
        self.packing: asyncio.Task[None] | None = None
        self._driver = driver
        self._records, self._bytes = records, size_bytes
        self._copier = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        """Not the thread of the commits: they would wait until hundreds of megabytes are on the disk."""
        self._hurry = threading.Event()
        """The server stops: a snapshot that is being written takes no more time than it needs."""
        self._may_fork = True
        """Whether a large state is encoded by a forked process: until one fails."""
        self._last_seq = self._pruned_seq = 0
        """The last record of the newest snapshot that was taken here; and below which the log has no heartbeats."""

    @property
    def is_under_way(self) -> bool:
        """Whether a snapshot is being written."""
        return self.taking is not None and not self.taking.done()

    def copied_if_due(self) -> tuple[int, Copied] | None:
        """The number of the last record and a copy of the state after it, if a snapshot is due."""
        if self.behind.records < self._records and self.behind.size_bytes < self._bytes:
            return None
        if self.is_under_way:
            return None
        self.behind = Grown()
        try:
            return self._driver.state.seq, self._copied()
        except Exception as error:
            self._failed(error)
            return None

    def _copied(self) -> Copied:
        state = self._driver.state
        if self._may_fork and copying.is_large(state):
            with contextlib.suppress(OSError):  # no memory for another process: the loop encodes
                return copying.Forked(state).data
        return partial(b"".join, pieces(state))

    def take(self, seq: int, copied: Copied) -> None:
        """Write it beside the commits that follow."""
        self.taking = self._driver.background(self._take(seq, copied), "the snapshot", ends=True)

    async def _take(self, seq: int, copied: Copied) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._copier, self._save, seq, copied)
            await self._prune(seq)
            self.error = ""
        except Exception as error:
            self._failed(error)
            return
        if self.packing is None or self.packing.done():
            self.packing = self._driver.background(self._pack(seq), "the packing of old records", ends=True)

    async def _pack(self, seq: int) -> None:
        """Old records take less space from now on, a few hundred at a time: commits go on in between."""
        try:
            while await asyncio.get_running_loop().run_in_executor(self._copier, self._driver.store.pack, seq):
                await asyncio.sleep(PACK_PAUSE_S)
        except StoreError as error:
            log.warning("old records could not be packed: %s", error.message)

    async def _prune(self, seq: int) -> None:
        """Drop heartbeats that two snapshots cover, in parts: commits go on between them."""
        prune = self._driver.store.prune
        for first in range(self._pruned_seq, seq, PRUNED_RECORDS):
            await self._driver.in_writer(prune, min(first + PRUNED_RECORDS, seq), (HEARTBEAT,), first)
        # The snapshot before this one is the older of the two that are kept: below it there is nothing more to drop.
        self._pruned_seq, self._last_seq = self._last_seq, seq

    def _save(self, seq: int, copied: Copied) -> None:
        try:
            data = copied()
        except Exception:
            self._may_fork = False
            raise
        self._driver.store.save_snapshot(seq, data, self._hurry)

    def hurry(self) -> None:
        self._hurry.set()

    def close(self) -> None:
        """Wait for a snapshot that is being written."""
        self._copier.shutdown()

    async def take_last(self) -> None:
        """In the thread of the commits, when there are none any more."""
        driver = self._driver
        try:
            copied = pieces(driver.state)
            await driver.in_writer(lambda: driver.store.save_snapshot(driver.state.seq, b"".join(copied)))
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Not a reason to stop: the log holds everything, and a restart applies more of it."""
        self.error = str(getattr(error, "message", "")) or repr(error)
        expected = isinstance(error, WindfallError)
        log.error("no snapshot could be taken: %s", self.error, exc_info=None if expected else error)
