"""Files of published series: availability, lives of machines, prices. Touches the file that is named.

Five formats are read; `docs/howto/market.md` describes them.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import time
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from math import isfinite
from pathlib import Path

import msgspec
from msgspec import Struct

from windfall.bounds import BROKEN
from windfall.cli.show.output import plural
from windfall.errors import BadInput
from windfall.planning.counts import HERE
from windfall.planning.spot.published import (
    Published,
    Spell,
    from_prices,
    from_spells,
    spells_of_counts,
    spells_of_ticks,
)

MOST_BYTES = 64 << 20
"""Size of a file, unpacked."""
MOST_MACHINES = 1000
MOST_LIFE_H = 1e5
LEAST_LIFE_H = 1e-6
MOST_HELD_S = 1e10
"""A table of prices spans no more: about 300 years."""
FORMATS = (
    'a series is JSON {"metadata": {"gap_seconds": 600}, "data": [1, 0]}, CSV with the columns timestamp and'
    " usd_per_hour, lines TIME_MS,add|remove,MACHINE, lines DATE, TIME, MACHINES, or lines LIFE_IN_HOURS and SHARE"
)

COUNTED = re.compile(r"\d{4}-\d\d-\d\d, ?\d\d?:\d\d(:\d\d)?, ?\d")
"""How lines DATE, TIME, MACHINES begin."""


class SeriesFile(Struct, frozen=True):
    """One file, read and counted."""

    digest: str
    what: str
    published: Published


class _Head(Struct):
    gap_seconds: float


class _Ticks(Struct):
    metadata: _Head
    data: list[float]


def read_series(path: Path, of: str = "", since_t: float | None = None) -> SeriesFile:
    """The series of a file. `of`: the ZONE/TYPE of a table of prices; `since_t`: when a series without times began."""
    data = _content(path).removeprefix(BOM_UTF8)
    digest = sha256(data + f"\n{of}".encode()).hexdigest()
    if data.lstrip()[:1] == b"{":
        what, published = "availability", _ticks(path, data, since_t)
    else:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise BadInput(f"{path}: this is no text: byte {error.start} is not UTF-8", hint=FORMATS) from None
        what, published = _of_text(path, text, of, since_t)
    if of and what != "prices":
        raise BadInput(f"{path}: only tables of prices are of several zones and types", hint="leave --of out")
    return SeriesFile(digest, what, published)


def _of_text(path: Path, text: str, of: str, since_t: float | None) -> tuple[str, Published]:
    first = text.split("\n", 1)[0]
    if "usd_per_hour" in first:
        return "prices", _prices(path, text, of)
    if ",add," in first or ",remove," in first:
        return "machines", _comings(path, text, since_t)
    if COUNTED.match(first):
        return "machines", _counts(path, text, since_t)
    if len(first.split()) == 2 and "," not in first:
        return "lives", _lives(path, text)
    raise BadInput(f"{path}:1: '{first[:60]}' begins no series that is known", hint=FORMATS)


def _content(path: Path) -> bytes:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data: bytes = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        what = getattr(error, "strerror", None) or error
        raise BadInput(f"{path}: {what}", hint="name a file with a published series") from None
    if len(data) > MOST_BYTES:
        raise BadInput(f"{path}: more than {MOST_BYTES:,} bytes", hint="split it, or leave rows out")
    if not data.strip():
        raise BadInput(f"{path}: the file is empty", hint=FORMATS)
    return data


def _ticks(path: Path, data: bytes, since_t: float | None) -> Published:
    try:
        content = msgspec.json.decode(data, type=_Ticks)
    except BROKEN as error:
        raise BadInput(f"{path}: {error}", hint='as in {"metadata": {"gap_seconds": 600}, "data": [1, 0]}') from None
    tick_s, ticks = content.metadata.gap_seconds, content.data
    if not 0.1 <= tick_s <= 86400.0:
        raise BadInput(f"{path}: metadata.gap_seconds is {tick_s:g}", hint="0.1 s to a day")
    if len(ticks) < 2:
        raise BadInput(f"{path}: data holds {len(ticks)} ticks", hint="two at least")
    for place, number in enumerate(ticks):
        if not 0 <= number <= MOST_MACHINES:
            raise BadInput(
                f"{path}: data[{place}] is {number:g}", hint=f"machines that are there: 0 to {MOST_MACHINES}"
            )
    machines = max(1, round(max(ticks)))
    return from_spells(spells_of_ticks(ticks, tick_s, since_t or 0.0), machines, since_t is not None)


def _rows(path: Path, text: str, cells: int, form: str) -> Iterator[tuple[int, list[str]]]:
    reader, number = csv.reader(io.StringIO(text)), 0
    try:
        for number, row in enumerate(reader, 1):
            if row and len(row) != cells:
                raise BadInput(f"{path}:{number}: {len(row)} cells, not {cells}", hint=f"a line is {form}")
            if row:
                yield number, row
    except csv.Error as error:
        raise BadInput(f"{path}:{number + 1}: {error}", hint=f"a line is {form}") from None


def _comings(path: Path, text: str, since_t: float | None) -> Published:
    """Lines TIME_MS,add|remove,MACHINE: each machine is up from one to the other."""
    form = "TIME_MS,add|remove,MACHINE"
    since: dict[str, float] = {}
    spells: list[Spell] = []
    last_t, most = 0.0, 1
    for number, (time_ms, what, machine) in _rows(path, text, 3, form):
        t = _number(path, number, "TIME_MS", time_ms, 1e15) / 1e3
        if t < last_t:
            raise BadInput(f"{path}:{number}: the time goes back", hint="sort the lines by time")
        last_t = t
        if what == "add" and machine not in since:
            since[machine] = t
            most = max(most, len(since))
        elif what == "remove" and machine in since:
            spells.append(Spell(HERE, since.pop(machine), t, ended=True))
        else:
            there = "is there already" if what == "add" else "is not there" if what == "remove" else "?"
            raise BadInput(f"{path}:{number}: '{what}' of {machine}, which {there}", hint=f"a line is {form}")
    spells += [Spell(HERE, t, last_t, ended=False) for t in since.values()]
    moved = [Spell(s.kind, s.from_t + (since_t or 0.0), s.to_t + (since_t or 0.0), s.ended) for s in spells]
    return from_spells(moved, most, since_t is not None)


def _counts(path: Path, text: str, since_t: float | None) -> Published:
    """Lines DATE, TIME, MACHINES: a count holds until the next line; the last line ends the series.

    Lines may be out of order, and of two of the same time the later one counts: several logs are often put together.
    The zone of these times is not said, so hours of the day are known only with `since_t`.
    """
    form = "DATE, TIME, MACHINES"
    seen: dict[float, float] = {}
    for number, (date, clock, machines) in _rows(path, text, 3, form):
        t = _moment(path, number, f"{date.strip()}T{clock.strip()}")
        seen[t] = _number(path, number, "MACHINES", machines.strip(), MOST_MACHINES)
    if len(seen) < 2:
        raise BadInput(f"{path}: machines at {plural(len(seen), 'time')}", hint="lines of two times at least")
    times = sorted(seen)
    counts = [seen[t] for t in times]
    shift_s = 0.0 if since_t is None else since_t - times[0]
    spells = spells_of_counts(counts[:-1], [t + shift_s for t in times])
    return from_spells(spells, max(1, round(max(counts[:-1]))), since_t is not None)


def _lives(path: Path, text: str) -> Published:
    """Lines LIFE_IN_HOURS and SHARE: each life is one machine that was reclaimed at its end."""
    spells = []
    for number, line in enumerate(text.splitlines(), 1):
        cells = line.split()
        if not cells:
            continue
        if len(cells) != 2:
            raise BadInput(f"{path}:{number}: {len(cells)} numbers, not 2", hint="a line is LIFE_IN_HOURS and SHARE")
        hours = _number(path, number, "LIFE_IN_HOURS", cells[0], MOST_LIFE_H, least=LEAST_LIFE_H)
        _number(path, number, "SHARE", cells[1], 1.0)
        spells.append(Spell(HERE, 0.0, hours * 3600.0, ended=True))
    return from_spells(spells, 1, has_clock=False)


def _prices(path: Path, text: str, of: str) -> Published:
    """CSV with timestamp and usd_per_hour, and with availability_zone and instance_type if it is of several."""
    reader = csv.DictReader(io.StringIO(text))
    try:
        columns = reader.fieldnames or ()
    except csv.Error as error:
        raise BadInput(f"{path}:1: {error}", hint="CSV with one row a line") from None
    for needed in ("timestamp", "usd_per_hour"):
        if needed not in columns:
            raise BadInput(f"{path}:1: there is no column {needed}", hint=f"its columns are: {', '.join(columns)}")
    several = "availability_zone" in columns and "instance_type" in columns
    steps: list[tuple[float, float]] = []
    others: dict[str, None] = {}
    now_s = time.time()
    for line, row in _records(path, reader):
        name = f"{row['availability_zone']}/{row['instance_type']}" if several else ""
        if name != (of if several else ""):
            others[name] = None
            continue
        usd = _number(path, line, "usd_per_hour", row["usd_per_hour"], 1e9)
        t = _moment(path, line, row["timestamp"])
        if t > now_s:
            raise BadInput(f"{path}:{line}: timestamp {row['timestamp']} is in the future", hint="leave such rows out")
        steps.append((t, usd))
    if several and not steps:
        listed = ", ".join(sorted(others)[:6]) + (", ..." if len(others) > 6 else "")
        text = f"there are no prices of {of}" if of else "it holds prices of several zones and types"
        raise BadInput(f"{path}: {text}", hint=f"--of ZONE/TYPE, one of: {listed}")
    if of and not several:
        raise BadInput(f"{path}: it holds the prices of one type only", hint="leave --of out")
    return _of_steps(path, sorted(steps))


def _of_steps(path: Path, steps: list[tuple[float, float]]) -> Published:
    if len(steps) < 2:
        raise BadInput(f"{path}: {plural(len(steps), 'price')}", hint="two rows at least")
    if not 0.0 < (held_s := steps[-1][0] - steps[0][0]) <= MOST_HELD_S:
        said = "all its prices are of one time" if not held_s else "its prices span more than 300 years"
        raise BadInput(f"{path}: {said}", hint="check the column timestamp")
    return from_prices(steps)


def _records(path: Path, reader: csv.DictReader[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows with their lines; refused if one has fewer or more cells than there are columns."""
    columns = len(reader.fieldnames or ())
    try:
        for row in reader:
            cells = sum(cell is not None for name, cell in row.items() if name is not None) + len(row.get(None, ()))
            if cells != columns:
                raise BadInput(f"{path}:{reader.line_num}: {cells} cells, not {columns}", hint="one for each column")
            yield reader.line_num, row
    except csv.Error as error:
        raise BadInput(f"{path}:{reader.line_num + 1}: {error}", hint="CSV with one row a line") from None


def _number(path: Path, line: int, what: str, text: str, most: float, least: float = 0.0) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (isfinite(value) and least <= value <= most):
        raise BadInput(f"{path}:{line}: {what} is '{text[:40]}'", hint=f"a number from {least:g} to {most:g}")
    return value


def _moment(path: Path, line: int, text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"{path}:{line}: timestamp is '{text[:40]}'", hint="as in 2024-03-01T00:17:07Z") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
