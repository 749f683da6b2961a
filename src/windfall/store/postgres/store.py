"""A store in a PostgreSQL database, for a server whose own disk is not to be trusted. Touches that database only."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar, cast

from windfall.errors import BadInput
from windfall.store import formats, packs
from windfall.store.blobs.keeping import Blobs, KeepsBlobs
from windfall.store.checks import (
    LARGEST,
    beat_text,
    check_batch,
    check_epoch,
    check_numbers,
    check_reach,
    check_tasks,
    check_texts,
    check_version,
    checked,
    conflict,
    crc,
    dropped,
    fenced,
    holder_of,
)
from windfall.store.contract import (
    BEAT,
    EPOCH,
    OWN,
    SCHEMA_VERSION,
    BadValue,
    Batch,
    ChunkHead,
    Holder,
    Loaded,
    OutputRow,
    Record,
    Snapshot,
    StoreCorrupt,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreInUse,
    StoreReadOnly,
    TokenRow,
)
from windfall.store.location import needs_psycopg, without_password
from windfall.store.pacing import parts_of
from windfall.store.packs import PAGE, ReadsPacks
from windfall.store.postgres import tables
from windfall.store.postgres.tables import Sql

try:
    import psycopg
    from psycopg import errors

    from windfall.store.postgres.blobs import Connection, RowBlobs
    from windfall.store.postgres.hosts import connect_newest
except ImportError as error:
    raise needs_psycopg() from error

T = TypeVar("T")
_PACKS = 4
"""Packs that are read at once."""
_CONNECT_S = 10
_NOTICE_SILENCE = {
    "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000,
}  # fmt: skip
"""A network that loses every packet is noticed within about ten seconds, not after hours."""
_RAW = (psycopg.Error, OverflowError, TypeError, UnicodeError)
"""What psycopg raises, for the database's reasons or for its own."""

# What an error of PostgreSQL means, by the first two characters of its SQLSTATE.
_PASSING = ("08", "40", "53", "55", "57", "58")  # connection, rollback, resources, not ready, shutdown, its system
_UNFIT = ("22", "23", "54")  # data, constraint, limit
_FORBIDDEN = ("25", "28", "42501")  # read-only transaction, login, privilege
_DAMAGED = ("XX001", "XX002", "3F", "42P01", "42703")  # broken data or index; no such schema, table, column


