"""Laws without closed moments: the paper's log-normal-Pareto blend (equation 14) and any law of scipy.stats. Pure.

Both are integrated once on a table of knots and looked up from there; between knots a Gauss-Legendre rule finishes.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from windfall.errors import BadInput
from windfall.timeouts.arrays import Array, as_array
from windfall.timeouts.laws.closed import LatencyLaw, require, require_finite

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


class NumericLaw(LatencyLaw, frozen=True):
    """A law that knows its survival and a table of knots; moments are integrals over that table."""

    def knots(self) -> Array:
        raise NotImplementedError

    def restricted_mean(self, t: ArrayLike) -> Array:
        return _integral(self, as_array(t), 0)

    def restricted_square(self, t: ArrayLike) -> Array:
        return _integral(self, as_array(t), 1)

    def ppf(self, p: ArrayLike) -> Array:
        """By bisection on the survival between two knots."""
        p = np.atleast_1d(as_array(p))
        knots = self.knots()
        index = np.clip(np.searchsorted(self.cdf(knots), p), 1, len(knots) - 1)
        low, high = knots[index - 1].copy(), knots[index].copy()
        for _ in range(60):
            middle = (low + high) / 2
            below = self.cdf(middle) < p
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return high if high.size > 1 else high.reshape(())


def _panel(law: NumericLaw, low: Array, high: Array, order: int) -> Array:
    """Integral of (order + 1) u^order S(u) over each [low, high]."""
    half = (high - low)[..., None] / 2
    u = (high + low)[..., None] / 2 + half * _NODES
    return as_array(((order + 1) * u**order * law.sf(u) * half * _WEIGHTS).sum(axis=-1))


@lru_cache(maxsize=64)
def _cumulated(law: NumericLaw, order: int) -> tuple[Array, Array]:
    knots = law.knots()
    return knots, np.concatenate([[0.0], np.cumsum(_panel(law, knots[:-1], knots[1:], order))])


def _integral(law: NumericLaw, t: Array, order: int) -> Array:
    knots, cumulated = _cumulated(law, order)
    inside = np.clip(t, 0.0, knots[-1])
    index = np.clip(np.searchsorted(knots, inside, side="right") - 1, 0, len(knots) - 2)
    value = cumulated[index] + _panel(law, knots[index], inside, order)
    beyond = np.isfinite(t) & (t > knots[-1])
    if np.any(beyond):
        # Past the table only a heavy tail has anything left; it is smooth in the logarithm of time.
        start, stop = np.log(knots[-1]), np.log(np.where(beyond, t, knots[-1]))
        edges = start + (stop - start)[..., None] * np.linspace(0, 1, 17)
        half = (edges[..., 1:] - edges[..., :-1])[..., None] / 2
        u = np.exp((edges[..., 1:] + edges[..., :-1])[..., None] / 2 + half * _NODES)
        tail = ((order + 1) * u ** (order + 1) * law.sf(u) * half * _WEIGHTS).sum(axis=(-1, -2))
        value = value + tail
    return np.where(np.isinf(t), _whole(law, order, cumulated[-1]), value)


def _whole(law: NumericLaw, order: int, tabled: float) -> float:
    if isinstance(law, ScipyLaw):
        mean = law.mean()
        if order == 0:
            return mean
        variance = float(law.frozen().var())
        return variance + mean * mean if math.isfinite(mean) and not math.isnan(variance) else math.inf
    return float(tabled)


class Blend(NumericLaw, frozen=True):
    """Log-normal near tmin, Pareto near tmax (equation 14). What equation 14 leaves at tmax arrives at tmax."""

    name: ClassVar[str] = "blend"
    mu: float
    sigma: float
    a: float
    nu: float
    k: float
    tmin: float
    tmax: float

    def __post_init__(self) -> None:
        require_finite(self)
        for field in ("sigma", "a", "nu", "k"):
            require(getattr(self, field) > 0, self.name, f"needs {field} > 0, not {getattr(self, field):g}")
        require(0 <= self.tmin < self.tmax, self.name, f"needs 0 <= tmin < tmax, not {self.tmin:g}, {self.tmax:g}")
        cdf = self._raw(self.knots())
        fall = np.maximum.accumulate(cdf) - cdf
        if fall.max() > 1e-3:
            at = float(self.knots()[int(np.argmax(fall))])
            raise BadInput(
                f"blend: with these parameters equation 14 is no distribution: it falls near {at:g} s",
                hint="a larger k lets the Pareto part in later; check that both parts meet",
                code="bad-law",
            )

    def _raw(self, t: ArrayLike) -> Array:
        t = as_array(t)
        since = np.clip(t - self.tmin, 0.0, self.tmax - self.tmin)
        weight = (since / (self.tmax - self.tmin)) ** self.k
        with np.errstate(divide="ignore"):
            lognormal = special.ndtr((np.log(since) - self.mu) / self.sigma)
        pareto = -np.expm1(-self.nu * np.log1p(np.maximum(t, 0.0) / self.a))
        return as_array((1 - weight) * lognormal + weight * pareto)

    def knots(self) -> Array:
        spread = (self.tmax - self.tmin) * np.geomspace(1e-7, 1.0, 3000)
        edges = np.concatenate([[0.0, self.tmin], self.tmin + spread])
        return np.unique(edges)

    def sf(self, t: ArrayLike) -> Array:
        t = as_array(t)
        return np.where(t <= self.tmin, 1.0, np.where(t >= self.tmax, 0.0, np.clip(1 - self._raw(t), 0.0, 1.0)))

    def logpdf(self, t: ArrayLike) -> Array:
        """By central difference: the blend is used through its distribution function, never through its density."""
        t = as_array(t)
        step = 1e-4 * np.maximum(t - self.tmin, 1e-6)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(np.maximum(self.sf(t - step) - self.sf(t + step), 0.0) / (2 * step))

    def mean(self) -> float:
        return float(self.restricted_mean(self.tmax))

    def upper(self) -> float:
        return self.tmax


class ScipyLaw(NumericLaw, frozen=True):
    """Any continuous law of scipy.stats, by name and parameters (shape parameters, loc, scale)."""

    name: ClassVar[str] = "scipy"
    dist: str
    args: tuple[tuple[str, float], ...]

    def __post_init__(self) -> None:
        require(_family(self.dist) is not None, self.name, f"scipy.stats has no continuous law '{self.dist}'")
        try:
            frozen = self.frozen()
        except TypeError as error:
            raise BadInput(f"scipy:{self.dist}: {error}", hint="give its parameters as NAME=VALUE") from None
        below = float(frozen.cdf(0.0))
        require(not math.isnan(below), f"scipy:{self.dist}", "its parameters are out of range")
        require(below <= 1e-6, f"scipy:{self.dist}", f"{below:.3g} of it lies below 0; a latency cannot be negative")

    def frozen(self) -> Any:
        return _frozen(self)

    def params(self) -> dict[str, float]:
        return dict(self.args)

    def sf(self, t: ArrayLike) -> Array:
        return as_array(self.frozen().sf(as_array(t)))

    def cdf(self, t: ArrayLike) -> Array:
        return as_array(self.frozen().cdf(as_array(t)))

    def logsf(self, t: ArrayLike) -> Array:
        return as_array(self.frozen().logsf(as_array(t)))

    def logpdf(self, t: ArrayLike) -> Array:
        with np.errstate(divide="ignore"):
            return as_array(self.frozen().logpdf(as_array(t)))

    def ppf(self, p: ArrayLike) -> Array:
        return as_array(self.frozen().ppf(as_array(p)))

    def knots(self) -> Array:
        half = np.geomspace(1e-12, 0.5, 400)
        points = np.concatenate([[0.0], self.frozen().ppf(half), self.frozen().isf(half)])
        points = np.unique(points[np.isfinite(points) & (points >= 0)])
        # Quantiles leave gaps where the law is thin; add times evenly in the logarithm.
        positive = points[points > 0]
        return np.unique(np.concatenate([points, np.geomspace(positive[0], positive[-1], 400)]))

    def mean(self) -> float:
        mean = float(self.frozen().mean())
        return math.inf if math.isnan(mean) else mean

    def upper(self) -> float:
        return float(self.frozen().support()[1])


@lru_cache(maxsize=64)
def _frozen(law: ScipyLaw) -> Any:
    return _family(law.dist)(**dict(law.args))


def _family(name: str) -> Any:
    from scipy import stats  # half a second to load, and only this law needs it

    family = getattr(stats, name, None)
    return family if isinstance(family, stats.rv_continuous) else None


# A blend with the moments and the optima that the paper reports for EGEE (section 4); `windfall lab timeouts` finds it
# again from those figures. It is what `windfall timeout law blend` shows when no parameters are given.
EGEE_LIKE = Blend(mu=3.374, sigma=2.098, a=50.22, nu=1.606, k=15.72, tmin=169.7, tmax=10_000.0)
