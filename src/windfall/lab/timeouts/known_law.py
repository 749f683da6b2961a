"""The bound of what attempts can say about the best timeout: a learner that knows the family of the law. Pure.

It knows the family and every parameter within a factor of four, sees every latency up to the first timeout, weighs all
parameters by what was seen (Bayes), and takes the timeout that loses least on average. A learner that does not know the
law is told less, so what this one loses, no learner can be expected to avoid.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from windfall.lab.timeouts.learning import Draws, Pool, best_fixed
from windfall.timeouts.arrays import Array
from windfall.timeouts.best import best_timeout
from windfall.timeouts.laws.numeric import ScipyLaw

WITHIN = 4.0
"""By this factor, up or down, parameters are unknown before the first attempt."""
PARAMETERS = 4096
STEPS = 300


def informed_losses(pool: Pool, attempts: int, seeds: int, first_seed: int = 0) -> Array:
    """By how much a job takes longer than with the best timeout, for each seed: 0.02 is 2 %."""
    process, law = pool.process, pool.process.law
    assert isinstance(law, ScipyLaw)
    names = [name for name, _ in law.args]
    draws = stats.qmc.Sobol(len(names) + 1, seed=1).random(PARAMETERS)
    factors = WITHIN ** (2.0 * draws - 1.0)
    columns = {name: value * factors[:, [place]] for place, (name, value) in enumerate(law.args)}
    rho = np.minimum(0.9, process.rho * factors[:, [-1]])
    family, best_s = getattr(stats, law.dist), best_fixed(pool) - process.run_s
    waits = best_s * np.geomspace(0.1, 10.0, STEPS)
    regret = _regret(family.cdf(_fine(waits), **columns) * (1 - rho), waits, process.overhead_s)
    true = np.asarray(process.expected(waits)) / best_timeout(process).expected_s - 1
    longest_s = pool.prior_factor * (best_s + process.run_s) - process.run_s
    out = np.log(rho + (1 - rho) * family.sf(longest_s, **columns))[:, 0]
    found = []
    for seed in range(first_seed, first_seed + seeds):
        source = Draws(process, seed)
        seen = np.array([source.next() for _ in range(attempts)])
        came = seen[seen <= longest_s]
        with np.errstate(divide="ignore"):
            weight = (family.logpdf(came[None, :], **columns) + np.log1p(-rho)).sum(axis=1)
        weight += (len(seen) - len(came)) * out
        share = np.exp(weight - weight.max())
        found.append(true[int(np.argmin(share @ regret))])
    return np.array(found)


def _fine(waits: Array) -> Array:
    """Moments at which the laws are looked at: from zero, closely spaced, with all waits among them."""
    below = np.concatenate([[0.0], np.geomspace(waits[0] * 1e-3, waits[0], STEPS, endpoint=False)])
    return np.concatenate([below, waits])


def _regret(success: Array, waits: Array, overhead_s: float) -> Array:
    """What each wait costs under each set of parameters, over the cheapest one there."""
    times = _fine(waits)
    inner = 1.0 - 0.5 * (success[:, 1:] + success[:, :-1])
    spent = np.concatenate([np.zeros((len(success), 1)), np.cumsum(inner * np.diff(times), axis=1)], axis=1)
    with np.errstate(divide="ignore", over="ignore"):
        cost = (spent[:, -len(waits) :] + overhead_s) / success[:, -len(waits) :]
    cost = np.minimum(cost, 1e6 * cost.min(axis=1, keepdims=True))
    return np.asarray(cost / cost.min(axis=1, keepdims=True))


def error_of(losses: Array) -> float:
    """Standard error of the mean."""
    return float(losses.std(ddof=1)) / math.sqrt(len(losses)) if len(losses) > 1 else math.inf
