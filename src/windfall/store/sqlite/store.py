"""A store in one directory: a SQLite database (WAL, one writer) and files beside it. Touches that directory only."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

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
    StoreCorrupt,
    StoreError,
    StoreFailed,
    TokenRow,
)
from windfall.store.packs import PAGE, ReadsPacks
from windfall.store.sqlite import files

T = TypeVar("T")

# Large values stand last in their rows: what only looks at the columns before them does not read them.
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE records (seq INTEGER PRIMARY KEY, t REAL NOT NULL, job INTEGER, kind TEXT NOT NULL, crc INTEGER NOT NULL,
                      data BLOB NOT NULL);
CREATE INDEX records_of_job ON records (job, seq) WHERE job > 0;
CREATE TABLE jobs (job INTEGER PRIMARY KEY, spec BLOB NOT NULL);
CREATE TABLE chunks (job INTEGER, first INTEGER, count INTEGER NOT NULL, class INTEGER NOT NULL, codec TEXT NOT NULL,
                     data BLOB NOT NULL, PRIMARY KEY (job, first)) WITHOUT ROWID;
CREATE TABLE outputs (job INTEGER, task INTEGER, attempt INTEGER, data BLOB NOT NULL,
                      PRIMARY KEY (job, task, attempt)) WITHOUT ROWID;
CREATE TABLE tokens (id TEXT PRIMARY KEY, hash TEXT NOT NULL, role TEXT NOT NULL, name TEXT NOT NULL,
                     created_s REAL NOT NULL) WITHOUT ROWID;
"""
READ_FORMATS = f"SELECT key, value FROM meta WHERE key LIKE '{formats.FORMAT_KEYS}'"
WRITE_META = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
READ_HOLDER = f"SELECT key, value FROM meta WHERE key IN ('{EPOCH}', '{BEAT}')"
READ_META = "SELECT value FROM meta WHERE key = ?"
READ_VERSION = "SELECT value FROM meta WHERE key = 'schema'"

ADD_RECORD = "INSERT INTO records (seq, t, job, kind, crc, data) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
AT_ONCE = 16
ADD_RECORDS = ADD_RECORD.replace("(?, ?, ?, ?, ?, ?)", ", ".join(["(?, ?, ?, ?, ?, ?)"] * AT_ONCE))
ADD_CHUNK = "INSERT OR REPLACE INTO chunks (job, first, count, class, codec, data) VALUES (?, ?, ?, ?, ?, ?)"
ADD_OUTPUT = "INSERT OR REPLACE INTO outputs (job, task, attempt, data) VALUES (?, ?, ?, ?)"
ADD_JOB = "INSERT OR REPLACE INTO jobs (job, spec) VALUES (?, ?)"
FORGET_JOB = tuple(f"DELETE FROM {table} WHERE job = ?" for table in ("jobs", "chunks", "outputs"))

ONE_RECORD = "SELECT seq, t, job, kind, data FROM records WHERE seq = ?"
LAST_RECORD = "SELECT seq, crc, data FROM records ORDER BY seq DESC LIMIT 1"
LAST_SEQ = "SELECT max(seq) FROM records"
RECORDS_AFTER = "SELECT seq, crc, data FROM records WHERE seq > ? ORDER BY seq LIMIT ?"
FIND_RECORDS = "SELECT seq, t, job, kind, data FROM records WHERE seq > ?{filters} ORDER BY seq LIMIT ?"
# No index: rows without a job stand in none. Only the rows that are found have their data read.
RECORDS_ABOUT = """SELECT seq, t, job, kind, data FROM records WHERE seq > ? AND seq <= ?
                   AND ifnull(job, 0) IN (0, ?, ?) AND kind IN (SELECT value FROM json_each(?)) ORDER BY seq LIMIT ?"""
