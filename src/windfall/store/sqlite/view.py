"""A state directory as it was at one moment. A server may write to it meanwhile. Reads files of that directory only."""

from __future__ import annotations

import contextlib
import heapq
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from windfall.store import formats
from windfall.store.checks import check_version, unpack_snapshot
from windfall.store.contract import BLOBS_AT, OWN, SCHEMA_VERSION, Snapshot, StoreError, StoreNewer
from windfall.store.packs import rows_of, unpacked
from windfall.store.sqlite import files
from windfall.store.sqlite.store import (
    ALL_PACKS,
    PACKS_ARE_THERE,
    READ_FORMATS,
    READ_META,
    READ_VERSION,
    named_error,
)
from windfall.store.view import KEYS, TABLES, Row, is_sound, kept_blobs, of_state

_PAGE = 500
_TRIES = 20
_MOST_FINDINGS = 10
_ERRORS = (sqlite3.Error, sqlite3.Warning, UnicodeDecodeError)
"""Of SQLite. The last: what it says of a damaged schema may have bytes of it."""


def _unsound(table: str) -> str:
    return f"a row of table {table} holds values of other kinds than were written"


class SqliteView:
    """The snapshots first, then the database in one read transaction: the log of that moment reaches all of them."""

    _lenient = ""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._path = directory / "windfall.db"
        if not self._path.is_file():
            raise named_error(sqlite3.DatabaseError("it is gone"), directory, damaged=True)
        self._connection: sqlite3.Connection | None = None
        for _ in range(_TRIES):
            self._snapshots = self._read_snapshots()
            try:
                self._begin()
            except BaseException:
                self.close()
                raise
            if self._keep_reached():
                break
        # Else two snapshots were taken between two steps above, again and again; what is missing is told by a check.
        self._blobs = kept_blobs(self._blobs_at(), files.BlobFiles(directory / "blobs", ours=False))

    def _blobs_at(self) -> str | None:
        with self._naming():
            named = self._execute(READ_META, (OWN + BLOBS_AT,)).fetchone()
        return named[0] if named else None

    def _begin(self) -> None:
        self.close()
        with self._naming():
            self._connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            self._connection.executescript(f"PRAGMA query_only = ON; PRAGMA busy_timeout = 10000; {self._lenient}")
            self._connection.execute("BEGIN")
        version = self._version()
        if not version.isdecimal():
            raise named_error(sqlite3.DatabaseError("it does not say which version wrote it"), self.directory, True)
        check_version(int(version), str(self.directory))

    def _version(self) -> str:
        with self._naming():
            found = self._execute(READ_VERSION).fetchone()
        return "" if found is None else str(found[0])

    def _keep_reached(self) -> bool:
        """Keep the snapshots that the log of this moment reaches; False if it does not even reach the newest.

        It loses records up to the older of two kept snapshots. So the newest that was read must be there still, and
        an older one that has gone meanwhile is left out. Where none was read, two must not have come since.
        """
        newest = max((seq for seq, snapshot in self._snapshots if snapshot is not None), default=None)
        there = {int(path.name) for path in self._snapshot_files()}
        if newest is None:
            return len(there) < 2 or len(self._snapshots) == len(there)
        self._snapshots = [(seq, snapshot) for seq, snapshot in self._snapshots if seq in there]
        return newest in there

    def _read_snapshots(self) -> list[tuple[int, Snapshot | None]]:
        found: list[tuple[int, Snapshot | None]] = []
        for path in self._snapshot_files():
            with contextlib.suppress(FileNotFoundError):  # two newer ones have come
                found.append((int(path.name), unpack_snapshot(path.read_bytes())))
        return found

    def _snapshot_files(self) -> list[Path]:
        directory = self.directory / "snapshots"
        return sorted(path for path in directory.iterdir() if path.name.isdecimal()) if directory.is_dir() else []

    def _execute(self, sql: str, parameters: tuple[object, ...] = ()) -> sqlite3.Cursor:
        assert self._connection is not None
        return self._connection.execute(sql, parameters)

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except _ERRORS as error:
            raise named_error(error, self.directory) from error

    def formats(self) -> list[formats.FormatSince]:
        with self._naming():
            rows = self._execute(READ_FORMATS).fetchall()
        return formats.formats_of(rows, str(self.directory))

    def rows(self, table: str) -> Iterator[Row]:
        found = self._rows(table)
        return heapq.merge(found, self._packed()) if table == "records" and self._has_packs() else found

    def _rows(self, table: str) -> Iterator[Row]:
        columns, keys = ", ".join(TABLES[table]), ", ".join(KEYS[table])
        with self._naming():
            cursor = self._execute(f"SELECT {columns} FROM {table}{of_state(table)} ORDER BY {keys}")
            while page := cursor.fetchmany(_PAGE):
                for row in page:
                    if not is_sound(table, row):
                        raise named_error(sqlite3.DatabaseError(_unsound(table)), self.directory, damaged=True)
                    yield row

    def _has_packs(self) -> bool:
        with self._naming():
            return self._execute(PACKS_ARE_THERE).fetchone() is not None

    def _packed(self) -> Iterator[Row]:
        """Packed records as rows of the table of records."""
        with self._naming():
            for pack in self._execute(ALL_PACKS):
                yield from rows_of(unpacked(*pack))

    def snapshots(self) -> list[tuple[int, Snapshot | None]]:
        with self._naming():
            last = self._execute("SELECT coalesce(max(seq), 0) FROM records").fetchone()[0]
        # One that was taken after this moment would be ahead of its log. A damaged log is shown with all of them.
        return [pair for pair in self._snapshots if pair[0] <= last] or self._snapshots

    def damage(self) -> list[str]:
        try:
            found = [str(row[0]) for row in self._execute(f"PRAGMA quick_check({_MOST_FINDINGS})")]
        except _ERRORS as error:
            found = [str(error)]
        return [] if found == ["ok"] else [" ".join(line.split()) for line in found]

    def blobs(self) -> Iterator[tuple[str, int]]:
        return iter(sorted(self._blobs.all()))

    def open_blob(self, sha256: str) -> BinaryIO:
        return self._blobs.open(sha256)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class SalvageView(SqliteView):
    """What can still be read of a damaged database: rows of pages that cannot be read are left out, and counted."""

    _lenient = "PRAGMA writable_schema = ON;"
    """SQLite reads a file that was cut short, and passes over tables whose definitions it cannot read."""

    def __init__(self, directory: Path) -> None:
        self.lost: dict[str, str] = {}
        """Tables that could not be read to their end, each with the words of SQLite."""
        super().__init__(directory)

    def _version(self) -> str:
        """What cannot be read is taken for what is written today; a check of what was saved tells if it was not."""
        try:
            version = super()._version()
        except StoreError:
            version = ""
        self._says_version = version.isdecimal()
        return version if self._says_version else str(SCHEMA_VERSION)

    def formats(self) -> list[formats.FormatSince]:
        """As the version: what cannot be read is taken for the format of today."""
        try:
            if self._says_version:
                return super().formats()
        except StoreNewer:
            raise
        except StoreError:
            pass
        return [formats.FormatSince(1, formats.FORMAT)]

    def rows(self, table: str) -> Iterator[Row]:
        return super().rows(table) if table != "meta" else iter(self._meta())

    def _meta(self) -> list[Row]:
        """The small texts, and in any case those without which no store is opened."""
        found = {key: value for key, value in self._rows("meta") if not key.startswith(formats.FORMAT_KEYS[:-1])}
        return sorted(({**found, "schema": self._version()} | dict(map(formats.row_of, self.formats()))).items())

    def _has_packs(self) -> bool:
        with contextlib.suppress(StoreError):
            return super()._has_packs()
        return False

    def _blobs_at(self) -> str | None:
        with contextlib.suppress(StoreError):
            return super()._blobs_at()
        return None

    def _packed(self) -> Iterator[Row]:
        """Packs that cannot be read are left out."""
        for pack in self._rows_of("packs", "last, first, crc, data", ("last",)):
            try:
                records = list(unpacked(*pack))
            except StoreError as error:
                self.lost["packs"] = error.message
                continue
            yield from rows_of(records)

    def _rows(self, table: str) -> Iterator[Row]:
        return self._rows_of(table, ", ".join(TABLES[table]), KEYS[table])

    def _rows_of(self, table: str, columns: str, keys: tuple[str, ...]) -> Iterator[Row]:
        """From the beginning as far as it goes, then from the end as far back as it goes."""
        seen: tuple[object, ...] | None = None
        try:
            for row in self._execute(f"SELECT {columns} FROM {table}{of_state(table)} ORDER BY {', '.join(keys)}"):
                seen = row[: len(keys)]
                if self._keeps(table, row):
                    yield row
            return
        except _ERRORS as error:
            self.lost[table] = str(error)
        behind: list[Row] = []
        backwards = ", ".join(f"{key} DESC" for key in keys)
        with contextlib.suppress(*_ERRORS):
            for row in self._execute(f"SELECT {columns} FROM {table}{of_state(table)} ORDER BY {backwards}"):
                if seen is not None and row[: len(keys)] <= seen:
                    break
                behind.append(row)
        yield from (row for row in reversed(behind) if self._keeps(table, row))

    def _keeps(self, table: str, row: Row) -> bool:
        sound = table not in TABLES or is_sound(table, row)
        if not sound:
            self.lost[table] = _unsound(table)
        return sound

    def snapshots(self) -> list[tuple[int, Snapshot | None]]:
        return self._snapshots
