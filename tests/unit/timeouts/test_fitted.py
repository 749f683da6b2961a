"""Laws fitted to few latencies: their likelihood, the test of fit, and the timeout that they advise with the curve."""

from __future__ import annotations

import math

import numpy as np
import pytest

from windfall.lab.timeouts.first_fifty import NO_FITTED_LAW
from windfall.lab.timeouts.known_law import error_of, informed_losses
from windfall.lab.timeouts.learning import learned_wait
from windfall.timeouts.best import best_timeout
from windfall.timeouts.laws.closed import LogNormal, Weibull
from windfall.timeouts.laws.fitted import PRODUCTS, WORST, Seen, _product, fitted
from windfall.timeouts.laws.numeric import ScipyLaw
from windfall.timeouts.laws.shapes import LOST, QUARTILES, STEP, grid, library, only
from windfall.timeouts.laws.steps import kaplan_meier
from windfall.timeouts.learning.online import FITTED_BELOW, Sketch
from windfall.timeouts.process import Process


def taught(values) -> Sketch:
    sketch = Sketch()
    for value in values:
        sketch.observe(value)
    return sketch


def fit(logs, weights=None, overhead_s=10.0):
    values = np.sort(np.asarray(logs, dtype=float))
    weight = np.ones(len(values)) if weights is None else np.asarray(weights, dtype=float)
    seen = Seen(values, weight, np.array([math.log(1e8)]), np.array([0.5]))
    at_risk = weight.sum() + 0.5 - np.concatenate([[0.0], np.cumsum(weight)[:-1]])
    return fitted(seen, kaplan_meier(np.exp(values), weight, at_risk), overhead_s)


@pytest.mark.parametrize("place", range(len(library().names)))
def test_the_density_of_each_shape_is_the_slope_of_its_survival(place):
    density, survive = np.exp(library().log_density[:, place]), library().survive[:, place]
    assert np.diff(-survive) == pytest.approx((density[1:] + density[:-1]) / 2 * STEP, rel=1e-6, abs=1e-12)
    assert survive[0] == 1.0 and survive[-1] == 0.0


@pytest.mark.parametrize("place", range(len(library().names)))
def test_each_shape_has_median_0_and_the_quartiles_of_the_normal_law_apart(place):
    low, middle, high = np.interp([0.25, 0.5, 0.75], 1 - library().survive[:, place], grid())
    assert middle == pytest.approx(0, abs=0.005)
    assert high - low == pytest.approx(QUARTILES, abs=0.005)


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("log-normal", LogNormal(0, 1)),
        ("Weibull", Weibull(1, 1)),
        ("log-logistic", ScipyLaw("fisk", (("c", 1.0),))),
        ("Fréchet", ScipyLaw("invweibull", (("c", 1.0),))),
    ],
)
def test_the_named_shapes_are_those_laws(name, law):
    low, middle, high = np.log(law.ppf(np.array([0.25, 0.5, 0.75])))
    z = np.linspace(-4, 4, 81)
    truth = law.sf(np.exp(middle + z * (high - low) / QUARTILES))
    place = library().names.index(name)
    # An infinite end is a long one.
    assert np.interp(z, grid(), library().survive[:, place]) == pytest.approx(truth, abs=0.006)


def test_some_of_the_shapes_are_those_shapes():
    places = np.array([3, 11, 16])
    some = only(library(), places)
    assert some.names == tuple(library().names[place] for place in places)
    columns = np.concatenate([np.arange(place * len(LOST), (place + 1) * len(LOST)) for place in places])
    assert np.array_equal(some.silent, library().silent[:, columns])
    assert np.array_equal(some.survive, library().survive[:, places])


def test_the_right_law_gives_nearly_the_cost_that_is_true():
    values = LogNormal(5, 1.2).ppf((np.arange(200) + 0.5) / 200)
    found = fit(np.log(values), overhead_s=20.0)
    assert found is not None and "log-normal" in found.names
    truth = Process(LogNormal(5, 1.2), 0.0025, submit_cost_s=20.0).expected(found.waits_s)
    near = (found.waits_s > 60) & (found.waits_s < 600)
    truth = truth / truth.min()
    assert truth[near].max() < WORST, "below it costs are as they are"
    assert found.costs[near] == pytest.approx(truth[near], rel=0.05)
    assert found.costs.max() <= WORST * (1 + 1e-12)


def test_a_weibull_is_told_from_a_log_normal():
    values = Weibull(0.6, 100).ppf((np.arange(300) + 0.5) / 300)
    found = fit(np.log(values))
    assert found is not None and "Weibull" in found.names and "log-normal" not in found.names


def test_two_heaps_far_apart_fit_no_law():
    assert fit([*np.linspace(0, 0.1, 60), *np.linspace(9, 9.1, 60)]) is None


def test_latencies_that_are_all_alike_show_no_law():
    assert fit([3.0] * 50) is None


def test_the_engines_decision_names_the_laws_while_the_pool_is_new_and_none_later():
    new, known = (
        taught(LogNormal(5, 1.2).ppf((np.random.default_rng(3).permutation(count) + 0.5) / count).tolist())
        for count in (60, FITTED_BELOW + 100)
    )  # fmt: skip
    new, known = (sketch.best_timeout(prior_s=3600, submit_cost_s=20) for sketch in (new, known))
    assert "log-normal" in new.laws and "log-normal" in new.law and "Kaplan-Meier" in new.law
    assert known.laws == () and known.law == "empirical (Kaplan-Meier)"


def test_where_the_floor_holds_anyway_no_law_is_fitted():
    values = np.random.default_rng(3).lognormal(-3, 0.5, 60).tolist()
    decision = taught(values).best_timeout(prior_s=3600, floor_s=60)
    assert (decision.basis, decision.laws) == ("floor", ())


@pytest.mark.parametrize("pool", [pytest.param(pool, id=name) for name, pool in NO_FITTED_LAW.items()])
def test_after_fifty_attempts_the_timeout_of_a_pool_with_another_law_is_good(pool):
    # A few runs only: the laboratory has many. Far from the truth in one of them would show here.
    best = best_timeout(pool.process).expected_s
    waits = np.array([learned_wait(pool, 50, seed) for seed in range(6)])
    assert float((pool.process.expected(waits) / best).mean()) < 1.10


def test_a_learner_that_knows_the_law_shows_what_fifty_attempts_can_say():
    losses = informed_losses(NO_FITTED_LAW["Birnbaum-Saunders, 6 % lost"], 50, seeds=300)
    assert losses.mean() - 1.96 * error_of(losses) > 0.02, "within 2 % is out of reach of every learner here"
    more = informed_losses(NO_FITTED_LAW["Birnbaum-Saunders, 6 % lost"], 500, seeds=30)
    assert more.mean() < 0.01
    easy = informed_losses(NO_FITTED_LAW["half-Cauchy, 2 % lost, 20 s a submission"], 50, seeds=30)
    assert easy.mean() < 0.01


def test_no_multiplication_is_large_enough_for_blas_to_wake_threads():
    """Threads of BLAS spin on every core while the server's loop waits for a product of a millisecond."""
    rng = np.random.default_rng(1)
    left, right = rng.random((121, 300)), rng.random((300, 198))
    sizes = []

    class Watched(np.ndarray):
        def __matmul__(self, other):
            sizes.append(self.shape[0] * other.size)
            return np.asarray(self) @ other

    whole = _product(left.view(Watched), right)
    assert np.allclose(whole, left @ right)
    assert len(sizes) > 1 and max(sizes) <= PRODUCTS
