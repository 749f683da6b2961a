"""Cores that share one queue: how many tasks of uncertain length they begin in time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.planning.bags.shared_queue import SPREADS, Core, RunTimes, begun_in_time, run_times

MINUTE = 60.0


def simulated(cores: int, room_s: float, law: RunTimes, runs: int = 400) -> np.ndarray:
    """Tasks begun within `room_s` by idle cores, run by run."""
    rng, found = np.random.default_rng(1), []
    for _ in range(runs):
        lengths = rng.lognormal(math.log(law.mean_s) - law.sigma**2 / 2, law.sigma, size=(cores, 40))
        found.append(cores + int((lengths.cumsum(axis=1) <= room_s).sum()))
    return np.array(found)


def test_a_log_normal_law_is_found_from_its_mean_and_its_quantile():
    mean_s = 20 * MINUTE * math.exp(0.125)
    law = run_times(mean_s, 20 * MINUTE * math.exp(0.5 * 1.6448536), 0.95)
    assert law.sigma == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize("room_min", [5, 15, 21, 40, 90, 180])
def test_what_is_counted_on_is_begun_in_most_runs(room_min):
    law = RunTimes(22.66 * MINUTE, 0.5)
    counted = begun_in_time([Core(0.0, False, room_min * MINUTE)] * 26, law)
    begun = simulated(26, room_min * MINUTE, law)
    assert (begun >= math.floor(counted)).mean() > 0.7
    assert counted > begun.mean() - 2.5 * SPREADS * begun.std() - 1.0


def test_a_core_that_is_free_too_late_begins_nothing():
    law = RunTimes(600.0, 0.5)
    assert begun_in_time([Core(100.0, False, 50.0), Core(100.0, True, 0.0)], law) == 0.0


@given(room=st.floats(0.0, 1e5), more=st.floats(0.0, 1e5), busy=st.booleans(), sigma=st.floats(0.01, 1.5))
def test_more_time_never_begins_fewer_tasks_on_average(room, more, busy, sigma):
    law = RunTimes(900.0, sigma)
    few, many = (begun_in_time([Core(300.0, busy, at)] * 400, law) for at in (room, room + more))
    assert many >= few - 60.0  # the spread of 400 cores
