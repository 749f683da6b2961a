"""What is sound in a damaged state, written as a new one; what was dropped is told. The damaged one stays as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct, field

from windfall.core.records import FORMAT
from windfall.store.checks import crc
from windfall.store.contract import Snapshot, StoreCorrupt
from windfall.store.filling import Filling, fill, refuse_taken
from windfall.store.formats import FormatSince, format_at
from windfall.store.location import StateLocation
from windfall.store.sqlite.files import Lock
from windfall.store.sqlite.view import SalvageView
from windfall.store.view import Row, View, open_view, require_state
from windfall.upkeep.checking import Findings, blob_is_sound, check


class Repaired(Struct):
    """The last record that was kept, what was dropped as sentences, and a check of the new state."""

    last_seq: int
    dropped: list[str]
    findings: Findings = field(default_factory=Findings)


def repair(source: StateLocation, target: StateLocation) -> Repaired:
    """Keep the log as far as it can be followed, and everything else that is sound. StoreCorrupt if that is nothing."""
    refuse_taken(target)
    view = _salvaged(source)
    lock = None if source.url else Lock(source.directory)
    try:
        repaired = _repaired(view, source, target)
    finally:
        view.close()
        if lock is not None:
            lock.release()
    made = open_view(target)
    try:
        repaired.findings = check(made)
    finally:
        made.close()
    return repaired


def _salvaged(source: StateLocation) -> View:
    if source.url:
        return open_view(source)
    require_state(source)
    try:
        return SalvageView(source.directory)
    except StoreCorrupt as error:
        raise StoreCorrupt(f"{source} cannot be repaired: {error.message}", hint="restore a backup") from error


def _repaired(view: View, source: StateLocation, target: StateLocation) -> Repaired:
    dropped: list[str] = []
    formats = view.formats()
    sound: list[tuple[int, str]] = []
    broken: dict[int, str] = {}
    for seq, _, _, kind, stored, data in view.rows("records"):
        if crc(seq, data) == stored:
            sound.append((seq, kind))
        else:
            broken[seq] = kind
    snapshots = _usable(view, formats, dropped)
    base, last = _reach([seq for seq, _ in sound], snapshots)
    unread = isinstance(view, SalvageView) and "records" in view.lost
    if base is None and last == 0 and (sound or broken or snapshots or unread):
        raise StoreCorrupt(
            f"{source} cannot be repaired: neither its beginning nor a snapshot can be read", hint="restore a backup"
        )
    start = 0 if base is None else base.seq
    kept_snapshots = [snapshot for snapshot in snapshots if start <= snapshot.seq <= last]
    dropped += [f"snapshot {s.seq}: the log behind it cannot be followed" for s in snapshots if s.seq < start]
    dropped += [f"snapshot {s.seq}: it is behind the end of the sound log" for s in snapshots if s.seq > last]
    dropped += [f"record {seq} ({kind}): its sum is wrong" for seq, kind in broken.items()]
    if behind := Counter(kind for seq, kind in sound if seq > last):
        kinds = ", ".join(f"{count} {kind}" for kind, count in behind.most_common())
        dropped.append(f"{behind.total()} sound records behind record {last}, which cannot be told from it: {kinds}")
    blobs = []
    for name, _ in view.blobs():
        if blob_is_sound(view, name):
            blobs.append(name)
        else:
            dropped.append(f"file {name[:12]}…: its content is not what its name says")

    def rows(table: str) -> Iterator[Row]:
        for row in view.rows(table):
            if table != "records" or (row[0] <= last and row[0] not in broken):
                yield row

    fill(Filling(rows, kept_snapshots, blobs, view), target)
    if isinstance(view, SalvageView):
        dropped += [f"rows of table {table} that cannot be read: {why}" for table, why in view.lost.items()]
    return Repaired(last, dropped)


def _usable(view: View, formats: list[FormatSince], dropped: list[str]) -> list[Snapshot]:
    usable: list[Snapshot] = []
    for seq, snapshot in view.snapshots():
        if snapshot is None:
            dropped.append(f"snapshot {seq}: its sum is wrong")
        elif format_at(formats, seq) == FORMAT:
            usable.append(snapshot)
    return usable


def _reach(seqs: list[int], snapshots: list[Snapshot]) -> tuple[Snapshot | None, int]:
    """The snapshot to begin with (None: the beginning) and the last record that can be told from it."""
    there = set(seqs)
    best: tuple[Snapshot | None, int] = (None, 0)
    for base in [None, *snapshots]:
        last = 0 if base is None else base.seq
        if base is not None and (not seqs or seqs[-1] < last):
            continue  # a log that ends before its snapshot is refused
        while last + 1 in there:
            last += 1
        if last > best[1]:
            best = (base, last)
    return best