class PostgresStore(ReadsPacks, KeepsBlobs):
    """The contract on a database: the writer's connection holds the lock, each reading thread has its own."""

    def __init__(self, url: str, take_over: bool = False) -> None:
        """`take_over`: end the session of a server that holds the database. It can write nothing more."""
        self._prepare_reading(url)
        self._take_over = take_over
        try:
            self._formats = self._commit(self._prepare)
            self._packed_until = self._read(tables.LAST_PACKED)[0][0]
            self.epoch = self._commit(self._begin_epoch)
            self.use_blobs()
        except BaseException as error:
            self.close()
            if not isinstance(error, StoreError):
                raise
            raise _unreached(error, self.shown) from error.__cause__

    def _prepare_reading(self, url: str) -> None:
        self.shown = without_password(url)
        self.epoch = self._beats = 0
        self._session = 0
        """The process of the database that serves, or served, the writer's connection."""
        self._url = url
        self._timeline = 0
        """Of several databases that take turns, the newest timeline that was seen."""
        self._has_packs = False
        self._writing = threading.Lock()
        self._writer: Connection | None = None
        self._local = threading.local()
        self._readers: list[Connection] = []
        self._blobs: Blobs = RowBlobs(self._read, self._reader, named_error)

    # Connections

    def _connect(self) -> Connection:
        name = f"windfall: process {os.getpid()} on {socket.gethostname()}"
        more: dict[str, Any] = {"application_name": name[:63], "connect_timeout": _CONNECT_S, **_NOTICE_SILENCE}
        if "," in self._url:
            connection, self._timeline = connect_newest(self._url, self._timeline, more)
            return connection
        return psycopg.connect(self._url, autocommit=True, **more)

    def _connect_writer(self) -> Connection:
        connection = self._connect()
        try:
            connection.execute(tables.LET_GO)
            self._end_session_before(connection)
            connection.execute(tables.TAKE_LOCK, (tables.LOCK_KEY,))
            connection.execute(tables.NO_LIMIT)
            self._session = connection.info.backend_pid
        except errors.LockNotAvailable:
            who = _process(connection.execute(tables.LOCK_HOLDER, (tables.LOCK_KEY,)).fetchone()) or "another process"
            connection.close()
            if self.epoch:
                raise fenced(who) from None
            raise StoreInUse(
                f"this database is in use by {who}",
                hint="talk to that server (--server URL --token T), stop it, or use another state: --state DIR",
            ) from None
        except BaseException:
            connection.close()
            raise
        return connection

    def _end_session_before(self, connection: Connection) -> None:
        """End the session that has the lock, if it is an earlier one of ours, or of a server that is to be replaced.

        A connection that broke on our side may live on in the database for hours, with its lock.
        """
        holder = connection.execute(tables.LOCK_HOLDER, (tables.LOCK_KEY,)).fetchone()
        if holder is not None and (holder[1] == self._session or (self._take_over and not self.epoch)):
            connection.execute(tables.END_SESSION, (holder[1],))

    @staticmethod
    def _begin_epoch(writer: Connection) -> int:
        epoch = int((writer.execute(tables.READ_META, (EPOCH,)).fetchone() or (0,))[0]) + 1
        writer.execute(tables.WRITE_META, (EPOCH, str(epoch)))
        writer.execute(tables.WRITE_META, (BEAT, beat_text(0, "")))
        return epoch

    def _prepare(self, writer: Connection) -> list[formats.FormatSince]:
        """Make the tables, or find out who made those that are there."""
        if not writer.execute(tables.HAS_META).fetchone()[0]:  # type: ignore[index]
            if writer.execute(tables.HAS_RECORDS).fetchone()[0]:  # type: ignore[index]
                raise damaged("table windfall.meta is gone")
            writer.execute(tables.SCHEMA)
            _make_newer_tables(writer)
            writer.execute(tables.WRITE_META, formats.row_since(1))
        version = writer.execute(tables.READ_VERSION).fetchone()
        if version is None or not str(version[0]).isdecimal():
            raise damaged("it does not say which version wrote it")
        check_version(int(version[0]), "the database")
        if int(version[0]) < SCHEMA_VERSION:
            _make_newer_tables(writer)
        rows = writer.execute(tables.READ_FORMATS, (formats.FORMAT_KEYS,)).fetchall()
        return formats.formats_of(((key, value) for key, value in rows), "the database")

    def _commit(self, work: Callable[[Connection], T]) -> T:
        """Do `work` in one transaction; a connection that broke is made anew, with its lock, at the next call."""
        with self._writing:
            try:
                if self._writer is None:
                    self._writer = self._connect_writer()
                with self._writer.transaction():
                    if self.epoch:
                        check_epoch(
                            self.epoch, (self._writer.execute(tables.LOCK_EPOCH, (EPOCH,)).fetchone() or (None,))[0]
                        )
                    return work(self._writer)
            except _RAW as error:
                if self._writer is not None and self._writer.broken:
                    self._writer.close()
                    self._writer = None
                raise named_error(error) from error

    def filled(self, work: Callable[[Connection], T]) -> T:
        """For windfall.store.filling: `work` writes rows of another store in one transaction."""
        return self._commit(work)

    def _reader(self) -> Connection:
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None or connection.broken:
            if connection is not None:
                self._local.connection = None  # first: connecting fails while the database is away
                self._readers.remove(connection)
                connection.close()
            connection = self._connect()
            self._local.connection = connection
            self._readers.append(connection)
        return connection

    def _read(self, sql: Sql, parameters: Sequence[Any] | dict[str, Any] = (), again: bool = True) -> list[Any]:
        connection: Connection | None = None
        try:
            connection = self._reader()
            return connection.execute(sql, parameters, binary=True).fetchall()
        except _RAW as error:
            if not again or connection is None or not connection.broken:
                raise named_error(error) from error
        # The connection had been cut, perhaps long ago: reading once more, by a new one, does no harm.
        return self._read(sql, parameters, again=False)

    # The log

    def append(self, batch: Batch) -> None:
        check_batch(batch)
        rows = [(seq, t, job, kind, crc(seq, data), data) for seq, t, job, kind, data in batch.records]
        rows = self._not_packed(rows)
        newer = formats.newer_than(self._formats, batch)

        def work(writer: Connection) -> None:
            if newer is not None:
                writer.execute(tables.WRITE_META, formats.row_since(newer.seq))
            if batch.jobs:
                writer.cursor().executemany(tables.ADD_JOB, batch.jobs)
            _add(writer, tables.COPY_CHUNKS, tables.CHUNK_TYPES, tables.ADD_CHUNK, batch.chunks)
            _add(writer, tables.COPY_OUTPUTS, tables.OUTPUT_TYPES, tables.ADD_OUTPUT, batch.outputs)
            for job in batch.forgotten:
                for statement in tables.FORGET_JOB:
                    writer.execute(statement, (job,))
            if not _add(writer, tables.COPY_RECORDS, tables.RECORD_TYPES, tables.ADD_RECORD, rows):
                _check_repeated(writer, rows)

        self._commit(work)
        if newer is not None:
            self._formats.append(newer)

    def load(self) -> Loaded:
        warnings: list[str] = []
        snapshot = self._newest_snapshot(warnings)
        after = snapshot.seq if snapshot else 0
        for seq, stored, data in self._read(tables.LAST_RECORD):
            if seq > after and crc(seq, data) != stored:
                self._commit(lambda writer, seq=seq: writer.execute(tables.DROP_RECORD, (seq,)))  # type: ignore[misc]
                warnings.append(dropped(seq))
        repair = 'psql DATABASE -c "DELETE FROM windfall.records WHERE seq >= {seq}"'
        check_reach(snapshot, self.last_seq(), "restore a backup of the whole schema windfall")
        return Loaded(snapshot, checked(self._records_after(after), after, repair), warnings, list(self._formats))

    def _newest_snapshot(self, warnings: list[str]) -> Snapshot | None:
        for seq, stored, data in self._read(tables.SNAPSHOTS):
            data = data or b"".join(row[0] for row in self._read(tables.PARTS, (seq,)))
            if crc(seq, data) == stored:
                return Snapshot(seq, data)
            warnings.append(f"snapshot {seq} is damaged and was passed over; the records since an older one are read")
        return None

    def _rows_after(self, seq: int) -> list[Any]:
        return self._read(tables.RECORDS_AFTER, (seq, PAGE))

    def _packs_between(self, after: int, until: int) -> list[Any]:
        # No such table: a server of an earlier version writes here.
        self._has_packs = self._has_packs or bool(self._read(tables.HAS_PACKS)[0][0])
        return self._read(tables.PACKS_BETWEEN, (after, until, _PACKS)) if self._has_packs else []

    def save_snapshot(self, seq: int, data: bytes | memoryview, hurry: threading.Event | None = None) -> None:
        """In parts, by the connection of this thread: commits go on meanwhile. It counts when its head is there."""

        def work(writer: Connection) -> None:
            if (writer.execute(tables.PARTS_BYTES, (seq,)).fetchone() or (0,))[0] != len(data):
                raise StoreError(f"parts of snapshot {seq} are missing")  # after a fail-over
            writer.execute(tables.SAVE_SNAPSHOT, (seq, crc(seq, data), b""))
            writer.execute(tables.FORGET_SNAPSHOTS)

        try:
            connection, count = self._reader(), 0
            for count, piece in enumerate(parts_of(data, hurry), 1):
                with connection.transaction():
                    connection.execute(tables.NOT_WAITING)
                    connection.execute(tables.SAVE_PART, (seq, count, piece))
            connection.execute(tables.CUT_PARTS, (seq, count))
            self._commit(work)
            while connection.execute(tables.DROP_PARTS).rowcount:
                pass
        except _RAW as error:
            raise named_error(error) from error

    def last_seq(self) -> int:
        return cast(int, self._read(tables.LAST_SEQ)[0][0])

    def records(
        self, after_seq: int = 0, limit: int = 1000, job: int | None = None, kinds: Collection[str] | None = None,
        until_seq: int | None = None,
    ) -> list[Record]:  # fmt: skip
        check_numbers(seq=after_seq, until=until_seq, limit=limit, job=job)
        chosen = None if kinds is None else list(kinds)
        wanted = {"after": after_seq, "until": until_seq, "job": job, "kinds": chosen, "limit": limit}
        rows = self._read(tables.FIND_RECORDS, wanted)
        if job is not None:
            return [Record(*row) for row in rows]  # none of them is packed

        def fits(record: Record) -> bool:
            return kinds is None or record.kind in kinds

        return self._with_packed(rows, after_seq, LARGEST if until_seq is None else until_seq, limit, fits)

    def records_about(
        self, job: int, after_seq: int, until_seq: int, kinds: Collection[str], limit: int
    ) -> list[Record]:
        check_numbers(seq=after_seq, until=until_seq, limit=limit, job=job)
        wanted = {
            "after": after_seq,
            "until": until_seq,
            "job": job,
            "minus": -job,
            "kinds": list(kinds),
            "limit": limit,
        }
        rows = self._read(tables.RECORDS_ABOUT, wanted)

        def fits(record: Record) -> bool:
            return record.job in (None, 0, -job) and record.kind in kinds

        return self._with_packed(rows, after_seq, until_seq, limit, fits)

    def prune(self, before_seq: int, kinds: Collection[str], from_seq: int = 0) -> int:
        limit = min(before_seq, self._oldest_snapshot() + 1)
        if from_seq >= limit:
            return 0
        return self._commit(lambda writer: writer.execute(tables.PRUNE, (from_seq, limit, list(kinds))).rowcount)

    def _oldest_snapshot(self) -> int:
        """Records up to this one are in both kept snapshots; 0 while there are fewer."""
        kept = [row[0] for row in self._read(tables.SNAPSHOT_SEQS)]
        return kept[1] if len(kept) > 1 else 0

    def pack(self, until_seq: int) -> int:
        limit = min(until_seq, self._oldest_snapshot())
        rows = self._read(tables.TO_PACK, (self._packed_until, limit, packs.RECORDS))
        pack = packs.packed(rows) if len(rows) == packs.RECORDS else None
        if pack is None:
            return 0

        def work(writer: Connection) -> None:
            writer.execute(tables.NOT_WAITING)  # until it is durable, the records are there as rows
            writer.execute(tables.ADD_PACK, pack)
            if writer.execute(tables.DROP_PACKED, (rows[0][0], rows[-1][0])).rowcount != len(rows):
                raise StoreFailed("records were dropped while they were being packed")

        self._commit(work)
        self._packed_until = rows[-1][0]
        return len(rows)

    def log_before(self, before_t: float | None, most_bytes: int | None) -> int:
        older = 0
        if before_t is not None:
            older = max(self._read(sql, (before_t,))[0][0] for sql in (tables.OLDER, tables.OLDER_PACKS))
        return max(older, 0 if most_bytes is None else self._read(tables.BEYOND, (most_bytes,))[0][0])

    def cut_log(self, until_seq: int) -> int:
        limit = min(until_seq, self._oldest_snapshot())

        def work(writer: Connection) -> int:
            (old,) = writer.execute(tables.CUT_PACKS, (limit,)).fetchone() or (0,)
            return int(old + writer.execute(tables.CUT_LOG, (limit, PAGE)).rowcount)

        return self._commit(work)

    def job_bytes(self) -> dict[int, int]:
        return dict(self._read(tables.JOB_BYTES))

    def shrink(self) -> bool:
        """By its own means, beside the writer: the room of what was dropped is used again, or given back at the end."""
        try:
            for statement in tables.VACUUM:
                self._reader().execute(statement)
        except _RAW as error:
            raise named_error(error) from error
        return False

    # Jobs, their tasks and their results

    def job_spec(self, job: int) -> bytes | None:
        check_numbers(job=job)
        return _one(self._read(tables.JOB_SPEC, (job,)))

    def chunks(self, job: int) -> list[ChunkHead]:
        check_numbers(job=job)
        return [ChunkHead(*row) for row in self._read(tables.CHUNK_HEADS, (job,))]

    def chunk(self, job: int, first: int) -> bytes:
        check_numbers(job=job, task=first)
        data = _one(self._read(tables.CHUNK_DATA, (job, first)))
        if data is None:
            raise KeyError((job, first))
        return data

    def output(self, job: int, task: int, attempt: int) -> bytes | None:
        check_numbers(job=job, task=task, attempt=attempt)
        return _one(self._read(tables.OUTPUT, (job, task, attempt)))

    def outputs(
        self,
        job: int,
        tasks: Sequence[int] | None = None,
        after: tuple[int, int] | None = None,
        limit: int = 1000,
    ) -> list[OutputRow]:
        start = after or (-1, -1)
        check_numbers(job=job, task=start[0], attempt=start[1], limit=limit)
        check_tasks(tasks)
        if tasks is None:
            rows = self._read(tables.OUTPUTS, (job, *start, limit))
        else:
            if not tasks:
                return []
            # From the first of them to the last: not past all that the job has.
            start = max(start, (min(tasks), -1))
            rows = self._read(tables.OUTPUTS_OF_TASKS, (job, *start, max(tasks), list(tasks), limit))
        return [OutputRow(*row) for row in rows]

    # Who writes

    def beat(self, url: str) -> None:
        check_texts(url=url)
        self._beats += 1
        self._commit(lambda writer: writer.execute(tables.WRITE_META, (BEAT, beat_text(self._beats, url))))

    def holder(self) -> Holder:
        kept = dict(self._read(tables.READ_HOLDER, ([EPOCH, BEAT],)))
        locks = self._read(tables.LOCK_HOLDER, (tables.LOCK_KEY,))
        return holder_of(kept.get(EPOCH), kept.get(BEAT), _process(locks[0]) if locks else "")

    # Small texts of the state itself

    def remembered(self, name: str) -> str | None:
        rows = self._read(tables.READ_META, (OWN + name,))
        return rows[0][0] if rows else None

    def remember(self, name: str, text: str) -> None:
        check_texts(name=name, text=text)
        self._commit(lambda writer: writer.execute(tables.WRITE_META, (OWN + name, text)))

    # Tokens

    def add_token(self, id: str, hash: str, role: str, name: str, created_s: float) -> None:
        check_texts(id=id, hash=hash, role=role, name=name)
        self._commit(lambda writer: writer.execute(tables.ADD_TOKEN, (id, hash, role, name, created_s)))

    def tokens(self) -> list[TokenRow]:
        return [TokenRow(*row) for row in self._read(tables.TOKENS)]

    def remove_token(self, id: str) -> bool:
        return self._commit(lambda writer: writer.execute(tables.REMOVE_TOKEN, (id,)).rowcount > 0)

    def close(self) -> None:
        with self._writing:
            for connection in (*self._readers, self._writer):
                if connection is not None:
                    connection.close()
            self._writer = None


