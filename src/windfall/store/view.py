"""All of a state as it was at one moment, whether a server runs on it or not. Reads; writes nothing.

SQLite and PostgreSQL keep the same tables with the same columns, so a view of one can be written as the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Protocol

from windfall.errors import BadInput
from windfall.store import formats, holds_state
from windfall.store.blobs.keeping import Blobs
from windfall.store.contract import BEAT, BLOBS_AT, EPOCH, OWN, Snapshot
from windfall.store.location import StateLocation

TABLES: dict[str, tuple[str, ...]] = {
    "meta": ("key", "value"),
    "records": ("seq", "t", "job", "kind", "crc", "data"),
    "jobs": ("job", "spec"),
    "chunks": ("job", "first", "count", "class", "codec", "data"),
    "outputs": ("job", "task", "attempt", "data"),
    "tokens": ("id", "hash", "role", "name", "created_s"),
}
KEYS: dict[str, tuple[str, ...]] = {
    "meta": ("key",),
    "records": ("seq",),
    "jobs": ("job",),
    "chunks": ("job", "first"),
    "outputs": ("job", "task", "attempt"),
    "tokens": ("id",),
}
"""The columns that rows are read in the order of."""
KINDS: dict[str, tuple[Any, ...]] = {
    "meta": (str, str),
    "records": (int, float, int | None, str, int, bytes),
    "jobs": (int, bytes),
    "chunks": (int, int, int, int, str, bytes),
    "outputs": (int, int, int, bytes),
    "tokens": (str, str, str, str, float),
}
"""What the values of a row are. In a damaged database a value may be of any kind."""

Row = tuple[Any, ...]


def is_sound(table: str, row: Row) -> bool:
    return all(map(isinstance, row, KINDS[table]))


def of_state(table: str) -> str:
    """The condition on rows that belong to the state, and not to its store or the server that writes to it."""
    return f" WHERE key NOT IN ('{EPOCH}', '{BEAT}', '{OWN}{BLOBS_AT}')" if table == "meta" else ""


def kept_blobs(address: str | None, own: Blobs) -> Blobs:
    """The blobs that a view shows: those at `address`, if the store names one."""
    if not address:
        return own
    from windfall.store.blobs.objects import ObjectBlobs

    return ObjectBlobs(address, own.directory, ours=False)


class View(Protocol):
    """What a state holds. `rows` are those of one of `TABLES`, in the order of its keys."""

    def formats(self) -> list[formats.FormatSince]: ...

    def rows(self, table: str) -> Iterator[Row]: ...

    def snapshots(self) -> list[tuple[int, Snapshot | None]]:
        """The kept snapshots, the oldest first: the number of the last record, and None if it is damaged."""
        ...

    def damage(self) -> list[str]:
        """What the database itself finds wrong with its pages."""
        ...

    def blobs(self) -> Iterator[tuple[str, int]]:
        """sha256 and size of every blob, in order."""
        ...

    def open_blob(self, sha256: str) -> BinaryIO: ...

    def close(self) -> None: ...


def require_state(location: StateLocation) -> None:
    """BadInput if no state was ever kept there."""
    if not location.url and not location.directory.is_dir():
        what = "is a file, and no state" if location.directory.exists() else "does not exist"
        raise BadInput(f"{location} {what}", hint="name a state: a directory, or postgresql://USER@HOST/DATABASE")
    if not holds_state(location):
        raise BadInput(f"{location} holds no state", hint="is it the right one?")


def open_view(location: StateLocation) -> View:
    """The state as it is now. BadInput if there is none; StoreError if it is damaged beyond reading."""
    require_state(location)
    if location.url:
        from windfall.store.postgres.view import PostgresView

        return PostgresView(location.url)
    from windfall.store.sqlite.view import SqliteView

    return SqliteView(location.directory)
