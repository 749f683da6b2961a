"""The event log, snapshots and blobs, on SQLite, PostgreSQL or memory. Touches disk or database; decides nothing.

Contract of every store: `contract.Store`, held by tests/contract/test_store.py.
"""

from __future__ import annotations

from pathlib import Path

from windfall.store.contract import Store


def open_store(where: str | Path) -> Store:
    """The store at a directory, at `memory:` or at `postgresql://...`; made if it is not there yet."""
    text = str(where)
    if text == "memory:":
        from windfall.store.memory import MemoryStore

        return MemoryStore()
    if text.startswith(("postgresql://", "postgres://")):
        from windfall.store.postgres import PostgresStore

        return PostgresStore(text)
    from windfall.store.sqlite import SqliteStore

    return SqliteStore(Path(text))
