"""The event log, snapshots and blobs, on SQLite, PostgreSQL or memory. Touches disk or database; decides nothing.

Contract of every store: `contract.Store`, held by tests/contract/test_store.py.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from windfall.store.location import StateLocation, database_url

if TYPE_CHECKING:  # every command looks where its state is; few open it
    from windfall.store.contract import Store
    from windfall.store.postgres.store import PostgresStore
    from windfall.store.sqlite.store import SqliteStore


def open_store(where: str | Path | StateLocation, take_over: bool = False) -> Store:
    """The store at a directory, at `memory:` or at `postgresql://...`; made if it is not there yet.

    `take_over`: replace a server that holds a database. A directory has to be let go by the server's own process.
    """
    text = where.store if isinstance(where, StateLocation) else str(where)
    if text == "memory:":
        from windfall.store.memory import MemoryStore

        return MemoryStore()
    return _open_lasting(text, take_over)


def open_for_server(where: StateLocation, blobs: str = "") -> Store:
    """The store for a server, its blobs in the object store at `blobs`, which the state remembers, or as it says.

    StoreError if that object store cannot be reached.
    """
    store = _open_lasting(where.store)
    try:
        if blobs:
            store.keep_blobs_at(blobs)
        store.check_blobs()
    except BaseException:
        store.close()
        raise
    return store


def _open_lasting(text: str, take_over: bool = False) -> SqliteStore | PostgresStore:
    if url := database_url(text):
        from windfall.store.postgres.store import PostgresStore

        return PostgresStore(url, take_over)
    from windfall.store.sqlite.store import SqliteStore

    return SqliteStore(Path(text))


def open_following(where: StateLocation) -> SqliteStore | PostgresStore:
    """The store read while another server writes to it; its writing half raises."""
    if where.url:
        from windfall.store.postgres.following import PostgresFollower

        return PostgresFollower(where.url)
    from windfall.store.sqlite.following import SqliteFollower

    return SqliteFollower(where.directory)


def holds_state(where: StateLocation) -> bool:
    """Whether a state was ever kept there. Makes nothing; BadInput if that cannot be found out."""
    if where.url:
        from windfall.store.postgres.store import holds_tables

        return holds_tables(where.url)
    from windfall.store.sqlite.files import naming

    with naming(where.directory):
        return any(os.path.lexists(where.directory / name) for name in ("lock", "made", "snapshots", "windfall.db"))
