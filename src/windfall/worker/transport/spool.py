"""Results kept on disk while the server cannot be reached; they survive a restart of the worker. Touches one folder."""

from __future__ import annotations

import marshal
import os
import struct
import zlib
from typing import Any

_HEAD = struct.Struct("=II")
_SUFFIX = ".spool"


class Spool:
    """An append-only file per boot; an incomplete last record (the worker died while writing) is ignored."""

    def __init__(self, folder: str, boot: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self._folder = folder
        self._path = os.path.join(folder, boot + _SUFFIX)

    def load(self) -> list[tuple[Any, ...]]:
        """Results that earlier boots could not report."""
        results: list[tuple[Any, ...]] = []
        for name in sorted(os.listdir(self._folder)):
            if name.endswith(_SUFFIX):
                with open(os.path.join(self._folder, name), "rb") as file:
                    results += _parse(file.read())
        return results

    def save(self, results: list[tuple[Any, ...]]) -> None:
        """Append and sync; raises `OSError` when the disk is full (the results stay in memory all the same)."""
        with open(self._path, "ab") as file:
            for result in results:
                data = marshal.dumps(result, 2)
                file.write(_HEAD.pack(len(data), zlib.crc32(data)) + data)
            file.flush()
            os.fsync(file.fileno())

    def clear(self) -> None:
        """Delete the file: all its results have been acknowledged."""
        for name in os.listdir(self._folder):
            if name.endswith(_SUFFIX):
                os.unlink(os.path.join(self._folder, name))


def _parse(data: bytes) -> list[tuple[Any, ...]]:
    results, at = [], 0
    while len(data) - at >= _HEAD.size:
        size, checksum = _HEAD.unpack_from(data, at)
        record = data[at + _HEAD.size : at + _HEAD.size + size]
        if len(record) < size or zlib.crc32(record) != checksum:
            break
        results.append(marshal.loads(record))
        at += _HEAD.size + size
    return results
