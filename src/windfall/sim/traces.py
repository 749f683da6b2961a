"""Traces that scenarios name: availability series, run times from CSV and SWF. Touches: those files.

A path is relative to its scenario; `data:spot/...` lies below the folder of the real traces (WINDFALL_DATA).
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path

import msgspec

from windfall.errors import BadInput


class Series(msgspec.Struct, frozen=True):
    """How many machines were to be had, tick by tick; 0 means none."""

    tick_s: float
    counts: tuple[float, ...]

    def level(self, index: int, hosts: int) -> float:
        """What the count must exceed for host `index` of `hosts` to be there: the hosts share the largest count."""
        return int(index * max(self.counts) / hosts)

    def stretches(self, level: float) -> list[tuple[float, float]]:
        """The times (from, to) in which more than `level` were to be had."""
        found: list[tuple[float, float]] = []
        start: int | None = None
        for tick, count in enumerate((*self.counts, 0.0)):
            if count > level and start is None:
                start = tick
            elif not count > level and start is not None:
                found.append((start * self.tick_s, tick * self.tick_s))
                start = None
        return found


class _Head(msgspec.Struct):
    gap_seconds: float


class _File(msgspec.Struct):
    metadata: _Head
    data: list[float]


def _open(name: str, place: str, where: Path, data: Path | None) -> Path:
    if name.startswith("data:"):
        if data is None:
            raise BadInput(
                f"{place}: the trace {name} needs the folder of traces", hint="set WINDFALL_DATA to it", code="no-trace"
            )
        path = data / name.removeprefix("data:")
    else:
        path = where.parent / name
    if not path.is_file():
        raise BadInput(f"{place}: there is no file {path}", hint="name an existing trace", code="no-trace")
    return path


def availability(name: str, place: str, where: Path, data: Path | None) -> Series:
    """A series from JSON: {"metadata": {"gap_seconds": 600}, "data": [1, 0, ...]}."""
    path = _open(name, place, where, data)
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_File)
    except msgspec.DecodeError as error:
        raise BadInput(
            f"{place}: {path} is no availability series: {error}",
            hint='a series reads {"metadata": {"gap_seconds": 600}, "data": [1, 0]}',
        ) from None
    if not content.data or not content.metadata.gap_seconds > 0:
        raise BadInput(f"{place}: {path} holds no ticks", hint="gap_seconds above zero and at least one tick")
    return Series(content.metadata.gap_seconds, tuple(content.data))


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else open(path) as file:
        yield from file


def run_times(name: str, place: str, where: Path, data: Path | None) -> tuple[float, ...]:
    """Run times in seconds: column `run_s` of a CSV, or the fourth column of an SWF log; unknown ones are left out."""
    path = _open(name, place, where, data)
    plain = path.name.removesuffix(".gz")
    try:
        found = _swf(path) if plain.endswith(".swf") else _csv(path, place)
    except (ValueError, IndexError, UnicodeDecodeError) as error:
        raise BadInput(f"{place}: {path} cannot be read: {error}", hint="CSV with a column run_s, or SWF") from None
    if not found:
        raise BadInput(f"{place}: {path} holds no run times", hint="CSV with a column run_s, or SWF")
    return tuple(found)


def _swf(path: Path) -> list[float]:
    rows = (line.split() for line in _lines(path) if line.strip() and not line.startswith(";"))
    return [run for row in rows if (run := float(row[3])) > 0]


def _csv(path: Path, place: str) -> list[float]:
    reader = csv.DictReader(_lines(path))
    if "run_s" not in (reader.fieldnames or ()):
        columns = ", ".join(reader.fieldnames or ()) or "none"
        raise BadInput(f"{place}: {path} has no column 'run_s'", hint=f"its columns are: {columns}")
    return [run for row in reader if (run := float(row["run_s"])) > 0]
