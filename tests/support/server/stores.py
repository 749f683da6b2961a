"""Each store with what the tests of the contract do to it: open it again, damage what it keeps."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from windfall.store import open_store
from windfall.store.contract import Batch, Record, Store


class Kit:
    """Opens a store, again and again, and closes what it opened."""

    keeps = True
    """Whether what was appended is still there when the store is opened again."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.store: Store = open_store(where)

    def reopen(self) -> Store:
        self.store.close()
        self.store = open_store(self.where)
        return self.store

    def close(self) -> None:
        self.store.close()

    def take_over(self) -> Store:
        """The same store as another server opens it that takes this one for dead."""
        raise NotImplementedError

    def make_busy(self) -> Callable[[], object]:
        """Let something stand in the writer's way; what is returned clears the way."""
        pytest.skip("nothing stands in the way of memory")

    def make_read_only(self) -> None:
        pytest.skip("memory is never read-only")


class MemoryKit(Kit):
    keeps = False

    def __init__(self) -> None:
        super().__init__("memory:")

    def reopen(self) -> Store:
        return self.store

    def take_over(self) -> Store:
        return self.store.taken_over()  # type: ignore[attr-defined,no-any-return]

    def damage_record(self, seq: int) -> None:
        records = self.store._records  # type: ignore[attr-defined]
        records[seq] = records[seq]._replace(data=b"damaged")

    def drop_record(self, seq: int) -> None:
        del self.store._records[seq]  # type: ignore[attr-defined]

    def lose_records(self) -> None:
        self.store._records.clear()  # type: ignore[attr-defined]


class SqliteKit(Kit):
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        super().__init__(str(directory))

    def take_over(self) -> Store:
        self.store._lock.release()  # type: ignore[attr-defined]  # as if the file system had lost it
        return open_store(self.where)

    def execute(self, sql: str, *parameters: object) -> None:
        with sqlite3.connect(self.directory / "windfall.db") as connection:
            connection.execute(sql, parameters)
        connection.close()

    def damage_record(self, seq: int) -> None:
        self.execute("UPDATE records SET data = ? WHERE seq = ?", b"damaged", seq)

    def drop_record(self, seq: int) -> None:
        self.execute("DELETE FROM records WHERE seq = ?", seq)

    def damage_snapshot(self, seq: int) -> None:
        path = self.directory / "snapshots" / f"{seq:020d}"
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)

    def set_version(self, version: int) -> None:
        self.execute("UPDATE meta SET value = ? WHERE key = 'schema'", str(version))

    def set_format(self, *rows: tuple[str, str]) -> None:
        self.execute("DELETE FROM meta WHERE key LIKE 'format %'")
        for row in rows:
            self.execute("INSERT INTO meta VALUES (?, ?)", *row)

    def forget_version(self) -> None:
        self.execute("DELETE FROM meta")

    def lose_records(self) -> None:
        self.execute("DELETE FROM records")

    def make_busy(self) -> Callable[[], object]:
        self.store._writer.execute("PRAGMA busy_timeout = 0")  # type: ignore[attr-defined]
        other = sqlite3.connect(self.directory / "windfall.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        return other.close

    def make_read_only(self) -> None:
        self.store._writer.execute("PRAGMA query_only = ON")  # type: ignore[attr-defined]


class PostgresKit(Kit):
    def take_over(self) -> Store:
        return open_store(self.where, take_over=True)

    def execute(self, sql: str, *parameters: object) -> None:
        import psycopg

        with psycopg.connect(self.where, autocommit=True) as connection:
            connection.execute(sql, parameters)  # type: ignore[call-overload]

    def damage_record(self, seq: int) -> None:
        self.execute("UPDATE windfall.records SET data = %b WHERE seq = %s", b"damaged", seq)

    def drop_record(self, seq: int) -> None:
        self.execute("DELETE FROM windfall.records WHERE seq = %s", seq)

    def damage_snapshot(self, seq: int) -> None:
        self.execute("UPDATE windfall.snapshots SET data = %b WHERE seq = %s", b"damaged", seq)

    def set_version(self, version: int) -> None:
        self.execute("UPDATE windfall.meta SET value = %s WHERE key = 'schema'", str(version))

    def set_format(self, *rows: tuple[str, str]) -> None:
        self.execute("DELETE FROM windfall.meta WHERE key LIKE 'format %%'", *())
        for row in rows:
            self.execute("INSERT INTO windfall.meta VALUES (%s, %s)", *row)

    def forget_version(self) -> None:
        self.execute("DELETE FROM windfall.meta")

    def lose_records(self) -> None:
        self.execute("DELETE FROM windfall.records")

    def make_busy(self) -> Callable[[], object]:
        pid = self.store._writer.info.backend_pid  # type: ignore[attr-defined]
        self.execute("SELECT pg_terminate_backend(%s)", pid)
        return lambda: None

    def make_read_only(self) -> None:
        self.store._writer.execute("SET default_transaction_read_only = on")  # type: ignore[attr-defined]


def record(seq, job=None, kind="event", data=None):
    """A record of the log."""
    return Record(seq, seq / 2, job, kind, b"record %d" % seq if data is None else data)


def append(store, *seqs, **fields):
    """Write records of these numbers, alike but for that."""
    store.append(Batch(records=[record(seq, **fields) for seq in seqs]))


def seqs(loaded):
    """The numbers of the records that a store has loaded."""
    return [seq for seq, _ in loaded.records]
