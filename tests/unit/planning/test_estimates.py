"""Run times per class of tasks: quantiles and means from finished and from running attempts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from windfall.planning.estimates import GUESSED, MAX_SAMPLES, RECORDED, UNKNOWN, Estimates, Record, prior_of


def learned(times, speed=1.0):
    estimates = Estimates()
    for seconds in times:
        estimates.learn("fit", float(seconds), speed)
    return estimates


def test_nothing_is_said_of_a_class_that_was_never_seen():
    assert Estimates().quantile("fit", 0.9) is None
    assert Estimates().mean("fit") is None


def test_a_guess_is_the_mean_until_samples_come():
    estimates = Estimates()
    estimates.guess("fit", 100.0)
    assert estimates.mean("fit") == pytest.approx(100.0)
    # A log-normal law with that mean and the prior spread has its median below.
    assert estimates.quantile("fit", 0.5) == pytest.approx(100.0 * math.exp(-(GUESSED.spread**2) / 2))


@pytest.mark.parametrize("tasks", [5, 40, 400])
def test_what_is_unknown_of_a_law_is_shared_by_all_tasks_that_are_to_keep_a_quantile(tasks):
    """Drawn from the law of what is not known: all tasks of a job keep the quantile with the chance asked for."""
    estimates, freedom, count = Estimates(), GUESSED.weight + 1.0, 2.0
    estimates.guess("fit", 1.0)
    q = estimates.quantile_of_each("fit", 0.9, tasks)
    assert 0.9 < q < 0.9 ** (1 / tasks), "independent tasks would need a higher one"
    longest = estimates.quantile("fit", q)
    rng = np.random.default_rng(7)
    fitted = GUESSED.spread * math.sqrt(GUESSED.weight / freedom)
    spreads = fitted * np.sqrt(freedom / rng.chisquare(freedom, 4000))
    centres = -(GUESSED.spread**2) / 2 + rng.normal(size=4000) * spreads / np.sqrt(count)
    logs = centres[:, None] + spreads[:, None] * rng.normal(size=(4000, tasks))
    assert (logs.max(axis=1) <= math.log(longest)).mean() == pytest.approx(0.9, abs=0.02)


def test_of_many_samples_and_of_one_task_the_quantile_is_that_of_independent_tasks():
    many = learned([10.0 + place for place in range(60)])
    assert many.quantile_of_each("fit", 0.9, 40) == pytest.approx(0.9 ** (1 / 40))
    guessed = Estimates()
    guessed.guess("fit", 10.0)
    assert guessed.quantile_of_each("fit", 0.9, 1) == 0.9


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
    estimates = learned([1000.0] * MAX_SAMPLES + [10.0] * MAX_SAMPLES)
    assert len(estimates.classes["fit"].seconds) == MAX_SAMPLES
    assert estimates.quantile("fit", 0.99) == pytest.approx(10.0)


def begun(times, at_s):
    """What is known of tasks that all began at once, this many seconds later."""
    estimates = learned([seconds for seconds in times if seconds <= at_s])
    estimates.running["fit"] = [at_s] * sum(seconds > at_s for seconds in times)
    return estimates


@pytest.mark.parametrize("count", [40, 400])
def test_the_short_ones_end_first_and_that_does_not_make_the_others_short(count):
    times = np.random.default_rng(4).lognormal(5.0, 0.5, count).tolist()
    half = float(np.median(times))
    deaf, estimates = learned([seconds for seconds in times if seconds <= half]), begun(times, half)
    true = float(np.quantile(times, 0.8))
    assert deaf.quantile("fit", 0.8) < 0.75 * true
    assert estimates.quantile("fit", 0.8) == pytest.approx(true, rel=0.25)
    assert deaf.mean("fit") < 0.75 * np.mean(times)
    assert estimates.mean("fit") == pytest.approx(np.mean(times), rel=0.2)


def test_when_all_have_ended_the_product_limit_is_the_quantile_of_the_samples():
    times = np.random.default_rng(5).exponential(60.0, 200).tolist()
    ended, limited = learned(times), begun(times, 0.0)
    limited.learn("fit", times[0])
    for seconds in times[1:]:
        limited.learn("fit", seconds)
    limited.running["fit"] = [1e-9] * 50
    assert limited.quantile("fit", 0.9) == pytest.approx(ended.quantile("fit", 0.9), rel=1e-6)


def test_what_is_learned_after_a_question_counts_in_the_next_answer():
    estimates = learned([10.0, 12.0])
    before = estimates.quantile("fit", 0.9)
    estimates.learn("fit", 100.0)
    assert estimates.quantile("fit", 0.9) > before


def test_a_guess_is_worth_more_than_the_first_to_end():
    estimates = learned([10.0])
    estimates.guess("fit", 100.0)
    assert estimates.quantile("fit", 0.5) > 40.0


@pytest.mark.parametrize("guess_s", [None, 5e-324, 3.0, 1e9])
@pytest.mark.parametrize("samples", [[], [1e-6], [1e9], [1e-6, 1e9], [1e-6] * 3 + [1e9] * 3])
def test_run_times_at_the_bounds_of_what_is_taken_give_finite_estimates(samples, guess_s):
    if not samples and guess_s is None:
        return
    for running in ([], [5e-324, 1e9]):
        for q in (5e-324, 0.5, 0.95, 0.9999, 1.0 - 1e-16):
            estimates = learned(samples)
            if guess_s is not None:
                estimates.guess("fit", guess_s)
            estimates.running["fit"] = running
            assert 0.0 < estimates.mean("fit") <= 1e12
            for elapsed_s in (0.0, 5e-324, 1e9):
                assert elapsed_s <= estimates.quantile("fit", q, elapsed_s=elapsed_s) <= 1e12


def test_a_spread_that_is_told_takes_the_place_of_the_usual_one():
    """Exact run times had the slack of a spread of 0.15: a second machine was rented for nothing."""
    assert prior_of(None, is_recorded=True, is_guessed=True) == RECORDED
    assert prior_of(None, is_recorded=False, is_guessed=True) == GUESSED
    assert prior_of(None, is_recorded=False, is_guessed=False) == UNKNOWN
    needs = []
    for told in (0.0, 0.1, None, 0.8):
        record = Record(guess_s=100.0, prior=prior_of(told, is_recorded=True, is_guessed=True))
        needs.append(Estimates({"c": record}).quantile("c", 0.99) or 0.0)
    assert needs[0] == pytest.approx(100.0, rel=1e-4)
    assert needs == sorted(needs) and needs[3] > 2.0 * needs[2]


def test_run_times_that_differ_from_what_was_told_are_believed():
    record = Record(guess_s=100.0, prior=prior_of(0.0, is_recorded=True, is_guessed=True))
    estimates = Estimates({"c": record})
    for seconds in (50.0, 200.0) * 8:
        estimates.learn("c", seconds)
    assert (estimates.quantile("c", 0.95) or 0.0) > 200.0
