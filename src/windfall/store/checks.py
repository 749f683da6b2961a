"""Checks that all stores share: sums over records and snapshots, gaps in the log, names of blobs. Pure."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator

from windfall.errors import BadInput
from windfall.store.contract import SCHEMA_VERSION, Record, Snapshot, StoreCorrupt, StoreError

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_SNAPSHOT = struct.Struct(">8sQQI")
_MAGIC = b"WFSNAP01"


def crc(seq: int, data: bytes) -> int:
    """The sum of a record: of its number too, so that a record in another's place is noticed."""
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


def conflict(new: Record) -> StoreError:
    """The error about a record that exists already, with another content."""
    error = StoreError(
        f"record {new.seq} ('{new.kind}') is in the log already, with another content", code="store-conflict"
    )
    error.retryable = False
    return error


def check_version(stored: int, where: str) -> None:
    """Refuse what a newer Windfall wrote."""
    if stored > SCHEMA_VERSION:
        raise BadInput(
            f"{where} was written by a newer Windfall (schema {stored}; this one knows {SCHEMA_VERSION})",
            hint="use that version, or another state: --state DIR",
        )


def check_sha256(sha256: str) -> str:
    """A blob's name is a part of a path: nothing but a hash may pass."""
    if not _SHA256.match(sha256):
        raise BadInput(f"'{sha256[:80]}' is no sha256: 64 digits of 0-9 and a-f are")
    return sha256


def wrong_hash(sha256: str, actual: str) -> BadInput:
    return BadInput(
        f"the content of blob {sha256[:12]}… has another hash, {actual[:12]}…", hint="send it again", code="wrong-hash"
    )


def pack_snapshot(snapshot: Snapshot) -> bytes:
    """The head that stands before a snapshot's data and lets it be checked."""
    return _SNAPSHOT.pack(_MAGIC, snapshot.seq, len(snapshot.data), crc(snapshot.seq, snapshot.data))


def unpack_snapshot(content: bytes) -> Snapshot | None:
    """The snapshot, or None if it is cut short or damaged."""
    if len(content) < _SNAPSHOT.size:
        return None
    magic, seq, length, stored = _SNAPSHOT.unpack_from(content)
    data = content[_SNAPSHOT.size :]
    if magic != _MAGIC or len(data) != length or crc(seq, data) != stored:
        return None
    return Snapshot(seq, data)
