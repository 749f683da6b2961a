"""What attempts left behind, as the store keeps it. Touches the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from windfall.store.contract import OutputRow, Store

PAGE = 32
"""Rows that are read at once. A row has up to twice the `output_cap` of its job: 2 MiB unless the user says more."""


def output_rows(store: Store, job: int, tasks: Sequence[int]) -> Iterator[OutputRow]:
    """All that attempts of these tasks left behind, a page of tasks at a time: in memory are some rows only."""
    for first in range(0, len(tasks), PAGE):
        after: tuple[int, int] | None = None
        while rows := store.outputs(job, tasks[first : first + PAGE], after, PAGE):
            yield from rows
            if len(rows) < PAGE:
                break
            after = (rows[-1].task, rows[-1].attempt)


def counted_outputs(
    store: Store, job: int, counted: Sequence[tuple[int, int]], most_bytes: int
) -> tuple[dict[int, bytes], int]:
    """What these attempts (task, attempt) left behind, by task, and how many of them were read: more than `most_bytes`
    are not gathered."""
    found: dict[int, bytes] = {}
    size = 0
    for first in range(0, len(counted), PAGE):
        if size > most_bytes:
            return found, first
        attempts = {task: attempt for task, attempt in counted[first : first + PAGE] if task not in found}
        for row in output_rows(store, job, list(attempts)):
            if attempts[row.task] == row.attempt:
                found[row.task] = row.data
                size += len(row.data)
    return found, len(counted)


def output_files(data: bytes) -> list[list[Any]]:
    """The files among what an attempt left behind: [name, sha256, size, mode] each."""
    more = msgspec.msgpack.decode(data)[3]
    return list((more or {}).get("outputs") or ())
