"""Latencies from files: CSV, one number a line, Standard Workload Format, or a Windfall state. Reads files only."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

import numpy as np
from msgspec import Struct

from windfall.cli.timeout.state import is_state, latencies, read_log
from windfall.errors import BadInput
from windfall.timeouts.fitting.dependence import Observations

LATENCY_NAMES = ("latency_s", "latency", "wait_s", "wait", "seconds", "duration_s", "duration", "value")
YES = {"1", "true", "t", "yes", "y", "censored", "running", "killed", "waiting", "lost"}
NO = {"0", "false", "f", "no", "n", "", "done", "completed", "finished"}
# Columns of SWF, from 0: http://www.cs.huji.ac.il/labs/parallel/workload/swf.html
SWF_SUBMIT, SWF_WAIT, SWF_RUN, SWF_PROCS, SWF_STATUS, SWF_QUEUE, SWF_SITE, SWF_WIDTH = 1, 2, 3, 4, 10, 14, 15, 18
SWF_CANCELLED = 5
MOST_S = 1e12
"""Latencies and times of submission in seconds, as Unix times too: squares of larger ones are infinite."""


class Columns(Struct, frozen=True):
    """Which columns of a CSV file hold what; None: not there, or found by name."""

    latency: str | None = None
    censored: str | None = None
    pool: str | None = None
    submitted: str | None = None


class Latencies(Struct, frozen=True):
    """What a file held, and how many of its rows were left out: empty ones, and jobs without a latency (SWF)."""

    observations: Observations
    what: str
    skipped: int


def read_latencies(path: str, columns: Columns) -> Latencies:
    if is_state(path):
        seen = latencies(read_log(path), path)
        found = ([s.seconds for s in seen], [s.censored for s in seen], [s.pool for s in seen], [s.sent for s in seen])
        return Latencies(_in_order(*found), "latency", 0)
    text = _text(path)
    lines = text.splitlines()
    if not any(line.strip() for line in lines):
        raise BadInput(f"{path} is empty", hint="it should hold latencies: CSV, one number a line, or SWF")
    if _is_swf(path, lines):
        if columns.censored or columns.pool or columns.submitted:
            raise BadInput(f"{path} is SWF: its columns are known, so --censored, --pool and --submitted do not apply")
        return _read_swf(path, lines, columns.latency or "wait")
    return _read_csv(path, lines, columns)


def _text(path: str) -> str:
    try:
        raw = Path(path).read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        return raw.decode("utf-8-sig")
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}") from None
    except IsADirectoryError:
        hint = "give a CSV or SWF file, or the state directory of a server (.windfall)"
        raise BadInput(f"{path} is a directory, but no Windfall state", hint=hint) from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not text", hint="give a CSV or SWF file, plain or gzipped") from None
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} cannot be read: {error}") from None


def _is_swf(path: str, lines: Sequence[str]) -> bool:
    if path.removesuffix(".gz").endswith(".swf"):
        return True
    first = next((line for line in lines if line.strip() and not line.startswith(";")), "")
    return "," not in first and len(first.split()) >= SWF_WIDTH


def _number(text: str, path: str, line: int, field: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise BadInput(f"{path}, line {line}: {field} is '{text}', not a number") from None
    if not math.isfinite(value):
        raise BadInput(
            f"{path}, line {line}: {field} is '{text}', not a finite number",
            hint="for a job that never came back, write how long it has waited and mark it in a --censored column",
        )
    if value < 0:
        raise BadInput(f"{path}, line {line}: {field} is negative ({text}); a latency is 0 s or more")
    if value > MOST_S:
        raise BadInput(f"{path}, line {line}: {field} is {text}", hint=f"at most {MOST_S:g} s")
    return value


# --- CSV


def _read_csv(path: str, lines: Sequence[str], columns: Columns) -> Latencies:
    empty: list[int] = []
    rows = _rows(path, lines, empty)
    number, first = next(rows)
    header = None if _all_numbers(first) else [cell.strip() for cell in first]
    latency = _latency_column(path, header, first, columns.latency)
    censored, pool, submitted = (
        _column(path, header, first, name) if name else None
        for name in (columns.censored, columns.pool, columns.submitted)
    )
    values, cut, pools, times = [], [], [], []
    everything = rows if header else _chain(number, first, rows)
    for line, row in everything:
        if len(row) != len(first):
            raise BadInput(f"{path}, line {line}: {len(row)} fields, but the first line has {len(first)}")
        field = f"'{header[latency]}'" if header else "the latency"
        values.append(_number(row[latency].strip(), path, line, field))
        cut.append(censored is not None and _flag(row[censored], path, line))
        if pool is not None:
            pools.append(row[pool].strip())
        if submitted is not None:
            times.append(_number(row[submitted].strip(), path, line, "the time of submission"))
    if not values:
        raise BadInput(f"{path} has a header and nothing below it")
    what = header[latency] if header else "latency"
    found = (values, cut, pools if pool is not None else None, times if submitted is not None else None)
    return Latencies(_in_order(*found), what, len(empty))


def _rows(path: str, lines: Sequence[str], empty: list[int]) -> Iterator[tuple[int, list[str]]]:
    """Rows that are no remarks, each with the number of its line; the numbers of empty ones go to `empty`."""
    reader = csv.reader(io.StringIO("\n".join(lines)))
    try:
        for row in reader:
            if not any(cell.strip() for cell in row):
                empty.append(reader.line_num)
            elif not row[0].lstrip().startswith("#"):
                yield reader.line_num, row
    except csv.Error as error:
        raise BadInput(f"{path}, line {reader.line_num}: {error}") from None


def _chain(number: int, first: list[str], rest: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    yield number, first
    yield from rest


def _all_numbers(cells: Sequence[str]) -> bool:
    """A first line with a number in it is data; 'nan' is data too, and will be refused as such."""
    for cell in cells:
        try:
            float(cell)
            return True
        except ValueError:
            continue
    return False


def _latency_column(path: str, header: list[str] | None, first: list[str], name: str | None) -> int:
    if name is not None:
        return _column(path, header, first, name)
    if len(first) == 1:
        return 0
    lower = [cell.lower() for cell in header] if header else []
    for known in LATENCY_NAMES:
        if known in lower:
            return lower.index(known)
    listed = ", ".join(header) if header else f"1 to {len(first)} (no header)"
    raise BadInput(f"{path}: which column holds the latencies? Its columns are: {listed}", hint="say --column NAME")


def _column(path: str, header: list[str] | None, first: list[str], name: str) -> int:
    if header and name in header:
        return header.index(name)
    if name.isdecimal() and 1 <= int(name) <= len(first):
        return int(name) - 1
    if not header:
        raise BadInput(f"{path} has no header, so no column '{name}'", hint=f"say its number: 1 to {len(first)}")
    near = get_close_matches(name, header, n=1)
    hint = f"did you mean '{near[0]}'?" if near else ""
    raise BadInput(f"{path} has no column '{name}'; its columns are: {', '.join(header)}", hint=hint)


def _flag(text: str, path: str, line: int) -> bool:
    word = text.strip().lower()
    if word in YES:
        return True
    if word in NO:
        return False
    raise BadInput(
        f"{path}, line {line}: '{text}' does not say whether the job was cut short",
        hint="use 1 and 0, or true and false",
    )


# --- SWF


def _read_swf(path: str, lines: Sequence[str], what: str) -> Latencies:
    if what not in ("wait", "run"):
        raise BadInput(f"{path} is SWF: --column takes 'wait' or 'run', not '{what}'")
    values, cut, pools, times, skipped = [], [], [], [], 0
    for line, row in enumerate(lines, start=1):
        cells = row.split()
        if not cells or cells[0].startswith(";"):
            continue
        if len(cells) < SWF_WIDTH:
            raise BadInput(f"{path}, line {line}: {len(cells)} fields; SWF has {SWF_WIDTH}")
        try:
            submit, wait, run = float(cells[SWF_SUBMIT]), float(cells[SWF_WAIT]), float(cells[SWF_RUN])
            procs, status = float(cells[SWF_PROCS]), float(cells[SWF_STATUS])
        except ValueError:
            raise BadInput(f"{path}, line {line}: not a line of SWF (a field is not a number)") from None
        value = wait if what == "wait" else run
        if not (0 <= value <= MOST_S and abs(submit) <= MOST_S and math.isfinite(procs)):
            skipped += 1
            continue
        values.append(value)
        # A job cancelled before it ran: its latency is at least the time that it waited.
        cut.append(what == "wait" and status == SWF_CANCELLED and run <= 0)
        times.append(submit)
        width = int(math.log2(procs)) if procs >= 1 else 0
        pools.append(f"queue {cells[SWF_QUEUE]} site {cells[SWF_SITE]} from {2**width} cpu")
    if not values:
        raise BadInput(
            f"{path}: none of its {skipped:,} jobs has a {what} time (the field is -1 throughout)",
            hint="this log does not say how long jobs waited; --column run would look at run times"
            if what == "wait"
            else "",
        )
    return Latencies(_in_order(values, cut, pools, times), what, skipped)


def _in_order(
    values: Sequence[float], cut: Sequence[bool], pools: Sequence[str] | None, times: Sequence[float] | None
) -> Observations:
    """Observations in order of submission; without times, in the order of the file."""
    array, flags = np.array(values, dtype=np.float64), np.array(cut, dtype=bool)
    if times is None:
        return Observations(array, flags, pools)
    submitted = np.array(times, dtype=np.float64)
    order = np.argsort(submitted, kind="stable")
    named = [pools[index] for index in order.tolist()] if pools is not None else None
    return Observations(array[order], flags[order], named, submitted[order])
