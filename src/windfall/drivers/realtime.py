"""The live driver: events in, records into the store, and only then answers out. Touches the clock and the store.

Commit before act: an event is decided and applied at once, but nobody hears of it before its record is durable. While
one transaction is being written, the events that arrive gather for the next one (group commit), so durability costs one
sync per batch and no artificial wait.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from windfall.core.engine import Engine, wake_at
from windfall.core.events import (
    AnyDecision,
    AnyEvent,
    HostAnswered,
    HostAsked,
    JobTaken,
    Record,
    ServerStarted,
    Settings,
    SiteHostReported,
    SiteSettled,
    TimerFired,
    decode_record,
    encode_record,
)
from windfall.core.state.snapshot import load, pieces, save
from windfall.core.state.state import State
from windfall.drivers.clock import SteadyClock
from windfall.errors import BadInput
from windfall.store.contract import Batch, ChunkRow, JobRow, OutputRow, Store, StoreError
from windfall.store.contract import Record as LogRow

log = logging.getLogger(__name__)

SNAPSHOT_EVERY = 50_000
"""Records between snapshots: a restart applies at most so many."""

Rows = Callable[[list[Record]], Batch]
"""What else belongs into the transaction, told from the records (which hold the ids that were decided)."""


class Realtime:
    """Drives one engine in real time. All methods are called on the event loop; the store's writes have a thread."""

    def __init__(self, store: Store, engine: Engine, settings: Settings) -> None:
        self.store = store
        self.engine = engine
        self.settings = settings
        self.state = State()
        self.trouble = ""
        """Why nothing can be committed at the moment, if so. Nothing is lost; nothing more should be taken on."""
        self.on_commit: list[Callable[[list[Record]], None]] = []
        self.on_fatal: Callable[[], None] = lambda: None
        self._batch = Batch()
        self._records: list[Record] = []
        self._waiting: list[tuple[asyncio.Future[list[Record]], list[Record]]] = []
        self._dirty = asyncio.Event()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._since_snapshot = 0
        self._committing = False
        self._tasks: list[asyncio.Task[None]] = []
        self.clock = SteadyClock()

    def restore(self) -> list[str]:
        """Bring the state back: a snapshot, then `apply` over the records behind it. Returns warnings."""
        loaded = self.store.load()
        try:
            if loaded.snapshot is not None:
                self.state = load(loaded.snapshot.data)
            for _, data in loaded.records:
                self.engine.apply(self.state, decode_record(data))
                self._since_snapshot += 1
        except (msgspec.DecodeError, struct.error) as error:
            raise BadInput(
                f"this state was written by another version of Windfall and cannot be read ({error})",
                hint="use the version that wrote it, or begin anew with --state OTHER",
                code="other-version",
            ) from error
        self.clock = SteadyClock(self.state.t)
        return loaded.warnings

    async def start(self) -> None:
        self._tasks.append(asyncio.create_task(self._commit_for_ever()))
        await self.submit([ServerStarted(self.clock(), self.settings)])

    async def stop(self) -> None:
        """Write what is left and a snapshot, so that the next start is quick."""
        if self._timer:
            self._timer.cancel()
        while self._waiting or self._records:
            await asyncio.sleep(0.01)
            if self.trouble:
                break
        for task in self._tasks:
            task.cancel()
        if not self.trouble and self.state.seq:
            await self._in_writer(self.store.save_snapshot, self.state.seq, save(self.state))
        self._writer.shutdown()

    def submit(self, events: list[AnyEvent], rows: Rows | None = None) -> asyncio.Future[list[Record]]:
        """Decide and apply now; the future is done when the records are durable. One transaction for all of them."""
        records = [self.engine.step(self.state, event) for event in events]
        for record in records:
            self._records.append(record)
            self._batch.records.append(log_row(record))
        if rows is not None:
            extra = rows(records)
            self._batch.chunks += extra.chunks
            self._batch.outputs += extra.outputs
            self._batch.jobs += extra.jobs
        future: asyncio.Future[list[Record]] = asyncio.get_running_loop().create_future()
        self._waiting.append((future, records))
        self._dirty.set()
        self._set_timer()
        return future

    async def settled(self) -> None:
        """Return when everything applied so far is durable: nobody may be told of what could still be lost."""
        if self._committing or self._waiting:
            await self.submit([])

    # --- committing ---

    async def _commit_for_ever(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            batch, records, waiting = self._batch, self._records, self._waiting
            self._batch, self._records, self._waiting = Batch(), [], []
            self._committing = True
            if batch.records:
                try:
                    await self._commit(batch)
                except Exception as error:
                    # Another server took the store, or we wrote nonsense: nothing we say from now on can be kept.
                    self._fail(error, waiting)
                    return
            self._committing = False
            for future, mine in waiting:
                if not future.done():
                    future.set_result(mine)
            for listener in self.on_commit:
                listener(records)
            self._since_snapshot += len(records)
            if self._since_snapshot >= SNAPSHOT_EVERY and not self._records:
                self._since_snapshot = 0
                await self._snapshot()

    def _fail(self, error: Exception, waiting: list[tuple[asyncio.Future[list[Record]], list[Record]]]) -> None:
        log.critical("the store refused a batch for good; stopping", exc_info=error)
        self.trouble = f"the store refused a batch for good: {error}"
        for future, _ in [*waiting, *self._waiting]:
            if not future.done():
                future.set_exception(error)
        self.on_fatal()

    async def _commit(self, batch: Batch) -> None:
        """Until it is written, however long the disk stays full: what was decided must not be decided otherwise."""
        pause_s = 0.1
        while True:
            try:
                await self._in_writer(self.store.append, batch)
            except StoreError as error:
                if not self.trouble:
                    log.error("cannot commit: %s", error)
                self.trouble = error.message
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, 2.0)
            else:
                self.trouble = ""
                return

    async def _snapshot(self) -> None:
        seq, copied = self.state.seq, pieces(self.state)
        try:
            await self._in_writer(lambda: self.store.save_snapshot(seq, b"".join(copied)))
            await self._in_writer(self.store.prune, seq, (HEARTBEAT,))
        except StoreError as error:
            log.warning("no snapshot: %s", error)

    async def _in_writer(self, call: Callable[..., object], *args: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, call, *args)

    # --- time ---

    def _set_timer(self) -> None:
        at = wake_at(self.state)
        if at == self._timer_at:
            return
        # A heartbeat only moves the time further away; the timer may fire early and is then set again.
        if at is not None and self._timer_at is not None and at > self._timer_at:
            return
        if self._timer:
            self._timer.cancel()
        self._timer_at = at
        if at is not None:
            delay = max(0.0, at - self.clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self._fire)

    def _fire(self) -> None:
        self._timer_at = self._timer = None
        now = self.clock()
        at = wake_at(self.state)
        if self.trouble:
            self._timer = asyncio.get_running_loop().call_later(1.0, self._fire)
        elif at is not None and at <= now:
            self.submit([TimerFired(now)])
        else:
            self._set_timer()


