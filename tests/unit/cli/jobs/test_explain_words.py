"""How `explain` words the end of an attempt."""

from __future__ import annotations

import pytest

from windfall.cli.jobs.explain import _ended


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"cause": "done", "exit_code": 0, "run_s": 12.34, "rss_bytes": 64 << 20}, "done after 12.3 s, peak 64 MB"),
        ({"cause": "exit", "exit_code": 3, "run_s": 2.0, "rss_bytes": 0}, "exit code 3 after 2.00 s"),
        ({"cause": "exit", "exit_code": 3, "run_s": 2.0}, "exit code 3 after 2.00 s"),
    ],
)
def test_time_and_peak_memory_are_told_where_they_are_known(step, words):
    assert _ended(step) == words
