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

from windfall.planning.counts import AGES_H, AWAY, CLASSES, DAY_H, HERE

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


# Fitted by `fit_prior` to 17 public series of GPU and CPU machines on two clouds, 2022 and 2023.
PRIOR = Prior(
    here=(1.844, 1.3562, 0.9668, 0.7113, 0.4254, 0.3009, 0.1852, 0.1502, 0.0955, 0.0868, 0.0353),
    away=(2.3137, 1.6966, 1.1804, 0.8143, 0.5037, 0.4337, 0.248, 0.1391, 0.1189, 0.1188, 0.0459),
)
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
    return AvailabilityLaw(by_age, by_hour_of(memory.ends.sum(axis=1), expected, learning))


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


def believe(belief: Array, now: Array, ended: bool, tick_h: float, switching: Array) -> Array:
    """The belief in each regime after a tick in which a spell with these rates by regime ended or did not."""
    stays = np.exp(-now * tick_h)
    belief = belief * (1.0 - stays if ended else stays)
    result: Array = belief / belief.sum() @ switching
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


class Watcher:
    """Observes one market. The law is learned again when a spell ends, and every `RELEARN_H`."""

    RELEARN_H = 1.0

    def __init__(self, tick_s: float, prior: Prior, learning: Learning) -> None:
        self.tick_s, self.prior, self.learning = tick_s, prior, learning
        self.memory = Memory()
        self.law = learn(self.memory, prior, learning)
        self.regimes = learning.regimes()
        self.belief: Array = np.full(len(self.regimes), 1.0 / len(self.regimes))
        self.switching = learning.switching(tick_s / 3600.0)
        self.relearn_ticks = max(1, round(self.RELEARN_H * 3600.0 / tick_s))

    @property
    def available(self) -> bool:
        return bool(self.memory.available)

    @property
    def kind(self) -> int:
        return HERE if self.memory.available else AWAY

    @property
    def age(self) -> int:
        return age_class(self.memory.age_ticks, self.tick_s)

    @property
    def hour(self) -> float:
        """Hours since the first tick."""
        return self.memory.ticks * self.tick_s / 3600.0

    def observe(self, available: bool, *, replaced: bool = False, age_ticks: int | None = None) -> None:
        """Add one tick. `age_ticks`: the age of the spell, where the observed unit of spot may have changed."""
        self._observe(available, replaced)
        if age_ticks is not None:
            self.memory.age_ticks = age_ticks

    def _observe(self, available: bool, replaced: bool) -> None:
        if self.memory.available is None:
            remember(self.memory, available, self.tick_s)
            return
        kind, usual = self.kind, self.law.by_age[self.kind, self.age]
        usual = usual * self.law.by_hour[kind, hour_of_day(self.memory.ticks, self.tick_s)]
        ended = remember(self.memory, available, self.tick_s, replaced=replaced)
        self.belief = believe(
            self.belief, usual * self.regimes[:, kind], ended, self.tick_s / 3600.0, self.switching
        )  # fmt: skip
        if ended or self.memory.ticks % self.relearn_ticks == 0:
            self.law = learn(self.memory, self.prior, self.learning)

    def replacement(self) -> float:
        """The chance that ended spot is replaced at once; the prior is two ends without a replacement."""
        ends = self.memory.ends[HERE].sum()
        return float(self.memory.replaced / (ends + 2.0))

    def ends_per_h(self, age_ticks: int) -> float:
        """Hazard rate per hour of spot of this age at this hour, averaged over the regimes."""
        hour = hour_of_day(self.memory.ticks, self.tick_s)
        usual = self.law.by_age[HERE, age_class(age_ticks, self.tick_s)] * self.law.by_hour[HERE, hour]
        return float(usual * (self.belief @ self.regimes[:, HERE]))

    def rates(self, ahead_h: Array) -> Array:
        """Ends per hour by (hours ahead, regime, kind of spell, age class)."""
        return rates(self.law, self.learning, (self.hour + ahead_h).astype(int) % DAY_H)
