"""How many jobs of each class arrive in an hour at a named fleet, by those of the last hours. Pure.

A class is a shape, the needs of its tasks and the time from submission to deadline. Recurring streams name their
classes of tasks and give estimates, so equal jobs fall into one class; jobs that differ are classes of their own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable

from windfall.core.state.jobs.bags import Bag
from windfall.core.state.state import State

MEMORY_S = 2 * 3600.0
"""Arrivals of this long tell the rate."""
BURST_S = 1200.0
"""Arrivals of this long replace them where they differ by more than `BURST_DEVIATIONS`."""
BURST_DEVIATIONS = 2.0
MOST_COUNTED = 5_000
"""Of more arrivals the newest tell the rate, by the time in which they came."""
LEAST_S = 1200.0
"""A young fleet is taken to have been there for this long: one job in its first minute is no stream."""


class Arrivals:
    """The recent arrivals of one fleet; of a job's own fleet there are none."""

    def __init__(self, state: State, fleet: int, t: float) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._count: Counter[Hashable] = Counter()
        self._lately: Counter[Hashable] = Counter()
        known = state.fleet.book.by_number.get(fleet)
        self._hours, self._burst_s = LEAST_S / 3600, BURST_S
        if known is None:
            return
        self._hours = min(MEMORY_S, max(LEAST_S, t - known.created_t)) / 3600
        counted = 0
        for job in reversed(state.fleet.book.of_job):
            bag = state.bags[job]
            if bag.submitted_t <= t - MEMORY_S:
                break
            if state.fleet.book.of_job[job] == fleet:
                key = class_of(bag)
                self._count[key] += 1
                self._lately[key] += bag.submitted_t > t - BURST_S
                counted += 1
            if counted == MOST_COUNTED:
                self._hours = max(1.0, t - bag.submitted_t) / 3600
                self._burst_s = min(BURST_S, 3600 * self._hours)
                break

    def of(self, bag: Bag) -> tuple[int, float]:
        """The number of a job's class, and how many of it come in an hour."""
        key = class_of(bag)
        number = self._numbers.setdefault(key, len(self._numbers))
        return number, self._per_hour(self._count[key], self._lately[key])

    def _per_hour(self, count: int, lately: int) -> float:
        usual = count / self._hours
        expected = usual * self._burst_s / 3600
        if abs(lately - expected) > BURST_DEVIATIONS * math.sqrt(expected) and lately:
            return lately / (self._burst_s / 3600)
        return usual


def class_of(bag: Bag) -> Hashable:
    """What jobs of one class have in common. It is kept with the job until its terms change."""
    kept = bag.arrival_class
    if kept is None or kept[0] is not bag.terms or kept[1] != bag.total:
        needs = tuple((rules.name, rules.cpus, rules.memory_bytes, rules.estimate_s) for rules in bag.classes)
        key = (bag.shape_key, bag.total, bag.rules.deadline_s, needs)
        kept = bag.arrival_class = (bag.terms, bag.total, key)
    found: Hashable = kept[2]
    return found
