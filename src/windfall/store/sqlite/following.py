"""A store read while another server writes to it: what a standby follows. Writes nothing; holds no lock."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from windfall.store import formats
from windfall.store.checks import check_version
from windfall.store.contract import BlobSource, StoreReadOnly
from windfall.store.sqlite import files
from windfall.store.sqlite.store import READ_FORMATS, READ_VERSION, SqliteStore


class OnlyFollows(StoreReadOnly):
    """This server is a standby. What was asked can be done by the first one, or by this one when it takes over."""

    code = "standby"
    retryable = True


def refuse() -> NoReturn:
    raise OnlyFollows("this server is a standby and changes nothing", hint="ask the other address, or again later")


class SqliteFollower(SqliteStore):
    """A state directory, beside the server that holds it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.epoch = self._beats = 0
        self._snapshots = files.SnapshotFiles(directory / "snapshots", ours=False)
        self._blobs = files.BlobFiles(directory / "blobs", ours=False)
        self._writing = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._local = threading.local()
        self._readers: list[sqlite3.Connection] = []
        if not (directory / "windfall.db").exists():  # SQLite would make one
            raise self._damaged("it is gone")
        check_version(int(self._read(READ_VERSION)[0][0]), str(directory))
        self._formats = formats.formats_of(self._read(READ_FORMATS), str(directory))
        self.use_blobs(ours=False)

    def _commit(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        refuse()

    def put_blob(self, sha256: str, source: BlobSource) -> int:
        refuse()

    def adopt_blob(self, sha256: str, path: Path) -> int:
        refuse()

    def close(self) -> None:
        for connection in self._readers:
            connection.close()
