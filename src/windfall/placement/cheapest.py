"""The cost of the cheapest sufficient victim set of every host, kept rather than computed anew. Pure.

One `CheapestSets` serves requests of one size. What it knows of a host goes out of date when an instance comes or
goes there, or when a cost falls with time (a billed period ends). In between, costs only rise, so an old answer is
a lower bound for now: the cheapest host is found by solving, best bound first, until the best bound is an answer.
Hosts that are out of date first get a bound together, in a few array operations (`_bounds`).
"""

from __future__ import annotations

import numpy as np

from windfall.placement.costs import NEVER, Cost, SetCost
from windfall.placement.model import Bools, Floats, Ints
from windfall.placement.site import Site
from windfall.placement.victims import Cover, cheapest_cover, search_cover

# Floats of cost are exact up to 2**53; bounds built by division are lowered by this much to stay below the truth.
ROUNDING = 1e-12


def cover(
    site: Site, h: int, need: Ints, cost: Cost | SetCost, now_us: int, spare: set[int] | None = None
) -> Cover | None:
    """The cheapest sufficient victims of one host, as slots; None where evicting all would not do."""
    slots = [slot for slot in site.slots_of(h) if not spare or slot not in spare]
    short = [
        max(0, lack) if asked else 0
        for asked, lack in zip(need.tolist(), (need - site.free_f[:, h]).tolist(), strict=True)
    ]
    sizes = site.size[:, h, slots].T.tolist()
    if isinstance(cost, SetCost):
        ids = [site.slot_ids[h][slot] for slot in slots]
        groups = [site.instances[identity].instance.group for identity in ids]
        found = search_cover(
            sizes, lambda chosen: cost.of([ids[i] for i in chosen], [groups[i] for i in chosen]), short, cost.limit
        )
    else:
        costs = cost(site.preemptibles(slice(h, h + 1)), now_us)[0]
        found = cheapest_cover(sizes, costs[slots].tolist(), short)
    return None if found is None else found._replace(chosen=tuple(slots[i] for i in found.chosen))


