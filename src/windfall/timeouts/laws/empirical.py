"""The law of a sample: as many steps as there were latencies, and the timeout such a sample advises. Pure."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from windfall.errors import BadInput
from windfall.timeouts.arrays import Array, as_array
from windfall.timeouts.best import Best, Kind, describe
from windfall.timeouts.fitting.sample import Sample, survival
from windfall.timeouts.laws.closed import LatencyLaw
from windfall.timeouts.laws.steps import Steps, choose, gain_error
from windfall.timeouts.process import Process, check_quantile


class Empirical(LatencyLaw, frozen=True):
    """The latencies of a sample that came back, each as likely as it was seen. `share[i]`: at most times[i]."""

    name: ClassVar[str] = "empirical"
    times: Array
    share: Array

    def params(self) -> dict[str, float]:
        return {"steps": float(len(self.times))}

    def _index(self, t: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.intp]]:
        return np.searchsorted(self.times, t, side="right")

    def cdf(self, t: ArrayLike) -> Array:
        return np.concatenate([[0.0], self.share])[self._index(as_array(t))]

    def sf(self, t: ArrayLike) -> Array:
        return 1 - self.cdf(t)

    def ppf(self, p: ArrayLike) -> Array:
        index = np.searchsorted(self.share, as_array(p) * (1 - 1e-12))
        return self.times[np.minimum(index, len(self.times) - 1)]

    def _restricted(self, t: Array, order: int) -> Array:
        """E[min(R, t)^order]: what came back by t as it is, the rest as t."""
        mass = np.diff(self.share, prepend=0.0)
        done = np.concatenate([[0.0], np.cumsum(mass * self.times**order)])[self._index(t)]
        with np.errstate(invalid="ignore"):
            rest = np.where(np.isfinite(t), t**order, 0.0) * self.sf(t)
        return done + rest

    def restricted_mean(self, t: ArrayLike) -> Array:
        return self._restricted(as_array(t), 1)

    def restricted_square(self, t: ArrayLike) -> Array:
        return self._restricted(as_array(t), 2)

    def mean(self) -> float:
        return float(self.restricted_mean(math.inf))

    def density_at_zero(self) -> float:
        return 0.0

    def upper(self) -> float:
        return float(self.times[-1])

    def candidates(self) -> Array:
        return self.times


def empirical_process(steps: Steps, run_s: float = 0.0, submit_cost_s: float = 0.0) -> Process:
    """The process of equation 6 on the steps themselves; what never came back is the share of outliers."""
    if steps.left >= 1:
        raise BadInput("nothing came back")
    share = (1 - steps.survive) / (1 - steps.left)
    return Process(Empirical(steps.times, share), steps.left, run_s, submit_cost_s)


def best_of_sample(
    sample: Sample, run_s: float = 0.0, submit_cost_s: float = 0.0, quantile: float | None = None
) -> Best:
    """The timeout a sample advises: chosen on the smoothed curve with caution, reported on the curve as it was seen."""
    if quantile is not None:
        check_quantile(quantile)
    steps = survival(sample)
    process = empirical_process(steps, run_s, submit_cost_s)
    wait_s = choose(steps, process.overhead_s, quantile).wait_s
    uncertain = 0.0
    if quantile is None:
        value, none_s = float(process.expected(wait_s)), process.expected_without()
        if steps.left <= 0:
            uncertain = gain_error(steps, wait_s, process.overhead_s)
    else:
        value, none_s = float(process.quantile(quantile, wait_s)), float(process.quantile(quantile, math.inf))
    if math.isfinite(none_s) and process.rho == 0 and value + uncertain >= none_s:
        return describe(process, "none", math.inf, none_s, none_s, quantile)
    kind: Kind = "finite" if wait_s > 0 else "zero"
    return describe(process, kind, wait_s, value, none_s, quantile)
