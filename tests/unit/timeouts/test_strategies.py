"""Resubmit, burst and delayed resubmission as one decision: formulas against play."""

from __future__ import annotations

import numpy as np
import pytest

from windfall.errors import BadInput
from windfall.timeouts.best import best_timeout
from windfall.timeouts.laws.closed import Gaussian, LogNormal
from windfall.timeouts.process import Process
from windfall.timeouts.strategies import Strategy, best_strategies, latency_and_jobs, score


def play(process, strategy, count, seed):
    """Submit, period by period, whatever the strategy says; the first copy back ends the job."""
    rng = np.random.default_rng(seed)
    times, jobs = np.empty(count), np.empty(count)
    kept = strategy.every_s * strategy.keep
    for index in range(count):
        first, period = np.inf, 0
        while period * strategy.every_s < first:
            latency = process.law.ppf(rng.random(strategy.copies)) + process.run_s
            back = (rng.random(strategy.copies) >= process.rho) & (latency <= kept)
            if back.any():
                first = min(first, period * strategy.every_s + float(latency[back].min()))
            period += 1
        times[index], jobs[index] = first, period * strategy.copies
    return times.mean(), jobs.mean()


@pytest.mark.parametrize(
    "strategy",
    [Strategy(1, 1, 150.0), Strategy(2, 1, 250.0), Strategy(1, 2, 90.0), Strategy(1, 3, 70.0), Strategy(2, 2, 100.0)],
)
def test_expected_time_and_jobs_agree_with_play(strategy):
    process = Process(LogNormal(5, 1.0), 0.05, run_s=20.0)
    latency, jobs = latency_and_jobs(process, strategy)
    played = play(process, strategy, 8000, 3)
    assert latency == pytest.approx(played[0], rel=0.04)
    assert jobs == pytest.approx(played[1], rel=0.04)


def test_one_copy_kept_for_one_period_is_plain_resubmission():
    process = Process(LogNormal(5, 1.2), 0.03, run_s=15.0, submit_cost_s=30.0)
    best = best_timeout(process)
    assert score(process, Strategy(1, 1, best.timeout_s)).score_s == pytest.approx(best.expected_s, rel=1e-6)


def test_cheap_jobs_favour_bursts_and_dear_jobs_do_not():
    law = LogNormal(5, 1.2)
    assert best_strategies(Process(law, 0.02, submit_cost_s=1))[0].copies == 3
    assert best_strategies(Process(law, 0.02, submit_cost_s=2000))[0].copies == 1
    assert best_strategies(Process(Gaussian(300, 20), submit_cost_s=500))[0].name in ("wait", "resubmit")


def test_what_is_beaten_in_both_is_not_on_the_frontier():
    found = best_strategies(Process(LogNormal(5, 1.2), 0.02, submit_cost_s=30))
    assert found[0].frontier
    for one in found:
        beaten = any(other.expected_s < one.expected_s and other.jobs < one.jobs for other in found)
        assert not (one.frontier and beaten)
    assert [one.score_s for one in found] == sorted(one.score_s for one in found)


def test_without_a_price_of_a_job_there_is_nothing_to_decide():
    with pytest.raises(BadInput, match="price"):
        best_strategies(Process(LogNormal(5, 1.2), 0.02))
