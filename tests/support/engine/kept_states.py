"""States with a log in which much happened, snapshots and all: kept in a store as a server would."""

from __future__ import annotations

import hashlib

import msgspec

from windfall.core.engine import Engine
from windfall.core.records import Record
from windfall.core.state.snapshot import save
from windfall.core.state.state import State
from windfall.drivers.log_rows import HEARTBEAT, log_row
from windfall.store.contract import Batch, ChunkRow, JobRow, OutputRow, Store

SPEC = b'{"name": "kept", "command": ["true", "{}"], "source": {"kind": "lines"}}'
BLOB = b"a file of a job" * 1000
BLOB_NAME = hashlib.sha256(BLOB).hexdigest()
OUTPUT = msgspec.msgpack.encode([b"out", b"", b"", None])


def keep(store: Store, records: list[Record], snapshots: tuple[float, ...] = (0.4, 0.8), prune: bool = False) -> State:
    """Append records with all that belongs to their jobs; snapshots after these shares of them. The last state."""
    state, engine = State(), Engine()
    at = {int(len(records) * share) for share in snapshots}
    batch = Batch()
    for number, record in enumerate(records):
        engine.apply(state, record)
        batch.records.append(log_row(record))
        if number in at or number == len(records) - 1:
            store.append(batch)
            batch = Batch()
        if number in at:
            store.save_snapshot(state.seq, save(state))
    if prune:
        store.prune(len(records) + 1, (HEARTBEAT,))
    for bag in state.bags.values():
        batch.jobs.append(JobRow(bag.number, SPEC))
        batch.outputs.append(OutputRow(bag.number, 0, 1, OUTPUT))
        if not bag.rules.like and bag.total:
            batch.chunks.append(ChunkRow(bag.number, 0, bag.total, 0, "lines", b"chunk"))
    store.append(batch)
    store.put_blob(BLOB_NAME, BLOB)
    store.add_token("id1", "hash", "worker", "a name, ä", 12.5)
    store.remember("id", "abc123")
    return state
