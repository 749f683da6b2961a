"""What is known of one spot market at one moment: its law, the present spell, the belief in each regime. Pure.

The laboratory and the live planner count in `planning.counts` and read the counts here. So the same observations give
the same law, whoever made them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from msgspec import Struct

from windfall.planning.counts import (
    AGES_H,
    AWAY,
    CLASSES,
    DAY_H,
    HERE,
    HOUR_S,
    CountSettings,
    SpellCounts,
    came_back,
    count,
    lately,
    refused,
    was_up,
)
from windfall.planning.spot.law import LEARNING, PRIOR, Array, AvailabilityLaw, Learning, Memory, Prior, learn, rates

RELEARN_H = 4.0
"""A spell that goes on counts up to the last multiple of this: the law, and the tables that follow from it, need not be
computed again every tick."""


class Sight(Struct, frozen=True):
    """One market at one moment: the kind and the age of its spell, its law and the belief in each regime."""

    law: AvailabilityLaw
    learning: Learning
    belief: Array
    kind: int
    age_s: float
    replaced: float = 0.0
    """The chance that interrupted spot is replaced at once by spot of another offer."""

    def age_class(self, step_s: float) -> int:
        """The class of the spell's age in the middle of the next step."""
        return _age_class(self.age_s + step_s / 2)


def _age_class(age_s: float) -> int:
    return bisect_right(AGES_H, age_s / HOUR_S) - 1


def sight_of(
    counts: SpellCounts,
    t: float,
    *,
    up_since_t: Iterable[float] = (),
    is_here: bool | None = None,
    imported: SpellCounts | None = None,
    prior: Prior = PRIOR,
    learning: Learning = LEARNING,
    replaced: float = 0.0,
    looks_every_s: float = 0.0,
) -> Sight:
    """What the counts say at t. `up_since_t`: since when machines are up; their present time counts as well.

    `is_here`: whether there is capacity now, where that is known better than by the last sign. `looks_every_s`: how
    often somebody looks; capacity that came back since the last look did so by the first look that was left out.
    """
    is_here = counts.away_t is None if is_here is None else is_here
    up_since_t = tuple(up_since_t)
    relearned_t = math.floor(t / HOUR_S / RELEARN_H) * RELEARN_H * HOUR_S
    known = [counts, _going_on(counts, relearned_t, up_since_t), imported]
    cells = tuple(tuple(each.cells.items()) for each in known if each is not None)
    law = _law(cells, prior, learning)
    return Sight(
        law, learning, _belief(counts, _going_on(counts, t, up_since_t), t, law, learning), HERE if is_here else AWAY,
        _age_s(counts, t, is_here, looks_every_s), replaced,
    )  # fmt: skip


@lru_cache(maxsize=8)
def _law(
    cells: tuple[tuple[tuple[int, tuple[float, float]], ...], ...], prior: Prior, learning: Learning
) -> AvailabilityLaw:
    """The law of these (place, (ends, hours)); kept, because most ticks change nothing."""
    memory = Memory()
    ends, hours = memory.ends.reshape(-1), memory.hours.reshape(-1)
    for each in cells:
        for place, (ended, held_h) in each:
            ends[place] += ended
            hours[place] += held_h
    return learn(memory, prior, learning)


def _going_on(counts: SpellCounts, until_t: float, up_since_t: Iterable[float]) -> SpellCounts:
    """The part of the present spells up to a moment."""
    more = SpellCounts()
    for since_t in up_since_t:
        begun_t = since_t if counts.here_t is None else min(counts.here_t, since_t)
        count(more, HERE, begun_t, since_t, until_t, ended=False)
    if counts.away_t is not None:
        count(more, AWAY, counts.away_t, counts.away_t, min(until_t, counts.seen_t or until_t), ended=False)
    return more


def _belief(
    counts: SpellCounts, going_on: SpellCounts, t: float, law: AvailabilityLaw, learning: Learning
) -> Array:  # fmt: skip
    """The belief in each regime: how well it explains the number of ends lately, against the one by the law."""
    before, now = np.array(lately(counts, t)), np.array(lately(going_on, t))
    ends, usual = before[[0, 2]], before[[1, 3]] + now[[1, 3]]
    factors = learning.regimes()
    likely = (ends * np.log(factors) - usual * law.level * factors).sum(axis=1)
    weights: Array = np.exp(likely - likely.max())
    belief: Array = weights / weights.sum()
    return belief


