"""A new store filled with all that a view shows: whole, or not there at all. Touches the place that is filled."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, LiteralString

from windfall.errors import BadInput
from windfall.store import holds_state
from windfall.store.contract import Snapshot
from windfall.store.location import StateLocation
from windfall.store.sqlite.files import naming
from windfall.store.view import TABLES, Row, View, of_state

if TYPE_CHECKING:
    from windfall.store.postgres.blobs import Connection
    from windfall.store.postgres.store import PostgresStore
    from windfall.store.sqlite.store import SqliteStore

_COPY: dict[str, tuple[LiteralString, tuple[str, ...]]] = {
    "meta": ("COPY windfall.meta (key, value) FROM STDIN (FORMAT BINARY)", ("text", "text")),
    "records": (
        "COPY windfall.records (seq, t, job, kind, crc, data) FROM STDIN (FORMAT BINARY)",
        ("int8", "float8", "int8", "text", "int8", "bytea"),
    ),
    "jobs": ("COPY windfall.jobs (job, spec) FROM STDIN (FORMAT BINARY)", ("int8", "bytea")),
    "chunks": (
        "COPY windfall.chunks (job, first, count, class, codec, data) FROM STDIN (FORMAT BINARY)",
        ("int8", "int8", "int8", "int4", "text", "bytea"),
    ),
    "outputs": (
        "COPY windfall.outputs (job, task, attempt, data) FROM STDIN (FORMAT BINARY)",
        ("int8", "int8", "int8", "bytea"),
    ),
    "tokens": (
        "COPY windfall.tokens (id, hash, role, name, created_s) FROM STDIN (FORMAT BINARY)",
        ("text", "text", "text", "text", "float8"),
    ),
}
Rows = Callable[[str], Iterator[Row]]


class Filling:
    """What a new store is to hold: rows by table, snapshots, blobs."""

    def __init__(self, rows: Rows, snapshots: list[Snapshot], blobs: list[str], view: View) -> None:
        self.rows, self.snapshots, self.blobs, self.view = rows, snapshots[-2:], blobs, view


def everything(view: View) -> Filling:
    snapshots = [snapshot for _, snapshot in view.snapshots() if snapshot is not None]
    return Filling(view.rows, snapshots, [sha256 for sha256, _ in view.blobs()], view)


def refuse_taken(target: StateLocation) -> None:
    """BadInput unless nothing is there that a new state would be mixed with."""
    if target.url:
        if holds_state(target):
            raise BadInput(f"{target} holds a state already", hint="name a database without one")
        return
    path = target.directory
    if path.is_dir() and not any(path.iterdir()):
        return
    if os.path.lexists(path):
        what = "holds a state already" if path.is_dir() and holds_state(target) else "is there already"
        raise BadInput(f"{path} {what}", hint=f"move it away first:  mv {path} {path}.old")


def fill(filling: Filling, target: StateLocation, blobs: str = "") -> None:
    """Make a new state, its blobs in the object store at `blobs` if that is given. After an error nothing is there."""
    refuse_taken(target)
    if target.url:
        _fill_database(filling, target.url, blobs)
    else:
        _fill_directory(filling, target.directory, blobs)


def _fill_directory(filling: Filling, directory: Path, blobs: str) -> None:
    from windfall.store.sqlite.store import SqliteStore

    parts = directory.with_name(f"{directory.name}.part-{os.getpid()}")
    try:
        store = SqliteStore(parts)
        try:
            store.filled(lambda writer: _insert(writer, filling))
            _add_files(filling, store, blobs)
        finally:
            store.close()
        (parts / "lock").unlink()
        with naming(directory):
            if directory.is_dir():
                directory.rmdir()
            parts.rename(directory)
    finally:
        shutil.rmtree(parts, ignore_errors=True)


def _insert(writer: sqlite3.Connection, filling: Filling) -> None:
    for table, columns in TABLES.items():
        writer.execute(f"DELETE FROM {table}{of_state(table)}")
        marks = ", ".join("?" * len(columns))
        writer.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", filling.rows(table))


def _fill_database(filling: Filling, url: str, blobs: str) -> None:
    from windfall.store.postgres.store import PostgresStore

    store = PostgresStore(url)
    try:
        store.filled(lambda writer: _copy(writer, filling))
        _add_files(filling, store, blobs)
    except BaseException:
        store.filled(lambda writer: writer.execute("DROP SCHEMA windfall CASCADE"))
        raise
    finally:
        store.close()


def _copy(writer: Connection, filling: Filling) -> None:
    writer.execute("DELETE FROM windfall.meta WHERE key NOT IN ('epoch', 'beat')")
    for table in TABLES:
        statement, types = _COPY[table]
        with writer.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(types)
            for row in filling.rows(table):
                copy.write_row(row)


def _add_files(filling: Filling, store: SqliteStore | PostgresStore, blobs: str) -> None:
    for snapshot in filling.snapshots:
        store.save_snapshot(*snapshot)
    if blobs:
        store.keep_blobs_at(blobs)
    try:
        for sha256 in list(filling.blobs):
            try:
                opened = filling.view.open_blob(sha256)
            except KeyError:  # a server has removed it meanwhile: no job names it
                filling.blobs.remove(sha256)
                continue
            with opened as content:
                store.put_blob(sha256, iter(lambda: content.read(1 << 20), b""))
    except BaseException:
        if blobs:
            store.give_up_blobs()
        raise
