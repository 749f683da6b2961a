"""A database read while another server writes to it: what a standby follows. Writes nothing; holds no lock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from windfall.store import formats
from windfall.store.checks import check_version
from windfall.store.contract import BlobSource
from windfall.store.postgres.blobs import Connection
from windfall.store.postgres.store import PostgresStore, damaged
from windfall.store.postgres.tables import READ_FORMATS, READ_VERSION
from windfall.store.sqlite.following import refuse


class PostgresFollower(PostgresStore):
    """A database, beside the server that holds it."""

    def __init__(self, url: str) -> None:
        self._prepare_reading(url)
        version = self._read(READ_VERSION)
        if not version or not str(version[0][0]).isdecimal():
            raise damaged("it does not say which version wrote it")
        check_version(int(version[0][0]), self.shown)
        self._formats = formats.formats_of(self._read(READ_FORMATS, (formats.FORMAT_KEYS,)), self.shown)
        self.use_blobs(ours=False)

    def _commit(self, work: Callable[[Connection], Any]) -> Any:
        refuse()

    def put_blob(self, sha256: str, source: BlobSource) -> int:
        refuse()

    def adopt_blob(self, sha256: str, path: Path) -> int:
        refuse()
