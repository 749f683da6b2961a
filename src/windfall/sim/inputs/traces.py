"""Traces that scenarios name: availability and price series, run times from CSV and SWF. Touches: those files.

A path is relative to its scenario; `data:spot/...` lies below the folder of the real traces (WINDFALL_DATA).
"""

from __future__ import annotations

import csv
import gzip
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime
from math import inf
from pathlib import Path

import msgspec

from windfall.bounds import BROKEN
from windfall.errors import BadInput

MOST_USD = 1e9


class Series(msgspec.Struct, frozen=True):
    """Number of available machines, tick by tick."""

    tick_s: float
    counts: tuple[float, ...]

    def level(self, index: int, hosts: int) -> float:
        """The count above which host `index` of `hosts` is present: the largest count means all hosts."""
        return int(index * max(self.counts) / hosts)

    def stretches(self, level: float) -> list[tuple[float, float]]:
        """The intervals (from, to) in which more than `level` machines were available."""
        found: list[tuple[float, float]] = []
        start: int | None = None
        for tick, count in enumerate((*self.counts, 0.0)):
            if count > level and start is None:
                start = tick
            elif not count > level and start is not None:
                found.append((start * self.tick_s, tick * self.tick_s))
                start = None
        return found


class Tides:
    """A series as one run sees it: started at a place that depends on the seed, and repeated."""

    def __init__(self, series: Series, share: float) -> None:
        self._series = series
        self._period_s = len(series.counts) * series.tick_s
        self._offset_s = int(share * len(series.counts)) * series.tick_s
        self._known: dict[float, list[tuple[float, float]]] = {}

    def stretch(self, level: float, t: float) -> tuple[float, float]:
        """The interval with more than `level` machines that contains t, else the next one; infinite if none exists."""
        stretches = self._known.get(level)
        if stretches is None:
            stretches = self._known[level] = self._series.stretches(level)
        if not stretches:
            return inf, inf
        turn, place = divmod(t + self._offset_s, self._period_s)
        at = bisect_right(stretches, place, key=lambda stretch: stretch[1])
        if at == len(stretches):
            at, turn = 0, turn + 1
        base = turn * self._period_s - self._offset_s
        return base + stretches[at][0], base + stretches[at][1]


class Prices(msgspec.Struct, frozen=True):
    """Prices per hour and the seconds from the first at which each starts; the last holds until `period_s`."""

    times_s: tuple[float, ...]
    usd_per_h: tuple[float, ...]
    period_s: float

    def at(self, t: float, share: float) -> float:
        """The price at t, in a run that starts at this fraction of the series."""
        place = (t + share * self.period_s) % self.period_s
        return self.usd_per_h[bisect_right(self.times_s, place) - 1]

    def next_t(self, t: float, share: float) -> float:
        """When the price changes next."""
        place = (t + share * self.period_s) % self.period_s
        at = bisect_right(self.times_s, place)
        moment = self.times_s[at] if at < len(self.times_s) else self.period_s
        return t + max(1e-3, moment - place)


class _Head(msgspec.Struct):
    gap_seconds: float


class _File(msgspec.Struct):
    metadata: _Head
    data: list[float]


def find_file(name: str, place: str, where: Path, data: Path | None) -> Path:
    """A file that a scenario names, beside it or below the folder of traces."""
    if name.startswith("data:"):
        if data is None:
            raise BadInput(
                f"{place}: the trace {name} needs the folder of traces",
                hint="set WINDFALL_DATA to it, or give laws instead, as the scenario spot-law does",
                code="no-trace",
            )
        path = data / name.removeprefix("data:")
    else:
        path = where.parent / name
    if not path.is_file():
        raise BadInput(f"{place}: there is no file {path}", hint="name an existing trace", code="no-trace")
    return path


def availability(name: str, place: str, where: Path, data: Path | None) -> Series:
    """A series from JSON: {"metadata": {"gap_seconds": 600}, "data": [1, 0, ...]}."""
    path = find_file(name, place, where, data)
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_File)
    except BROKEN as error:
        raise BadInput(
            f"{place}: {path} is no availability series: {error}",
            hint='a series reads {"metadata": {"gap_seconds": 600}, "data": [1, 0]}',
        ) from None
    if not content.data or not content.metadata.gap_seconds > 0:
        raise BadInput(f"{place}: {path} holds no ticks", hint="gap_seconds above zero and at least one tick")
    return Series(content.metadata.gap_seconds, tuple(content.data))


