"""A store in a PostgreSQL database, for a server whose own disk is not to be trusted. Touches that database only."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, LiteralString, TypeVar, cast

from windfall.errors import BadInput
from windfall.store import formats
from windfall.store.checks import (
    beat_text,
    check_batch,
    check_epoch,
    check_numbers,
    check_reach,
    check_sha256,
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
    BlobSource,
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
from windfall.store.files import Hashed, naming
from windfall.store.location import needs_psycopg, without_password

try:
    import psycopg
    from psycopg import errors

    from windfall.store.postgres_hosts import connect_newest
except ImportError as error:
    raise needs_psycopg() from error

T = TypeVar("T")
Sql = LiteralString

SCHEMA: Sql = """
CREATE SCHEMA IF NOT EXISTS windfall;
CREATE TABLE windfall.meta (key text PRIMARY KEY, value text NOT NULL);
CREATE TABLE windfall.records (seq bigint PRIMARY KEY, t float8 NOT NULL, job bigint, kind text NOT NULL,
                               crc bigint NOT NULL, data bytea NOT NULL);
CREATE INDEX records_of_job ON windfall.records (job, seq) WHERE job > 0;
CREATE TABLE windfall.snapshots (seq bigint PRIMARY KEY, crc bigint NOT NULL, data bytea NOT NULL);
CREATE TABLE windfall.jobs (job bigint PRIMARY KEY, spec bytea NOT NULL);
CREATE TABLE windfall.chunks (job bigint, first bigint, count bigint NOT NULL, class int NOT NULL, codec text NOT NULL,
                              data bytea NOT NULL, PRIMARY KEY (job, first));
CREATE TABLE windfall.outputs (job bigint, task bigint, attempt bigint, data bytea NOT NULL,
                               PRIMARY KEY (job, task, attempt));
CREATE TABLE windfall.blobs (sha256 text PRIMARY KEY, size bigint NOT NULL);
CREATE TABLE windfall.blob_parts (sha256 text REFERENCES windfall.blobs, part int, data bytea NOT NULL,
                                  PRIMARY KEY (sha256, part));
CREATE TABLE windfall.tokens (id text PRIMARY KEY, hash text NOT NULL, role text NOT NULL, name text NOT NULL,
                              created_s float8 NOT NULL);
