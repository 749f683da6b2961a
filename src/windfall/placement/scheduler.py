"""One pass from a request to a host and its victims (OPIE, algorithms 2 and 6). Pure but for the site it is given.

Filter on h_n for a normal request and on h_f for a preemptible one, weigh on h_f, then choose victims inside the
best host. No second cycle, and no state rebuilt: `Site` keeps both states, `CheapestSets` the cheapest victims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from windfall.numeric import Bools, Floats, Ints, np
from windfall.placement.evictions.cheapest import CheapestSets, cover
from windfall.placement.evictions.costs import Cost, Period, SetCost, micros
from windfall.placement.evictions.victims import Cover
from windfall.placement.hosts.filters import Predicate, Stage, passing, protected, room, stages
from windfall.placement.hosts.weighers import CHEAPEST, WEIGHERS, Weigher, normalised
from windfall.placement.model import Decision, Request
from windfall.placement.site import Site

REFUSED = Decision(None)
# Cached bounds over all request sizes: some tens of megabytes.
MAX_CACHED_NUMBERS = 2_000_000


class Weighed(Struct, frozen=True):
    """One decision in full, for explanations: hosts that passed, their raw and total weights, and victims.

    `rows` are the hosts that passed; `raw`, `total` and `covers` follow their order (an outline leaves them empty).
    """

    stages: Sequence[Stage]
    rows: Ints
    raw: Mapping[str, Floats]
    total: Floats
    covers: Sequence[Cover]
    decision: Decision


class Scheduler:
    """Decides for one site under one cost function and one set of weighers. It does not change the site.

    `weighers` maps names to multipliers: `cheapest` and those of `weighers.WEIGHERS`, or `extra` ones of your own.
    Hosts that tie are told apart by the victims where `cheapest` weighs, and then by `rng`.
    """

    def __init__(
        self,
        site: Site,
        cost: Cost | SetCost | None = None,
        weighers: Mapping[str, float] | None = None,
        rng: np.random.Generator | None = None,
        extra: Mapping[str, Weigher] | None = None,
    ) -> None:
        self.site = site
        self.cost: Cost | SetCost = cost if cost is not None else Period()
        self.weighers = dict(weighers) if weighers is not None else {CHEAPEST: 1.0}
        self.known = {**WEIGHERS, **(extra or {})}
        self.rng = rng if rng is not None else np.random.default_rng(0)
        self._sets: dict[tuple[int, ...], CheapestSets] = {}
        # `cheapest` alone needs the best host only, not the weights of all.
        self._best_only = list(self.weighers) == [CHEAPEST] and self.weighers[CHEAPEST] > 0

    def decide(self, request: Request, now_s: float = 0.0, predicate: Predicate | None = None) -> Decision:
        """The host and the victims; nothing is booted or evicted."""
        need, now_us = self.site.units(request.resources), micros(now_s)
        passes = self._passes(request, need, predicate)
        if not passes.any():
            return REFUSED
        if request.affinity or not self._best_only or isinstance(self.cost, SetCost):
            return self._weigh(request, need, now_us, passes)[-1]
        fits = passes if request.preemptible else passes & room(self.site.free_f, need)
        free = np.flatnonzero(fits)
        if free.size:
            return Decision(self.site.names[self._pick(free)])
        sets = self._sets_for(need, self.cost)
        h = self._pick(sets.cheapest(passes, now_us))
        return self._decision(h, sets.cover(h, now_us))

    def outline(self, request: Request, now_s: float = 0.0, predicate: Predicate | None = None) -> Weighed:
        """The same decision with the filters that led to it, and without the weights: for sites of many hosts."""
        filters = stages(self.site, request, self.site.units(request.resources), predicate)
        rows = np.flatnonzero(passing(filters))
        return Weighed(filters, rows, {}, np.zeros(0), [], self.decide(request, now_s, predicate))

    def weigh(self, request: Request, now_s: float = 0.0, predicate: Predicate | None = None) -> Weighed:
        """The same decision with everything that led to it."""
        need, now_us = self.site.units(request.resources), micros(now_s)
        filters = stages(self.site, request, need, predicate)
        passes = passing(filters)
        rows = np.flatnonzero(passes)
        if not rows.size:
            return Weighed(filters, rows, {}, np.zeros(0), [], REFUSED)
        raw, total, decision = self._weigh(request, need, now_us, passes)
        covers = [self._cover(request, need, int(h), now_us) for h in rows]
        return Weighed(filters, rows, raw, total, covers, decision)

    def _passes(self, request: Request, need: Ints, predicate: Predicate | None) -> Bools:
        plain = not (request.tags or request.aggregates or request.affinity or request.anti_affinity or predicate)
        if plain:
            return room(self.site.free_f if request.preemptible else self.site.free_n, need)
        return passing(stages(self.site, request, need, predicate))

    def _weigh(
        self, request: Request, need: Ints, now_us: int, passes: Bools
    ) -> tuple[dict[str, Floats], Floats, Decision]:
        rows = np.flatnonzero(passes)
        costs = counts = np.zeros(rows.size)
        if CHEAPEST in self.weighers and not request.preemptible:
            costs, counts = self._costs(request, need, now_us, passes, rows)
        raw = {
            name: -costs if name == CHEAPEST else self.known[name](self.site, need, now_us)[rows]
            for name in self.weighers
        }
        total = np.zeros(rows.size)
        for name, multiplier in self.weighers.items():
            total += multiplier * normalised(raw[name])
        ties = np.flatnonzero(total == total.max())
        for finer in (costs, counts):
            ties = ties[finer[ties] == finer[ties].min()]
        h = self._pick(rows[ties])
        return raw, total, self._decision(h, self._cover(request, need, h, now_us))

    def _costs(self, request: Request, need: Ints, now_us: int, passes: Bools, rows: Ints) -> tuple[Floats, Floats]:
        if request.affinity or isinstance(self.cost, SetCost):
            found = [self._cover(request, need, int(h), now_us) for h in rows]
            return np.array([float(c.cost) for c in found]), np.array([float(len(c.chosen)) for c in found])
        costs, counts = self._sets_for(need, self.cost).all_costs(passes, now_us)
        return costs[rows], counts[rows].astype(np.float64)

    def _cover(self, request: Request, need: Ints, h: int, now_us: int) -> Cover:
        if request.preemptible:
            return Cover(0, ())
        if not request.affinity and not isinstance(self.cost, SetCost):
            return self._sets_for(need, self.cost).cover(h, now_us)
        found = cover(self.site, h, need, self.cost, now_us, protected(self.site, request, h))
        assert found is not None, "the filter on h_n lets no host pass that could not be covered"
        return found

    def _decision(self, h: int, found: Cover) -> Decision:
        ids = self.site.slot_ids[h]
        return Decision(self.site.names[h], tuple(ids[slot] for slot in found.chosen), found.cost, found.proved)

    def _pick(self, rows: Ints) -> int:
        return int(rows[0] if rows.size == 1 else rows[self.rng.integers(rows.size)])

    def _sets_for(self, need: Ints, cost: Cost) -> CheapestSets:
        """Drop the least recently used sizes, so that many different sizes do not fill the memory."""
        key = tuple(need.tolist())
        sets = self._sets.pop(key, None)
        if sets is None:
            sets = CheapestSets(self.site, need, cost)
            while len(self._sets) >= max(4, MAX_CACHED_NUMBERS // max(1, 6 * len(self.site.names))):
                del self._sets[next(iter(self._sets))]
        self._sets[key] = sets
        return sets
