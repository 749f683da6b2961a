"""The shares of a deadline: what is left goes to the longest path, and nobody gets more than that."""

import pytest
from snakemake_executor_plugin_windfall.deadlines import LEAST_S, UNKNOWN_S, RunTimes, longest_paths, share_s

AFTER = {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}
SECONDS = {"a": 10.0, "b": 5.0, "c": 50.0, "d": 40.0}


def test_the_longest_path_counts():
    paths = longest_paths(AFTER, AFTER.__getitem__, SECONDS.__getitem__)
    assert paths == {"a": 100.0, "b": 45.0, "c": 90.0, "d": 40.0}


def test_jobs_in_a_row_that_use_up_their_shares_end_at_the_deadline():
    left_s = 1000.0
    paths = longest_paths(AFTER, AFTER.__getitem__, SECONDS.__getitem__)
    for job in "acd":
        left_s -= share_s(left_s, SECONDS[job], paths[job])
    assert left_s == pytest.approx(0.0)


def test_time_that_is_saved_goes_to_those_after_it():
    early, late = (share_s(left_s, SECONDS["c"], 90.0) for left_s in (950.0, 900.0))
    assert early > late


def test_a_deadline_that_is_over_leaves_the_least():
    assert share_s(-5.0, 1.0, 2.0) == LEAST_S


def test_measured_run_times_count_before_those_that_rules_say():
    times = RunTimes()
    assert times.expected_s("rule", None) == UNKNOWN_S
    assert times.expected_s("rule", 600.0) == 600.0
    times.add("rule", 2.0)
    times.add("rule", 4.0)
    assert times.expected_s("rule", 600.0) == times.measured_s("rule") == 3.0


def test_a_long_chain_needs_no_deep_stack():
    paths = longest_paths([0], lambda n: [n + 1] if n < 20_000 else [], lambda n: 1.0)
    assert paths[0] == 20_001.0
