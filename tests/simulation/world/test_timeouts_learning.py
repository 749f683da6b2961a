"""The resubmission process played out: the formulas hold, and a learner without a law is within 2 % of the best."""

from __future__ import annotations

import math

import numpy as np
import pytest

from windfall.lab.timeouts.learning import Pool, best_fixed, play_fixed, play_learner, turnaround
from windfall.timeouts.best import best_timeout
from windfall.timeouts.laws.closed import Exponential, Gaussian, LogNormal, Pareto, Uniform, Weibull
from windfall.timeouts.laws.numeric import EGEE_LIKE
from windfall.timeouts.process import Process

LAWS = [
    Uniform(100, 300),
    Gaussian(300, 100),
    Exponential(0.01),
    LogNormal(5, 1.2),
    Pareto(100, 2.5),
    Weibull(0.7, 100),
    EGEE_LIKE,
]


@pytest.mark.parametrize("law", LAWS, ids=[law.name for law in LAWS])
@pytest.mark.parametrize(("rho", "run_s", "cost_s"), [(0.0, 0.0, 0.0), (0.05, 20.0, 10.0)])
def test_playing_the_process_gives_its_mean_deviation_and_quantiles(law, rho, run_s, cost_s):
    process = Process(law, rho, run_s, cost_s)
    wait = float(law.ppf(0.7))
    played = process.sample(wait, 60_000, np.random.default_rng(20))
    error = played.std() / math.sqrt(len(played))
    assert abs(played.mean() - float(process.expected(wait))) < 4 * error
    assert played.std() == pytest.approx(math.sqrt(float(process.variance(wait))), rel=0.03)
    for p in (0.25, 0.5, 0.95):
        assert np.quantile(played, p) == pytest.approx(float(process.quantile(p, wait)), rel=0.03)


# Pools with outliers and a heavy tail; the learner is told neither the law nor the share of outliers.
POOLS = [
    Pool(Process(LogNormal(5, 1.2), 0.03, submit_cost_s=20)),
    Pool(Process(LogNormal(5, 1.2), 0.03)),
    Pool(Process(EGEE_LIKE, 0.025)),
    Pool(Process(Pareto(100, 1.5), 0.05, submit_cost_s=20)),
    Pool(Process(LogNormal(4, 1.6), 0.05, run_s=60)),
]


@pytest.mark.parametrize("pool", POOLS, ids=["lognormal", "lognormal-free", "egee", "pareto", "lognormal-run"])
def test_after_200_attempts_the_learner_is_within_2_percent_of_the_best_fixed_timeout(pool):
    runs = [play_learner(pool, 600, seed, warm_up=200) for seed in range(16)]
    best_s = best_timeout(pool.process).expected_s
    assert np.mean([turnaround(pool, run.waits) for run in runs]) <= 1.02 * best_s
    # What was really played agrees, within its own error.
    played = np.array([run.totals.mean() for run in runs])
    assert played.mean() <= 1.02 * best_s + 3 * played.std(ddof=1) / math.sqrt(len(played))


def test_fixed_guesses_are_worse_than_the_learner():
    for pool in POOLS:
        learned = np.mean([turnaround(pool, play_learner(pool, 600, seed, warm_up=200).waits) for seed in range(6)])
        for factor in (0.5, 2.0, 10.0):
            guess = np.array([factor * (best_fixed(pool) - pool.process.run_s)])
            assert turnaround(pool, guess) > learned


def test_the_expected_turnaround_of_a_fixed_timeout_is_what_is_played():
    pool = POOLS[0]
    played = play_fixed(pool, best_fixed(pool), 20_000, seed=1)
    exact = turnaround(pool, np.array([best_fixed(pool)]))
    assert exact == pytest.approx(best_timeout(pool.process).expected_s)
    assert abs(played.mean() - exact) < 4 * played.std() / math.sqrt(len(played))