"""
HAS_META: Sql = "SELECT to_regclass('windfall.meta') IS NOT NULL"
HAS_RECORDS: Sql = "SELECT to_regclass('windfall.records') IS NOT NULL"
READ_META: Sql = "SELECT value FROM windfall.meta WHERE key = %s"
READ_VERSION: Sql = "SELECT value FROM windfall.meta WHERE key = 'schema'"
READ_FORMATS: Sql = "SELECT key, value FROM windfall.meta WHERE key LIKE %s"
WRITE_META: Sql = "INSERT INTO windfall.meta VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value"

# One server per database: the lock lives as long as the writer's connection, wherever that server runs.
LOCK_KEY = 0x57494E4446  # "WINDF"
# The lock of a process that has just ended is let go a moment later, when its end of the connection is noticed.
LET_GO: Sql = "SET lock_timeout = '2s'"
NO_LIMIT: Sql = "SET lock_timeout = 0"
TAKE_LOCK: Sql = "SELECT pg_advisory_lock(%s)"
LOCK_HOLDER: Sql = """SELECT application_name, pid FROM pg_stat_activity a JOIN pg_locks l USING (pid)
    WHERE locktype = 'advisory' AND granted AND a.datname = current_database() AND l.database = a.datid
    AND (classid::bigint << 32 | objid::bigint) = %s"""

END_SESSION: Sql = "SELECT pg_terminate_backend(%s)"
# Shared: a server that takes over waits for the transaction, and the transactions behind it see the new epoch.
LOCK_EPOCH: Sql = "SELECT value FROM windfall.meta WHERE key = %s FOR SHARE"
READ_HOLDER: Sql = "SELECT key, value FROM windfall.meta WHERE key = ANY(%s)"

# Rows are copied in; only a batch that comes a second time is inserted row by row.
COPY_RECORDS: Sql = "COPY windfall.records (seq, t, job, kind, crc, data) FROM STDIN (FORMAT BINARY)"
RECORD_TYPES = ("int8", "float8", "int8", "text", "int8", "bytea")
ADD_RECORD: Sql = """INSERT INTO windfall.records (seq, t, job, kind, crc, data) VALUES (%s, %s, %s, %s, %s, %b)
    ON CONFLICT DO NOTHING"""
COPY_CHUNKS: Sql = "COPY windfall.chunks (job, first, count, class, codec, data) FROM STDIN (FORMAT BINARY)"
CHUNK_TYPES = ("int8", "int8", "int8", "int4", "text", "bytea")
ADD_CHUNK: Sql = """INSERT INTO windfall.chunks (job, first, count, class, codec, data) VALUES (%s, %s, %s, %s, %s, %b)
    ON CONFLICT (job, first) DO UPDATE
    SET count = excluded.count, class = excluded.class, codec = excluded.codec, data = excluded.data"""
COPY_OUTPUTS: Sql = "COPY windfall.outputs (job, task, attempt, data) FROM STDIN (FORMAT BINARY)"
OUTPUT_TYPES = ("int8", "int8", "int8", "bytea")
ADD_OUTPUT: Sql = """INSERT INTO windfall.outputs (job, task, attempt, data) VALUES (%s, %s, %s, %b)
    ON CONFLICT (job, task, attempt) DO UPDATE SET data = excluded.data"""
ADD_JOB: Sql = """INSERT INTO windfall.jobs (job, spec) VALUES (%s, %b)
    ON CONFLICT (job) DO UPDATE SET spec = excluded.spec"""
FORGET_JOB: tuple[Sql, ...] = (
    "DELETE FROM windfall.jobs WHERE job = %s",
    "DELETE FROM windfall.chunks WHERE job = %s",
    "DELETE FROM windfall.outputs WHERE job = %s",
)

ONE_RECORD: Sql = "SELECT seq, t, job, kind, data FROM windfall.records WHERE seq = %s"
LAST_RECORD: Sql = "SELECT seq, crc, data FROM windfall.records ORDER BY seq DESC LIMIT 1"
LAST_SEQ: Sql = "SELECT coalesce(max(seq), 0) FROM windfall.records"
RECORDS_AFTER: Sql = "SELECT seq, crc, data FROM windfall.records WHERE seq > %s ORDER BY seq LIMIT %s"
FIND_RECORDS: Sql = """SELECT seq, t, job, kind, data FROM windfall.records
    WHERE seq > %(after)s AND (%(job)s::bigint IS NULL OR (job = %(job)s AND job > 0))
    AND (%(kinds)s::text[] IS NULL OR kind = ANY(%(kinds)s)) ORDER BY seq LIMIT %(limit)s"""
RECORDS_ABOUT: Sql = """SELECT seq, t, job, kind, data FROM windfall.records
    WHERE seq > %(after)s AND seq <= %(until)s AND coalesce(job, 0) IN (0, %(job)s, %(minus)s) AND kind = ANY(%(kinds)s)
    ORDER BY seq LIMIT %(limit)s"""
BLOBS: Sql = "SELECT sha256, size FROM windfall.blobs"
REMOVE_BLOB: tuple[Sql, ...] = (
    "DELETE FROM windfall.blob_parts WHERE sha256 = %s",
    "DELETE FROM windfall.blobs WHERE sha256 = %s",
)
DROP_RECORD: Sql = "DELETE FROM windfall.records WHERE seq = %s"
PRUNE: Sql = "DELETE FROM windfall.records WHERE seq < %s AND kind = ANY(%s)"

SNAPSHOTS: Sql = "SELECT seq, crc, data FROM windfall.snapshots ORDER BY seq DESC"
SNAPSHOT_SEQS: Sql = "SELECT seq FROM windfall.snapshots ORDER BY seq DESC"
SAVE_SNAPSHOT: Sql = """INSERT INTO windfall.snapshots (seq, crc, data) VALUES (%s, %s, %b)
    ON CONFLICT (seq) DO UPDATE SET crc = excluded.crc, data = excluded.data"""
FORGET_SNAPSHOTS: Sql = """DELETE FROM windfall.snapshots WHERE seq NOT IN
    (SELECT seq FROM windfall.snapshots ORDER BY seq DESC LIMIT 2)"""

JOB_SPEC: Sql = "SELECT spec FROM windfall.jobs WHERE job = %s"
CHUNK_HEADS: Sql = "SELECT first, count, class, codec FROM windfall.chunks WHERE job = %s ORDER BY first"
CHUNK_DATA: Sql = "SELECT data FROM windfall.chunks WHERE job = %s AND first = %s"
OUTPUT: Sql = "SELECT data FROM windfall.outputs WHERE job = %s AND task = %s AND attempt = %s"
OUTPUTS: Sql = """SELECT job, task, attempt, data FROM windfall.outputs
    WHERE job = %s AND (task, attempt) > (%s, %s) ORDER BY task, attempt LIMIT %s"""
OUTPUTS_OF_TASKS: Sql = """SELECT job, task, attempt, data FROM windfall.outputs
    WHERE job = %s AND (task, attempt) > (%s, %s) AND task IN (SELECT unnest(%s::bigint[]))
    ORDER BY task, attempt LIMIT %s"""

BLOB_SIZE: Sql = "SELECT size FROM windfall.blobs WHERE sha256 = %s"
ADD_BLOB: Sql = "INSERT INTO windfall.blobs (sha256, size) VALUES (%s, %s) ON CONFLICT DO NOTHING"
ADD_PART: Sql = "INSERT INTO windfall.blob_parts (sha256, part, data) VALUES (%s, %s, %b)"
PART: Sql = "SELECT data FROM windfall.blob_parts WHERE sha256 = %s AND part = %s"

ADD_TOKEN: Sql = """INSERT INTO windfall.tokens (id, hash, role, name, created_s) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (id) DO UPDATE SET hash = excluded.hash, role = excluded.role, name = excluded.name"""
TOKENS: Sql = "SELECT id, hash, role, name, created_s FROM windfall.tokens ORDER BY created_s, id"
REMOVE_TOKEN: Sql = "DELETE FROM windfall.tokens WHERE id = %s"

_PAGE = 2000
_SPOOL_BYTES = 8 << 20
_PART_BYTES = 1 << 20
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
Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresStore:
    """The contract on a database: the writer's connection holds the lock, each reading thread has its own."""

    def __init__(self, url: str, take_over: bool = False) -> None:
        """`take_over`: end the session of a server that holds the database. It can write nothing more."""
        self._prepare_reading(url)
        self._take_over = take_over
        try:
            self._formats = self._commit(self._prepare)
            self.epoch = self._commit(self._begin_epoch)
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
        self._writing = threading.Lock()
        self._writer: Connection | None = None
        self._local = threading.local()
        self._readers: list[Connection] = []

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
            connection.execute(LET_GO)
            self._end_session_before(connection)
            connection.execute(TAKE_LOCK, (LOCK_KEY,))
            connection.execute(NO_LIMIT)
            self._session = connection.info.backend_pid
        except errors.LockNotAvailable:
            who = _process(connection.execute(LOCK_HOLDER, (LOCK_KEY,)).fetchone()) or "another process"
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
        holder = connection.execute(LOCK_HOLDER, (LOCK_KEY,)).fetchone()
        if holder is not None and (holder[1] == self._session or (self._take_over and not self.epoch)):
            connection.execute(END_SESSION, (holder[1],))

    @staticmethod
    def _begin_epoch(writer: Connection) -> int:
        epoch = int((writer.execute(READ_META, (EPOCH,)).fetchone() or (0,))[0]) + 1
        writer.execute(WRITE_META, (EPOCH, str(epoch)))
        writer.execute(WRITE_META, (BEAT, beat_text(0, "")))
        return epoch

    def _prepare(self, writer: Connection) -> list[formats.FormatSince]:
        """Make the tables, or find out who made those that are there."""
        if not writer.execute(HAS_META).fetchone()[0]:  # type: ignore[index]
            if writer.execute(HAS_RECORDS).fetchone()[0]:  # type: ignore[index]
                raise damaged("table windfall.meta is gone")
            writer.execute(SCHEMA)
            writer.execute(WRITE_META, ("schema", str(SCHEMA_VERSION)))
            writer.execute(WRITE_META, formats.row_since(1))
        version = writer.execute(READ_VERSION).fetchone()
        if version is None or not str(version[0]).isdecimal():
            raise damaged("it does not say which version wrote it")
        check_version(int(version[0]), "the database")
        rows = writer.execute(READ_FORMATS, (formats.FORMAT_KEYS,)).fetchall()
        return formats.formats_of(((key, value) for key, value in rows), "the database")

    def _commit(self, work: Callable[[Connection], T]) -> T:
        """Do `work` in one transaction; a connection that broke is made anew, with its lock, at the next call."""
        with self._writing:
            try:
                if self._writer is None:
                    self._writer = self._connect_writer()
                with self._writer.transaction():
                    if self.epoch:
                        check_epoch(self.epoch, (self._writer.execute(LOCK_EPOCH, (EPOCH,)).fetchone() or (None,))[0])
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
                connection.close()
                self._readers.remove(connection)
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
        newer = formats.newer_than(self._formats, batch)

        def work(writer: Connection) -> None:
            if newer is not None:
                writer.execute(WRITE_META, formats.row_since(newer.seq))
            if batch.jobs:
                writer.cursor().executemany(ADD_JOB, batch.jobs)
            _add(writer, COPY_CHUNKS, CHUNK_TYPES, ADD_CHUNK, batch.chunks)
            _add(writer, COPY_OUTPUTS, OUTPUT_TYPES, ADD_OUTPUT, batch.outputs)
            for job in batch.forgotten:
                for statement in FORGET_JOB:
                    writer.execute(statement, (job,))
            if not _add(writer, COPY_RECORDS, RECORD_TYPES, ADD_RECORD, rows):
                _check_repeated(writer, batch.records)

        self._commit(work)
        if newer is not None:
            self._formats.append(newer)

    def load(self) -> Loaded:
        warnings: list[str] = []
        snapshot = self._newest_snapshot(warnings)
        after = snapshot.seq if snapshot else 0
        for seq, stored, data in self._read(LAST_RECORD):
            if seq > after and crc(seq, data) != stored:
                self._commit(lambda writer, seq=seq: writer.execute(DROP_RECORD, (seq,)))  # type: ignore[misc]
                warnings.append(dropped(seq))
        repair = 'psql DATABASE -c "DELETE FROM windfall.records WHERE seq >= {seq}"'
        check_reach(snapshot, self.last_seq(), "restore a backup of the whole schema windfall")
        return Loaded(snapshot, checked(self._records_after(after), after, repair), warnings, list(self._formats))

    def _newest_snapshot(self, warnings: list[str]) -> Snapshot | None:
        for seq, stored, data in self._read(SNAPSHOTS):
            if crc(seq, data) == stored:
                return Snapshot(seq, data)
            warnings.append(f"snapshot {seq} is damaged and was passed over; the records since an older one are read")
        return None

    def _records_after(self, seq: int) -> Iterator[tuple[int, int, bytes]]:
        while rows := self._read(RECORDS_AFTER, (seq, _PAGE)):
            yield from rows
            seq = rows[-1][0]

    def save_snapshot(self, seq: int, data: bytes | memoryview) -> None:
        def work(writer: Connection) -> None:
            writer.execute(SAVE_SNAPSHOT, (seq, crc(seq, data), data))
            writer.execute(FORGET_SNAPSHOTS)

        self._commit(work)

    def last_seq(self) -> int:
        return cast(int, self._read(LAST_SEQ)[0][0])

    def records(
        self, after_seq: int = 0, limit: int = 1000, job: int | None = None, kinds: Collection[str] | None = None
    ) -> list[Record]:
        check_numbers(seq=after_seq, limit=limit, job=job)
        wanted = {"after": after_seq, "job": job, "kinds": None if kinds is None else list(kinds), "limit": limit}
        return [Record(*row) for row in self._read(FIND_RECORDS, wanted)]

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
        return [Record(*row) for row in self._read(RECORDS_ABOUT, wanted)]

    def prune(self, before_seq: int, kinds: Collection[str]) -> int:
        kept = [row[0] for row in self._read(SNAPSHOT_SEQS)]
        limit = min(before_seq, kept[1] + 1 if len(kept) > 1 else 0)
        return self._commit(lambda writer: writer.execute(PRUNE, (limit, list(kinds))).rowcount)

    def shrink(self) -> bool:
        return False  # its autovacuum does

    # Jobs, their tasks and their results

    def job_spec(self, job: int) -> bytes | None:
        check_numbers(job=job)
        return _one(self._read(JOB_SPEC, (job,)))

    def chunks(self, job: int) -> list[ChunkHead]:
        check_numbers(job=job)
        return [ChunkHead(*row) for row in self._read(CHUNK_HEADS, (job,))]

    def chunk(self, job: int, first: int) -> bytes:
        check_numbers(job=job, task=first)
        data = _one(self._read(CHUNK_DATA, (job, first)))
        if data is None:
            raise KeyError((job, first))
        return data

    def output(self, job: int, task: int, attempt: int) -> bytes | None:
        check_numbers(job=job, task=task, attempt=attempt)
        return _one(self._read(OUTPUT, (job, task, attempt)))

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
            rows = self._read(OUTPUTS, (job, *start, limit))
        else:
            rows = self._read(OUTPUTS_OF_TASKS, (job, *start, list(tasks), limit))
        return [OutputRow(*row) for row in rows]

    # Blobs

    def blob_size(self, sha256: str) -> int | None:
        rows = self._read(BLOB_SIZE, (check_sha256(sha256),))
        return rows[0][0] if rows else None

    def put_blob(self, sha256: str, source: BlobSource) -> int:
        """In parts: neither side holds a large blob whole. Not by the writer: commits do not wait for a slow sender."""
        check_sha256(sha256)
        content = Hashed(source)
        with tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES) as spool:
            with naming(Path(tempfile.gettempdir()), content):
                for piece in content.verified(sha256):
                    spool.write(piece)
                spool.seek(0)
            try:
                self._keep_blob(self._reader(), sha256, cast(BinaryIO, spool), content.size)
            except _RAW as error:
                raise named_error(error) from error
        return content.size

    @staticmethod
    def _keep_blob(connection: Connection, sha256: str, content: BinaryIO, size: int) -> None:
        with connection.transaction():
            if connection.execute(ADD_BLOB, (sha256, size)).rowcount:
                for part, piece in enumerate(iter(lambda: content.read(_PART_BYTES), b"")):
                    connection.execute(ADD_PART, (sha256, part, piece))

    def spool(self) -> Path:
        return Path(tempfile.gettempdir())

    def adopt_blob(self, sha256: str, path: Path) -> int:
        return self.put_blob(sha256, path)

    def open_blob(self, sha256: str) -> BinaryIO:
        if self.blob_size(sha256) is None:
            raise KeyError(sha256)
        spool = cast(BinaryIO, tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES))  # noqa: SIM115 (the caller closes it)
        part = 0
        while (data := _one(self._read(PART, (sha256, part)))) is not None:
            spool.write(data)
            part += 1
        spool.seek(0)
        return spool

    def blobs(self) -> Iterator[tuple[str, int]]:
        yield from self._read(BLOBS)

    def remove_blob(self, sha256: str) -> None:
        check_sha256(sha256)

        def work(writer: Connection) -> None:
            for statement in REMOVE_BLOB:
                writer.execute(statement, (sha256,))

        self._commit(work)

    # Who writes

    def beat(self, url: str) -> None:
        check_texts(url=url)
        self._beats += 1
        self._commit(lambda writer: writer.execute(WRITE_META, (BEAT, beat_text(self._beats, url))))

    def holder(self) -> Holder:
        kept = dict(self._read(READ_HOLDER, ([EPOCH, BEAT],)))
        locks = self._read(LOCK_HOLDER, (LOCK_KEY,))
        return holder_of(kept.get(EPOCH), kept.get(BEAT), _process(locks[0]) if locks else "")

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
            for connection in (*self._readers, self._writer):
                if connection is not None:
                    connection.close()
            self._writer = None


def holds_tables(url: str) -> bool:
    """Whether a state is kept in the database. Makes nothing; BadInput if it cannot be reached."""
    shown = without_password(url)
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=_CONNECT_S) as connection:
            return any(connection.execute(there).fetchone()[0] for there in (HAS_META, HAS_RECORDS))  # type: ignore[index]
    except _RAW as error:
        raise _unreached(named_error(error), shown) from error


def _unreached(error: StoreError, shown: str) -> StoreError | BadInput:
    """The same error, said of a database that is about to be used for the first time."""
    if not error.retryable:
        return error
    return BadInput(f"{shown}: {error.message}", hint="is the server running, and are user and database right?")


def _add(
    writer: Connection, copy_sql: Sql, types: Sequence[str], insert_sql: Sql, rows: Sequence[Sequence[Any]]
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


def _check_repeated(writer: Connection, records: list[Record]) -> None:
    """Records that were there already must be the same, as after a commit whose success went unheard."""
    for record in records:
        if writer.execute(ONE_RECORD, (record[0],)).fetchone() != tuple(record):
            raise conflict(Record(*record)) from None


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
