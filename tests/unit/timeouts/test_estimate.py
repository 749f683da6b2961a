"""Learning a law from censored latencies: Kaplan-Meier, rho, likelihood, the blend, and data that mean nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from windfall.errors import BadInput
from windfall.timeouts.best import best_timeout
from windfall.timeouts.fitting.dependence import Observations, neighbour_correlation, waiting_at_submission
from windfall.timeouts.fitting.estimate import fit_blend, fit_laws, kolmogorov
from windfall.timeouts.fitting.report import analyse
from windfall.timeouts.fitting.sample import make_sample, outlier_share, survival
from windfall.timeouts.laws.closed import Exponential, Gaussian, LogNormal, Pareto, Uniform, Weibull
from windfall.timeouts.laws.empirical import best_of_sample, empirical_process
from windfall.timeouts.laws.numeric import EGEE_LIKE
from windfall.timeouts.process import Process


def drawn(law, rho, count, seed, cut_at=10_000.0):
    rng = np.random.default_rng(seed)
    values = np.asarray(law.ppf(rng.random(count)))
    lost = (rng.random(count) < rho) | (values > cut_at)
    return np.where(lost, cut_at, values), lost


def test_kaplan_meier_gives_the_textbook_curve():
    # Freireich's 6-MP arm, the usual example: months of remission, + marks the censored.
    months = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
    censored = [0, 0, 0, 1, 0, 1, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1]
    steps = survival(make_sample(months, censored))
    assert steps.times.tolist() == [6, 7, 10, 13, 16, 22, 23]
    assert steps.survive == pytest.approx([0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448], abs=5e-4)


def test_without_censoring_the_curve_is_the_share_of_larger_values():
    steps = survival(make_sample([3.0, 1.0, 2.0, 2.0]))
    assert steps.survive.tolist() == [0.75, 0.25, 0.0]


def test_leaving_censored_jobs_out_would_bias_towards_the_fast_hosts():
    values, lost = drawn(LogNormal(5, 1.2), 0.0, 4000, 1, cut_at=200.0)
    with_them = survival(make_sample(values, lost))
    without = survival(make_sample(values[~lost]))
    true = float(LogNormal(5, 1.2).sf(150.0))
    index = [int(np.searchsorted(steps.times, 150.0)) - 1 for steps in (with_them, without)]
    assert float(with_them.survive[index[0]]) == pytest.approx(true, abs=0.02)
    assert float(without.survive[index[1]]) < true - 0.1


def test_rho_with_a_single_cut_off_has_the_exact_binomial_interval():
    values = np.concatenate([np.arange(1.0, 96.0), np.full(5, 1000.0)])
    share = outlier_share(make_sample(values, values == 1000.0))
    assert share.value == pytest.approx(0.05)
    assert (share.low, share.high) == pytest.approx((0.01643, 0.11284), abs=1e-4)


def test_rho_of_a_sample_without_losses_still_has_an_upper_bound():
    share = outlier_share(make_sample(np.arange(1.0, 101.0)))
    assert (share.value, share.low) == (0.0, 0.0)
    assert share.high == pytest.approx(1 - 0.025 ** (1 / 100), rel=1e-6)


def test_one_late_return_after_the_cut_off_does_not_make_the_losses_vanish():
    values = np.concatenate([np.arange(1.0, 91.0), np.full(9, 1000.0), [1001.0]])
    share = outlier_share(make_sample(values, values == 1000.0))
    assert share.value == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("law", "rho"),
    [
        (Exponential(0.01), 0.0),
        (LogNormal(5, 1.2), 0.05),
        (Pareto(100, 1.5), 0.0),
        (Weibull(0.6, 100), 0.05),
        (Gaussian(300, 60), 0.05),
        (Uniform(10, 90), 0.1),
    ],
)
def test_maximum_likelihood_finds_the_law_and_its_parameters(law, rho):
    values, lost = drawn(law, rho, 3000, 11)
    fits = fit_laws(make_sample(values, lost))
    own = next(fit for fit in fits if fit.law.name == law.name)
    assert own.aic <= fits[0].aic + 4
    assert own.p_value > 0.05
    assert own.rho == pytest.approx(rho, abs=0.015)
    for name, value in law.params().items():
        assert own.law.params()[name] == pytest.approx(value, rel=0.15)


def test_censoring_halfway_hardly_moves_the_likelihood_estimate():
    values, lost = drawn(LogNormal(5, 1.2), 0.0, 4000, 3, cut_at=150.0)
    own = next(fit for fit in fit_laws(make_sample(values, lost), ("lognormal",)))
    assert own.law.params()["mu"] == pytest.approx(5, abs=0.15)
    assert own.law.params()["sigma"] == pytest.approx(1.2, abs=0.12)


def test_the_blend_fits_what_no_plain_law_does():
    values, lost = drawn(EGEE_LIKE, 0.025, 2137, 7)
    sample = make_sample(values, lost)
    statistic, n, p = kolmogorov(sample, fit_blend(sample), outlier_share(sample).value)
    assert n == 1000
    assert statistic < 1.36
    assert p > 0.05
    plain = [fit for fit in fit_laws(sample) if fit.law.name != "blend"]
    assert max(fit.p_value for fit in plain) < 1e-6


def test_an_empirical_law_gives_equation_6_on_its_steps():
    values = np.array([1.0, 2.0, 4.0, 100.0])
    process = empirical_process(survival(make_sample(values)))
    assert float(process.expected(2.0)) == pytest.approx((1 + 2 + 2 + 2) / 4 / 0.5)
    assert process.expected_without() == pytest.approx(values.mean())
    # Giving up at 1, 2, 4, 100 costs 4, 3.5, 3.67 and 26.75.
    assert best_timeout(process).timeout_s == 2.0
    assert best_timeout(process).expected_s == pytest.approx(3.5)


@pytest.mark.parametrize(("law", "rho"), [(LogNormal(5, 1.2), 0.03), (EGEE_LIKE, 0.025), (Uniform(100, 300), 0.05)])
def test_the_timeout_of_a_sample_is_nearly_as_good_as_that_of_its_law(law, rho):
    process = Process(law, rho)
    best = best_timeout(process)
    for seed in range(5):
        learned = best_of_sample(make_sample(*drawn(law, rho, 2000, seed)))
        assert learned.kind == "finite"
        assert float(process.expected(learned.timeout_s)) <= 1.03 * best.expected_s
        assert learned.expected_s == pytest.approx(best.expected_s, rel=0.1)


def test_a_light_tail_without_losses_advises_no_timeout():
    assert best_of_sample(make_sample(drawn(Gaussian(300, 50), 0.0, 1000, 2)[0])).kind == "none"


def test_a_million_latencies_and_their_first_part_agree():
    values = np.random.default_rng(5).lognormal(5, 1.2, 300_000)
    rounded, exact = best_of_sample(make_sample(values)), best_of_sample(make_sample(values[:200_000]))
    assert rounded.expected_s == pytest.approx(exact.expected_s, rel=0.01)
    assert float(survival(make_sample(values)).events[-1]) == 300_000


@pytest.mark.parametrize(
    ("values", "censored", "message"),
    [
        ([], None, "no observations"),
        ([1.0, math.nan], None, "not a finite"),
        ([1.0, math.inf], None, "not a finite"),
        ([1.0, -2.0], None, "negative"),
        ([5.0], None, "1 completed observation cannot"),
        ([5.0, 6.0], [True, True], "all 2 observations are censored"),
        ([5.0, 6.0], [False, True], "1 completed observation cannot"),
        ([5.0, 6.0], [True], "censoring flags"),
    ],
)
def test_data_that_mean_nothing_are_refused_with_the_reason(values, censored, message):
    with pytest.raises(BadInput, match=message):
        make_sample(values, censored)


def test_one_value_seen_many_times_has_an_answer_but_no_law():
    report = analyse(Observations(np.full(50, 7.0), np.zeros(50, dtype=bool)))
    assert report.best.kind == "none"
    assert report.laws == []


def test_independent_latencies_raise_no_alarm_and_queue_waits_do():
    values = np.random.default_rng(1).lognormal(5, 1, 2000)
    assert abs(neighbour_correlation(values)) < 0.1
    assert neighbour_correlation(np.sort(values)) == 0.0
    assert neighbour_correlation(np.repeat(values[:200], 10)) > 0.5


def test_the_load_at_submission_counts_those_still_waiting():
    submitted, waits = np.array([0.0, 1.0, 2.0, 20.0]), np.array([10.0, 10.0, 0.0, 0.0])
    assert waiting_at_submission(submitted, waits).tolist() == [0, 1, 2, 0]


def queue_log(count=3000, seed=4):
    """Waits of a queue whose load swings slowly: zero when idle, long when busy, and no better after resubmission."""
    rng = np.random.default_rng(seed)
    submitted = np.cumsum(rng.exponential(30, count))
    busy = np.sin(submitted / 2000) > 0
    free_again = np.ceil(submitted / (math.pi * 2000)) * math.pi * 2000
    return Observations(np.where(busy, free_again - submitted, 0.0), np.zeros(count, bool), None, submitted)


def test_a_queue_is_recognised_and_its_zeros_are_not_taken_for_luck():
    report = analyse(queue_log())
    assert {"mass-at-zero", "dependent"} <= {warning.code for warning in report.warnings}
    assert report.formula.kind == "zero"
    assert report.basis == "replay"
    # Every job of this queue starts when the load ends, whatever it does.
    assert report.best.kind == "none"
    assert len(report.conditioned.groups) >= 2


def test_an_independent_sample_is_not_replayed():
    values, lost = drawn(EGEE_LIKE, 0.025, 1000, 3)
    report = analyse(Observations(values, lost))
    assert report.basis == "sample"
    assert report.conditioned is None
