"""Parameters that are given as values, not in a file: lists, tables, combinations, whole tasks, calls. Pure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any

from windfall.bags.chunks import CHUNK_TASKS, MAX_CALL_BYTES, MAX_TEXT_BYTES, Chunk, Chunker, Parameters
from windfall.bags.spec import Source, TaskRow, check_texts
from windfall.bounds import MAX_TASKS
from windfall.errors import BadInput

_NOTHING = object()


def from_values(values: Any, where: str = "params") -> Parameters:
    """From a list of values (`{}`), a list of tables (`{column}`), or a table of lists (all combinations)."""
    if isinstance(values, Mapping):
        return _from_grid(values, where)
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise BadInput(f"{where} must be a list of values, a list of tables, or a table of lists")
    stream = iter(values)
    first = next(stream, _NOTHING)
    if first is _NOTHING:
        raise BadInput(f"{where} is empty", hint="Nothing was started.")
    if isinstance(first, Mapping):
        columns = [str(name) for name in first]
        rows = (_row(row, columns, f"{where}[{i}]") for i, row in enumerate(_again(first, stream)))
        return _gather(Source("rows", columns=columns), "rows", rows, where)
    lines = (_line(value, f"{where}[{i}]") for i, value in enumerate(_again(first, stream)))
    return _gather(Source("lines"), "lines", lines, where)


def _again(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _from_grid(table: Mapping[str, Any], where: str) -> Parameters:
    """All combinations, the last column changing fastest."""
    if not table:
        raise BadInput(f"{where} is empty", hint="Nothing was started.")
    lists = []
    for name, values in table.items():
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Sequence | range) or not len(values):
            raise BadInput(f"{where}.{name} must be a list of values that is not empty")
        lists.append([_text(value, f"{where}.{name}[{i}]") for i, value in enumerate(values)])
    count = math.prod(map(len, lists))
    if count > MAX_TASKS:
        raise BadInput(f"{where} makes {count:,} combinations; the limit is {MAX_TASKS:,}")
    columns = [str(name) for name in table]
    return _gather(Source("rows", columns=columns), "rows", map(list, product(*lists)), where)


def from_calls(payloads: Iterable[bytes], first: int = 0, where: str = "calls") -> list[Chunk]:
    """The chunks of pickled calls, numbered from `first`."""
    chunker = Chunker("calls", first)
    for payload in payloads:
        if len(payload) > MAX_CALL_BYTES:
            raise BadInput(
                f"{where}: a call of {len(payload):,} bytes; the limit is {MAX_CALL_BYTES:,}",
                hint="put large data into a file that the calls read",
            )
        chunker.add([payload], len(payload))
    return chunker.finish()


def from_tasks(tasks: Iterable[tuple[TaskRow, int]], where: str) -> Parameters:
    """Whole tasks, each with its class."""
    chunker = Chunker("tasks")
    for row, klass in tasks:
        chunker.add([row], sum(map(len, row.argv)) + len(row.stdin or ""), klass)
    return _finished(Source("tasks"), chunker, where)


def _gather(source: Source, codec: str, items: Iterator[Any], where: str) -> Parameters:
    chunker = Chunker(codec)
    while run := list(islice(items, CHUNK_TASKS)):
        chunker.add(run, sum(len(item) if codec == "lines" else sum(map(len, item)) for item in run))
    return _finished(source, chunker, where)


def _finished(source: Source, chunker: Chunker, where: str) -> Parameters:
    chunks = chunker.finish()
    digest = hashlib.sha256(b"".join(hashlib.sha256(chunk.data).digest() for chunk in chunks)).hexdigest()
    return Parameters(source, chunker.count, chunks, digest, where)


def _row(row: Any, columns: list[str], where: str) -> list[str]:
    if not isinstance(row, Mapping):
        raise BadInput(f"{where} must be a table, as the first one is")
    if len(row) != len(columns) or any(column not in row for column in columns):
        got = ", ".join(map(str, row))
        raise BadInput(f"{where} has the columns {got}; the first one has {', '.join(columns)}")
    return [_text(row[column], f"{where}.{column}") for column in columns]


def _line(value: Any, where: str) -> str:
    text = _text(value, where)
    if "\n" in text:
        raise BadInput(f"{where} has a line break", hint="give it a name, as in {x = ...}, and use {x} in the command")
    return text


def _text(value: Any, where: str) -> str:
    """A value as an argument: numbers as they are written, true and false in small letters."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or (isinstance(value, Mapping | Sequence) and not isinstance(value, str)):
        raise BadInput(f"{where} must be a text, a number, true or false, not {type(value).__name__}")
    text = str(value)
    check_texts([text], where)
    if len(text) > MAX_TEXT_BYTES:
        raise BadInput(f"{where} has {len(text):,} characters; the limit is {MAX_TEXT_BYTES:,}")
    return text
