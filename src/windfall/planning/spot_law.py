"""How long spot stays and how long it stays away, learned while it is watched. Pure: ticks in, rates of change out.

Availability is bursty: a spell that has just begun is likely to end soon, one that has lasted is likely to last. So the
rate at which a spell ends depends on its age (a semi-Markov law). Three layers are weighed by how much each has seen:
a prior for spot markets at large, the whole past of this market, and its last hours, whose say fades with the horizon.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Ages in hours at which the rate may change; coarser with age because the law is roughly a power of it.
AGES_H = (0.0, 0.17, 0.34, 0.6, 1.0, 1.7, 3.0, 5.0, 8.0, 13.0, 21.0)
CLASSES = len(AGES_H)
HERE, AWAY = 0, 1


class Prior(Struct, frozen=True):
    """Ends per hour of a spell by its age: of spells with spot (`here`) and without (`away`)."""

    here: tuple[float, ...]
    away: tuple[float, ...]

    def table(self) -> Array:
        return np.array([self.here, self.away])


class Learning(Struct, frozen=True, kw_only=True):
    """How much each layer weighs, in ends of spells, and how long the last hours count."""

    prior_weight: float
    series_weight: float
    recent_weight: float
    recent_half_life_h: float
    recent_fades_h: float


def _zeros() -> Array:
    return np.zeros((2, CLASSES))


class Memory(Struct):
    """All that is kept of what was seen: the present spell, and ends and hours by kind of spell and age."""

    available: bool | None = None
    age_ticks: int = 0
    ends: Array = field(default_factory=_zeros)
    hours: Array = field(default_factory=_zeros)
    recent_ends: Array = field(default_factory=_zeros)
    recent_hours: Array = field(default_factory=_zeros)


def age_class(age_ticks: int, tick_s: float) -> int:
    """The class of a spell's age; the middle of the tick counts, so that the first tick is not of age nothing."""
    return bisect_right(AGES_H, (age_ticks + 0.5) * tick_s / 3600.0) - 1


def remember(memory: Memory, available: bool, tick_s: float, half_life_h: float) -> None:
    """Add one tick to the memory."""
    if memory.available is None:
        memory.available = available
        return
    tick_h = tick_s / 3600.0
    here = (HERE if memory.available else AWAY, age_class(memory.age_ticks, tick_s))
    fade = 0.5 ** (tick_h / half_life_h)
    memory.recent_ends *= fade
    memory.recent_hours *= fade
    memory.hours[here] += tick_h
    memory.recent_hours[here] += tick_h
    if available == memory.available:
        memory.age_ticks += 1
        return
    memory.ends[here] += 1.0
    memory.recent_ends[here] += 1.0
    memory.available, memory.age_ticks = available, 0


def rates(memory: Memory, prior: Prior, learning: Learning, ahead_h: Array) -> Array:
    """Ends per hour by (hours ahead, kind of spell, age class)."""
    usual = prior.table()
    seen, expected = memory.ends.sum(axis=1), (memory.hours * usual).sum(axis=1)
    level = (seen + learning.series_weight) / (expected + learning.series_weight)
    usual = usual * level[:, None]
    weight = learning.prior_weight
    own = (memory.ends + weight) / (memory.hours + weight / usual)
    lately, expected = memory.recent_ends.sum(axis=1), (memory.recent_hours * own).sum(axis=1)
    mood = (lately + learning.recent_weight) / (expected + learning.recent_weight)
    fading = np.exp(-ahead_h / learning.recent_fades_h)[:, None] * np.log(mood)[None, :]
    result: Array = own[None, :, :] * np.exp(fading)[:, :, None]
    return result


def fit_prior(series: Iterable[tuple[float, Iterable[bool]]]) -> Prior:
    """The prior of a kind of market from series of (tick_s, availability); long series do not drown short ones."""
    ends, hours = _zeros(), _zeros()
    for tick_s, available in series:
        memory = Memory()
        for now in available:
            remember(memory, bool(now), tick_s, half_life_h=1.0)
        weight = 1.0 / max(1.0, memory.hours.sum() / 200.0)
        ends += weight * memory.ends
        hours += weight * memory.hours
    table = (ends + 0.3) / (hours + 0.3)
    return Prior(*(tuple(round(float(rate), 4) for rate in row) for row in table))
