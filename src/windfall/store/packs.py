"""Old records of the log: 500 of them are one compressed row, a pack. Touches nothing; stores read and write packs.

A record of a finished task has 90 bytes, and 45 more as a row; nearly all of them stand in the record before, too.
Packed, it has 24 (docs/explanation/performance.md). Records about a job (`job > 0`) are few, are found by an index, and
stay rows of their own.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from windfall.store.checks import LARGEST, conflict, crc
from windfall.store.contract import Record, StoreCorrupt

PAGE = 2000
"""Records that are read at once."""
RECORDS = 500
"""In one pack: more are hardly smaller, and who looks for one record unpacks them all."""
_LEVEL = 1
"""Higher ones take up to ten times as long for a tenth less."""

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
    try:
        if crc(last, data) == stored:
            return map(Record._make, _decode(zlib.decompress(data)))
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError):
        pass  # a row of another table may stand in its place, with a sum of its own
    raise StoreCorrupt(
        f"records {first} to {last} of the log are damaged, and they are not the last ones",
        hint="restore a backup, or save what can be read:  windfall state repair STATE NEW",
    )


def rows_of(records: Iterable[Record]) -> Iterator[Row]:
    """Records as rows of the table of records."""
    return ((*record[:4], crc(record.seq, record.data), record.data) for record in records)


class ReadsPacks:
    """Reads a log whose old records are packed: rows first, then packs. A record that is packed between these two
    reads is found in both, and counts once."""

    _packed_until: int
    """The last packed record, as far as this store packed them itself."""

    def _packs_between(self, after: int, until: int) -> list[Any]:
        """Some packs, in order, that hold records behind `after` and up to `until`: last, first, crc, data."""
        raise NotImplementedError

    def _rows_after(self, seq: int) -> list[Any]:
        """A page of the records that are rows of their own: seq, crc, data."""
        raise NotImplementedError

    def _packed(self, after: int, until: int, most: int, fits: Callable[[Record], bool]) -> list[Record]:
        """Up to `most` packed records behind `after`, up to `until`."""
        found: list[Record] = []
        seen = after
        while len(found) < most and (rows := self._packs_between(seen, until)):
            for row in rows:
                found += [record for record in unpacked(*row) if after < record.seq <= until and fits(record)]
            seen = rows[-1][0]
        return found[:most]

    def _with_packed(
        self, rows: list[Any], after: int, until: int, limit: int, fits: Callable[[Record], bool]
    ) -> list[Record]:
        """The rows that were found and the packed records among them. A row that is packed meanwhile is found twice."""
        if limit <= 0:
            return []
        until = rows[-1][0] if len(rows) >= limit else until
        old = self._packed(after, until, limit, fits)
        if not old:
            return [Record(*row) for row in rows]
        found = {record.seq: record for record in old} | {row[0]: Record(*row) for row in rows}
        return [found[seq] for seq in sorted(found)][:limit]

    def _records_after(self, seq: int) -> Iterator[tuple[int, int, bytes]]:
        # In pages: a reader that stays in the middle of a query would keep SQLite's log from being folded in.
        while True:
            rows = self._rows_after(seq)
            until = rows[-1][0] if len(rows) == PAGE else LARGEST
            old = ((r.seq, crc(r.seq, r.data), r.data) for r in self._packed(seq, until, PAGE, every))
            page = sorted({*rows, *old})[:PAGE]
            if not page:
                return
            yield from page
            seq = page[-1][0]

    def _not_packed(self, rows: list[Row]) -> list[Row]:
        """The rows without those that were packed since they were appended first."""
        if not rows or rows[0][0] > self._packed_until:
            return rows
        known = {record.seq: record for record in self._packed(rows[0][0] - 1, rows[-1][0], len(rows), every)}
        for seq, t, job, kind, _, data in rows:
            record = Record(seq, t, job, kind, data)
            if known.get(seq, record) != record:
                raise conflict(record)
        return [row for row in rows if row[0] not in known]


def every(record: Record) -> bool:
    return True
