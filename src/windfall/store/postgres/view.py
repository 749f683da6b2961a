"""A state in PostgreSQL as it was at one moment. A server may write to it meanwhile. Reads that database only."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, LiteralString

import psycopg

from windfall.store import formats
from windfall.store.checks import check_version, crc
from windfall.store.contract import BLOBS_AT, OWN, Snapshot
from windfall.store.location import without_password
from windfall.store.packs import rows_of, unpacked
from windfall.store.postgres.blobs import RowBlobs
from windfall.store.postgres.store import damaged, named_error
from windfall.store.postgres.tables import HAS_PACKS, PARTS, READ_FORMATS, READ_META, READ_VERSION
from windfall.store.view import Row, kept_blobs

_PAGE = 500
# Texts in the order of their bytes, as SQLite has them, whatever the database's own order is.
_READ: dict[str, LiteralString] = {
    "meta": """SELECT key, value FROM windfall.meta WHERE key NOT IN ('epoch', 'beat', 'own blobs')
               ORDER BY key COLLATE "C" """,
    "records": "SELECT seq, t, job, kind, crc, data FROM windfall.records ORDER BY seq",
    "jobs": "SELECT job, spec FROM windfall.jobs ORDER BY job",
    "chunks": "SELECT job, first, count, class, codec, data FROM windfall.chunks ORDER BY job, first",
    "outputs": "SELECT job, task, attempt, data FROM windfall.outputs ORDER BY job, task, attempt",
    "tokens": 'SELECT id, hash, role, name, created_s FROM windfall.tokens ORDER BY id COLLATE "C"',
}
_PACKS: LiteralString = "SELECT last, first, crc, data FROM windfall.packs ORDER BY last"
_SNAPSHOTS: LiteralString = "SELECT seq, crc, data FROM windfall.snapshots ORDER BY seq"


class PostgresView:
    """One transaction that sees the database as it was when it began."""

    def __init__(self, url: str) -> None:
        self._numbers = itertools.count()
        """Of cursors: records and packs are read at the same time."""
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
            with _naming():
                named = self._connection.execute(READ_META, (OWN + BLOBS_AT,)).fetchone()
            self._blobs = kept_blobs(named[0] if named else None, _rows_of(self._connection))
        except BaseException:
            self.close()
            raise

    def formats(self) -> list[formats.FormatSince]:
        with _naming():
            rows = self._connection.execute(READ_FORMATS, (formats.FORMAT_KEYS,)).fetchall()
        return formats.formats_of(((key, value) for key, value in rows), "the database")

    def rows(self, table: str) -> Iterator[Row]:
        found = self._read(_READ[table])
        return heapq.merge(found, self._packed()) if table == "records" and self._has_packs() else found

    def _has_packs(self) -> bool:
        with _naming():
            return bool((self._connection.execute(HAS_PACKS).fetchone() or (False,))[0])

    def _packed(self) -> Iterator[Row]:
        """Packed records as rows of the table of records."""
        for pack in self._read(_PACKS):
            yield from rows_of(unpacked(*pack))

    def _read(self, sql: LiteralString) -> Iterator[Row]:
        with _naming(), self._connection.cursor(f"read_{next(self._numbers)}", withhold=False) as cursor:
            cursor.itersize = _PAGE
            cursor.execute(sql, binary=True)
            yield from cursor

    def snapshots(self) -> list[tuple[int, Snapshot | None]]:
        found: list[tuple[int, Snapshot | None]] = []
        for seq, sum_, data in [*self._read(_SNAPSHOTS)]:
            with _naming():
                parts = [] if data else self._connection.execute(PARTS, (seq,), binary=True).fetchall()
            data = data or b"".join(row[0] for row in parts)
            found.append((seq, Snapshot(seq, data) if crc(seq, data) == sum_ else None))
        return found

    def damage(self) -> list[str]:
        return []  # reading each row is all that can be done from here

    def blobs(self) -> Iterator[tuple[str, int]]:
        return iter(sorted(self._blobs.all()))

    def open_blob(self, sha256: str) -> BinaryIO:
        return self._blobs.open(sha256)

    def close(self) -> None:
        self._connection.close()


def _rows_of(connection: psycopg.Connection[tuple[Any, ...]]) -> RowBlobs:
    """The blobs as this transaction sees them."""

    def read(sql: LiteralString, parameters: tuple[object, ...] = ()) -> list[Any]:
        with _naming():
            return connection.execute(sql, parameters, binary=True).fetchall()

    return RowBlobs(read, lambda: connection, named_error)


@contextmanager
def _naming() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise named_error(error) from error
