"""The law of spot availability, learned from observed ticks. Pure: ticks in, hazard rates out.

Availability is bursty: a spell that has just begun is likely to end soon, an old one is likely to last. So the hazard
rate of a spell depends on its age (a semi-Markov law). It is learned in layers, each weighted by its observations: a
prior for spot markets in general, the level of this market, its rates by age, and its hours of the day. A market also
has better and worse days: hidden regimes, for each of which a belief is kept.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from functools import cache

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from windfall.planning.counts import AGES_H, AWAY, CLASSES, DAY_H, HERE, USUAL_ENDS_PER_H

Array = NDArray[np.float64]


class Prior(Struct, frozen=True):
    """Hazard rates per hour by age of the spell: of spells with spot (`here`) and without (`away`)."""

    here: tuple[float, ...]
    away: tuple[float, ...]

    def table(self) -> Array:
        return np.array([self.here, self.away])


class Learning(Struct, frozen=True, kw_only=True):
    """The weight of each layer, in ends of spells, and the regimes.

    In a good regime spells with spot end `regime_factor` times less often than usual and those without as much more
    often; in a bad one the reverse. A regime lasts `regime_h` on average.
    """

    level_weight: float
    age_weight: float
    day_weight: float
    day_spread_h: float
    regime_factor: float
    regime_h: float

    def regimes(self) -> Array:
        """Factors on the rates by (regime, kind of spell): as usual, good, bad."""
        factor = self.regime_factor
        return np.array([[1.0, 1.0], [1.0 / factor, factor], [factor, 1.0 / factor]])

    def switching(self, hours: float) -> Array:
        """The chance of each regime after some hours, by the present one; all others are equally likely."""
        count = len(self.regimes())
        kept = math.exp(-count / (count - 1) * hours / self.regime_h)
        matrix: Array = np.full((count, count), (1.0 - kept) / count) + kept * np.eye(count)
        return matrix


PRIOR = Prior(*USUAL_ENDS_PER_H)
LEARNING = Learning(
    level_weight=10.0, age_weight=10.0, day_weight=5.0, day_spread_h=2.0, regime_factor=1.5, regime_h=48.0
)


def _zeros() -> Array:
    return np.zeros((2, CLASSES, DAY_H))


class Memory(Struct):
    """All observations: the present spell; ends and hours by kind of spell, age and hour of the day."""

    available: bool | None = None
    age_ticks: int = 0
    ticks: int = 0
    ends: Array = field(default_factory=_zeros)
    hours: Array = field(default_factory=_zeros)
    replaced: int = 0
    """Spells with spot that ended while there was spot elsewhere."""


class AvailabilityLaw(Struct, frozen=True):
    """Hazard rates per hour by kind of spell and age, and factors on them by hour of the day."""

    by_age: Array
    by_hour: Array
    level: Array
    """Ends that the law expects in the hours that were observed over those by the usual rates, by kind of spell."""


def age_class(age_ticks: int, tick_s: float) -> int:
    """The class of a spell's age, at the middle of the tick: the first tick is not of age 0."""
    return bisect_right(AGES_H, (age_ticks + 0.5) * tick_s / 3600.0) - 1


def hour_of_day(ticks: int, tick_s: float) -> int:
    """The hour of the day, counted from the first observed tick: only the period of 24 hours matters."""
    return int(ticks * tick_s / 3600.0 % DAY_H)


def remember(memory: Memory, available: bool, tick_s: float, *, replaced: bool = False) -> bool:
    """Add one tick; returns whether it ended a spell. `replaced`: this spot ended, but other spot is available."""
    if memory.available is None:
        memory.available = available
        return False
    kind = HERE if memory.available else AWAY
    place = kind, age_class(memory.age_ticks, tick_s), hour_of_day(memory.ticks, tick_s)
    memory.hours[place] += tick_s / 3600.0
    memory.ticks += 1
    if available == memory.available and not replaced:
        memory.age_ticks += 1
        return False
    memory.ends[place] += 1.0
    memory.replaced += replaced
    memory.available, memory.age_ticks = available, 0
    return True


@cache
def _blur(spread_h: float) -> Array:
    """Weights of each hour of the day in the estimate of each other hour."""
    apart = np.abs(np.subtract.outer(np.arange(DAY_H), np.arange(DAY_H)))
    result: Array = np.exp(-0.5 * (np.minimum(apart, DAY_H - apart) / spread_h) ** 2)
    return result


def learn(memory: Memory, prior: Prior, learning: Learning) -> AvailabilityLaw:
    """The law of a market from its observations; each layer is the prior of the next."""
    ends, hours = memory.ends.sum(axis=2), memory.hours.sum(axis=2)
    weight = learning.level_weight
    level = (ends.sum(axis=1) + weight) / ((hours * prior.table()).sum(axis=1) + weight)
    usual = prior.table() * level[:, None]
    by_age = (ends + learning.age_weight) / (hours + learning.age_weight / usual)
    expected = (memory.hours * by_age[:, :, None]).sum(axis=1)
    by_hour = by_hour_of(memory.ends.sum(axis=1), expected, learning)
    return AvailabilityLaw(by_age, by_hour, _over_usual((expected * by_hour).sum(axis=1), hours))


def _over_usual(expected: Array, hours: Array) -> Array:
    """Ends that the law expects in these hours over those by the usual rates; 1 where nothing was observed."""
    usual = (hours * np.array(USUAL_ENDS_PER_H)).sum(axis=1)
    result: Array = (expected + 1e-6) / (usual + 1e-6)
    return result


def by_hour_of(ends: Array, expected: Array, learning: Learning) -> Array:
    """Factors by hour of the day from the ends in each hour and those that the rates by age had expected there."""
    blur = _blur(learning.day_spread_h)
    result: Array = (ends @ blur + learning.day_weight) / (expected @ blur + learning.day_weight)
    return result


def rates(law: AvailabilityLaw, learning: Learning, hours: NDArray[np.int_]) -> Array:
    """Ends per hour by (one of the given hours of the day, regime, kind of spell, age class)."""
    daily = law.by_hour[:, hours].T
    result: Array = daily[:, None, :, None] * learning.regimes()[None, :, :, None] * law.by_age[None, None, :, :]
    return result


def fit_prior(series: Iterable[tuple[float, Iterable[bool]]]) -> Prior:
    """A prior from series of (tick_s, availability); a series counts for at most 200 hours."""
    ends, hours = np.zeros((2, CLASSES)), np.zeros((2, CLASSES))
    for tick_s, available in series:
        memory = Memory()
        for now in available:
            remember(memory, bool(now), tick_s)
        weight = 1.0 / max(1.0, memory.hours.sum() / 200.0)
        ends += weight * memory.ends.sum(axis=2)
        hours += weight * memory.hours.sum(axis=2)
    table = (ends + 0.3) / (hours + 0.3)
    return Prior(*(tuple(round(float(rate), 4) for rate in row) for row in table))
