"""Choose the set of machine types for the expected load: Windfall's own addition to SCS. Pure.

SCS sends each task to the type that is cheapest per second of work, as if every machine were full. At low load the
expensive types idle through paid hours. Here recent arrivals predict the load, and jobs are planned on the set of
types with the lowest predicted bill, idle hours included.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from msgspec import structs

from windfall.planning.offers import Offer
from windfall.planning.stream.classes import JobClass
from windfall.planning.workflow.model import NoOffer, Workflow

SPARE_TIME_FACTOR = 1.08  # a smaller set must leave each task this multiple of its run time, for bursts
SHARED_BILL_FACTOR = 0.85  # on the bill for all types; tuned on workloads that the laboratory does not report
ALL_SUBSETS_UP_TO = 6  # types; above, types are dropped one by one


class TypeMix:
    """The variants of one job class on subsets of the offers, and the best of them for a rate of arrivals."""

    def __init__(self, workflow: Workflow, offers: tuple[Offer, ...], deadline_s: float, steps: int = 48) -> None:
        self._workflow, self._offers = workflow, offers
        self._deadline_s, self._steps = deadline_s, steps
        self._variants: dict[frozenset[int], JobClass | None] = {}
        self._best: dict[float, JobClass] = {}  # by rate, for rates that come again

    def best(self, jobs_per_hour: float) -> JobClass:
        """The variant with the lowest predicted bill per hour; all types if no set keeps the deadline."""
        if jobs_per_hour not in self._best:
            self._best[jobs_per_hour] = self._find_best(jobs_per_hour)
        return self._best[jobs_per_hour]

    def _find_best(self, jobs_per_hour: float) -> JobClass:
        every = frozenset(range(len(self._offers)))
        if len(every) <= ALL_SUBSETS_UP_TO:
            subsets = [
                frozenset(some) for size in range(1, len(every) + 1) for some in combinations(sorted(every), size)
            ]
            chosen = min(subsets, key=lambda some: (self._compared(some, jobs_per_hour), -len(some), sorted(some)))
        else:
            chosen = self._drop_one_by_one(every, jobs_per_hour)
        return self._variant(chosen) or self._make(self._offers)

    def _compared(self, some: frozenset[int], jobs_per_hour: float) -> float:
        """The bill for comparisons. All types together share paid hours, which `bill` ignores: hence the factor."""
        return self.bill(some, jobs_per_hour) * (1.0 if len(some) < len(self._offers) else SHARED_BILL_FACTOR)

    def _make(self, offers: tuple[Offer, ...]) -> JobClass:
        return JobClass(self._workflow, offers, self._deadline_s, steps=self._steps)

    def _drop_one_by_one(self, every: frozenset[int], jobs_per_hour: float) -> frozenset[int]:
        chosen, cost = every, self.bill(every, jobs_per_hour)
        while len(chosen) > 1:
            smaller = min((chosen - {o} for o in sorted(chosen)), key=lambda some: self.bill(some, jobs_per_hour))
            if self.bill(smaller, jobs_per_hour) >= cost:
                break
            chosen, cost = smaller, self.bill(smaller, jobs_per_hour)
        return chosen

    def bill(self, some: frozenset[int], jobs_per_hour: float) -> float:
        """Dollars an hour for a stream of this rate; infinite if the deadline cannot be kept."""
        variant = self._variant(some)
        if variant is None:
            return math.inf
        template = variant.assigned(0, variant.deadline_s)
        cost = 0.0
        for o in sorted(some):
            offer = self._offers[o]
            mine = np.flatnonzero(template.offer == o)
            if mine.size:
                cycles_per_job = float(variant.duration_s[mine, o].sum()) / offer.cycle_s
                cycles_per_hour = 3600.0 / offer.cycle_s
                load = jobs_per_hour * cycles_per_job / cycles_per_hour
                # A lone job pays whole cycles; many jobs fill machines, except half of one and a reserve for bursts.
                alone = jobs_per_hour * math.ceil(cycles_per_job)
                together = (load + 0.5 + 0.5 * math.sqrt(load)) * cycles_per_hour
                cost += offer.price_usd * min(alone, together)
        return cost

    def _variant(self, some: frozenset[int]) -> JobClass | None:
        """The job class on these offers only; None if a task fits none of them or the deadline cannot be kept."""
        if some not in self._variants:
            offers = tuple(
                offer if o in some else structs.replace(offer, limit=0) for o, offer in enumerate(self._offers)
            )
            try:
                variant = self._make(offers)
            except NoOffer:
                self._variants[some] = None
                return None
            template = variant.assigned(0, variant.deadline_s)
            needs = variant.duration_s[np.arange(variant.n), template.offer]
            spare = 1.0 if len(some) == len(self._offers) else SPARE_TIME_FACTOR
            holds = bool((template.due_s - template.begin_s >= spare * needs - 1e-3).all())
            self._variants[some] = variant if holds else None
        return self._variants[some]
