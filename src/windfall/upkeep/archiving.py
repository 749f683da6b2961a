"""One job of a state in a file of its own, which is a state itself: the log, and the job's tasks, results and files.

Reads a view, so that a server may go on; writes the file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from windfall.bags.spec import decode_kept
from windfall.store import archives
from windfall.store.contract import OWN
from windfall.store.filling import Filling, fill
from windfall.store.location import StateLocation
from windfall.store.view import Row, View, open_view

_OF_JOBS = ("jobs", "chunks", "outputs")


class Archived(Struct):
    """What an archive holds."""

    outputs: int
    files: int
    bytes: int


def archive(state: StateLocation, job: int, path: Path, with_files: bool = True) -> Archived:
    """Write a job to an archive. Nothing of other jobs is in it but what the log says; no token, no key."""
    archives.check_name(path)
    view = open_view(state)
    try:
        blobs = _blobs(view, job) if with_files else []
        snapshots = [snapshot for _, snapshot in view.snapshots() if snapshot is not None]
        with tempfile.TemporaryDirectory(prefix="windfall-archive-") as folder:
            made = Path(folder) / "state"
            fill(Filling(lambda table: _rows(view, table, job), snapshots, blobs, view), StateLocation(made))
            archives.pack(made, path)
        outputs = sum(1 for _ in _rows(view, "outputs", job))
    finally:
        view.close()
    return Archived(outputs, len(blobs), path.stat().st_size)


def _rows(view: View, table: str, job: int) -> Iterator[Row]:
    for row in view.rows(table):
        if table in _OF_JOBS and row[0] != job:
            continue
        if table == "tokens" or (table == "meta" and str(row[0]).startswith(OWN)):
            continue
        yield row


def _blobs(view: View, job: int) -> list[str]:
    """The files that the job takes and has made, as far as they are kept."""
    named: set[str] = set()
    for row in _rows(view, "jobs", job):
        spec = decode_kept(bytes(row[1]), f"the specification of job {job}")
        named.update(file.sha256 for file in (*spec.inputs, *spec.files))
    for row in _rows(view, "outputs", job):
        more = msgspec.msgpack.decode(bytes(row[3]))[3] or {}
        named.update(file[1] for file in more.get("outputs") or ())
    return [sha256 for sha256, _ in view.blobs() if sha256 in named]
