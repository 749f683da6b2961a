"""How much the worker fetches ahead, how long it waits, how it backs off."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis.strategies import floats, integers

from windfall.worker import pace

DURATIONS = floats(0, 1e6, allow_nan=False)


def test_nothing_is_fetched_ahead_before_a_task_has_ended():
    assert pace.want(slots=4, held=0, mean_s=None) == 4
    assert pace.want(slots=4, held=4, mean_s=None) == 0


def test_tasks_of_a_second_or_more_are_not_fetched_ahead():
    assert pace.want(slots=4, held=4, mean_s=1.0) == 0


def test_short_tasks_are_fetched_for_a_fraction_of_a_second():
    assert pace.want(slots=2, held=0, mean_s=0.001) == 2 + 2 * 600


@given(slots=integers(1, 4096), held=integers(1, 10**6), mean_s=DURATIONS)
def test_it_never_holds_more_than_its_slots_and_the_ready_limit(slots, held, mean_s):
    want = pace.want(slots, held, mean_s)
    assert want >= 0
    assert held + want <= max(held, slots * (1 + pace.MAX_READY_PER_SLOT) + 1)


@given(slots=integers(1, 100), shorter_s=DURATIONS, longer_s=DURATIONS)
def test_longer_tasks_never_make_it_want_more(slots, shorter_s, longer_s):
    shorter_s, longer_s = sorted((shorter_s, longer_s))
    assert pace.want(slots, 0, longer_s) <= pace.want(slots, 0, shorter_s)


@given(mean_s=DURATIONS)
def test_a_runner_gets_at_least_the_one_that_it_runs(mean_s):
    assert 1 <= pace.hand_ahead(mean_s) <= 128


@given(in_hand=integers(0, 500), mean_s=DURATIONS)
def test_no_slot_runs_dry_while_the_agent_looks_away(in_hand, mean_s):
    assert pace.pause_s(in_hand, mean_s) <= max(0.4 * in_hand * max(mean_s, 30e-6), 0)


@given(slots=integers(1, 4096), held=integers(1, 10**6), mean_s=DURATIONS)
def test_exchanges_are_at_most_a_quarter_of_the_held_work_apart(slots, held, mean_s):
    gap_s = pace.gap_s(slots, held, mean_s)
    assert pace.GAP_S <= gap_s <= max(pace.GAP_S, min(pace.BUSY_GAP_S, held * mean_s / slots / 4))
    assert pace.gap_s(slots, held, None) == pace.GAP_S


def test_a_worker_that_holds_nothing_reports_and_asks_at_once():
    assert pace.gap_s(4, 0, 0.001) == pace.gap_s(4, 0, 30.0) == pace.gap_s(4, 0, None) == 0.0


def test_a_task_that_outlasts_the_mean_changes_it_at_once():
    durations = pace.Durations()
    assert durations.mean_s(0.5) is None
    for _ in range(100):
        durations.add(0.001)
    assert pace.want(1, 1, durations.mean_s(0.0)) > 100
    assert pace.want(1, 1, durations.mean_s(longest_running_s=30.0)) == 0


def test_the_first_long_task_is_known_to_be_long_before_it_ends():
    assert pace.Durations().mean_s(longest_running_s=5.0) == 5.0


def test_an_answer_is_held_briefly_while_results_are_about_to_come():
    assert pace.wait_s(held=3, mean_s=0.01, next_s=10) < 0.1
    assert pace.wait_s(held=0, mean_s=0.01, next_s=10) == 8.0
    assert pace.wait_s(held=3, mean_s=60.0, next_s=10) == 8.0


@pytest.mark.parametrize(
    ("next_s", "busy_s", "most_s"), [(20.0, 0.0, 1.0), (20.0, 12.5, 12.5), (20.0, 125.0, 20.0), (0.5, 125.0, 1.0)]
)
def test_a_busy_worker_asks_once_a_second_or_as_seldom_as_a_server_with_many_hosts_says(next_s, busy_s, most_s):
    gap_s = pace.GAP_S
    for _ in range(12):
        gap_s = pace.quiet_gap_s(gap_s, next_s, busy_s, wanted=0)
    assert gap_s == most_s
    assert pace.quiet_gap_s(pace.GAP_S, next_s, busy_s, wanted=0) == 2 * pace.GAP_S


def test_a_worker_that_wants_tasks_asks_every_second_however_many_hosts_there_are():
    assert pace.quiet_gap_s(10.0, next_s=20.0, busy_s=12.5, wanted=1) == pace.QUIET_GAP_S


@given(seed=integers(), failures=integers(0, 100))
def test_back_off_grows_to_its_cap_and_stays_random_down_to_zero(seed, failures):
    backoff = pace.Backoff(random.Random(seed))
    pauses = [backoff.next_s() for _ in range(failures + 1)]
    assert all(0 <= pause <= min(30.0, 0.1 * 2**i) for i, pause in enumerate(pauses))
    backoff.reset()
    assert backoff.next_s() <= 0.1
