"""Laws of latency, the resubmission process and its best timeout: closed forms against integrals, and table 2."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, optimize, special

from windfall.errors import BadInput
from windfall.timeouts.best import best_limited, best_timeout
from windfall.timeouts.laws.closed import Exponential, Gaussian, LatencyLaw, LogNormal, Pareto, Uniform, Weibull
from windfall.timeouts.laws.numeric import EGEE_LIKE, Blend, ScipyLaw
from windfall.timeouts.process import Process

LAWS: list[LatencyLaw] = [
    Uniform(100, 300),
    Uniform(0, 50),
    Gaussian(300, 100),
    Gaussian(-50, 100),
    Exponential(0.01),
    LogNormal(5, 1.2),
    LogNormal(2, 0.3),
    Pareto(100, 1.5),
    Pareto(100, 1.0),
    Pareto(100, 2.0),
    Pareto(50, 0.7),
    Weibull(0.6, 100),
    Weibull(2.5, 100),
    EGEE_LIKE,
    ScipyLaw("gamma", (("a", 2.0), ("scale", 50.0))),
]
IDS = [f"{law.name}-{index}" for index, law in enumerate(LAWS)]


def equation_6(law: LatencyLaw, rho: float, t: float) -> float:
    """E_J as it is printed, with the integral of u f(u) done by parts on the distribution function."""
    quantiles = [float(law.ppf(p)) for p in (0.001, 0.01, 0.1, 0.5, 0.9, 0.99)]
    points = sorted({q for q in quantiles if 0 < q < t})
    area = integrate.quad(lambda u: float(law.cdf(u)), 0, t, points=points or None, limit=500)[0]
    cdf = float(law.cdf(t))
    return (t * cdf - area) / cdf + t / ((1 - rho) * cdf) - t


@pytest.mark.parametrize("law", LAWS, ids=IDS)
@pytest.mark.parametrize("rho", [0.0, 0.025, 0.5])
def test_the_expected_time_agrees_with_equation_6_integrated_numerically(law, rho):
    for p in (0.05, 0.5, 0.95):
        t = float(law.ppf(p))
        assert float(Process(law, rho).expected(t)) == pytest.approx(equation_6(law, rho, t), rel=1e-6)


@pytest.mark.parametrize("law", LAWS, ids=IDS)
def test_restricted_moments_are_integrals_of_the_survival(law):
    for p in (0.1, 0.6, 0.97):
        t = float(law.ppf(p))
        points = [q for q in law.ppf(np.array([0.0, 0.001, 0.02, 0.3])).tolist() if 0 < q < t]
        first = integrate.quad(lambda u: float(law.sf(u)), 0, t, points=points, limit=500)[0]
        second = integrate.quad(lambda u: 2 * u * float(law.sf(u)), 0, t, points=points, limit=500)[0]
        assert float(law.restricted_mean(t)) == pytest.approx(first, rel=1e-6)
        assert float(law.restricted_square(t)) == pytest.approx(second, rel=1e-6)


@pytest.mark.parametrize("law", [law for law in LAWS if math.isfinite(law.mean())])
def test_the_mean_is_the_restricted_mean_without_restriction(law):
    assert float(law.restricted_mean(math.inf)) == pytest.approx(law.mean(), rel=1e-6)


@pytest.mark.parametrize("law", LAWS, ids=IDS)
def test_quantiles_invert_the_distribution(law):
    for p in (1e-3, 0.2, 0.5, 0.9, 0.999):
        assert float(law.cdf(law.ppf(p))) == pytest.approx(p, abs=1e-6)


def test_the_uniform_law_follows_equation_10():
    a, b, rho = 100.0, 300.0, 0.1
    process = Process(Uniform(a, b), rho)
    for t in (120.0, 200.0, 299.0):
        printed = (t + a) / 2 + t * (b - t + rho * (t - a)) / ((t - a) * (1 - rho))
        assert float(process.expected(t)) == pytest.approx(printed)
    assert float(process.expected(500.0)) == pytest.approx((a + b) / 2 + 500 * rho / (1 - rho))
    assert math.isinf(float(process.expected(a)))


def test_the_lognormal_law_follows_equation_12():
    mu, sigma, rho = 5.0, 1.2, 0.03
    for t in (30.0, 150.0, 900.0):
        x = (math.log(t) - mu) / sigma
        mean = math.exp(mu + sigma**2 / 2)
        tail = math.exp(sigma * x - sigma**2 / 2) * (1 / ((1 - rho) * special.ndtr(x)) - 1)
        printed = mean * (special.ndtr(x - sigma) / special.ndtr(x) + tail)
        assert float(Process(LogNormal(mu, sigma), rho).expected(t)) == pytest.approx(printed)


def test_the_pareto_law_follows_its_printed_expectation():
    a, nu, rho = 100.0, 1.5, 0.05
    for t in (1.0, 50.0, 2000.0):
        power = ((a + t) / a) ** nu
        printed = (a + t * nu - a * power) / ((1 - nu) * (power - 1)) + t / ((1 - rho) * (power - 1))
        printed += rho / (1 - rho) * t
        assert float(Process(Pareto(a, nu), rho).expected(t)) == pytest.approx(printed, rel=1e-9)


def test_waiting_the_median_beats_waiting_for_ever_exactly_above_sigma_0_9311():
    def gain(sigma: float) -> float:
        process = Process(LogNormal(0.0, sigma))
        return float(process.expected(1.0)) - process.expected_without()

    assert optimize.brentq(gain, 0.5, 1.5) == pytest.approx(0.9311, abs=5e-5)


TABLE_2 = [
    (Uniform(100, 300), "none", "finite"),
    (Gaussian(300, 100), "none", "finite"),
    (Exponential(0.01), "any", "zero"),
    (LogNormal(5, 1.2), "finite", "finite"),
    (LogNormal(5, 0.5), "finite", "finite"),
    (LogNormal(5, 0.05), "finite", "finite"),
    (LogNormal(5, 5.0), "finite", "finite"),
    (Pareto(100, 1.5), "zero", "zero"),
    (Pareto(100, 0.8), "zero", "zero"),
    (Weibull(0.5, 100), "zero", "zero"),
    (Weibull(1, 100), "any", "zero"),
    (Weibull(2, 100), "none", "finite"),
    (ScipyLaw("expon", (("scale", 100.0),)), "any", "zero"),
    (ScipyLaw("gamma", (("a", 3.0), ("scale", 10.0))), "none", "finite"),
]


@pytest.mark.parametrize(("law", "without", "with_outliers"), TABLE_2)
def test_table_2_comes_out_as_kinds(law, without, with_outliers):
    assert best_timeout(Process(law)).kind == without
    assert best_timeout(Process(law, 0.02)).kind == with_outliers
    assert best_timeout(Process(law, 0.999)).kind == with_outliers


def test_the_best_timeout_of_the_uniform_law_is_its_upper_end():
    assert best_timeout(Process(Uniform(100, 300), 0.3)).timeout_s == 300


def test_a_gaussian_of_which_only_the_tail_is_left_behaves_like_an_exponential():
    # The paper's table 2 says 0 < t < infinity for every truncated Gaussian; far below 0 the best timeout is 0.
    assert best_timeout(Process(Gaussian(-3000, 60), 0.2)).kind == "zero"


@pytest.mark.parametrize("cost", ["run_s", "submit_cost_s"])
def test_any_cost_of_an_attempt_rules_out_giving_up_at_once(cost):
    for law in (Exponential(0.01), Pareto(100, 1.5), Weibull(0.5, 100)):
        assert best_timeout(Process(law, 0.02, **{cost: 10.0})).kind == "finite"
    assert best_timeout(Process(Exponential(0.01), **{cost: 10.0})).kind == "none"


def test_the_run_time_is_part_of_the_timeout_and_is_lost_with_every_failure():
    law, rho, run, wait = LogNormal(5, 1.2), 0.03, 60.0, 150.0
    fail = 1 - (1 - rho) * float(law.cdf(wait))
    back = float(law.restricted_mean(wait)) - wait * float(law.sf(wait))
    printed = run + back / float(law.cdf(wait)) + (wait + run) * fail / (1 - fail)
    assert float(Process(law, rho, run_s=run).expected(wait)) == pytest.approx(printed)
    best = best_timeout(Process(law, rho, run_s=run))
    same = best_timeout(Process(law, rho, submit_cost_s=run))
    assert best.timeout_s == pytest.approx(same.timeout_s + run)
    assert best.expected_s == pytest.approx(same.expected_s)


def test_infinite_values_are_none_and_say_so():
    for process in (Process(LogNormal(5, 1.2), 0.01), Process(Pareto(100, 0.9))):
        best = best_timeout(process)
        assert best.no_timeout_s is None
        assert best.speedup is None
        assert any("infinite" in note for note in best.notes)


def test_a_best_timeout_beyond_all_numbers_is_none():
    # h falls as t^-0.01 from 1e9 to 1/3: only after some 1e950 s.
    best = best_timeout(Process(Weibull(0.99, 1e-9), run_s=3.0))
    assert (best.kind, best.timeout_s) == ("none", None)
    assert best.expected_s == pytest.approx(3.0)


def test_the_pareto_speedup_is_nu_over_nu_minus_1():
    best = best_timeout(Process(Pareto(100, 1.5)))
    assert best.expected_s == pytest.approx(100 / 1.5)
    assert best.speedup == pytest.approx(3.0)


@pytest.mark.parametrize("quantile", [0.5, 0.95])
def test_the_best_timeout_for_a_quantile_is_not_beaten_on_a_grid(quantile):
    process = Process(LogNormal(5, 1.2), 0.03, submit_cost_s=10)
    best = best_timeout(process, quantile)
    grid = np.geomspace(5, 20_000, 4000)
    assert best.expected_s <= float(np.min(process.quantile(quantile, grid))) * (1 + 1e-9)


def test_a_quantile_keeps_the_mean_finite_where_jobs_get_lost():
    best = best_timeout(Process(Uniform(100, 300), 0.1), 0.5)
    assert best.kind == "finite"
    assert best.timeout_s == pytest.approx(300)


def test_limited_resubmissions_approach_the_unlimited_optimum():
    process = Process(LogNormal(5, 1.2))
    unlimited = best_timeout(process)
    costs = [best_limited(process, n).expected_s for n in (0, 1, 3, 10, 40)]
    assert costs[0] == pytest.approx(process.law.mean())
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == pytest.approx(unlimited.expected_s, rel=1e-3)
    assert best_limited(process, 3).timeouts_s[-1] is None


def test_a_limited_number_of_submissions_that_may_never_end_asks_for_a_price():
    process = Process(LogNormal(5, 1.2), 0.1)
    with pytest.raises(BadInput, match="may never end"):
        best_limited(process, 3)
    assert 0.9 < best_limited(process, 3, give_up_s=1000).succeeds < 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: Uniform(3, 3),
        lambda: Uniform(-1, 3),
        lambda: Gaussian(1, 0),
        lambda: Exponential(-1),
        lambda: LogNormal(1, math.nan),
        lambda: Pareto(0, 1),
        lambda: Weibull(1, math.inf),
        lambda: Blend(5, 1, 100, 1, 0.5, 10, 5),
        lambda: Blend(1, 0.1, 1e6, 0.1, 0.1, 0, 1000),
        lambda: ScipyLaw("norm", ()),
        lambda: ScipyLaw("nonsense", ()),
        lambda: ScipyLaw("gamma", (("b", 2.0),)),
        lambda: Process(Exponential(1), 1.0),
        lambda: Process(Exponential(1), -0.1),
        lambda: Process(Exponential(1), math.nan),
        lambda: Process(Exponential(1), 0.1, run_s=-1),
        lambda: Process(Exponential(1), 0.1, submit_cost_s=math.inf),
        lambda: best_timeout(Process(Exponential(1)), 1.0),
    ],
)
def test_impossible_parameters_are_refused(make):
    with pytest.raises(BadInput):
        make()