def prices(name: str, of: str, place: str, where: Path, data: Path | None) -> Prices:
    """A price series: CSV (also .gz) with `timestamp` and `usd_per_hour`; `of` is "zone/type" if it holds several."""
    path = find_file(name, place, where, data)
    zone, _, kind = of.partition("/")
    found: list[tuple[float, float]] = []
    others: dict[str, None] = {}
    try:
        for row in csv.DictReader(_lines(path)):
            if "availability_zone" in row and (row["availability_zone"], row["instance_type"]) != (zone, kind):
                others[f"{row['availability_zone']}/{row['instance_type']}"] = None
                continue
            moment = datetime.fromisoformat(row["timestamp"])
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            found.append((moment.timestamp(), float(row["usd_per_hour"])))
    except (KeyError, ValueError, TypeError, OverflowError, csv.Error, OSError, EOFError, zlib.error) as error:
        raise BadInput(
            f"{place}: {path} is no price series: {error}", hint="CSV with the columns timestamp and usd_per_hour"
        ) from None
    odd = next((usd for _, usd in found if not 0.0 <= usd <= MOST_USD), 0.0)
    if odd:
        raise BadInput(f"{place}: {path} has a price of {odd:g}", hint=f"a number from 0 to {MOST_USD:g}")
    if len(found) < 2:
        listed = ", ".join(sorted(others)[:8])
        raise BadInput(
            f"{place}: {path} has no prices of {of or 'anything'}",
            hint=f"prices_of is one of {listed} ..." if others else "two rows at least", code="no-trace",
        )  # fmt: skip
    found.sort()
    steps = [step for number, step in enumerate(found) if not number or step[1] != found[number - 1][1]]
    first = found[0][0]
    return Prices(tuple(t - first for t, _ in steps), tuple(usd for _, usd in steps), found[-1][0] - first)


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else open(path) as file:
        yield from file


MOST_S = 1e12
"""Run times and Unix times of submission; larger ones are unknown ones, like those below zero."""
# Columns of a log: number in SWF, name in CSV, and least valid value.
RUN, SUBMIT = (3, "run_s", 1e-9), (1, "submit_s", 0.0)


def run_times(name: str, place: str, where: Path, data: Path | None) -> tuple[float, ...]:
    """Run times in seconds, of a CSV or an SWF log; unknown ones are left out."""
    return _column(name, place, where, data, RUN)


def arrivals(name: str, place: str, where: Path, data: Path | None) -> tuple[float, ...]:
    """When jobs were submitted, in seconds from the first, of a CSV or an SWF log."""
    found = sorted(_column(name, place, where, data, SUBMIT))
    return tuple(moment - found[0] for moment in found)


def _column(
    name: str, place: str, where: Path, data: Path | None, what: tuple[int, str, float]
) -> tuple[float, ...]:  # fmt: skip
    path = find_file(name, place, where, data)
    number, title, least = what
    hint = f"CSV with a column {title}, or SWF"
    try:
        texts = _swf(path, number) if path.name.removesuffix(".gz").endswith(".swf") else _csv(path, place, title)
        found = [value for text in texts if MOST_S >= (value := float(text)) >= least]
    except (ValueError, TypeError, IndexError, csv.Error, OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{place}: {path} cannot be read: {error}", hint=hint) from None
    if not found:
        raise BadInput(f"{place}: {path} holds no {title}", hint=hint)
    return tuple(found)


def _swf(path: Path, column: int) -> list[str]:
    return [line.split()[column] for line in _lines(path) if line.strip() and not line.startswith(";")]


def _csv(path: Path, place: str, title: str) -> list[str]:
    reader = csv.DictReader(_lines(path))
    if title not in (reader.fieldnames or ()):
        columns = ", ".join(reader.fieldnames or ()) or "none"
        raise BadInput(f"{place}: {path} has no column '{title}'", hint=f"its columns are: {columns}")
    return [row[title] for row in reader]