def _make_newer_tables(writer: Connection) -> None:
    """Tables that the first schema had not."""
    for statement in (tables.MAKE_PARTS, *tables.MAKE_PACKS):
        writer.execute(statement)
    writer.execute(tables.WRITE_META, ("schema", str(SCHEMA_VERSION)))


def holds_tables(url: str) -> bool:
    """Whether a state is kept in the database. Makes nothing; BadInput if it cannot be reached."""
    shown = without_password(url)
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=_CONNECT_S) as connection:
            return any(connection.execute(there).fetchone()[0] for there in (tables.HAS_META, tables.HAS_RECORDS))  # type: ignore[index]
    except _RAW as error:
        raise _unreached(named_error(error), shown) from error


def _unreached(error: StoreError, shown: str) -> StoreError | BadInput:
    """The same error, said of a database that is about to be used for the first time."""
    if not error.retryable:
        return error
    return BadInput(f"{shown}: {error.message}", hint="is the server running, and are user and database right?")


def _add(
    writer: Connection,
    copy_sql: Sql,
    types: Sequence[str],
    insert_sql: Sql,
    rows: Sequence[Sequence[Any]],
) -> bool:
    """Add rows by COPY, or one by one if some are there already; whether they were all new."""
    if not rows:
        return True
    try:
        with writer.transaction(), writer.cursor() as cursor, cursor.copy(copy_sql) as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)
    except errors.UniqueViolation:
        writer.cursor().executemany(insert_sql, rows)
        return False
    return True


