"""A state in PostgreSQL as it was at one moment. A server may write to it meanwhile. Reads that database only."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, LiteralString, cast

import psycopg

from windfall.store import formats
from windfall.store.checks import check_sha256, check_version, crc
from windfall.store.contract import Snapshot
from windfall.store.location import without_password
from windfall.store.postgres import PART, READ_FORMATS, READ_VERSION, damaged, named_error
from windfall.store.view import Row

_PAGE = 500
_SPOOL_BYTES = 8 << 20
# Texts in the order of their bytes, as SQLite has them, whatever the database's own order is.
_READ: dict[str, LiteralString] = {
    "meta": '''SELECT key, value FROM windfall.meta WHERE key NOT IN ('epoch', 'beat') ORDER BY key COLLATE "C"''',
    "records": "SELECT seq, t, job, kind, crc, data FROM windfall.records ORDER BY seq",
    "jobs": "SELECT job, spec FROM windfall.jobs ORDER BY job",
    "chunks": "SELECT job, first, count, class, codec, data FROM windfall.chunks ORDER BY job, first",
    "outputs": "SELECT job, task, attempt, data FROM windfall.outputs ORDER BY job, task, attempt",
    "tokens": 'SELECT id, hash, role, name, created_s FROM windfall.tokens ORDER BY id COLLATE "C"',
}
_BLOBS: LiteralString = 'SELECT sha256, size FROM windfall.blobs ORDER BY sha256 COLLATE "C"'
_SNAPSHOTS: LiteralString = "SELECT seq, crc, data FROM windfall.snapshots ORDER BY seq"


class PostgresView:
    """One transaction that sees the database as it was when it began."""

    def __init__(self, url: str) -> None:
        with _naming():
            self._connection = psycopg.connect(url, application_name="windfall: state", connect_timeout=10)
        try:
            with _naming():
                self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                self._connection.read_only = True
                version = self._connection.execute(READ_VERSION).fetchone()
            if version is None or not str(version[0]).isdecimal():
                raise damaged("it does not say which version wrote it")
            check_version(int(version[0]), without_password(url))
        except BaseException:
            self.close()
            raise

    def formats(self) -> list[formats.FormatSince]:
        with _naming():
            rows = self._connection.execute(READ_FORMATS, (formats.FORMAT_KEYS,)).fetchall()
        return formats.formats_of(((key, value) for key, value in rows), "the database")

    def rows(self, table: str) -> Iterator[Row]:
        return self._read(_READ[table])

    def _read(self, sql: LiteralString) -> Iterator[Row]:
        with _naming(), self._connection.cursor(f"read_{id(object())}", withhold=False) as cursor:
            cursor.itersize = _PAGE
            cursor.execute(sql, binary=True)
            yield from cursor

    def snapshots(self) -> list[tuple[int, Snapshot | None]]:
        return [
            (seq, Snapshot(seq, data) if crc(seq, data) == sum_ else None) for seq, sum_, data in self._read(_SNAPSHOTS)
        ]

    def damage(self) -> list[str]:
        return []  # reading each row is all that can be done from here

    def blobs(self) -> Iterator[tuple[str, int]]:
        return cast(Iterator[tuple[str, int]], self._read(_BLOBS))

    def open_blob(self, sha256: str) -> BinaryIO:
        check_sha256(sha256)
        spool = cast(BinaryIO, tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES))  # noqa: SIM115 (the caller closes it)
        part = 0
        with _naming():
            while (found := self._connection.execute(PART, (sha256, part), binary=True).fetchone()) is not None:
                spool.write(found[0])
                part += 1
        spool.seek(0)
        return spool

    def close(self) -> None:
        self._connection.close()


@contextmanager
def _naming() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise named_error(error) from error
