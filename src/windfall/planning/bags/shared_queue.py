"""How many tasks of uncertain length a set of cores begins in time if they share one queue. Pure.

A row of two tasks on one core is late if both are long. Cores that share a queue do better: the next task begins on
whichever core is free first. The number of tasks begun by a moment is a renewal process; for log-normal run times its
mean is close to the larger of the first term and the asymptote.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from statistics import NormalDist

from msgspec import Struct

SPREADS = 0.9
"""Tasks counted on are this many standard deviations below the mean: one too many costs an on-demand machine, one too
few a spot machine, and the first is about four times as expensive."""


class Core(Struct, frozen=True, gc=False):
    """One core: seconds until it is expected to be free, whether a task runs on it, and the last moment to begin."""

    free_s: float
    is_busy: bool
    room_s: float
    speed: float = 1.0


class RunTimes(Struct, frozen=True):
    """A log-normal law of run times at speed 1."""

    mean_s: float
    sigma: float

    @property
    def variation(self) -> float:
        """The squared coefficient of variation."""
        return math.expm1(self.sigma**2)

    def share_within(self, seconds: float) -> float:
        """The share of tasks that take at most this long."""
        if seconds <= 0.0:
            return 0.0
        centre = math.log(self.mean_s) - self.sigma**2 / 2
        return NormalDist().cdf((math.log(seconds) - centre) / self.sigma)

    def quantile_s(self, share: float) -> float:
        """Seconds within which this share of tasks is done."""
        centre = math.log(self.mean_s) - self.sigma**2 / 2
        return math.exp(centre + self.sigma * NormalDist().inv_cdf(min(max(share, 1e-9), 1.0 - 1e-9)))


def run_times(mean_s: float, quantile_s: float, confidence: float) -> RunTimes:
    """The log-normal law with this mean and this quantile."""
    at = NormalDist().inv_cdf(min(max(confidence, 0.55), 1.0 - 1e-9))
    root = at * at - 2.0 * math.log(max(quantile_s / mean_s, 1.0))
    return RunTimes(mean_s, max(at - math.sqrt(root) if root > 0.0 else at, 1e-3))


def begun_in_time(cores: Iterable[Core], law: RunTimes) -> float:
    """How many tasks these cores begin in time, `SPREADS` standard deviations below the mean.

    `cores` may be a counter of equal ones.
    """
    mean = variance = 0.0
    for core, count in Counter(cores).items():
        expected, spread = _begun(core, law)
        mean, variance = mean + count * expected, variance + count * spread
    return mean - SPREADS * math.sqrt(variance)


def _begun(core: Core, law: RunTimes) -> tuple[float, float]:
    """Mean and variance of the number of tasks that one core begins in time."""
    room_s, seconds = core.room_s - core.free_s, law.mean_s / core.speed
    if core.is_busy:
        if core.room_s <= 0.0:
            return 0.0, 0.0
        # What is left of a running task is about exponential: its hazard rate no longer grows.
        first = -math.expm1(-core.room_s / max(core.free_s, 1e-6))
        many, sure = room_s / seconds + (1.0 + law.variation) / 2.0, 0.0
    else:
        if room_s < 0.0:
            return 0.0, 0.0
        first = law.share_within(room_s * core.speed)
        many, sure = room_s / seconds - (1.0 - law.variation) / 2.0, 1.0
    if many <= first:
        return sure + first, first * (1.0 - first)
    return sure + many, max(first * (1.0 - first), law.variation * many)
