"""Run times are learned, not asked for."""

from __future__ import annotations

import numpy as np
import pytest

from windfall.planning.estimates import MOST_SAMPLES, Estimates


def learned(times, speed=1.0):
    estimates = Estimates()
    for seconds in times:
        estimates.learn("fit", float(seconds), speed)
    return estimates


def test_nothing_is_said_of_a_class_that_was_never_seen():
    assert Estimates().quantile("fit", 0.9) is None
    assert Estimates().mean("fit") is None


def test_a_guess_is_the_median_until_samples_come():
    estimates = Estimates()
    estimates.guess("fit", 100.0)
    assert estimates.quantile("fit", 0.5) == pytest.approx(100.0)


def test_a_guess_fades_as_samples_come():
    estimates = learned([10.0] * 30)
    estimates.guess("fit", 1000.0)
    assert estimates.quantile("fit", 0.5) < 15.0


def test_times_are_corrected_for_the_speed_of_the_machine():
    estimates = learned([100.0] * 50, speed=2.0)
    assert estimates.quantile("fit", 0.5, speed=4.0) == pytest.approx(50.0)


def test_a_demanding_quantile_is_wider_where_less_is_known():
    few, more = learned([90.0, 110.0]), learned([90.0, 110.0] * 8)
    assert few.quantile("fit", 0.95) > more.quantile("fit", 0.95) > 100.0


def test_many_samples_speak_for_themselves():
    times = np.random.default_rng(1).exponential(60.0, 400)
    assert learned(times).quantile("fit", 0.9) == pytest.approx(np.quantile(times, 0.9), rel=0.03)


def test_a_task_that_has_lasted_is_expected_to_last():
    estimates = learned(np.random.default_rng(2).lognormal(4.0, 1.0, 400))
    assert estimates.quantile("fit", 0.5, elapsed_s=200.0) > 200.0
    assert estimates.quantile("fit", 0.5, elapsed_s=1e6) >= 1e6


def test_the_promise_of_a_quantile_is_kept_from_the_second_sample_on():
    rng = np.random.default_rng(3)
    kept = 0
    for _ in range(400):
        times = rng.lognormal(5.0, 0.5, 6)
        kept += times[5] <= learned(times[:5]).quantile("fit", 0.9)
    assert 0.86 <= kept / 400 <= 0.97


def test_only_the_newest_samples_are_kept():
    estimates = learned([1000.0] * MOST_SAMPLES + [10.0] * MOST_SAMPLES)
    assert len(estimates.classes["fit"].seconds) == MOST_SAMPLES
    assert estimates.quantile("fit", 0.99) == pytest.approx(10.0)