def _check_repeated(writer: Connection, rows: list[packs.Row]) -> None:
    """Records that were there already must be the same, as after a commit whose success went unheard."""
    for seq, t, job, kind, _, data in rows:
        record = Record(seq, t, job, kind, data)
        if writer.execute(tables.ONE_RECORD, (seq,)).fetchone() != tuple(record):
            raise conflict(record) from None


def _process(holder: Sequence[Any] | None) -> str:
    """Who has the lock, as its session is called."""
    return "" if holder is None else str(holder[0]).removeprefix("windfall: ") or "another process"


def _one(rows: list[Any]) -> bytes | None:
    return rows[0][0] if rows else None


def named_error(error: Exception) -> StoreError:
    """PostgreSQL's error, or psycopg's, as one of ours."""
    first = (str(error).strip().split("\n") or [""])[0]
    state = getattr(error, "sqlstate", None) or ""
    if isinstance(error, errors.DiskFull):
        return StoreFull(f"the database has no space left: {first}", hint="make space there; work goes on by itself")
    if state.startswith(_DAMAGED):
        return damaged(first)
    if state.startswith(_FORBIDDEN):
        return StoreReadOnly(f"the database may not be written: {first}", hint="ask its owner for the right to write")
    if not isinstance(error, psycopg.Error) or isinstance(error, psycopg.DataError) or state.startswith(_UNFIT):
        return BadValue(f"the database cannot hold this: {first}")
    lost = not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    if lost or state.startswith(_PASSING):
        return StoreError(f"the database cannot do it now: {first}", hint="the same is tried again")
    return StoreFailed(f"the database refused it: {first}")


def damaged(why: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"the database is damaged: {why}",
        hint="restore a backup (pg_restore), or save what can be read:  pg_dump --schema windfall DATABASE",
    )
