"""A state directory read without a server: nothing is written, and no server starts meanwhile. Touches its files."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from windfall.store import formats
from windfall.store.checks import check_version
from windfall.store.contract import StoreReadOnly
from windfall.store.sqlite import files
from windfall.store.sqlite.store import READ_FORMATS, READ_VERSION, SqliteStore, T


class LookingStore(SqliteStore):
    """A store of which only the reading half works. OSError if it is not there, or a server holds it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._held = os.open(directory / "lock", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._held, fcntl.LOCK_SH | fcntl.LOCK_NB)
            (directory / "windfall.db").stat()  # SQLite would make one
            self._snapshots = files.SnapshotFiles(directory / "snapshots", ours=False)
            self._writing = threading.Lock()
            self._writer: sqlite3.Connection | None = None
            self._local = threading.local()
            self._readers: list[sqlite3.Connection] = []
            check_version(int(self._read(READ_VERSION)[0][0]), str(directory))
            self._formats = formats.formats_of(self._read(READ_FORMATS), str(directory))
        except BaseException:
            self.close()
            raise

    def _commit(self, work: Callable[[sqlite3.Connection], T]) -> T:
        raise StoreReadOnly(f"{self.directory} is only looked at")

    def close(self) -> None:
        for connection in getattr(self, "_readers", ()):
            connection.close()
        os.close(self._held)
