"""The 74 pools on which the settings of the learner are chosen: 37 laws, each with two shares lost and prices. Pure.

None is of a family that `windfall lab timeouts` holds back, but for Lomax laws, which are generalised Pareto laws.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from windfall.lab.timeouts.learning import Pool
from windfall.timeouts.arrays import Array, as_array
from windfall.timeouts.laws.closed import Exponential, LatencyLaw, LogNormal, Weibull
from windfall.timeouts.laws.numeric import NumericLaw, ScipyLaw
from windfall.timeouts.process import Process


class OfLogarithm(NumericLaw, frozen=True):
    """A latency whose logarithm follows a law of scipy.stats."""

    name: ClassVar[str] = "of logarithm"
    dist: str
    args: tuple[tuple[str, float], ...]

    def sf(self, t: ArrayLike) -> Array:
        from scipy import stats

        with np.errstate(divide="ignore"):
            return as_array(getattr(stats, self.dist)(**dict(self.args)).sf(np.log(as_array(t))))

    def logpdf(self, t: ArrayLike) -> Array:
        from scipy import stats

        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(as_array(t))
            found = getattr(stats, self.dist)(**dict(self.args)).logpdf(logs) - logs
        return as_array(np.where(np.isfinite(logs), found, -np.inf))

    def knots(self) -> Array:
        return np.concatenate([[0.0], np.geomspace(1e-6, 1e10, 3000)])


class Mixture(NumericLaw, frozen=True):
    """Two laws at once: `share` of the latencies are of the first."""

    name: ClassVar[str] = "mixture"
    share: float
    first: LatencyLaw
    second: LatencyLaw

    def sf(self, t: ArrayLike) -> Array:
        return self.share * self.first.sf(t) + (1 - self.share) * self.second.sf(t)

    def logpdf(self, t: ArrayLike) -> Array:
        with np.errstate(divide="ignore"):
            return as_array(np.log(self.share * self.first.pdf(t) + (1 - self.share) * self.second.pdf(t)))

    def knots(self) -> Array:
        return np.concatenate([[0.0], np.geomspace(1e-4, 1e6, 3000)])


def _scipy(dist: str, **args: float) -> ScipyLaw:
    return ScipyLaw(dist, tuple(args.items()))


def _log(dist: str, **args: float) -> OfLogarithm:
    return OfLogarithm(dist, tuple(args.items()))


LAWS: dict[str, LatencyLaw] = {
    "log-normal 0.5": LogNormal(5, 0.5),
    "log-normal 0.9": LogNormal(5, 0.9),
    "log-normal 1.3": LogNormal(5, 1.3),
    "log-normal 1.9": LogNormal(5, 1.9),
    "Weibull 0.4": Weibull(0.4, 150),
    "Weibull 0.65": Weibull(0.65, 150),
    "exponential": Exponential(1 / 150),
    "Weibull 1.6": Weibull(1.6, 150),
    "log-logistic 1.2": _scipy("fisk", c=1.2, scale=120),
    "log-logistic 2.5": _scipy("fisk", c=2.5, scale=120),
    "Lomax 1.3": _scipy("lomax", c=1.3, scale=150),
    "Lomax 4": _scipy("lomax", c=4, scale=500),
    "exponentiated Weibull 3, 0.6": _scipy("exponweib", a=3, c=0.6, scale=60),
    "exponentiated Weibull 0.5, 1.5": _scipy("exponweib", a=0.5, c=1.5, scale=200),
    "inverse gamma 1.2": _scipy("invgamma", a=1.2, scale=100),
    "inverse gamma 3": _scipy("invgamma", a=3, scale=300),
    "generalised gamma 3, 0.5": _scipy("gengamma", a=3, c=0.5, scale=20),
    "generalised gamma 0.4, 1.8": _scipy("gengamma", a=0.4, c=1.8, scale=300),
    "half-normal": _scipy("halfnorm", scale=200),
    "half-logistic": _scipy("halflogistic", scale=120),
    "Gompertz": _scipy("gompertz", c=0.3, scale=100),
    "Maxwell": _scipy("maxwell", scale=100),
    "log-t": _log("t", df=3, loc=5, scale=0.7),
    "log-skew-normal 4": _log("skewnorm", a=4, loc=4, scale=1.5),
    "log-skew-normal -4": _log("skewnorm", a=-4, loc=6, scale=1.5),
    "log-hyperbolic-secant": _log("hypsecant", loc=5, scale=0.7),
    "log-uniform": _scipy("loguniform", a=5, b=1000),
    "truncated Gaussian": _scipy("truncnorm", a=-3, b=9, loc=300, scale=100),
    "shifted exponential": _scipy("expon", loc=50, scale=120),
    "shifted log-normal": _scipy("lognorm", s=1.2, loc=60, scale=80),
    "Pareto from 40 s": _scipy("pareto", b=1.2, scale=40),
    "hyperexponential": Mixture(0.8, Exponential(1 / 40), Exponential(1 / 800)),
    "two log-normals": Mixture(0.6, LogNormal(4, 0.4), LogNormal(6, 0.6)),
    "two log-normals far apart": Mixture(0.85, LogNormal(4, 0.5), LogNormal(7, 0.8)),
    "Lévy": _scipy("levy", scale=40),
    "Gaussian and exponential": _scipy("exponnorm", K=5, loc=60, scale=12),
    "Mielke": _scipy("mielke", k=3, s=1.5, scale=60),
}

# Shares lost, and what a submission costs as a share of the median latency.
SETTINGS = ((0.02, 0.1), (0.05, 0.0), (0.08, 0.3), (0.03, 0.05), (0.12, 0.15), (0.01, 0.2), (0.04, 0.6), (0.06, 0.1))
# Where submissions are free and the best timeout is nearly zero, a submission costs this share instead.
INSTEAD_OF_FREE = 0.1
NEARLY_ZERO = ("Weibull 0.4", "log-t")


def pools() -> dict[str, Pool]:
    found = {}
    for place, (name, law) in enumerate(LAWS.items()):
        for which in range(2):
            rho, share = SETTINGS[(3 * place + 5 * which + place // 8) % len(SETTINGS)]
            if not share and name in NEARLY_ZERO:
                share = INSTEAD_OF_FREE
            cost_s = share * float(law.ppf(0.5))
            found[f"{name}, {rho:.0%} lost, {cost_s:.0f} s a submission"] = Pool(
                Process(law, rho, submit_cost_s=cost_s)
            )
    return found
