"""The small version of `make chaos`: each fault of a server on SQLite and on PostgreSQL once."""

from __future__ import annotations

import os

import pytest

from tests.e2e.server.chaos import campaign
from tests.support.server import postgres

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("seed", "more"), [(3, set()), (4, {"crash database", "cut database"})], ids=["sqlite", "postgres"]
)
def test_each_fault_once_loses_nothing_and_counts_nothing_twice(tmp_path, seed, more):
    if more:
        postgres.require()
    faults = {"kill server", "stop server", "kill worker", "stop worker", "partition", "kill all"} | more
    if os.geteuid() == 0:
        faults |= {"full disk"} | (set() if more else {"read-only"})
    counts = campaign(tmp_path, len(faults), seed).counts
    assert all(counts[f"{fault}, PostgreSQL" if more else fault] == 1 for fault in faults) and counts["results"] > 0
    assert counts["results lost"] == counts["results twice"] == 0
