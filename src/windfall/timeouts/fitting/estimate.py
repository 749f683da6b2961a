"""Which law the latencies follow: censored maximum likelihood, the blend by least squares, and the test of a fit. Pure.

A censored observation at c contributes log(rho + (1 - rho) S(c)): it may be slow, or it may never come back.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from msgspec import Struct
from scipy import optimize, special

from windfall.errors import BadInput
from windfall.timeouts.arrays import Array
from windfall.timeouts.fitting.sample import Sample, coarse, survival
from windfall.timeouts.laws.closed import Exponential, Gaussian, LatencyLaw, LogNormal, Pareto, Uniform, Weibull
from windfall.timeouts.laws.numeric import Blend

# Kolmogorov-Smirnov on very large samples rejects every simple law; the paper tests on at most this many.
KS_SAMPLE = 1000


class Fit(Struct, frozen=True):
    """A fitted law: its log-likelihood, Akaike's criterion, and the paper's Kolmogorov-Smirnov test."""

    law: LatencyLaw
    rho: float
    log_likelihood: float
    aic: float
    ks: float
    ks_n: int
    p_value: float


class _Data(Struct, frozen=True):
    """Observations with their weights; `x` is positive, because most laws have no density at 0."""

    x: Array
    events: Array
    c: Array
    censored: Array


def _data(sample: Sample) -> _Data:
    positive = sample.times[sample.times > 0]
    if not len(positive):
        raise BadInput("every latency is 0 s: there is no law to fit")
    x = np.maximum(sample.times, positive[0] / 2)
    came, cut = sample.events > 0, sample.censored > 0
    return _Data(x[came], sample.events[came], x[cut], sample.censored[cut])


def log_likelihood(law: LatencyLaw, rho: float, data: _Data) -> float:
    density = law.logpdf(data.x)
    total = float((data.events * density).sum())
    if rho > 0:
        total += math.log1p(-rho) * float(data.events.sum())
    if len(data.c):
        with np.errstate(divide="ignore"):
            waiting = np.log(rho + (1 - rho) * law.sf(data.c)) if rho > 0 else law.logsf(data.c)
        total += float((data.censored * waiting).sum())
    return total if math.isfinite(total) else -math.inf


def _exp(value: float) -> float:
    return math.exp(min(max(value, -300.0), 300.0))


def _starts(data: _Data) -> dict[str, tuple[Callable[[Array], LatencyLaw], list[float]]]:
    """For each law: how free numbers become its parameters, and where the search begins."""
    weight = data.events / data.events.sum()
    mean = max(float((weight * data.x).sum()), 1e-300)
    logs = np.log(data.x)
    mu = float((weight * logs).sum())
    sigma = max(math.sqrt(float((weight * (logs - mu) ** 2).sum())), 1e-3)
    deviation = max(math.sqrt(float((weight * (data.x - mean) ** 2).sum())), 1e-3 * mean)
    return {
        "gaussian": (lambda p: Gaussian(max(p[0], -20 * _exp(p[1])), _exp(p[1])), [mean, math.log(deviation)]),
        "exponential": (lambda p: Exponential(_exp(p[0])), [-math.log(mean)]),
        "lognormal": (lambda p: LogNormal(min(max(p[0], -500.0), 500.0), _exp(p[1])), [mu, math.log(sigma)]),
        "pareto": (lambda p: Pareto(_exp(p[0]), _exp(p[1])), [math.log(mean), math.log(1.5)]),
        "weibull": (lambda p: Weibull(_exp(min(p[0], 7.0)), _exp(p[1])), [math.log(1 / sigma), math.log(mean)]),
    }


def _maximise(
    build: Callable[[Array], LatencyLaw], start: list[float], data: _Data, share: float
) -> tuple[LatencyLaw, float, float]:
    """The law and rho of greatest likelihood; rho is free only where something was left waiting."""
    free_rho = share > 0

    def cost(point: Array) -> float:
        rho = float(special.expit(point[-1])) if free_rho else 0.0
        value = log_likelihood(build(point), min(rho, 1 - 1e-12), data)
        return -value if math.isfinite(value) else 1e300

    first = np.array([*start, special.logit(min(max(share, 1e-6), 1 - 1e-6))] if free_rho else start)
    options = {"xatol": 1e-7, "fatol": 1e-7, "maxiter": 4000, "maxfev": 4000}
    found = optimize.minimize(cost, first, method="Nelder-Mead", options=options)
    rho = float(special.expit(found.x[-1])) if free_rho else 0.0
    # rho near 0: the tail of the law itself explains the observations that still wait.
    return build(found.x), (rho if rho > 1e-9 else 0.0), -float(found.fun)


def ks_distance(law: LatencyLaw, rho: float, sample: Sample) -> float:
    """sup |F_observed - F_model|, outliers on both sides, before and after each step."""
    steps = survival(sample)
    model = (1 - rho) * law.cdf(steps.times)
    after = 1 - steps.survive
    before = np.concatenate([[0.0], after[:-1]])
    return float(max(np.abs(model - after).max(), np.abs(model - before).max()))


def kolmogorov(sample: Sample, law: LatencyLaw, rho: float) -> tuple[float, int, float]:
    """D_n = sqrt(n) sup|F - F_m| as in the paper, its n, and the chance of a larger one under the law."""
    n = min(sample.came_back + sample.cut_short, KS_SAMPLE)
    statistic = math.sqrt(n) * ks_distance(law, rho, sample)
    return statistic, n, float(special.kolmogorov(statistic))


def _finish(law: LatencyLaw, rho: float, value: float, free: int, sample: Sample) -> Fit:
    ks, n, p = kolmogorov(sample, law, rho)
    return Fit(law, rho, value, 2 * free - 2 * value, ks, n, p)


def fit_laws(sample: Sample, names: tuple[str, ...] | None = None) -> list[Fit]:
    """Every law fitted to the sample, the most likely first (Akaike: likelihood minus the number of parameters)."""
    rounded = coarse(sample)
    data = _data(rounded)
    if len(data.x) < 2:
        raise BadInput(f"every completed latency is {data.x[0]:g} s: one value cannot show a law")
    share = float(survival(sample).left) if sample.cut_short else 0.0
    fits = []
    for name, (build, start) in _starts(data).items():
        if names is None or name in names:
            law, rho, value = _maximise(build, start, data, share)
            fits.append(_finish(law, rho, value, len(start) + (share > 0), sample))
    if names is None or "uniform" in names:
        uniform = Uniform(float(sample.times[0]), float(data.x[-1]))
        fits.append(_finish(uniform, share, log_likelihood(uniform, share, data), 2 + (share > 0), sample))
    if (names is None or "blend" in names) and len(data.x) >= 20:
        blend = fit_blend(rounded)
        fits.append(_finish(blend, share, _blend_likelihood(blend, share, data), 7 + (share > 0), sample))
    return sorted(fits, key=lambda fit: fit.aic)


def _blend_likelihood(blend: Blend, rho: float, data: _Data) -> float:
    # Equation 14 has no density at its two ends, which are observations: they count as their neighbours do.
    inner = np.clip(data.x, data.x[1], data.x[-2])
    return log_likelihood(blend, rho, _Data(inner, data.events, data.c, data.censored))


def fit_blend(sample: Sample) -> Blend:
    """Equation 14 by least squares on the distribution function, as in section 4.3."""
    steps = survival(sample)
    share = steps.left
    tmin, tmax = float(steps.times[0]), float(steps.times[-1])
    observed = (1 - (np.concatenate([[1.0], steps.survive[:-1]]) + steps.survive) / 2) / (1 - share)
    weight = np.sqrt(np.diff(steps.events, prepend=0.0))
    logs = np.log(np.maximum(steps.times - tmin, 1e-3 * (tmax - tmin) / len(steps.times)))
    mass = np.diff(observed, prepend=0.0)
    mu = float((mass * logs).sum() / mass.sum())
    sigma = math.sqrt(max(float((mass * (logs - mu) ** 2).sum() / mass.sum()), 1e-4))
    low = np.array([mu - 5, math.log(1e-3), math.log(tmax) - 12, math.log(0.05), math.log(0.02)])
    high = np.array([mu + 5, math.log(20.0), math.log(tmax) + 5, math.log(50.0), math.log(50.0)])

    def build(point: Array) -> Blend | None:
        try:
            width, a, nu, k = np.exp(point[1:]).tolist()
            return Blend(float(point[0]), width, a, nu, k, tmin, tmax)
        except BadInput:
            return None

    def residuals(point: Array) -> Array:
        blend = build(point)
        return weight * (blend.cdf(steps.times) - observed) if blend else np.full(len(steps.times), 1.0) * weight

    best = None
    for k in (0.3, 2.0, 15.0):
        start = np.clip([mu, math.log(sigma), math.log(sample.mean()), math.log(1.5), math.log(k)], low, high)
        found = optimize.least_squares(residuals, start, bounds=(low, high), max_nfev=60)
        if build(found.x) and (best is None or found.cost < best.cost):
            best = found
    if best is None:
        raise BadInput("no blend of log-normal and Pareto (equation 14) fits these latencies")
    blend = build(best.x)
    assert blend is not None
    return blend
