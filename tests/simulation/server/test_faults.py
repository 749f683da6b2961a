"""Whole servers in virtual time, a seed each: crashes, replacements, torn writes, full disks, a bad network.

`make faults` runs 10,000 of them; `python -m tests.simulation.server.faults SEED` runs one again.
"""

from __future__ import annotations

import gc
import logging
from collections import Counter

import pytest

from tests.support.server.simulated import live_through
from windfall.store import memory
from windfall.store.contract import Batch
from windfall.store.memory import MemoryStore

SEEDS, PER_TEST = 120, 10


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.disable()  # a tenth of the processor time went into looking at worlds that are not over yet
    yield
    gc.enable()
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(1, SEEDS, PER_TEST))
def test_nothing_is_lost_or_counted_twice(first):
    together: Counter[str] = Counter()
    for seed in range(first, first + PER_TEST):
        counts = live_through(seed)
        assert counts["start"] > 1 and counts["job"] >= 1, (seed, counts)
        together += counts
    assert together["snapshot"] and together["crash"], "without snapshots and crashes this shows little"


def test_a_seed_decides_everything():
    assert live_through(3) == live_through(3)


def found_within(seeds: int) -> bool:
    for seed in range(1, seeds + 1):
        try:
            live_through(seed)
        except (AssertionError, KeyError):
            return True
    return False


def test_a_store_that_acknowledges_and_forgets_is_found(monkeypatch):
    kept = MemoryStore.append

    def append(self: MemoryStore, batch: Batch) -> None:
        if batch.records and batch.records[-1][0] % 40 == 0:
            batch = Batch(batch.records[:-1], batch.chunks, [], batch.jobs)
        kept(self, batch)

    monkeypatch.setattr(MemoryStore, "append", append)
    assert found_within(5)


def test_a_store_without_epochs_is_found(monkeypatch):
    monkeypatch.setattr(memory, "check_epoch", lambda ours, stored: None)
    assert found_within(30)