def _age_s(counts: SpellCounts, t: float, is_here: bool, looks_every_s: float) -> float:
    """The age of the present spell. Where capacity is assumed that was absent at the last look, it came back since."""
    if not is_here:
        return 0.0 if counts.away_t is None else max(0.0, t - counts.away_t)
    if counts.away_t is not None:
        return max(0.0, t - (counts.seen_t or t) - looks_every_s)
    return CountSettings().unknown_age_s if counts.here_t is None else max(0.0, t - counts.here_t)


class Watcher:
    """Counts a market of which every tick is seen, as the laboratory does, and forecasts it."""

    def __init__(self, tick_s: float, prior: Prior, learning: Learning) -> None:
        self.tick_s, self.prior, self.learning = tick_s, prior, learning
        self.counts = SpellCounts()
        self.rules = CountSettings(gap_s=max(CountSettings().gap_s, 2.0 * tick_s))
        self.ticks, self.replaced, self.since_t = 0, 0, 0.0
        self.is_available: bool | None = None
        self._sight: Sight | None = None

    @property
    def t(self) -> float:
        """The moment of the last tick."""
        return max(0, self.ticks - 1) * self.tick_s

    @property
    def available(self) -> bool:
        return bool(self.is_available)

    def observe(self, available: bool, *, replaced: bool = False, age_ticks: int | None = None) -> None:
        """Add one tick. `replaced`: this spot has ended, but other spot is available. `age_ticks`: the age of the
        spell, where the observed unit of spot may have changed.
        """
        t, before = self.ticks * self.tick_s, self.is_available
        self.ticks, self.is_available, self._sight = self.ticks + 1, available, None
        if before and (replaced or not available):
            was_up(self.counts, self.since_t, t, True, self.rules)
            self.replaced += replaced
        if not available:
            refused(self.counts, t)
        elif replaced and before:
            self.counts.away_t, self.counts.here_t, self.since_t = None, t, t
        else:
            self.since_t = self.since_t if before else t
            came_back(self.counts, t, self.rules)
        if age_ticks is not None:
            self.counts.here_t = t - age_ticks * self.tick_s

    def as_past(self) -> SpellCounts:
        """The counts for somebody whose first tick is the next one: the hours of the day count from there."""
        hours = int(self.ticks * self.tick_s / HOUR_S)
        cells = {
            place // DAY_H * DAY_H + (place % DAY_H - hours) % DAY_H: cell for place, cell in self.counts.cells.items()
        }
        return SpellCounts(cells=cells)

    def sight(self) -> Sight:
        if self._sight is None:
            self._sight = sight_of(
                self.counts, self.t, up_since_t=[self.since_t] if self.available else [], is_here=self.available,
                prior=self.prior, learning=self.learning, replaced=self.replacement(),
            )  # fmt: skip
        return self._sight

    @property
    def law(self) -> AvailabilityLaw:
        return self.sight().law

    @property
    def belief(self) -> Array:
        return self.sight().belief

    def replacement(self) -> float:
        """The chance that ended spot is replaced at once; the prior is two ends without a replacement."""
        if not self.replaced:
            return 0.0
        ends = math.fsum(ended for place, (ended, _) in self.counts.cells.items() if place < CLASSES * DAY_H)
        return self.replaced / (ends + 2.0)

    def ends_per_h(self, age_ticks: int) -> float:
        """Hazard rate per hour of spot of this age at this hour, averaged over the regimes."""
        sight, hour = self.sight(), int(self.t / HOUR_S % DAY_H)
        usual = sight.law.by_age[HERE, _age_class((age_ticks + 0.5) * self.tick_s)] * sight.law.by_hour[HERE, hour]
        return float(usual * (sight.belief @ self.learning.regimes()[:, HERE]))

    def rates(self, ahead_h: Array) -> Array:
        """Ends per hour by (hours ahead, regime, kind of spell, age class)."""
        return rates(self.sight().law, self.learning, (self.t / HOUR_S + ahead_h).astype(int) % DAY_H)
