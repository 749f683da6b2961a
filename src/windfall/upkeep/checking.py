"""Whether a state is whole: sums, gaps, its log replayed and compared with snapshots, what jobs need. Reads a view."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct, field

from windfall.bags.spec import decode_kept
from windfall.core.engine import Engine
from windfall.core.formats import read_record
from windfall.core.records import FORMAT
from windfall.core.state.invariants import problems
from windfall.core.state.jobs.columns import DONE
from windfall.core.state.snapshot import load, save
from windfall.core.state.state import State
from windfall.errors import WindfallError
from windfall.store.checks import crc
from windfall.store.contract import Snapshot, StoreError
from windfall.store.formats import FormatSince, format_at
from windfall.store.view import View

MOST_TOLD = 20
_decode_output = msgspec.msgpack.Decoder(tuple[bytes, bytes, bytes, dict[str, Any] | None]).decode


class Findings(Struct):
    """What a check found. A state is whole if there are no `problems`."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    records: int = 0
    last_seq: int = 0
    replayed: int = 0
    compared: list[int] = field(default_factory=list)
    """Snapshots that a replay led to, byte for byte."""
    jobs: int = 0
    blobs: int = 0
    blob_bytes: int = 0

    def wrong(self, what: str) -> None:
        if len(self.problems) < MOST_TOLD:
            self.problems.append(what)
        elif len(self.problems) == MOST_TOLD:
            self.problems.append("and more")


def check(view: View, read_blobs: bool = False) -> Findings:
    """Look at everything. `read_blobs`: read each file to its end and compare its hash, not only its presence."""
    found = Findings()
    for line in view.damage():
        found.wrong(f"the database: {line}")
    try:
        state = _replay(view, found)
        blobs = _check_blobs(view, found, read_blobs)
        if state is not None:
            _check_jobs(view, state, found)
            _check_results(view, state, blobs, found)
    except StoreError as error:
        found.wrong(error.message)
    return found


def _replay(view: View, found: Findings) -> State | None:
    """Read every record, and apply those from which the state can be told. None if it cannot be."""
    formats = view.formats()
    snapshots = _sound_snapshots(view, formats, found)
    start = _start(view, snapshots, found)
    state = State() if start is None else load(start.data)
    expected = {snapshot.seq: snapshot for snapshot in snapshots}
    if start is not None:
        expected.pop(start.seq, None)
    engine = Engine()
    whole = True
    for seq, data in _sound_records(view, found):
        if not whole or seq <= state.seq:
            continue
        if seq != state.seq + 1:
            found.wrong(f"the log lacks record {state.seq + 1}: record {seq} follows; what is behind it cannot be told")
            whole = False
            continue
        try:
            engine.apply(state, read_record(state, data, format_at(formats, seq)))
        except Exception as error:
            found.wrong(f"record {seq} cannot be applied: {error!r}")
            whole = False
            continue
        found.replayed += 1
        if seq in expected:
            _compare(state, expected.pop(seq), found)
    for seq in expected:
        if seq > found.last_seq:
            found.wrong(f"snapshot {seq} is ahead of the log, which ends with record {found.last_seq}")
    if not whole:
        return None
    for problem in problems(state):
        found.wrong(f"the state contradicts itself: {problem}")
    return state


def _sound_snapshots(view: View, formats: list[FormatSince], found: Findings) -> list[Snapshot]:
    sound: list[Snapshot] = []
    for seq, snapshot in view.snapshots():
        if snapshot is None:
            found.wrong(f"snapshot {seq} is damaged")
        elif format_at(formats, seq) < FORMAT:
            found.notes.append(f"snapshot {seq} is of an older format and is not compared")
        else:
            sound.append(snapshot)
    return sound


def _start(view: View, snapshots: list[Snapshot], found: Findings) -> Snapshot | None:
    """Where a replay can begin: at the beginning while the log is whole, else at the oldest snapshot."""
    expected = 1
    for seq, *_ in view.rows("records"):
        if seq != expected:
            break
        expected += 1
        if not snapshots or seq > snapshots[-1].seq:
            return None
    if not snapshots or expected > snapshots[-1].seq:
        return None
    found.notes.append(
        f"the log is not complete up to record {snapshots[0].seq} (old records are dropped): the replay begins there"
    )
    return snapshots[0]


def _sound_records(view: View, found: Findings) -> Iterator[tuple[int, bytes]]:
    for seq, _, _, kind, stored, data in view.rows("records"):
        found.records += 1
        found.last_seq = seq
        if crc(seq, data) != stored:
            found.wrong(f"record {seq} ({kind}) is damaged")
        else:
            yield seq, data


def _compare(state: State, snapshot: Snapshot, found: Findings) -> None:
    if save(state) == save(load(snapshot.data)):
        found.compared.append(snapshot.seq)
    else:
        found.wrong(f"the log, applied up to record {snapshot.seq}, tells another state than the snapshot does")


def _check_jobs(view: View, state: State, found: Findings) -> None:
    """Every job has its specification and its tasks."""
    found.jobs = len(state.bags.values())
    specs: set[int] = set()
    tasks: dict[int, int] = {}
    for job, data in view.rows("jobs"):
        specs.add(job)
        try:
            spec = decode_kept(data, f"the specification of job {job}")
        except WindfallError as error:
            found.wrong(error.message)
            continue
        if spec.source.kind == "range":  # needs no chunk
            tasks[job] = spec.source.range_count
    for job, first, count, *_ in view.rows("chunks"):
        if first == tasks.get(job, 0):
            tasks[job] = first + count
        else:
            found.wrong(f"job {job} lacks its tasks from {tasks.get(job, 0)} to {first - 1}")
            tasks[job] = first + count
    for bag in state.bags.values():
        source = bag.rules.like or bag.number
        if bag.number not in specs:
            found.wrong(f"job {bag.number} lacks its specification")
        if tasks.get(source, 0) < bag.total:
            found.wrong(f"job {bag.number} has {bag.total} tasks, and the store holds {tasks.get(source, 0)} of them")


def _check_results(view: View, state: State, blobs: set[str], found: Findings) -> None:
    """What attempts left behind can be read, and the files of results that count are there."""
    for job, task, attempt, data in view.rows("outputs"):
        try:
            more = _decode_output(data)[3] or {}
            files = [(str(file[0]), str(file[1])) for file in more.get("outputs") or ()]
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError, IndexError):
            found.wrong(f"what attempt {attempt} of task {task} of job {job} left behind is damaged")
            continue
        bag = state.bags.get(job)
        counts = bag is not None and 0 <= task < bag.total and bag.columns.attempt[task] == attempt
        if bag is None or not counts or bag.columns.state[task] != DONE:
            continue
        for name, blob in files:
            if blob not in blobs:
                found.wrong(f"task {task} of job {job} lacks its output '{name}' (file {blob[:12]}…)")


def _check_blobs(view: View, found: Findings, read: bool) -> set[str]:
    """The files that are there."""
    names: set[str] = set()
    for name, size in view.blobs():
        names.add(name)
        found.blobs += 1
        found.blob_bytes += size
        if read and not blob_is_sound(view, name):
            found.wrong(f"file {name[:12]}… has another content than its name says")
    return names


def blob_is_sound(view: View, name: str) -> bool:
    """Whether a file has the content that its name says. One that a server has removed meanwhile has."""
    hashed = sha256()
    try:
        with view.open_blob(name) as content:
            while piece := content.read(1 << 20):
                hashed.update(piece)
    except KeyError:
        return True
    except OSError:
        return False
    return hashed.hexdigest() == name
