"""Old records of the log, some hundred of them as one compressed row. Pure.

A record of a finished task has 90 bytes, and 45 more as a row; nearly all of them stand in the record before, too.
Packed, it has 24 (docs/explanation/performance.md). Records about a job (`job > 0`) are few, are found by an index, and
stay rows of their own.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import msgspec

from windfall.store.checks import crc
from windfall.store.contract import Record, StoreCorrupt

RECORDS = 500
"""In one pack: more are hardly smaller, and who looks for one record unpacks them all."""
_LEVEL = 1
"""Higher ones take up to ten times as long for a tenth less."""

MAKE = """CREATE TABLE IF NOT EXISTS packs (last INTEGER PRIMARY KEY, first INTEGER NOT NULL, t REAL NOT NULL,
          count INTEGER NOT NULL, crc INTEGER NOT NULL, data BLOB NOT NULL)"""
ARE_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'packs'"
LAST = "SELECT coalesce(max(last), 0) FROM packs"
TO_PACK = """SELECT seq, t, job, kind, crc, data FROM records
             WHERE seq > ? AND seq <= ? AND ifnull(job, 0) <= 0 ORDER BY seq LIMIT ?"""
ADD = "INSERT INTO packs (last, first, t, count, crc, data) VALUES (?, ?, ?, ?, ?, ?)"
DROP_PACKED = "DELETE FROM records WHERE seq BETWEEN ? AND ? AND ifnull(job, 0) <= 0"
BETWEEN = "SELECT last, first, crc, data FROM packs WHERE last > ? AND first <= ? ORDER BY last LIMIT ?"
ALL = "SELECT last, first, crc, data FROM packs ORDER BY last"
OLDER = "SELECT coalesce(max(last), 0) FROM packs WHERE t < ?"
CUT = "DELETE FROM packs WHERE last <= ?"
CUT_COUNT = "SELECT coalesce(sum(count), 0) FROM packs WHERE last <= ?"

Row = tuple[int, float, int | None, str, int, bytes]
"""As in the table of records: seq, t, job, kind, crc, data."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[int, float, int | None, str, bytes]]).decode


def packed(rows: Sequence[Row]) -> tuple[int, int, float, int, int, bytes] | None:
    """The row of a pack; None if one of the records is damaged: it stays as it is, so that a check finds it."""
    if any(crc(seq, data) != stored for seq, _, _, _, stored, data in rows):
        return None
    data = zlib.compress(_encode([(seq, t, job, kind, data) for seq, t, job, kind, _, data in rows]), _LEVEL)
    first, last = rows[0][0], rows[-1][0]
    return last, first, max(row[1] for row in rows), len(rows), crc(last, data), data


def unpacked(last: int, first: int, stored: int, data: bytes) -> Iterator[Record]:
    """The records of a pack in order. StoreCorrupt if it is damaged."""
    if crc(last, data) != stored:
        raise StoreCorrupt(
            f"records {first} to {last} of the log are damaged, and they are not the last ones",
            hint="restore a backup, or save what can be read:  windfall state repair STATE NEW",
        )
    return map(Record._make, _decode(zlib.decompress(data)))
