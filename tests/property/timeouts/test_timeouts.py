"""What must hold for every law, every share of outliers and every sequence of observations."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from windfall.timeouts.best import best_timeout
from windfall.timeouts.fitting.sample import make_sample, outlier_share, survival
from windfall.timeouts.laws.closed import Exponential, Gaussian, LogNormal, Pareto, Uniform, Weibull
from windfall.timeouts.laws.empirical import best_of_sample
from windfall.timeouts.learning.online import Sketch
from windfall.timeouts.process import Process

SCALE = st.floats(1e-2, 1e5)
LAWS = st.one_of(
    st.builds(lambda a, width: Uniform(a, a + width), st.floats(0, 1e4), SCALE),
    st.builds(lambda sigma, ratio: Gaussian(ratio * sigma, sigma), SCALE, st.floats(-3, 20)),
    st.builds(lambda mean: Exponential(1 / mean), SCALE),
    st.builds(LogNormal, st.floats(-3, 12), st.floats(0.05, 4)),
    st.builds(Pareto, SCALE, st.floats(0.3, 10)),
    st.builds(Weibull, st.floats(0.2, 6), SCALE),
)
RHO = st.one_of(st.just(0.0), st.floats(1e-6, 0.99))
PROCESSES = st.builds(Process, LAWS, RHO, st.sampled_from([0.0, 5.0]), st.sampled_from([0.0, 30.0]))
SHARE = st.floats(0.01, 0.99)
quick = settings(deadline=None, max_examples=60)


@quick
@given(process=PROCESSES, share=SHARE)
def test_no_timeout_beats_the_best_one(process, share):
    best = best_timeout(process)
    wait = float(process.law.ppf(share))
    assert best.expected_s <= float(process.expected(wait)) * (1 + 1e-7)
    if best.no_timeout_s is not None:
        assert best.expected_s <= best.no_timeout_s * (1 + 1e-9)
        assert best.speedup is None or best.speedup >= 1 - 1e-9


@quick
@given(process=PROCESSES, share=SHARE)
def test_the_expected_time_is_continuous(process, share):
    near = process.expected(process.law.ppf(np.array([share * (1 - 1e-7), share * (1 + 1e-7)])))
    assert near[0] == approx(near[1], rel=1e-4)


@quick
@given(law=LAWS.filter(lambda law: law.mean() < 1e30), rho=st.floats(0.001, 0.9))
def test_the_asymptote_has_slope_rho_over_one_minus_rho(law, rho):
    far = float(law.ppf(1 - 1e-13)) * 1e6
    if not far < 1e60:
        return
    process = Process(law, rho)
    slope = (float(process.expected(2 * far)) - float(process.expected(far))) / far
    assert slope == approx(rho / (1 - rho), rel=1e-3)


@quick
@given(sigma=st.floats(0.2, 4), rho=RHO, mu=st.floats(-5, 12))
def test_the_lognormal_factor_k_does_not_depend_on_mu(sigma, rho, mu):
    here, standard = best_timeout(Process(LogNormal(mu, sigma), rho)), best_timeout(Process(LogNormal(0.0, sigma), rho))
    assert here.timeout_s == approx(math.exp(mu) * standard.timeout_s, rel=1e-6)
    assert here.expected_s == approx(math.exp(mu) * standard.expected_s, rel=1e-6)


@quick
@given(sigma=st.floats(1, 2), rho=st.floats(0, 0.4), more=st.floats(0.01, 0.4))
def test_more_outliers_and_more_spread_shorten_the_lognormal_timeout(sigma, rho, more):
    def factor(s, r):
        return best_timeout(Process(LogNormal(0.0, s), r)).timeout_s

    assert factor(sigma, rho + more) < factor(sigma, rho)
    assert factor(sigma + more, rho) < factor(sigma, rho)


@quick
@given(process=PROCESSES, share=st.floats(0.1, 0.95), p=st.floats(0.01, 0.99))
def test_quantiles_of_the_job_invert_its_distribution(process, share, p):
    wait = float(process.law.ppf(share))
    x = float(process.quantile(p, wait))
    assert float(process.cdf(x * (1 + 1e-9) + 1e-12, wait)) >= p - 1e-6
    assert float(process.cdf(x * (1 - 1e-6), wait)) <= p + 1e-3


@quick
@given(process=PROCESSES, share=st.floats(0.1, 0.95))
def test_the_distribution_of_the_job_rises_from_zero_to_one(process, share):
    wait = float(process.law.ppf(share))
    length = wait + process.overhead_s
    x = np.linspace(0, 20 * length, 500)
    values = process.cdf(x, wait)
    assert (np.diff(values) >= -1e-9).all()
    assert 0 <= values[0] <= 1
    # Equation 3: after n whole attempts the job is through unless all of them failed.
    fail = 1 - float(process.success(wait))
    assert float(process.cdf(7 * length, wait)) == approx(1 - fail**7, abs=1e-6)


VALUES = st.lists(st.tuples(st.floats(0, 1e6), st.booleans()), min_size=3, max_size=60)


@quick
@given(VALUES)
def test_kaplan_meier_falls_from_one_and_rho_is_what_it_leaves(rows):
    values, cut = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    if (~cut).sum() < 2:
        return
    sample = make_sample(values, cut)
    steps = survival(sample)
    assert (np.diff(steps.survive) <= 1e-12).all()
    share = outlier_share(sample)
    assert 0 <= share.low <= share.value + 1e-9
    assert share.value <= share.high + 1e-9 <= 1 + 1e-9
    assert share.value == approx(steps.left)


@quick
@given(VALUES, st.sampled_from([0.0, 10.0]))
def test_every_sample_gets_an_answer_that_is_a_number(rows, cost):
    values, cut = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    if (~cut).sum() < 2:
        return
    best = best_of_sample(make_sample(values, cut), submit_cost_s=cost)
    assert math.isfinite(best.expected_s)
    assert best.expected_s >= 0
    assert (best.timeout_s is None) == (best.kind in ("none", "any"))


EVENTS = st.lists(
    st.tuples(st.sampled_from(["back", "cut", "running"]), st.floats(0, 1e7), st.floats(0, 1)), min_size=0, max_size=120
)


@quick
@given(EVENTS)
def test_any_history_leaves_a_sketch_that_decides_the_same_after_a_restart(history):
    sketch = Sketch()
    for what, seconds, part in history:
        if what == "back":
            sketch.observe(seconds, looked_s=seconds * part)
        elif what == "cut":
            sketch.observe_censored(seconds)
        else:
            sketch.observe_running(seconds * part, seconds)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(sketch), type=Sketch)
    decision = sketch.best_timeout(prior_s=600, floor_s=1, cap_s=86_400)
    assert again.best_timeout(prior_s=600, floor_s=1, cap_s=86_400) == decision
    assert 1 <= decision.timeout_s <= 86_400
    assert decision.timeout_s <= decision.explore_s <= 86_400
