"""The log of a simulated run as a file: one JSON document a line, as `windfall events --json` prints a live one."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec

from windfall.core.mentions import shown_job
from windfall.core.records import Record
from windfall.files import make_room


def spelled(record: Record) -> dict[str, Any]:
    """A record as the live server shows it."""
    from windfall.drivers.log_rows import log_row
    from windfall.server.queries.jobs import spell

    row = log_row(record)
    named = {"event": spell(record.event), "decided": spell(record.decided)}
    return {"seq": row.seq, "t": row.t, "type": row.kind, "job": shown_job(row.job), **named}


class LogFile:
    """Writes records to a file (compressed if its name ends in .gz), or nowhere."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: IO[bytes] | gzip.GzipFile | None = None
        self._encoder = msgspec.json.Encoder()

    def __enter__(self) -> LogFile:
        if self._path is not None:
            make_room(self._path)
            # No time stamp in the header: the same run gives the same bytes.
            self._file = (
                gzip.GzipFile(self._path, "wb", mtime=0) if self._path.suffix == ".gz" else open(self._path, "wb")
            )
        return self

    def write(self, record: Record) -> None:
        assert self._file is not None
        self._file.write(self._encoder.encode(spelled(record)) + b"\n")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