UP_TO = " AND seq <= ?"
OF_JOB = " AND job = ? AND job > 0"  # the second for the index
OF_KINDS = " AND kind IN (SELECT value FROM json_each(?))"
OF_TASKS = " AND task <= ? AND task IN (SELECT value FROM json_each(?))"
DROP_RECORD = "DELETE FROM records WHERE seq = ?"
OLDER = "SELECT coalesce(max(seq), 0) FROM records WHERE t < ?"
BEYOND = """SELECT coalesce(max(seq), 0) FROM
            (SELECT seq, sum(size) OVER (ORDER BY seq DESC) AS total FROM
             (SELECT seq, length(data) AS size FROM records UNION ALL SELECT last, length(data) FROM packs))
            WHERE total > ?"""
CUT_LOG = "DELETE FROM records WHERE seq IN (SELECT seq FROM records WHERE seq <= ? ORDER BY seq LIMIT ?)"
JOB_BYTES = """SELECT job, sum(size) FROM (
    SELECT job, length(spec) AS size FROM jobs UNION ALL SELECT job, length(data) FROM chunks
    UNION ALL SELECT job, length(data) FROM outputs) GROUP BY job"""
PRUNE = "DELETE FROM records WHERE seq >= ? AND seq < ? AND kind IN (SELECT value FROM json_each(?))"

MAKE_PACKS = """CREATE TABLE IF NOT EXISTS packs (last INTEGER PRIMARY KEY, first INTEGER NOT NULL, t REAL NOT NULL,
                count INTEGER NOT NULL, crc INTEGER NOT NULL, data BLOB NOT NULL)"""
PACKS_ARE_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'packs'"
LAST_PACKED = "SELECT coalesce(max(last), 0) FROM packs"
TO_PACK = """SELECT seq, t, job, kind, crc, data FROM records
             WHERE seq > ? AND seq <= ? AND ifnull(job, 0) <= 0 ORDER BY seq LIMIT ?"""
ADD_PACK = "INSERT INTO packs (last, first, t, count, crc, data) VALUES (?, ?, ?, ?, ?, ?)"
DROP_PACKED = "DELETE FROM records WHERE seq BETWEEN ? AND ? AND ifnull(job, 0) <= 0"
PACKS_BETWEEN = "SELECT last, first, crc, data FROM packs WHERE last > ? AND first <= ? ORDER BY last LIMIT ?"
ALL_PACKS = "SELECT last, first, crc, data FROM packs ORDER BY last"
OLDER_PACKS = "SELECT coalesce(max(last), 0) FROM packs WHERE t < ?"
CUT_PACKS = "DELETE FROM packs WHERE last <= ?"
CUT_PACKS_COUNT = "SELECT coalesce(sum(count), 0) FROM packs WHERE last <= ?"

JOB_SPEC = "SELECT spec FROM jobs WHERE job = ?"
CHUNK_HEADS = "SELECT first, count, class, codec FROM chunks WHERE job = ? ORDER BY first"
CHUNK_DATA = "SELECT data FROM chunks WHERE job = ? AND first = ?"
OUTPUT = "SELECT data FROM outputs WHERE job = ? AND task = ? AND attempt = ?"
OUTPUTS = """SELECT job, task, attempt, data FROM outputs WHERE job = ? AND (task, attempt) > (?, ?){filters}
             ORDER BY task, attempt LIMIT ?"""

ADD_TOKEN = "INSERT OR REPLACE INTO tokens (id, hash, role, name, created_s) VALUES (?, ?, ?, ?, ?)"
TOKENS = "SELECT id, hash, role, name, created_s FROM tokens ORDER BY created_s, id"
REMOVE_TOKEN = "DELETE FROM tokens WHERE id = ?"

# A checkpoint copies the log of the last 16 MB into the database; more often would cost syncs, less often disk.
PRAGMAS = """
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA wal_autocheckpoint = 4000;
PRAGMA journal_size_limit = 67108864;
PRAGMA busy_timeout = 10000;
"""

_PACKS = 4
"""Packs that are read at once."""

_SHRUNK_PAGES = 500

