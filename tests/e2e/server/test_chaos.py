"""The small version of `make chaos`: each fault of the server on SQLite once."""

from __future__ import annotations

import os

import pytest

from tests.e2e.server.chaos import campaign

pytestmark = pytest.mark.slow


def test_each_fault_once_loses_nothing_and_counts_nothing_twice(tmp_path):
    number = 8 if os.geteuid() == 0 else 6
    counts = campaign(tmp_path, number, seed=3).counts
    faults = {"kill server", "stop server", "kill worker", "stop worker", "partition", "kill all"}
    assert all(counts[fault] == 1 for fault in faults) and counts["results"] > 0
    assert counts["results lost"] == counts["results twice"] == 0
