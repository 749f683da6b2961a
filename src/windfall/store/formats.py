"""The format of records and snapshots, and how a store remembers which it was written with. Pure.

A store keeps one row for each format: the number of the first record in it. A newer Windfall reads what an older one
wrote and adds its own row when it first writes; from then on the older one refuses the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from windfall.core.records import FORMAT as FORMAT
from windfall.store.contract import Batch, StoreCorrupt, StoreNewer

_KEY = "format "
FORMAT_KEYS = f"{_KEY}%"
"""The keys of these rows, as a pattern of SQL."""


class FormatSince(NamedTuple):
    """Records from `seq` on, and snapshots after them, are in this format."""

    seq: int
    format: int


def formats_of(rows: Iterable[tuple[str, str]], where: str) -> list[FormatSince]:
    """The formats of a store in their order, from the rows that it keeps. StoreNewer if one is not known here."""
    try:
        found = sorted(FormatSince(int(value), int(key.removeprefix(_KEY))) for key, value in rows)
    except ValueError:
        raise StoreCorrupt(
            f"{where} is damaged: it does not say which format it was written in", hint="restore a backup"
        ) from None
    newest = max((since.format for since in found), default=FORMAT)
    if newest > FORMAT:
        raise StoreNewer(
            f"{where} was written by a newer Windfall (format {newest}; this one reads formats up to {FORMAT})",
            hint="use that version or a later one (pip install --upgrade windfall), or another state: --state DIR",
        )
    return found or [FormatSince(1, 1)]  # stores made before formats were counted


def newer_than(formats: list[FormatSince], batch: Batch) -> FormatSince | None:
    """What is to be kept with the first batch that is written in a newer format than all before; else None."""
    if not batch.records or formats[-1].format >= FORMAT:
        return None
    return FormatSince(batch.records[0][0], FORMAT)


def row_since(seq: int) -> tuple[str, str]:
    """The row that says: from record `seq` on, what is written is in today's format."""
    return row_of(FormatSince(seq, FORMAT))


def row_of(since: FormatSince) -> tuple[str, str]:
    return f"{_KEY}{since.format}", str(since.seq)


def format_at(formats: Iterable[tuple[int, int]], seq: int) -> int:
    """The format of record `seq`, and of a snapshot that was made after it."""
    return max((format_ for since, format_ in formats if since <= seq), default=1)
