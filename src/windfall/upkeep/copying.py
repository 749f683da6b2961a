"""A state copied from one place to another and compared, row by row and by a replay. Touches both."""

from __future__ import annotations

from hashlib import sha256

import msgspec
from msgspec import Struct

from windfall.store import open_store
from windfall.store.contract import StoreCorrupt
from windfall.store.filling import everything, fill, refuse_taken
from windfall.store.location import StateLocation
from windfall.store.view import TABLES, View, open_view, require_state
from windfall.upkeep.checking import Findings, check


class Copied(Struct):
    """What was copied: rows by table, and the check of the copy."""

    rows: dict[str, int]
    findings: Findings


def move(source: StateLocation, target: StateLocation, blobs: str = "") -> Copied:
    """Copy a state on which no server runs, and let none start meanwhile. StoreInUse if one runs."""
    require_state(source)
    held = open_store(source)
    try:
        return copy(source, target, blobs)
    finally:
        held.close()


def copy(source: StateLocation, target: StateLocation, blobs: str = "") -> Copied:
    """Copy a state as it is now, while a server goes on with it or none runs. StoreCorrupt if the copy differs.

    Files go to the copy itself, or to the object store at `blobs`, wherever they were before.
    """
    refuse_taken(target)
    view = open_view(source)
    try:
        filling = everything(view)
        fill(filling, target, blobs)
        sums = {table: _sum(view, table) for table in TABLES}
    finally:
        view.close()
    made = open_view(target)
    try:
        for table, summed in sums.items():
            if _sum(made, table) != summed:
                raise _differs(target, f"table {table}")
        if [name for name, _ in made.blobs()] != filling.blobs:
            raise _differs(target, "its files")
        if [snapshot for _, snapshot in made.snapshots()] != filling.snapshots:
            raise _differs(target, "its snapshots")
        findings = check(made)
    finally:
        made.close()
    return Copied({table: count for table, (count, _) in sums.items()}, findings)


def _sum(view: View, table: str) -> tuple[int, str]:
    """Number of rows and a hash over all of them."""
    hashed = sha256()
    encode = msgspec.msgpack.Encoder().encode
    count = 0
    for row in view.rows(table):
        hashed.update(encode([bytes(value) if isinstance(value, memoryview) else value for value in row]))
        count += 1
    return count, hashed.hexdigest()


def _differs(target: StateLocation, what: str) -> StoreCorrupt:
    return StoreCorrupt(f"{target} is not what was copied: {what} differ", hint="check the disk, and copy again")
