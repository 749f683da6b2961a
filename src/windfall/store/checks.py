"""Checks that all stores share: sums over records and snapshots, gaps in the log, values, names of blobs. Pure."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from math import inf

from windfall.errors import BadInput
from windfall.store.contract import (
    SCHEMA_VERSION,
    BadValue,
    Batch,
    ChunkRow,
    Holder,
    JobRow,
    OutputRow,
    Record,
    Snapshot,
    StoreConflict,
    StoreCorrupt,
    StoreFenced,
    StoreNewer,
)

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_SNAPSHOT = struct.Struct(">8sQQI")
_MAGIC = b"WFSNAP01"


def crc(seq: int, data: bytes | memoryview) -> int:
    """The sum of a record: of its number too, so that a record in another's place is noticed.

    None of what is no bytes, as in a row of a damaged database: no stored sum is below 0.
    """
    if not isinstance(data, _BYTES):
        return -1
    return zlib.crc32(data, seq & 0xFFFFFFFF)


def checked(rows: Iterable[tuple[int, int, bytes]], after_seq: int, repair: str) -> Iterator[tuple[int, bytes]]:
    """The records of (seq, crc, data) rows behind `after_seq`; raises at the first one that is broken or missing.

    `repair` is a command with `{seq}` in it that cuts the log in front of a record.
    """
    expected = after_seq + 1
    for seq, stored, data in rows:
        if seq != expected:
            raise StoreCorrupt(
                f"the log lacks record {expected}: record {seq} follows {expected - 1}", hint=_cut(repair, expected)
            )
        if crc(seq, data) != stored:
            raise StoreCorrupt(
                f"record {seq} of the log is damaged, and it is not the last one", hint=_cut(repair, seq)
            )
        yield seq, data
        expected += 1


def _cut(repair: str, seq: int) -> str:
    return f"restore a backup, or copy the state away and go on from record {seq - 1}:  {repair.format(seq=seq)}"


def dropped(seq: int) -> str:
    """The warning about a broken last record."""
    return (
        f"the last record of the log ({seq}) was damaged and has been dropped; what it acknowledged is asked for again"
    )


def check_reach(snapshot: Snapshot | None, last_seq: int, repair: str) -> None:
    """Refuse a log that ends before its snapshot: records were lost, most likely with the whole database."""
    if snapshot is not None and snapshot.seq > last_seq:
        raise StoreCorrupt(
            f"the state is damaged: its log ends with record {last_seq}, but a snapshot holds {snapshot.seq} records",
            hint=repair,
        )


def conflict(new: Record) -> StoreConflict:
    """The error about a record that exists already, with another content."""
    return StoreConflict(
        f"record {new.seq} ('{new.kind}') is in the log already, with another content",
        hint="has another server written to this state? Stop all but one, and start that one again",
    )


def check_epoch(ours: int, stored: object) -> None:
    """Refuse to write if another server has opened the store since."""
    if str(stored) != str(ours):
        raise fenced(f"it is in epoch {stored}, and this server opened it in epoch {ours}")


def fenced(why: str) -> StoreFenced:
    return StoreFenced(
        f"another server has taken this state over ({why})",
        hint="what was acknowledged is kept, and the other server goes on with it",
    )


def beat_text(count: int, url: str) -> str:
    return f"{count} {url}"


def holder_of(epoch: str | None, beat: str | None, process: str) -> Holder:
    count, _, url = (beat or "0").partition(" ")
    return Holder(int(epoch or 0), int(count), url, process)


def check_version(stored: int, where: str) -> None:
    """Refuse what a newer Windfall wrote."""
    if stored > SCHEMA_VERSION:
        raise StoreNewer(
            f"{where} was written by a newer Windfall (schema {stored}; this one knows {SCHEMA_VERSION})",
            hint="use that version, or another state: --state DIR",
        )


LARGEST = 2**63 - 1
_LARGEST_CLASS = 2**31 - 1
_BYTES = (bytes, bytearray, memoryview)


def check_numbers(**numbers: int | None) -> None:
    """Refuse what no column can hold. The databases say so each in its own way, or take it and keep something else."""
    for name, number in numbers.items():
        if number is not None and not -LARGEST <= number <= LARGEST:
            raise BadValue(f"the {name} {_shown(number)} does not fit into 64 bits", hint="give a smaller number")


def check_tasks(tasks: Sequence[int] | None) -> None:
    """The same for the tasks by which something is looked for."""
    if tasks:
        check_numbers(task=min(tasks))
        check_numbers(task=max(tasks))


def check_texts(**texts: str) -> None:
    """Refuse what is not UTF-8, and NUL, which PostgreSQL cannot hold."""
    for name, text in texts.items():
        try:
            sound = b"\0" not in text.encode()
        except UnicodeEncodeError:
            sound = False
        if not sound:
            raise BadValue(f"the {name} {text!r:.80} has a character that cannot be stored", hint="leave it out")


def check_batch(batch: Batch) -> None:
    """Refuse a batch with a value that some store cannot hold, and name the value."""
    low, high = -LARGEST, LARGEST  # local: this runs for every row of every batch
    row: Sequence[object] = ()
    try:
        for row in batch.records:
            seq, t, job, _, data = row
            if not (
                low <= seq <= high and (job is None or low <= job <= high) and t <= inf and isinstance(data, _BYTES)
            ):
                raise _unfit("record", row, Record._fields)
        for row in batch.outputs:
            job, task, attempt, data = row
            if not (low <= job <= high and low <= task <= high and low <= attempt <= high and isinstance(data, _BYTES)):
                raise _unfit("output", row, OutputRow._fields)
        for row in batch.chunks:
            job, first, count, klass, _, data = row
            fits = low <= job <= high and low <= first <= high and low <= count <= high
            if not (fits and 0 <= klass <= _LARGEST_CLASS and isinstance(data, _BYTES)):
                raise _unfit("chunk", row, ChunkRow._fields)
        for row in batch.jobs:
            job, spec = row
            if not (low <= job <= high and isinstance(spec, _BYTES)):
                raise _unfit("job", row, JobRow._fields)
        for job in batch.forgotten:
            row = (job,)
            if not low <= job <= high:
                raise _unfit("forgotten job", row, ("job",))
    except TypeError:
        raise BadValue(f"a value in {_shown(row)} is of a wrong type, so it cannot be stored") from None


def _unfit(what: str, row: Sequence[object], fields: Sequence[str]) -> BadValue:
    """The error about the value of a row that cannot be stored."""
    limits = {"klass": _LARGEST_CLASS}
    for name, value in zip(fields, row, strict=True):
        if name in ("data", "spec"):
            if not isinstance(value, _BYTES):
                return BadValue(f"the {name} of {what} {_shown(row[0])} is {_shown(value)}, not bytes")
        elif isinstance(value, int | float) and not abs(value) <= limits.get(name, LARGEST):
            return BadValue(
                f"the {name} {_shown(value)} of {what} {_shown(row[0])} does not fit into its column",
                hint="give a smaller number",
            )
    return BadValue(f"{what} {_shown(row[0])} cannot be stored: {_shown(row)}")


def _shown(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 200:
        return f"(an integer of {value.bit_length():,} bits)"
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits somewhere inside
        return f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:79] + "…"


def check_sha256(sha256: str) -> str:
    """A blob's name is a part of a path: nothing but a hash may pass."""
    if not _SHA256.match(sha256):
        raise BadInput(f"'{sha256[:80]}' is no sha256: 64 digits of 0-9 and a-f are")
    return sha256


def wrong_hash(sha256: str, actual: str) -> BadInput:
    return BadInput(
        f"the content of blob {sha256[:12]}… has another hash, {actual[:12]}…", hint="send it again", code="wrong-hash"
    )


def pack_snapshot(seq: int, data: bytes | memoryview) -> bytes:
    """The head that stands before a snapshot's data and lets it be checked."""
    return _SNAPSHOT.pack(_MAGIC, seq, len(data), crc(seq, data))


def unpack_snapshot(content: bytes) -> Snapshot | None:
    """The snapshot, or None if it is cut short or damaged."""
    if len(content) < _SNAPSHOT.size:
        return None
    magic, seq, length, stored = _SNAPSHOT.unpack_from(content)
    data = content[_SNAPSHOT.size :]
    if magic != _MAGIC or len(data) != length or crc(seq, data) != stored:
        return None
    return Snapshot(seq, data)
