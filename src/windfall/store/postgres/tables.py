"""The tables of a state in PostgreSQL and every statement on them. Pure."""

from __future__ import annotations

from typing import LiteralString

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
# Of versions before 3 the data stand in `snapshots`; since then in parts, and there they are empty.
MAKE_PARTS: Sql = """CREATE TABLE IF NOT EXISTS windfall.snapshot_parts (seq bigint, part int, data bytea NOT NULL,
                                                    PRIMARY KEY (seq, part))"""
# Packs are compressed: the database is not to try it once more.
MAKE_PACKS: tuple[Sql, ...] = (
    """CREATE TABLE IF NOT EXISTS windfall.packs (last bigint PRIMARY KEY, first bigint NOT NULL, t float8 NOT NULL,
       count bigint NOT NULL, crc bigint NOT NULL, data bytea NOT NULL)""",
    "ALTER TABLE windfall.packs ALTER COLUMN data SET STORAGE EXTERNAL",
)
HAS_PACKS: Sql = "SELECT to_regclass('windfall.packs') IS NOT NULL"
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
    WHERE seq > %(after)s AND seq <= coalesce(%(until)s::bigint, 9223372036854775807)
    AND (%(job)s::bigint IS NULL OR (job = %(job)s AND job > 0))
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
LAST_PACKED: Sql = "SELECT coalesce(max(last), 0) FROM windfall.packs"
TO_PACK: Sql = """SELECT seq, t, job, kind, crc, data FROM windfall.records
    WHERE seq > %s AND seq <= %s AND coalesce(job, 0) <= 0 ORDER BY seq LIMIT %s"""
ADD_PACK: Sql = "INSERT INTO windfall.packs (last, first, t, count, crc, data) VALUES (%s, %s, %s, %s, %s, %b)"
DROP_PACKED: Sql = "DELETE FROM windfall.records WHERE seq BETWEEN %s AND %s AND coalesce(job, 0) <= 0"
PACKS_BETWEEN: Sql = """SELECT last, first, crc, data FROM windfall.packs WHERE last > %s AND first <= %s
    ORDER BY last LIMIT %s"""
OLDER_PACKS: Sql = "SELECT coalesce(max(last), 0) FROM windfall.packs WHERE t < %s"
CUT_PACKS: Sql = """WITH cut AS (DELETE FROM windfall.packs WHERE last <= %s RETURNING count)
    SELECT coalesce(sum(count), 0)::bigint FROM cut"""
OLDER: Sql = "SELECT coalesce(max(seq), 0) FROM windfall.records WHERE t < %s"
BEYOND: Sql = """SELECT coalesce(max(seq), 0) FROM
    (SELECT seq, sum(size) OVER (ORDER BY seq DESC) AS total FROM
     (SELECT seq, length(data) AS size FROM windfall.records UNION ALL SELECT last, length(data) FROM windfall.packs)
     AS sizes) AS sums WHERE total > %s"""
CUT_LOG: Sql = """DELETE FROM windfall.records WHERE seq IN
    (SELECT seq FROM windfall.records WHERE seq <= %s ORDER BY seq LIMIT %s)"""
JOB_BYTES: Sql = """SELECT job, sum(size)::bigint FROM (
    SELECT job, length(spec) AS size FROM windfall.jobs UNION ALL SELECT job, length(data) FROM windfall.chunks
    UNION ALL SELECT job, length(data) FROM windfall.outputs) AS sizes GROUP BY job"""
VACUUM: tuple[Sql, ...] = (
    "VACUUM windfall.records", "VACUUM windfall.jobs", "VACUUM windfall.chunks", "VACUUM windfall.outputs",
    "VACUUM windfall.blob_parts", "VACUUM windfall.snapshots", "VACUUM windfall.snapshot_parts",
    "VACUUM windfall.packs",
)  # fmt: skip
PRUNE: Sql = "DELETE FROM windfall.records WHERE seq >= %s AND seq < %s AND kind = ANY(%s)"

SNAPSHOTS: Sql = "SELECT seq, crc, data FROM windfall.snapshots ORDER BY seq DESC"
SNAPSHOT_SEQS: Sql = "SELECT seq FROM windfall.snapshots ORDER BY seq DESC"
# Nobody waits for a part: it is durable when the commit behind it is, which says that the snapshot is there.
NOT_WAITING: Sql = "SET LOCAL synchronous_commit = off"
SAVE_PART: Sql = """INSERT INTO windfall.snapshot_parts (seq, part, data) VALUES (%s, %s, %b)
    ON CONFLICT (seq, part) DO UPDATE SET data = excluded.data"""
CUT_PARTS: Sql = "DELETE FROM windfall.snapshot_parts WHERE seq = %s AND part > %s"
PARTS: Sql = "SELECT data FROM windfall.snapshot_parts WHERE seq = %s ORDER BY part"
PARTS_BYTES: Sql = "SELECT coalesce(sum(length(data)), 0)::bigint FROM windfall.snapshot_parts WHERE seq = %s"
# Of snapshots that are kept no more, and of those that a server that was replaced had begun; a few at a time.
DROP_PARTS: Sql = """DELETE FROM windfall.snapshot_parts WHERE (seq, part) IN (SELECT seq, part
    FROM windfall.snapshot_parts WHERE seq < (SELECT max(seq) FROM windfall.snapshots)
    AND seq NOT IN (SELECT seq FROM windfall.snapshots) LIMIT 8)"""
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
    WHERE job = %s AND (task, attempt) > (%s, %s) AND task <= %s AND task IN (SELECT unnest(%s::bigint[]))
    ORDER BY task, attempt LIMIT %s"""

BLOB_SIZE: Sql = "SELECT size FROM windfall.blobs WHERE sha256 = %s"
ADD_BLOB: Sql = "INSERT INTO windfall.blobs (sha256, size) VALUES (%s, %s) ON CONFLICT DO NOTHING"
ADD_PART: Sql = "INSERT INTO windfall.blob_parts (sha256, part, data) VALUES (%s, %s, %b)"
PART: Sql = "SELECT data FROM windfall.blob_parts WHERE sha256 = %s AND part = %s"

ADD_TOKEN: Sql = """INSERT INTO windfall.tokens (id, hash, role, name, created_s) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (id) DO UPDATE SET hash = excluded.hash, role = excluded.role, name = excluded.name"""
TOKENS: Sql = "SELECT id, hash, role, name, created_s FROM windfall.tokens ORDER BY created_s, id"
REMOVE_TOKEN: Sql = "DELETE FROM windfall.tokens WHERE id = %s"
