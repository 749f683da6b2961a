"""Blobs as rows of a PostgreSQL database, in parts: neither side holds a large one whole. Touches that database."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import psycopg

from windfall.store.checks import check_sha256
from windfall.store.contract import BlobSource, StoreError
from windfall.store.postgres import tables
from windfall.store.sqlite.files import Hashed, naming

Connection = psycopg.Connection[tuple[Any, ...]]
SPOOL_BYTES = 8 << 20
_PART_BYTES = 1 << 20


class RowBlobs:
    """`read`, `reader` and `named` are those of the store; blobs are not written by its writer, so that commits do not
    wait for them."""

    at_once = True

    def __init__(
        self, read: Callable[..., list[Any]], reader: Callable[[], Connection], named: Callable[[Exception], StoreError]
    ) -> None:
        self._read, self._reader, self._named = read, reader, named

    @property
    def directory(self) -> Path:
        return Path(tempfile.gettempdir())

    def size(self, sha256: str) -> int | None:
        rows = self._read(tables.BLOB_SIZE, (check_sha256(sha256),))
        return rows[0][0] if rows else None

    def put(self, sha256: str, source: BlobSource) -> int:
        check_sha256(sha256)
        content = Hashed(source)
        with tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES) as spool:
            with naming(self.directory, content):
                for piece in content.verified(sha256):
                    spool.write(piece)
                spool.seek(0)
            try:
                self._keep(self._reader(), sha256, cast(BinaryIO, spool), content.size)
            except (psycopg.Error, OverflowError, TypeError, UnicodeError) as error:
                raise self._named(error) from error
        return content.size

    @staticmethod
    def _keep(connection: Connection, sha256: str, content: BinaryIO, size: int) -> None:
        with connection.transaction():
            if connection.execute(tables.ADD_BLOB, (sha256, size)).rowcount:
                for part, piece in enumerate(iter(lambda: content.read(_PART_BYTES), b"")):
                    connection.execute(tables.ADD_PART, (sha256, part, piece))

    def adopt(self, sha256: str, file: Path) -> int:
        return self.put(sha256, file)

    def open(self, sha256: str) -> BinaryIO:
        if self.size(sha256) is None:
            raise KeyError(sha256)
        return gathered(lambda part: self._part(sha256, part))

    def _part(self, sha256: str, part: int) -> bytes | None:
        rows = self._read(tables.PART, (sha256, part))
        return rows[0][0] if rows else None

    def all(self) -> Iterator[tuple[str, int]]:
        yield from self._read(tables.BLOBS)

    def remove(self, sha256: str, writer: Any) -> None:
        check_sha256(sha256)
        for statement in tables.REMOVE_BLOB:
            writer.execute(statement, (sha256,))


def gathered(part_of: Callable[[int], bytes | None]) -> BinaryIO:
    """The parts from number 0 to the last one, as one file; the caller closes it."""
    spool = cast(BinaryIO, tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES))  # noqa: SIM115 (the caller closes it)
    number = 0
    while (data := part_of(number)) is not None:
        spool.write(data)
        number += 1
    spool.seek(0)
    return spool
