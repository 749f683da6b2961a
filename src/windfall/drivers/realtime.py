"""The live driver: events in, records into the store, and only then answers out. Touches the clock and the store.

Commit before act: an event is decided and applied at once, but no answer leaves before its record is durable. While
one transaction is being written, the events that arrive gather for the next one (group commit), so durability costs one
sync per batch. A single request is committed at once; many at a time wait a few milliseconds for each other.

Fail-stop: a record is encoded before it is applied, and what is applied was decoded from it. An event that cannot be
encoded changes nothing, and its request fails. Where deciding or applying raises, where the store refuses for good, or
where a background task dies, the server stops (`fail`): nothing that waits is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import msgspec

from windfall.core.decisions import AnyDecision
from windfall.core.engine import Engine
from windfall.core.events import AnyEvent, ServerStarted, Settings
from windfall.core.formats import read_record
from windfall.core.records import FORMAT, Record, decode_record
from windfall.core.state.snapshot import load
from windfall.core.state.state import State
from windfall.core.wishes import due, wake_at
from windfall.drivers.clock import SteadyClock
from windfall.drivers.failures import ServerFailed, Uncommitted, Unwritable, crash_file
from windfall.drivers.log_rows import log_row
from windfall.drivers.old_logs import whole_log
from windfall.drivers.snapshots import SNAPSHOT_BYTES, SNAPSHOT_RECORDS, Grown, Snapshots
from windfall.drivers.timings import Timings
from windfall.errors import BadInput
from windfall.store.contract import Batch, ChunkRow, JobRow, OutputRow, Store, StoreFenced
from windfall.store.contract import Record as LogRow
from windfall.store.formats import format_at

log = logging.getLogger(__name__)

RETRY_S = 0.1
"""Seconds before a commit that failed is tried again; the pause doubles up to 2 s."""
GATHER_S = 0.005
"""Seconds at most for which a batch waits while requests keep coming in."""
COMMIT_EVERY_S = 0.004
"""Seconds between the beginnings of two commits, if the first was of a crowd. A sync takes 0.2 ms of processor time,
for one record as for hundreds."""
CROWD = 3
"""Requests in one batch that show that several peers ask at a time: none of them waits for its own commit alone."""
PATIENCE_S = 2.0
"""Seconds that a request waits for a commit which fails and is tried again; then it is told to come back."""
STALL_S = 10.0
"""Seconds after which a commit that has not ended counts as a fault of the store."""
STOP_S = 5.0
"""Seconds that stopping waits for what is being committed."""
BEAT_S = 1.0
"""Seconds between two signs of life of a server that has nothing to commit."""
PAGE = 2000
"""Records that are read at once when a server takes over."""

Rows = Callable[[list[Record]], Batch]
"""What else belongs into the transaction, told from the records (which hold the ids that were decided)."""

_encode_event = msgspec.msgpack.Encoder().encode
_decode_event: Callable[[bytes], AnyEvent] = msgspec.msgpack.Decoder(AnyEvent).decode

Done = asyncio.Future[list[Record]]
"""Done when these records are durable."""
Waiting = tuple[Done, list[Record]]


@dataclass(slots=True)
class Request:
    """Events that go into one transaction, and who waits until they are durable."""

    events: list[AnyEvent]
    rows: Rows | None
    done: Done
    made: list[Record] = field(default_factory=list)

    def refuse(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


@dataclass(slots=True)
class Pending:
    """What goes into one transaction, and the requests that wait for it."""

    batch: Batch = field(default_factory=Batch)
    records: list[Record] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)


class Realtime:
    """Drives one engine in real time. All methods are called on the event loop; the store's writes have a thread.

    `crash_directory`: where a record is kept on which the server stopped; nowhere if None.
    """

    def __init__(
        self,
        store: Store,
        engine: Engine,
        settings: Settings,
        crash_directory: Path | None = None,
        snapshot_records: int = SNAPSHOT_RECORDS,
        snapshot_bytes: int = SNAPSHOT_BYTES,
    ) -> None:
        self.store = store
        self.engine = engine
        self.settings = settings
        self.state = State()
        self.trouble = ""
        """Why nothing can be committed at the moment, if so. Nothing is lost; nothing more should be taken on."""
        self.failure: ServerFailed | None = None
        """Why the server stops, if it does."""
        self.fenced = False
        """Whether another server has taken the state over."""
        self.unwritten = 0
        """Records that could not be written before the driver stopped. None of them was acknowledged."""
        self.on_commit: list[Callable[[list[Record]], None]] = []
        self.on_fatal: Callable[[], None] = lambda: None
        self.commit_times = Timings()
        self.clock = SteadyClock()
        self._crash_directory = crash_directory
        self.snapshots = Snapshots(self, snapshot_records, snapshot_bytes)
        self._pending = Pending()
        self.undecided: dict[str, Request] = {}
        """What came in this turn of the loop and is decided at its end (`submit_soon`), by who asked."""
        self._in_flight: Pending | None = None
        self._in_flight_since = 0.0
        self._dirty = asyncio.Event()
        self._crowded = False
        """Whether the last batch was of several requests."""
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self.formats: list[tuple[int, int]] = []
        """Which records of the log are in which format (windfall.store.formats)."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._committing: asyncio.Task[None] | None = None
        self._stopping = False

    def restore(self) -> list[str]:
        """Bring the state back: a snapshot, then `apply` over the records behind it. Returns warnings."""
        loaded = self.store.load()
        self.formats, self.state = loaded.formats, State()
        self.snapshots.behind = Grown()
        try:
            snapshot, rows = loaded.snapshot, loaded.records
            if snapshot is not None and format_at(loaded.formats, snapshot.seq) < FORMAT:
                # Snapshots are read in the format of today only; the log tells the same, from its beginning.
                snapshot, rows = None, whole_log(self.store)
            if snapshot is not None:
                self.state = load(snapshot.data)
            for seq, data in rows:
                self._replay(data, format_at(loaded.formats, seq))
                self.snapshots.behind.add(1, len(data))
        except (msgspec.DecodeError, struct.error) as error:
            raise BadInput(
                f"this state was written by another version of Windfall and cannot be read ({error})",
                hint="use the version that wrote it, or begin anew with --state OTHER",
                code="other-version",
            ) from error
        self.clock = SteadyClock(self.state.t)
        return loaded.warnings

    def go_on_from(self, other: Realtime) -> None:
        """Take over the state of a driver that followed the log, and apply what it has not seen yet."""
        self.state, self.formats = other.state, other.formats
        self.snapshots.behind = other.snapshots.behind
        while rows := self.store.records(self.state.seq, PAGE):
            for row in rows:
                if row.seq != self.state.seq + 1:
                    raise ServerFailed(
                        f"the log lacks record {self.state.seq + 1}: record {row.seq} follows",
                        hint="check it: windfall state check",
                        code="cannot-replay",
                    )
                self._replay(row.data, format_at(self.formats, row.seq))
                self.snapshots.behind.add(1, len(row.data))
        self.clock = SteadyClock(self.state.t)

    def _replay(self, data: bytes, format_: int) -> None:
        record = decode_record(data)
        try:
            record = read_record(self.state, data, format_)
            self.engine.apply(self.state, record)
        except Exception as error:
            raise ServerFailed(
                f"record {record.seq} of the log ({type(record.event).__name__}) cannot be applied: {error!r}"
                f"{self._kept(record.seq, record.event, record.decided, error)}",
                hint="use the version that wrote it, or begin anew with --state OTHER",
                code="cannot-replay",
            ) from error

    async def start(self) -> None:
        self._committing = self.background(self._commit_for_ever(), "the commit loop")
        try:
            await self.submit([ServerStarted(self.clock(), self.settings)])
        except Unwritable as error:
            raise self.fail(error.message, error) from error

    async def stop(self) -> None:
        """Write what is left and a snapshot, so that the next start is quick. Ends soon on a full disk, too."""
        self._stopping = True
        self.snapshots.hurry()
        if self._timer:
            self._timer.cancel()
        until = asyncio.get_running_loop().time() + STOP_S
        while self._unsettled() and not self.trouble and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.01)
        self.decide_now()
        left = [pending for pending in (self._in_flight, self._pending) if pending is not None]
        self.unwritten = sum(len(pending.records) for pending in left)
        self._refuse_waiting("the server stops")
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.snapshots.close()
        if self.state.seq and not self.trouble and not self.unwritten:
            await self.snapshots.take_last()
        self._writer.shutdown()

    @property
    def uncommitted(self) -> int:
        """Records that are applied and not yet durable."""
        return sum(len(pending.records) for pending in (self._in_flight, self._pending) if pending is not None)

    # --- taking events ---

    def submit(self, events: list[AnyEvent], rows: Rows | None = None) -> Done:
        """Decide and apply now; the future is done when the records are durable. One transaction for all of them.

        Unwritable: an event cannot be encoded. Nothing of the request is done.
        """
        self.decide_now()
        done: Done = asyncio.get_running_loop().create_future()
        self._decide([Request(events, rows, done)])
        if done.done() and (error := done.exception()) is not None:
            raise error
        return done

    def submit_soon(self, who: str, events: list[AnyEvent], rows: Rows | None = None) -> Done:
        """The same at the end of this turn of the loop, or before anything else that is submitted in it.

        Requests that come together are decided one right behind the other: so the processor has the code at hand, and
        takes 24 us for an exchange instead of 40. `who` asks: what is undecided of the same one is decided first.
        """
        loop = asyncio.get_running_loop()
        if who in self.undecided:
            self.decide_now()
        if not self.undecided:
            loop.call_soon(self.decide_now)
        done: Done = loop.create_future()
        self.undecided[who] = Request(events, rows, done)
        return done

    def decide_now(self) -> None:
        """Decide and apply what waits for the end of this turn."""
        if self.undecided:
            undecided, self.undecided = self.undecided, {}
            self._decide(list(undecided.values()))

    def _decide(self, requests: list[Request]) -> None:
        """The first events of all requests in their order, then the second events, and so on.

        Reports are decided by other code than requests for work, and the code of both does not fit into the processor's
        nearest cache. A request of which an event cannot be encoded is refused, and nothing of it is done.
        """
        records: list[Record] = []
        written: list[LogRow] = []
        for request in requests:
            if len(request.events) > 1:
                self._check(request)
        place = 0
        while left := [request for request in requests if len(request.events) > place and not request.done.done()]:
            for request in left:
                try:
                    record = self._take(request.events[place], written)
                except Exception as error:
                    request.refuse(error)
                else:
                    request.made.append(record)
                    records.append(record)
            place += 1
        if self.failure is None:
            self._queue(requests, records, written)
        if self.failure is not None:
            for request in requests:
                request.refuse(self._refusal(self.failure.message))

    def _check(self, request: Request) -> None:
        """Refuse a request of which an event cannot be encoded, while none is applied. `_take` checks the first."""
        try:
            request.events = [request.events[0], *map(self._read_back, request.events[1:])]
        except Unwritable as error:
            request.refuse(error)

    def _read_back(self, event: AnyEvent) -> AnyEvent:
        try:
            return _decode_event(_encode_event(event))
        except Exception as error:
            name = type(event).__name__
            log.error("%s cannot be written down; it changed nothing", name, exc_info=error)
            raise Unwritable(
                f"{name} cannot be written down: {error!r}", hint="it changed nothing; see the server's log"
            ) from error

    def _take(self, event: AnyEvent, written: list[LogRow]) -> Record:
        """Decide, encode, decode, apply what was decoded: memory holds what a restart will read."""
        if self.failure is not None:
            raise self._refusal(self.failure.message)
        engine, state = self.engine, self.state
        try:
            row = log_row(engine.decide(state, event))
            record = decode_record(row[4])
        except Exception as error:
            self._read_back(event)  # Unwritable: the event is at fault, and has changed nothing
            raise self._undecided(event, error) from error
        try:
            engine.apply(state, record)
        except Exception as error:
            raise self._broken(record, error) from error
        written.append(row)
        return record

    def _queue(self, requests: list[Request], records: list[Record], written: list[LogRow]) -> None:
        """Into the next transaction, the records with the rows that belong to them."""
        pending = self._pending
        pending.batch.records += written
        pending.records += records
        for request in requests:
            if request.done.done():
                continue
            if request.rows is not None:
                self._queue_rows(request)
            if not pending.waiting:
                # Once for all that gathers until the commit loop comes to it.
                self._dirty.set()
            pending.waiting.append((request.done, request.made))

    def _queue_rows(self, request: Request) -> None:
        assert request.rows is not None
        batch = self._pending.batch
        try:
            extra = request.rows(request.made)
        except Exception as error:
            # Applied, and what belongs to it is missing: as bad as a record that cannot be applied.
            request.refuse(self._broken(request.made[-1], error))
            return
        batch.chunks += extra.chunks
        batch.outputs += extra.outputs
        batch.jobs += extra.jobs
        batch.forgotten += extra.forgotten

    async def settled(self) -> None:
        """Return when everything applied so far is durable: no answer may tell of what could still be lost."""
        if self.failure is not None or self.trouble:
            raise self._refusal(self.trouble)
        if self._unsettled():
            await self.submit([])

    def _unsettled(self) -> bool:
        return self._in_flight is not None or bool(self._pending.waiting or self._pending.records or self.undecided)

    # --- failing ---

    def fail(self, message: str, error: BaseException | None = None) -> ServerFailed:
        """Stop the server: nothing that waits is acknowledged, nothing more is taken on. The first reason counts."""
        if self.failure is None:
            log.critical("the server stops: %s", message, exc_info=error)
            self.failure = ServerFailed(message, hint="what was acknowledged is kept; start the server again to go on")
            self.trouble = message
            self._refuse_waiting(message)
            self.on_fatal()
        return self.failure

    def _broken(self, record: Record, error: Exception) -> ServerFailed:
        """The state is half changed and cannot be told from its log any more: the log counts."""
        what = f"record {record.seq} ({type(record.event).__name__}) could not be applied: {error!r}"
        return self.fail(what + self._kept(record.seq, record.event, record.decided, error), error)

    def _undecided(self, event: AnyEvent, error: Exception) -> ServerFailed:
        """Input is checked before it is an event, so the engine is at fault. What it does next cannot be trusted."""
        what = f"nothing could be decided on {type(event).__name__}: {error!r}"
        return self.fail(what + self._kept(self.state.seq + 1, event, None, error), error)

    def _kept(self, seq: int, event: AnyEvent, decided: AnyDecision | None, error: Exception) -> str:
        if self._crash_directory is None:
            return ""
        path = crash_file(self._crash_directory, seq, event, decided, error)
        return f"; it is kept in {path}" if path is not None else ""

    def _refusal(self, why: str) -> Uncommitted:
        return Uncommitted(why, hint="ask again: what was not acknowledged may be asked for once more")

    def _refuse_waiting(self, why: str) -> None:
        """Fail every request that waits for a commit: it is not known to have happened. What is pending stays
        pending.
        """
        for pending in (self._in_flight, self._pending):
            if pending is None:
                continue
            waiting, pending.waiting = pending.waiting, []
            for future, _ in waiting:
                if not future.done():
                    future.set_exception(self._refusal(why))
                    future.exception()  # some are awaited by nobody

    def background(self, work: Coroutine[object, object, None], name: str, ends: bool = False) -> asyncio.Task[None]:
        """Run `work` beside the server. If it dies, or returns though it never `ends`, the server stops."""
        task = asyncio.create_task(work, name=name)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                return
            error = task.exception()
            if error is not None:
                self.fail(f"{name} died: {error!r}", error)
            elif not ends and not self._stopping and self.failure is None:
                self.fail(f"{name} has ended")

        self._tasks.add(task)
        task.add_done_callback(ended)
        return task

    def illness(self) -> str:
        """Why commits do not happen, or an empty text if they do."""
        if self.failure is not None:
            return self.failure.message
        if self.trouble:
            return self.trouble
        if self._committing is None or self._committing.done():
            return "the commit loop does not run"
        since_s = asyncio.get_running_loop().time() - self._in_flight_since
        if self._in_flight is not None and since_s > STALL_S:
            return f"a commit has been under way for {since_s:.0f} s"
        return ""

    # --- committing ---

    async def _commit_for_ever(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            await self._gather()
            self.decide_now()
            # Here, not for each event: what wakes the engine sooner has changed with this batch, if at all.
            self._set_timer()
            pending = self._in_flight = self._pending
            self._in_flight_since = asyncio.get_running_loop().time()
            self._pending = Pending()
            # Copied here, where the state is that after the last record of this batch; written when the batch is.
            self.snapshots.behind.add(len(pending.records), sum(len(row.data) for row in pending.batch.records))
            copied = self.snapshots.copied_if_due()
            if pending.batch.records:
                await self._commit(pending.batch)
                self.commit_times.add(asyncio.get_running_loop().time() - self._in_flight_since)
            if self.failure is not None:
                return
            self._in_flight = None
            for future, mine in pending.waiting:
                if not future.done():
                    future.set_result(mine)
            for listener in self.on_commit:
                listener(pending.records)
            if copied is not None:
                self.snapshots.take(*copied)

    async def _gather(self) -> None:
        """Wait until the loop has taken in all requests that have come: one sync for all of them.

        Without it half of the requests are taken in while the other half is being written, each thread keeping the
        other from running.
        """
        loop, waiting = asyncio.get_running_loop(), self._pending.waiting
        if self._crowded and (left_s := self._in_flight_since + COMMIT_EVERY_S - loop.time()) > 0:
            await asyncio.sleep(left_s)
        until, seen = loop.time() + GATHER_S, 0
        while seen < len(waiting) + len(self.undecided) and loop.time() < until:
            seen = len(waiting) + len(self.undecided)
            await asyncio.sleep(0)  # in the first turn a request is read,
            await asyncio.sleep(0)  # in the second it is submitted
        self._crowded = len(waiting) >= CROWD

    async def _commit(self, batch: Batch) -> None:
        """Retry until it is written, however long the disk stays full: what was decided must not be decided otherwise.

        An error that no retry can cure stops the server.
        """
        pause_s, waited_s = RETRY_S, 0.0
        while self.failure is None:
            try:
                await self.in_writer(self.store.append, batch)
            except Exception as error:
                if isinstance(error, StoreFenced):
                    self.fenced = True
                    self.fail(error.message, None)
                    return
                if not getattr(error, "retryable", False):
                    self.fail(f"the store refused {len(batch.records)} records for good: {error}", error)
                    return
                if not self.trouble:
                    log.error("cannot commit: %s", error)
                self.trouble = self.trouble if self.failure else str(getattr(error, "message", error))
                if waited_s >= PATIENCE_S:
                    self._refuse_waiting(self.trouble)
                await asyncio.sleep(pause_s)
                waited_s += pause_s
                pause_s = min(pause_s * 2, 2.0)
            else:
                self.trouble = self.failure.message if self.failure else ""
                return

    async def beat(self, url: str) -> None:
        """Give a sign of life for ever, at which a standby sees that this server writes; and see whether it still may.

        Commits are signs, too: none is given within a second of one.
        """
        seq = -1
        while True:
            if seq != -1 and (self.state.seq != seq or self._in_flight is not None):
                seq = self.state.seq
                await asyncio.sleep(BEAT_S)
                continue
            seq = self.state.seq
            try:
                await self.in_writer(self.store.beat, url)
            except StoreFenced as error:
                self.fenced = True
                self.fail(error.message)
                return
            except Exception as error:
                log.warning("no sign of life could be given: %s", error)
            await asyncio.sleep(BEAT_S)

    async def in_writer(self, call: Callable[..., object], *args: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, call, *args)

    # --- time ---

    def _set_timer(self) -> None:
        at = wake_at(self.state)
        # A heartbeat only moves the time further away; the timer may fire early and is then set again.
        if at >= self._timer_at:
            return
        if self._timer:
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at - self.clock()), self._fire)

    def _fire(self) -> None:
        self._timer_at, self._timer = inf, None
        if self.failure is not None or self._stopping:
            return
        try:
            self._look_at_the_time()
        except Exception as error:
            # Without the timer no silence is noticed and no attempt is given up: the server must not go on.
            self.fail(f"the timer failed: {error!r}", error)

    def _look_at_the_time(self) -> None:
        if self.trouble:
            self._timer = asyncio.get_running_loop().call_later(1.0, self._fire)
            return
        self.decide_now()
        events = due(self.state, self.clock())
        if events:
            self.submit(events)
        else:
            self._set_timer()


__all__ = ["Batch", "ChunkRow", "JobRow", "OutputRow", "Realtime"]
