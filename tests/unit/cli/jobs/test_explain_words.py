"""How `explain` words the end of an attempt."""

from __future__ import annotations

import pytest

from windfall.cli.jobs.explain import _ended, _step, waiting_lines


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"cause": "done", "exit_code": 0, "run_s": 12.34, "rss_bytes": 64 << 20}, "done after 12.3 s, peak 64 MB"),
        ({"cause": "exit", "exit_code": 3, "run_s": 2.0, "rss_bytes": 0}, "exit code 3 after 2.00 s"),
        ({"cause": "exit", "exit_code": 3, "run_s": 2.0}, "exit code 3 after 2.00 s"),
        (
            {"cause": "preempted", "exit_code": None, "run_s": 0.0, "text": "not begun: another host is idle"},
            "given back, not begun: another host is idle",
        ),
        (
            {"cause": "preempted", "exit_code": None, "run_s": 0, "text": "the process that started it has ended"},
            "worker was stopped: the process that started it has ended",
        ),
    ],
)
def test_time_and_peak_memory_are_told_where_they_are_known(step, words):
    assert _ended(step) == words


def test_what_an_owner_asked_for_is_told_in_words():
    assert _step({"t": 0.0, "what": "JobRetried", "reason": ""}).endswith("  told to try again")
    assert _step({"t": 0.0, "what": "JobCancelled", "reason": "too late"}).endswith("  cancelled: too late")


def test_the_nearest_miss_is_left_out_where_it_only_repeats_the_reason():
    reason = {"hosts": 1, "clause": "Host.Memory >= 9", "detail": "largest host: 4 MB; asked for: 9 MB"}
    waiting = {"because": "none", "reasons": [reason], "nearest": f"a: {reason['detail']}", "pools": [], "try": []}
    assert not any("nearest" in line for line in waiting_lines(waiting))
    several = waiting | {"reasons": [reason | {"hosts": 2}]}
    assert "  nearest miss: a: largest host: 4 MB; asked for: 9 MB" in waiting_lines(several)