HEARTBEAT = "heartbeat"
"""Kind of the records that say only that a host is alive; they are pruned behind a snapshot."""


_QUIET = (SiteSettled(), SiteSettled(repeat=True))


def log_row(record: Record) -> LogRow:
    event = record.event
    kind = type(event).__name__
    decided = record.decided
    if isinstance(event, HostAsked) and event.ad is None and not _promises(decided):
        kind = HEARTBEAT
    if isinstance(event, SiteHostReported) and not (event.capacity or event.started or event.ended or event.leaving):
        kind = HEARTBEAT if decided in _QUIET else kind
    if isinstance(event, TimerFired) and not any(getattr(decided, name) for name in decided.__struct_fields__):
        kind = HEARTBEAT
    return LogRow(record.seq, event.t, _job_of(record), kind, encode_record(record))


def _job_of(record: Record) -> int | None:
    """The job that a record is about, if it is about one: the one that it changes, makes, or moves into its tail."""
    decided = record.decided
    if isinstance(decided, JobTaken):
        return decided.job
    if isinstance(decided, HostAnswered) and decided.tails:
        return decided.tails[0][0]
    return getattr(record.event, "job", None)


def _promises(decided: AnyDecision) -> bool:
    """Does it change more than the time at which the host was last seen?"""
    if not isinstance(decided, HostAnswered):
        return False
    return bool(decided.assigned or decided.cancel or decided.lost or decided.tails or decided.probation)


__all__ = ["Batch", "ChunkRow", "JobRow", "OutputRow", "Realtime", "log_row"]