class CheapestSets:
    """Bounds and answers for requests of one size, `need` in units of the site."""

    def __init__(self, site: Site, need: Ints, cost: Cost) -> None:
        self.site, self.need, self.cost = site, need, cost
        hosts = len(site.names)
        self.lower: Floats = np.zeros(hosts)
        self.at_us: Ints = np.zeros(hosts, dtype=np.int64)
        self.until_us: Ints = np.zeros(hosts, dtype=np.int64)
        self.seen: Ints = np.full(hosts, -1, dtype=np.int64)
        self.solved: Bools = np.zeros(hosts, dtype=np.bool_)
        self.count: Ints = np.zeros(hosts, dtype=np.int64)  # victims of a solved host; of another, at least
        self.covers: list[Cover | None] = [None] * hosts

    def cheapest(self, eligible: Bools, now_us: int) -> tuple[Ints, int]:
        """The eligible hosts whose cheapest set costs least and, of these, is smallest; and that cost.

        `eligible` hosts can all be covered: they passed the filter on h_n.
        """
        self._refresh(now_us)
        lower = self._lower(now_us)
        lower[~eligible] = np.inf
        while True:
            least = lower.min()
            ties = np.flatnonzero(lower == least)
            open_ones = ties[~self._answered(ties, now_us)]
            if not open_ones.size:
                counts = self.count[ties]
                return ties[counts == counts.min()], int(least)
            for h in open_ones.tolist():
                self._solve(h, now_us)
                lower[h] = self.lower[h]

    def all_costs(self, eligible: Bools, now_us: int) -> tuple[Floats, Ints]:
        """Cost and number of victims of every eligible host, exactly (elsewhere, bounds)."""
        self._refresh(now_us)
        rows = np.flatnonzero(eligible)
        for h in rows[~self._answered(rows, now_us)].tolist():
            self._solve(h, now_us)
        return self._lower(now_us), self.count

    def cover(self, h: int, now_us: int) -> Cover:
        """The cheapest sufficient victims of one eligible host, as slots."""
        stale = self.seen[h] != self.site.version[h] or self.until_us[h] <= now_us
        if stale or not self._answered(np.array([h]), now_us)[0]:
            self._solve(h, now_us)
        found = self.covers[h]
        assert found is not None, "an eligible host can be covered"
        grown = self.cost.slope * (now_us - int(self.at_us[h])) * len(found.chosen)
        return found._replace(cost=found.cost + grown)

    def _lower(self, now_us: int) -> Floats:
        """What the cheapest set of each host costs at least, now: every set has a victim, and every victim gains."""
        if not self.cost.slope:
            return self.lower.copy()
        return self.lower + self.cost.slope * (now_us - self.at_us) * (self.count > 0)

    def _answered(self, rows: Ints, now_us: int) -> Bools:
        """Whose bound is the truth now. All costs rising alike, a single victim stays cheapest until a cost falls."""
        current = self.at_us[rows] == now_us
        if self.cost.uniform:
            current |= True if not self.cost.slope else self.count[rows] <= 1
        answered: Bools = self.solved[rows] & (current | (self.count[rows] == 0))
        return answered

    def _refresh(self, now_us: int) -> None:
        stale = np.flatnonzero((self.seen != self.site.version) | (self.until_us <= now_us))
        if stale.size:
            self._bounds(stale, now_us)

    def _note(self, rows: Ints, now_us: int) -> None:
        falls = np.where(self.site.used[rows], self.cost.falls_at(self.site.preemptibles(rows), now_us), NEVER)
        self.until_us[rows] = falls.min(axis=1)
        self.seen[rows] = self.site.version[rows]
        self.at_us[rows] = now_us

    def _solve(self, h: int, now_us: int) -> None:
        found = cover(self.site, h, self.need, self.cost, now_us)
        self.covers[h] = found
        self.lower[h] = np.inf if found is None else found.cost
        self.count[h] = 0 if found is None else len(found.chosen)
        self.solved[h] = True
        self._note(np.array([h]), now_us)

    def _bounds(self, rows: Ints, now_us: int) -> None:
        """A lower bound for many hosts at once; where one victim attains it, that is already the answer."""
        site = self.site
        asked = np.flatnonzero(self.need)
        short = np.maximum(self.need[asked, None] - site.free_f[asked[:, None], rows], 0)
        used = site.used[rows]
        costs = np.where(used, self.cost(site.preemptibles(rows), now_us), np.inf)
        lower = np.zeros(rows.size)
        enough = used.copy()
        for lack, size in zip(short, (site.size[r][rows] for r in asked), strict=True):
            if lack.any():
                enough &= size >= lack[:, None]
                lower = np.maximum(lower, _fractional(costs, np.minimum(size, lack[:, None]), used, lack))
        alone = np.where(enough, costs, np.inf)
        slot = alone.argmin(axis=1)
        alone = alone[np.arange(rows.size), slot]
        none_short = ~short.any(axis=0)
        # Costs are whole numbers, so a bound may be rounded up.
        lower = np.where(none_short, 0.0, np.ceil(lower * (1 - ROUNDING) - 0.01))
        self.lower[rows] = np.maximum(lower, 0.0)
        self.solved[rows] = none_short | ((alone <= lower) & np.isfinite(alone))
        self.count[rows] = np.where(none_short, 0, 1)
        for i in np.flatnonzero(self.solved[rows]).tolist():
            chosen = () if none_short[i] else (int(slot[i]),)
            self.covers[rows[i]] = Cover(int(self.lower[rows[i]]), chosen)
        self._note(rows, now_us)


def _fractional(costs: Floats, sizes: Ints, used: Bools, lack: Ints) -> Floats:
    """What freeing `lack` of one resource would cost if instances could be evicted in parts, host by host."""
    amounts = np.where(used, sizes, 0).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(amounts > 0, costs / amounts, np.inf)
    order = np.argsort(rate, axis=1)
    amounts = np.take_along_axis(amounts, order, axis=1)
    rate = np.take_along_axis(rate, order, axis=1)
    before = np.cumsum(amounts, axis=1) - amounts
    parts = np.clip(lack[:, None] - before, 0, amounts)
    with np.errstate(invalid="ignore"):
        total: Floats = np.where(parts > 0, parts * rate, 0.0).sum(axis=1)
    return total
