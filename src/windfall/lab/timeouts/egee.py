"""The EGEE experiment of the Timeouts paper, from what it prints: two moments, a share of outliers, two optima. Pure.

The 2,137 latencies themselves were never published, and mean and deviation alone do not fix the best timeout:
`same_moments` shows how far it can move. So the paper's own model, the blend of equation 14, is calibrated on all that
is printed, and a sample of 2,137 probes drawn from it is then given to the same estimator that any user's file meets.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from msgspec import Struct
from scipy import optimize

from windfall.errors import BadInput
from windfall.timeouts.arrays import Array
from windfall.timeouts.best import best_timeout
from windfall.timeouts.fitting.dependence import Observations
from windfall.timeouts.fitting.report import Report, analyse
from windfall.timeouts.laws.closed import LogNormal
from windfall.timeouts.laws.numeric import Blend, ScipyLaw
from windfall.timeouts.process import Process

# What section 4 prints. Everything else in this laboratory is computed.
PROBES, CUT_OFF_S, RHO = 2137, 10_000.0, 0.025
MEAN_S, DEVIATION_S = 393.0, 792.0
WITHOUT = {"timeout_s": 360.0, "expected_s": 289.0, "speedup": 1.36}
WITH = {"timeout_s": 358.0, "expected_s": 300.0}


def moments(law: Blend) -> tuple[float, float]:
    mean = law.mean()
    return mean, math.sqrt(float(law.restricted_square(law.tmax)) - mean * mean)


def _blend(point: Array) -> Blend | None:
    sigma, a, nu, k, tmin = np.exp(point[1:]).tolist()
    try:
        return Blend(float(point[0]), sigma, a, nu, k, tmin, CUT_OFF_S)
    except BadInput:
        return None


def _slope(process: Process, t: float) -> float:
    """Relative change of E_J around t, in units of the relative change of t: 0 at the optimum."""
    low, middle, high = process.expected(np.array([0.98 * t, t, 1.02 * t])).tolist()
    return float((high - low) / middle / 0.04)


@lru_cache(maxsize=1)
def calibrate() -> Blend:
    """The blend with the published moments and optima that stays closest to a plain log-normal with a Pareto tail."""
    plain = np.array([5.0, -0.5, 4.0, 0.0, -1.0, 4.7])

    def residuals(point: Array) -> Array:
        blend = _blend(point)
        if blend is None:
            return np.full(13, 10.0)
        mean, deviation = moments(blend)
        without, with_outliers = Process(blend), Process(blend, RHO)
        published = [
            mean / MEAN_S - 1,
            deviation / DEVIATION_S - 1,
            3 * float(blend.sf(0.9999 * CUT_OFF_S)),
            float(without.expected(WITHOUT["timeout_s"])) / WITHOUT["expected_s"] - 1,
            float(with_outliers.expected(WITH["timeout_s"])) / WITH["expected_s"] - 1,
            _slope(without, WITHOUT["timeout_s"]),
            _slope(with_outliers, WITH["timeout_s"]),
        ]
        return np.concatenate([published, 1e-3 * (point - plain)])

    found = optimize.least_squares(residuals, plain, max_nfev=300)
    blend = _blend(found.x)
    assert blend is not None
    return blend


def probes(law: Blend, seed: int | None = None) -> Observations:
    """2,137 probes, the lost ones cut short at 10,000 s. Without a seed: the evenly spread quantiles, the least lucky
    and least unlucky sample there is."""
    lost_count = round(RHO * PROBES)
    if seed is None:
        shares = (np.arange(PROBES - lost_count) + 0.5) / (PROBES - lost_count)
        lost = np.arange(PROBES) >= PROBES - lost_count
        values = np.concatenate([law.ppf(shares), np.full(lost_count, CUT_OFF_S)])
        return Observations(values, lost)
    rng = np.random.default_rng(seed)
    lost = rng.random(PROBES) < RHO
    return Observations(np.where(lost, CUT_OFF_S, law.ppf(rng.random(PROBES))), lost)


def only_those_back(observations: Observations) -> Observations:
    back = ~observations.censored
    return Observations(observations.values[back], observations.censored[back])


class Reproduction(Struct, frozen=True):
    """One published figure beside ours: of the calibrated law, of the even sample, and over random samples."""

    what: str
    paper: float
    law: float
    sample: float
    random_mean: float
    random_low: float
    random_high: float


def reproduce(samples: int = 40) -> tuple[Blend, Report, Report, list[Reproduction]]:
    law = calibrate()
    even = probes(law)
    with_outliers, without = analyse(even), analyse(only_those_back(even))
    drawn = [probes(law, seed) for seed in range(samples)]
    random_with = [_answer(observations) for observations in drawn]
    random_without = [_answer(only_those_back(observations)) for observations in drawn]
    exact_without, exact_with = best_timeout(Process(law)), best_timeout(Process(law, RHO))
    mean, deviation = moments(law)
    rows = [
        ("mean (s)", MEAN_S, mean, without.sample.mean(), [answer["mean_s"] for answer in random_without]),
        (
            "deviation (s)",
            DEVIATION_S,
            deviation,
            without.sample.deviation(),
            [answer["deviation_s"] for answer in random_without],
        ),
    ]
    for name, published in WITHOUT.items():
        ours = [answer[name] for answer in random_without]
        label = f"{name} without outliers"
        rows.append((label, published, getattr(exact_without, name), getattr(without.best, name), ours))
    for name, published in WITH.items():
        ours = [answer[name] for answer in random_with]
        label = f"{name} with 2.5 % outliers"
        rows.append((label, published, getattr(exact_with, name), getattr(with_outliers.best, name), ours))
    found = [
        Reproduction(what, paper, law_, sample, float(np.mean(ours)), float(np.min(ours)), float(np.max(ours)))
        for what, paper, law_, sample, ours in rows
    ]
    return law, without, with_outliers, found


def _answer(observations: Observations) -> dict[str, float]:
    from windfall.timeouts.fitting.sample import make_sample
    from windfall.timeouts.laws.empirical import best_of_sample

    sample = make_sample(observations.values, observations.censored)
    best = best_of_sample(sample)
    return {
        "timeout_s": best.timeout_s if best.timeout_s is not None else math.inf,
        "expected_s": best.expected_s,
        "speedup": best.speedup if best.speedup is not None else math.nan,
        "mean_s": sample.mean(),
        "deviation_s": sample.deviation(),
    }


def same_moments() -> list[dict[str, float | str]]:
    """Laws with EGEE's mean and deviation but other optima: the moments do not determine the optimum."""
    rows: list[dict[str, float | str]] = []
    for shift in (0.0, 50.0, 100.0, 150.0):
        mean = MEAN_S - shift
        sigma = math.sqrt(math.log1p((DEVIATION_S / mean) ** 2))
        mu = math.log(mean) - sigma**2 / 2
        law = (
            LogNormal(mu, sigma)
            if shift == 0
            else ScipyLaw("lognorm", (("s", sigma), ("loc", shift), ("scale", math.exp(mu))))
        )
        best = best_timeout(Process(law))
        assert best.timeout_s is not None
        rows.append(
            {"law": f"log-normal from {shift:.0f} s on", "timeout_s": best.timeout_s, "expected_s": best.expected_s}
        )
    return rows
