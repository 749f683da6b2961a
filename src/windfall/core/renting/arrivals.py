"""How many jobs of each class arrive in an hour at a named fleet, by those of the last hours and days. Pure.

A class is a shape, the needs of its tasks and the time from submission to deadline. Recurring streams name their
classes of tasks and give estimates, so equal jobs fall into one class; jobs that differ are classes of their own.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Hashable

from windfall.core.state.jobs.bags import Bag
from windfall.core.state.state import State

MEMORY_S = 2 * 3600.0
"""Arrivals of this long tell the rate."""
BURST_S = 1200.0
"""Arrivals of this long replace them where they differ by more than `BURST_DEVIATIONS`."""
BURST_DEVIATIONS = 3.0
LEAST_LATELY = 0.5
"""Arrivals that are counted where a stream has stopped."""
MOST_COUNTED = 5_000
"""Of more arrivals the newest tell the rate, by the time in which they came."""
LEAST_S = 1200.0
"""A young fleet is taken to have been there for this long: one job in its first minute is no stream."""
HOUR_S, DAY_S = 3600.0, 86400.0
MOST_DAYS = 7
"""The hour that begins is foretold by the same hour of this many days before."""
LEAST_DAYS = 2
LEAST_OF_CLASS = 24
"""Of fewer jobs in all these days nothing is foretold."""
FORETOLD_LOSS = 0.9
"""The days before are believed if that would have cost at most this part in the last day.

A job in an hour too many keeps a machine for a cycle, one too few costs the boot of another machine: so prediction pays
where boots are long and days are alike."""
LOOKS = 24
"""Arrivals of the last day at which that is tried."""


class Arrivals:
    """The arrivals of one fleet, of the jobs that are remembered; of a job's own fleet there are none."""

    def __init__(self, state: State, fleet: int, t: float) -> None:
        self._t = t
        self._numbers: dict[Hashable, int] = {}
        self._moments: dict[Hashable, list[float]] = {}
        """By class when its jobs came, the newest first and negative: so they are sorted."""
        known = state.fleet.book.by_number.get(fleet)
        self._since_t = t
        self._boot_share = 0.0
        """Of a billing cycle, the longest."""
        if known is None:
            return
        offers = [offer for pool in known.rules.pools for offer in state.fleet.offers.get(pool, ())]
        self._boot_share = min(1.0, max((offer.lag_s / offer.cycle_s for offer in offers), default=0.0))
        oldest_t = t - (MOST_DAYS + 1) * DAY_S
        self._since_t = max(known.created_t, oldest_t)
        counted = 0
        for job in reversed(state.fleet.book.of_job):
            bag = state.bags[job]
            if bag.submitted_t <= oldest_t:
                break
            if state.fleet.book.of_job[job] == fleet:
                self._moments.setdefault(class_of(bag), []).append(-bag.submitted_t)
                counted += 1
            if counted == MOST_COUNTED:
                self._since_t = bag.submitted_t
                break

    def of(self, bag: Bag) -> tuple[int, float, float]:
        """The number of a job's class, how many of it come in an hour now, and how many came in the last hours."""
        key = class_of(bag)
        number = self._numbers.setdefault(key, len(self._numbers))
        moments = self._moments.get(key, [])
        now, usual = self._rates(moments, self._t)
        return number, max(now, self._foretold(moments)), usual

    def _rates(self, moments: list[float], t: float) -> tuple[float, float]:
        """The rate of the last minutes if it differs from that of the last hours, else that; and that."""
        span_s = min(MEMORY_S, max(LEAST_S, t - self._since_t))
        usual = _count(moments, t - MEMORY_S, t) * 3600 / span_s
        lately = _count(moments, t - BURST_S, t)
        if _differ(lately, usual * BURST_S / 3600):
            return max(lately, LEAST_LATELY) * 3600 / BURST_S, usual
        return usual, usual

    def _foretold(self, moments: list[float]) -> float:
        """Jobs of the hour that begins, by the same hour of the days before; 0 if it does not pay to believe them."""
        t, days = self._t, min(MOST_DAYS, int((self._t - self._since_t) / DAY_S))
        if days < LEAST_DAYS or len(moments) < LEAST_OF_CLASS:
            return 0.0
        if _differ(_count(moments, t - HOUR_S, t), _of_days(moments, t - HOUR_S, HOUR_S, days)):
            return 0.0
        return _of_days(moments, t, HOUR_S, days) if self._pays(moments, days - 1) else 0.0

    def _pays(self, moments: list[float], days: int) -> bool:
        """Whether the days before, asked at the arrivals of the last day, would have cost less than the last hours."""
        t = self._t
        first, last = bisect_left(moments, HOUR_S - t), bisect_left(moments, DAY_S + HOUR_S - t)
        by_days = by_hours = 0.0
        for place in range(first, last, max(1, (last - first) // LOOKS)):
            from_t = -moments[place]
            came = _count(moments, from_t, from_t + HOUR_S)
            now, _ = self._rates(moments, from_t)
            by_hours += self._loss(now, came)
            by_days += self._loss(max(now, _of_days(moments, from_t, HOUR_S, days)), came)
        return by_hours > 0.0 and by_days <= FORETOLD_LOSS * by_hours

    def _loss(self, expected: float, came: float) -> float:
        """In jobs: what a machine for each that does not come costs, and a boot for each that was not expected."""
        return expected - came if expected > came else self._boot_share * (came - expected)


def _of_days(moments: list[float], from_t: float, span_s: float, days: int) -> float:
    """The mean number that came in this time of the day, of the days before."""
    starts = (from_t - day * DAY_S for day in range(1, days + 1))
    return sum(_count(moments, start_t, start_t + span_s) for start_t in starts) / days


def _count(moments: list[float], after_t: float, until_t: float) -> int:
    """Of (after, until]."""
    return bisect_left(moments, -after_t) - bisect_left(moments, -until_t)


def _differ(came: float, expected: float) -> bool:
    """Twice the root of a count has a deviation of about 1, also where few are expected."""
    return 2 * abs(math.sqrt(came + 0.375) - math.sqrt(expected + 0.375)) > BURST_DEVIATIONS


def class_of(bag: Bag) -> Hashable:
    """What jobs of one class have in common. It is kept with the job until its terms change."""
    kept = bag.arrival_class
    if kept is None or kept[0] is not bag.terms or kept[1] != bag.total:
        needs = tuple((rules.name, rules.cpus, rules.memory_bytes, rules.estimate_s) for rules in bag.classes)
        key = (bag.shape_key, bag.total, bag.rules.deadline_s, needs)
        kept = bag.arrival_class = (bag.terms, bag.total, key)
    found: Hashable = kept[2]
    return found
