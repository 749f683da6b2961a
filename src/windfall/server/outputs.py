"""What attempts left behind, as the store keeps it. Touches the store."""

from __future__ import annotations

from typing import Any

import msgspec

from windfall.store.contract import OutputRow, Store


def output_rows(store: Store, job: int, tasks: list[int]) -> list[OutputRow]:
    """All that attempts of these tasks left behind."""
    found: list[OutputRow] = []
    after: tuple[int, int] | None = None
    while tasks:
        rows = store.outputs(job, tasks, after, 1000)
        found += rows
        if len(rows) < 1000:
            break
        after = (rows[-1].task, rows[-1].attempt)
    return found


def output_files(data: bytes) -> list[list[Any]]:
    """The files among what an attempt left behind: [name, sha256, size, mode] each."""
    more = msgspec.msgpack.decode(data)[3]
    return list((more or {}).get("outputs") or ())