# What an error of SQLite means (its primary codes).
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FORBIDDEN = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)
_PASSING = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL,
)
_UNFIT = (sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH)


class SqliteStore(ReadsPacks, KeepsBlobs):
    """The default store: everything under one directory, for one server."""

    def __init__(self, directory: Path) -> None:
        files.make_directory(directory)
        self.directory = directory
        self._lock = files.Lock(directory)
        try:
            with files.naming(directory):
                files.make_private(directory / "windfall.db")
            self._made = files.Marker(directory)
            self._snapshots = files.SnapshotFiles(directory / "snapshots")
            self._blobs: Blobs = files.BlobFiles(directory / "blobs")
            self._writing = threading.Lock()
            self._writer: sqlite3.Connection | None = None
            self._local = threading.local()
            self._readers: list[sqlite3.Connection] = []
            self.epoch = self._beats = 0
            self._formats = self._commit(self._prepare)
            self._packed_until = self._read(LAST_PACKED)[0][0]
            self.epoch = self._commit(self._begin_epoch)
            with files.naming(directory):
                self._made.set()
            self.use_blobs()
        except BaseException:
            self._lock.release()
            raise

    # Connections

    def _connect(self, pragmas: str) -> sqlite3.Connection:
        connection = sqlite3.connect(self.directory / "windfall.db", isolation_level=None, check_same_thread=False)
        try:
            connection.executescript(pragmas)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, writer: sqlite3.Connection) -> list[formats.FormatSince]:
        """Make the tables, or find out who made those that are there."""
        if not writer.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            if self._made.is_set() or self._snapshots.any():
                raise self._damaged("it is empty, but jobs were kept here")
            for statement in SCHEMA.split(";"):
                writer.execute(statement)
            writer.execute(MAKE_PACKS)
            writer.execute(WRITE_META, ("schema", str(SCHEMA_VERSION)))
            writer.execute(WRITE_META, formats.row_since(1))
        version = writer.execute(READ_VERSION).fetchone()
        if version is None or not str(version[0]).isdecimal():
            raise self._damaged("it does not say which version wrote it")
        check_version(int(version[0]), str(self.directory))
        if int(version[0]) < SCHEMA_VERSION:
            writer.execute(MAKE_PACKS)
            writer.execute(WRITE_META, ("schema", str(SCHEMA_VERSION)))
        return formats.formats_of(writer.execute(READ_FORMATS).fetchall(), str(self.directory))

    def _commit(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` in one transaction. After an error the connection is made anew: nothing half done stays behind."""
        with self._writing:
            try:
                if self._writer is None:
                    self._writer = self._connect(PRAGMAS)
                self._writer.execute("BEGIN IMMEDIATE")
                if self.epoch:
                    check_epoch(self.epoch, (self._writer.execute(READ_META, (EPOCH,)).fetchone() or (None,))[0])
                result = work(self._writer)
                self._writer.execute("COMMIT")
                return result
            except BaseException as error:
                if self._writer is not None:
                    self._writer.close()  # rolls back
                    self._writer = None
                if isinstance(error, sqlite3.Error | sqlite3.Warning | OverflowError | UnicodeError):
                    raise self._named(error) from error
                raise

    def _begin_epoch(self, writer: sqlite3.Connection) -> int:
        stored = str((writer.execute(READ_META, (EPOCH,)).fetchone() or (0,))[0])
        if not stored.isdecimal():
            raise self._damaged("it does not say in which epoch it is")
        epoch = int(stored) + 1
        writer.execute(WRITE_META, (EPOCH, str(epoch)))
        writer.execute(WRITE_META, (BEAT, beat_text(0, "")))
        return epoch

    def filled(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """For windfall.store.filling: `work` writes rows of another store in one transaction."""
        return self._commit(work)

    def _reader(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._connect("PRAGMA query_only = ON; PRAGMA busy_timeout = 10000;")
            self._local.connection = connection
            self._readers.append(connection)
        return connection

    def _read(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        try:
            return self._reader().execute(sql, parameters).fetchall()
        except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError) as error:
            raise self._named(error) from error

    def _named(self, error: Exception) -> StoreError:
        return named_error(error, self.directory)

    def _damaged(self, why: str) -> StoreCorrupt:
        return _damaged(why, self.directory)

    # The log

    def append(self, batch: Batch) -> None:
        check_batch(batch)
        rows = [(seq, t, job, kind, crc(seq, data), data) for seq, t, job, kind, data in batch.records]
        rows = self._not_packed(rows)
        newer = formats.newer_than(self._formats, batch)

        def work(writer: sqlite3.Connection) -> None:
            if newer is not None:
                writer.execute(WRITE_META, formats.row_since(newer.seq))
            if batch.jobs:
                writer.executemany(ADD_JOB, batch.jobs)
            if batch.chunks:
                writer.executemany(ADD_CHUNK, batch.chunks)
            if batch.outputs:
                writer.executemany(ADD_OUTPUT, batch.outputs)
            for job in batch.forgotten:
                for statement in FORGET_JOB:
                    writer.execute(statement, (job,))
            if _add_records(writer, rows) < len(rows):
                self._check_repeated(writer, rows)

        self._commit(work)
        if newer is not None:
            self._formats.append(newer)

    @staticmethod
    def _check_repeated(writer: sqlite3.Connection, rows: list[packs.Row]) -> None:
        """Some records were there already: right if they are the same, as after a commit whose success went unheard."""
        for seq, t, job, kind, _, data in rows:
            record = Record(seq, t, job, kind, data)
            if writer.execute(ONE_RECORD, (seq,)).fetchone() != record:
                raise conflict(record)

    def pack(self, until_seq: int) -> int:
        limit = min(until_seq, self._snapshots.oldest_seq())
        rows = self._read(TO_PACK, (self._packed_until, limit, packs.RECORDS))
        pack = packs.packed(rows) if len(rows) == packs.RECORDS else None
        if pack is None:
            return 0

        def work(writer: sqlite3.Connection) -> None:
            writer.execute(ADD_PACK, pack)
            if writer.execute(DROP_PACKED, (rows[0][0], rows[-1][0])).rowcount != len(rows):
                raise StoreFailed(f"{self.directory}/windfall.db: records were dropped while they were being packed")

        self._commit(work)
        self._packed_until = rows[-1][0]
        return len(rows)

    def _packs_between(self, after: int, until: int) -> list[Any]:
        # No such table: not opened for writing since an earlier version.
        return self._read(PACKS_BETWEEN, (after, until, _PACKS)) if self._read(PACKS_ARE_THERE) else []

    def load(self) -> Loaded:
        warnings: list[str] = []
        snapshot = self._snapshots.newest(warnings)
        after = snapshot.seq if snapshot else 0
        for seq, stored, data in self._read(LAST_RECORD):
            if seq > after and crc(seq, data) != stored:
                self._commit(lambda writer, seq=seq: writer.execute(DROP_RECORD, (seq,)))  # type: ignore[misc]
                warnings.append(dropped(seq))
        repair = f'sqlite3 {self.directory}/windfall.db "DELETE FROM records WHERE seq >= {{seq}}"'
        check_reach(snapshot, self.last_seq(), "restore a backup of the whole directory")
        return Loaded(snapshot, checked(self._records_after(after), after, repair), warnings, list(self._formats))

    def _rows_after(self, seq: int) -> list[Any]:
        return self._read(RECORDS_AFTER, (seq, PAGE))

    def save_snapshot(self, seq: int, data: bytes | memoryview, hurry: threading.Event | None = None) -> None:
        self._snapshots.save(seq, data, hurry)

    def last_seq(self) -> int:
        return self._read(LAST_SEQ)[0][0] or 0

    def records(
        self, after_seq: int = 0, limit: int = 1000, job: int | None = None, kinds: Collection[str] | None = None,
        until_seq: int | None = None,
    ) -> list[Record]:  # fmt: skip
        check_numbers(seq=after_seq, until=until_seq, limit=limit, job=job)
        filters = ""
        values: list[Any] = [after_seq]
        if until_seq is not None:
            filters += UP_TO
            values.append(until_seq)
        if job is not None:
            filters += OF_JOB
            values.append(job)
        if kinds is not None:
            filters += OF_KINDS
            values.append(_json(kinds))
        rows = self._read(FIND_RECORDS.format(filters=filters), (*values, limit))
        if job is not None:
            return [Record(*row) for row in rows]  # none of them is packed

        def fits(record: Record) -> bool:
            return kinds is None or record.kind in kinds

        return self._with_packed(rows, after_seq, LARGEST if until_seq is None else until_seq, limit, fits)

    def records_about(
        self, job: int, after_seq: int, until_seq: int, kinds: Collection[str], limit: int
    ) -> list[Record]:
        check_numbers(seq=after_seq, until=until_seq, limit=limit, job=job)
        rows = self._read(RECORDS_ABOUT, (after_seq, until_seq, job, -job, _json(kinds), limit))

        def fits(record: Record) -> bool:
            return record.job in (None, 0, -job) and record.kind in kinds

        return self._with_packed(rows, after_seq, until_seq, limit, fits)

    def prune(self, before_seq: int, kinds: Collection[str], from_seq: int = 0) -> int:
        limit = min(before_seq, self._snapshots.oldest_seq() + 1)
        if from_seq >= limit:
            return 0
        return self._commit(lambda writer: writer.execute(PRUNE, (from_seq, limit, _json(kinds))).rowcount)

    def log_before(self, before_t: float | None, most_bytes: int | None) -> int:
        older = 0
        if before_t is not None:
            older = max(self._read(OLDER, (before_t,))[0][0], self._read(OLDER_PACKS, (before_t,))[0][0])
        return max(older, 0 if most_bytes is None else self._read(BEYOND, (most_bytes,))[0][0])

    def cut_log(self, until_seq: int) -> int:
        limit = min(until_seq, self._snapshots.oldest_seq())

        def work(writer: sqlite3.Connection) -> int:
            (old,) = writer.execute(CUT_PACKS_COUNT, (limit,)).fetchone()
            writer.execute(CUT_PACKS, (limit,))
            return int(old + writer.execute(CUT_LOG, (limit, PAGE)).rowcount)

        return self._commit(work)

    def job_bytes(self) -> dict[int, int]:
        return dict(self._read(JOB_BYTES))

    def shrink(self) -> bool:
        def work(writer: sqlite3.Connection) -> bool:
            (free,) = writer.execute("PRAGMA freelist_count").fetchone()
            for _ in range(min(free, _SHRUNK_PAGES)):
                # Python's module stops a statement without columns at its first row: one page for each call.
                writer.execute("PRAGMA incremental_vacuum(1)")
            # A database of an earlier version keeps its pages: they are used again.
            return bool(writer.execute("PRAGMA freelist_count").fetchone()[0] < free)

        return self._commit(work)

    # Jobs, their tasks and their results

    def job_spec(self, job: int) -> bytes | None:
        check_numbers(job=job)
        rows = self._read(JOB_SPEC, (job,))
        return rows[0][0] if rows else None

    def chunks(self, job: int) -> list[ChunkHead]:
        check_numbers(job=job)
        return [ChunkHead(*row) for row in self._read(CHUNK_HEADS, (job,))]

    def chunk(self, job: int, first: int) -> bytes:
        check_numbers(job=job, task=first)
        rows = self._read(CHUNK_DATA, (job, first))
        if not rows:
            raise KeyError((job, first))
        data: bytes = rows[0][0]
        return data

    def output(self, job: int, task: int, attempt: int) -> bytes | None:
        check_numbers(job=job, task=task, attempt=attempt)
        rows = self._read(OUTPUT, (job, task, attempt))
        return rows[0][0] if rows else None

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
        filters, values = "", []
        if tasks:
            # From the first of them to the last: not past all that the job has.
            start, filters, values = max(start, (min(tasks), -1)), OF_TASKS, [max(tasks), _json(tasks)]
        elif tasks is not None:
            return []
        rows = self._read(OUTPUTS.format(filters=filters), (job, *start, *values, limit))
        return [OutputRow(*row) for row in rows]

    # Who writes

    def beat(self, url: str) -> None:
        check_texts(url=url)
        self._beats += 1
        self._commit(lambda writer: writer.execute(WRITE_META, (BEAT, beat_text(self._beats, url))))

    def holder(self) -> Holder:
        kept = dict(self._read(READ_HOLDER))
        return holder_of(kept.get(EPOCH), kept.get(BEAT), files.lock_holder(self.directory))

    # Small texts of the state itself

    def remembered(self, name: str) -> str | None:
        rows = self._read(READ_META, (OWN + name,))
        return rows[0][0] if rows else None

    def remember(self, name: str, text: str) -> None:
        check_texts(name=name, text=text)
        self._commit(lambda writer: writer.execute(WRITE_META, (OWN + name, text)))

    # Tokens

    def add_token(self, id: str, hash: str, role: str, name: str, created_s: float) -> None:
        check_texts(id=id, hash=hash, role=role, name=name)
        self._commit(lambda writer: writer.execute(ADD_TOKEN, (id, hash, role, name, created_s)))

    def tokens(self) -> list[TokenRow]:
        return [TokenRow(*row) for row in self._read(TOKENS)]

    def remove_token(self, id: str) -> bool:
        return self._commit(lambda writer: writer.execute(REMOVE_TOKEN, (id,)).rowcount > 0)

    def close(self) -> None:
        with self._writing:
            for connection in self._readers:
                connection.close()
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            self._lock.release()


def _add_records(writer: sqlite3.Connection, rows: list[packs.Row]) -> int:
    """How many of the rows are new. By sixteen where there are many: each statement lets another thread run."""
    whole = len(rows) - len(rows) % AT_ONCE
    added = 0
    for first in range(0, whole, AT_ONCE):
        values = [value for row in rows[first : first + AT_ONCE] for value in row]
        added += writer.execute(ADD_RECORDS, values).rowcount
    if whole < len(rows):
        added += writer.executemany(ADD_RECORD, rows[whole:]).rowcount
    return added


def _json(values: Collection[object]) -> str:
    """Values as one parameter, however many they are (SQLite limits the number of parameters, not their size)."""
    return json.dumps(list(values))


def named_error(error: Exception, directory: Path, damaged: bool = False) -> StoreError:
    """SQLite's error as one of ours."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    database = directory / "windfall.db"
    damaged = damaged or isinstance(error, UnicodeDecodeError)
    if damaged or code in _DAMAGED or "no such table" in str(error) or "no such column" in str(error):
        return _damaged(str(error), directory)
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and files.is_full(directory)):
        return files.full(directory)
    if code == sqlite3.SQLITE_CANTOPEN and not os.access(database, os.F_OK):
        return _damaged("it is gone", directory)
    if code in _FORBIDDEN or (code == sqlite3.SQLITE_CANTOPEN and not os.access(database, os.R_OK | os.W_OK)):
        return files.read_only(f"{database}: {error}", directory)
    if code in _PASSING:
        return StoreError(f"{database}: {error}", hint="check the disk; the same is tried again")
    if code in _UNFIT or isinstance(error, sqlite3.DataError | OverflowError | UnicodeError):
        return BadValue(f"{database} cannot hold this: {error}")
    return StoreFailed(f"{database}: {error}")


def _damaged(why: str, directory: Path) -> StoreCorrupt:
    return StoreCorrupt(
        f"{directory}/windfall.db is damaged: {why}",
        hint=f"restore a backup, or save what can be read:  windfall state repair {directory} NEW",
    )
