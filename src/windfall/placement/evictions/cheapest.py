"""The cost of the cheapest sufficient victim set of every host, cached between requests. Pure.

One `CheapestSets` serves requests of one size. What it knows of a host goes out of date when an instance comes or
goes there, or when a cost falls with time (a billed period ends). In between, costs only rise, so an old answer is
a lower bound for now: the cheapest host is found by solving, best bound first, until the best bound is an answer.
A host that is out of date gets the cost of its cheapest instance as its new bound. When many are, as for a size never
seen before, they get better bounds together, in a few array operations (`_bounds`).
"""

from __future__ import annotations

from windfall.numeric import Bools, Floats, Ints, np
from windfall.placement.evictions.costs import NEVER, Cost, SetCost
from windfall.placement.evictions.victims import Cover, cheapest_cover, search_cover
from windfall.placement.site import Site

# Costs as floats are exact up to 2**53; bounds from a division are lowered by this factor to stay lower bounds.
ROUNDING = 1e-12
LARGE = 2**53
# Below this number, solving hosts one by one is quicker than setting up the arrays for common bounds.
MIN_HOSTS_FOR_ARRAYS = 48


def cover(
    site: Site, h: int, need: Ints, cost: Cost | SetCost, now_us: int, spare: set[int] | None = None
) -> Cover | None:
    """The cheapest sufficient victims of one host, as slots; None if evicting all would not suffice."""
    slots = np.flatnonzero(site.used[h]).tolist()
    if spare:
        slots = [slot for slot in slots if slot not in spare]
    lacks = (need - site.free_f[:, h]).tolist()
    short = [lack if asked and lack > 0 else 0 for asked, lack in zip(need.tolist(), lacks, strict=True)]
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
    """Bounds and answers for requests of one size, `need` in units of the site.

    `base` holds bounds less what costs gain with time: cost now >= base + slope x now. Where a request fits without
    an eviction, base is 0 and `count` 0.
    """

    def __init__(self, site: Site, need: Ints, cost: Cost) -> None:
        self.site, self.need, self.cost = site, need, cost
        self.asked = np.flatnonzero(need)
        hosts = len(site.names)
        self.base: Floats = np.zeros(hosts)
        self.at_us: Ints = np.zeros(hosts, dtype=np.int64)
        self.until_us: Ints = np.zeros(hosts, dtype=np.int64)
        self.seen: Ints = np.full(hosts, -1, dtype=np.int64)
        self.solved: Bools = np.zeros(hosts, dtype=np.bool_)  # the bound was exact at `at_us`
        self.count: Ints = np.zeros(hosts, dtype=np.int64)  # victims of a solved host; a lower bound for others
        self.covers: list[Cover | None] = [None] * hosts

    def cheapest(self, eligible: Bools, now_us: int) -> Ints:
        """The eligible hosts whose cheapest set costs least; at equal cost, those with the fewest victims.

        For when none has room: `eligible` hosts must evict, and can (they passed the filter on h_n).
        """
        self._refresh(now_us)
        base = np.where(eligible, self.base, np.inf)
        while True:
            h = int(base.argmin())
            if not self._answered(h, now_us):
                self._solve(h, now_us)
                base[h] = self.base[h]
                continue
            ties = np.flatnonzero(base == base[h])
            open_ones = [h for h in ties.tolist() if not self._answered(h, now_us)]
            if not open_ones:
                counts = self.count[ties]
                smallest: Ints = ties[counts == counts.min()]
                return smallest
            for h in open_ones:
                self._solve(h, now_us)
                base[h] = self.base[h]

    def all_costs(self, eligible: Bools, now_us: int) -> tuple[Floats, Ints]:
        """Exact cost and number of victims of every eligible host; lower bounds for the others."""
        self._refresh(now_us)
        for h in np.flatnonzero(eligible).tolist():
            if not self._answered(h, now_us):
                self._solve(h, now_us)
        return np.where(self.count > 0, self.base + self.cost.slope * now_us, 0.0), self.count

    def cover(self, h: int, now_us: int) -> Cover:
        """The cheapest sufficient victims of one eligible host, as slots."""
        if self.seen[h] != self.site.version[h] or self.until_us[h] <= now_us:
            self._refresh(now_us)
        if not self._answered(h, now_us):
            self._solve(h, now_us)
        found = self.covers[h]
        assert found is not None, "an eligible host can be covered"
        grown = self.cost.slope * (now_us - int(self.at_us[h])) * len(found.chosen)
        return found._replace(cost=found.cost + grown)

    def _answered(self, h: int, now_us: int) -> bool:
        """Whether the bound is still exact: if all costs rise alike, a single victim stays cheapest until one falls."""
        if not self.solved[h]:
            return False
        lasting = self.cost.uniform and (not self.cost.slope or self.count[h] == 1)
        return bool(lasting or self.at_us[h] == now_us or self.count[h] == 0)

    def _refresh(self, now_us: int) -> None:
        """New bounds for the hosts whose instances or costs have changed."""
        rows = np.flatnonzero((self.seen != self.site.version) | (self.until_us <= now_us))
        if not rows.size:
            return
        used, batch = self.site.used[rows], self.site.preemptibles(rows)
        short = np.maximum(self.need[self.asked, None] - self.site.free_f[self.asked[:, None], rows], 0)
        evicts = short.any(axis=0)
        costs = np.where(used, self.cost(batch, now_us), LARGE)
        self.base[rows] = evicts * (costs.min(axis=1) - float(self.cost.slope * now_us))
        self.count[rows] = evicts
        self.solved[rows] = False
        self.until_us[rows] = np.where(used, self.cost.falls_at(batch, now_us), NEVER).min(axis=1)
        self.seen[rows] = self.site.version[rows]
        self.at_us[rows] = now_us
        if rows.size > MIN_HOSTS_FOR_ARRAYS:
            self._bounds(rows[evicts], costs[evicts].astype(np.float64), short[:, evicts], now_us)

    def _solve(self, h: int, now_us: int) -> None:
        """Solve one host exactly; its bound must be up to date."""
        found = cover(self.site, h, self.need, self.cost, now_us)
        self.covers[h] = found
        self.solved[h] = True
        self.count[h] = 0 if found is None else len(found.chosen)
        if found is None:
            self.base[h] = np.inf
        else:
            self.base[h] = found.cost - self.cost.slope * now_us if found.chosen else 0.0
        self.at_us[h] = now_us

    def _bounds(self, rows: Ints, costs: Floats, short: Ints, now_us: int) -> None:
        """Better bounds for many hosts that must evict; a single victim that attains the bound is the answer."""
        used = self.site.used[rows]
        lower = np.zeros(rows.size)
        enough = used.copy()
        for r, lack in zip(self.asked, short, strict=True):
            size = self.site.size[r][rows]
            enough &= size >= lack[:, None]
            lower = np.maximum(lower, _fractional(costs, np.minimum(size, lack[:, None]), used, lack))
        alone = np.where(enough, costs, np.inf)
        slot = alone.argmin(axis=1)
        # Costs are whole numbers, so a bound may be rounded up.
        lower = np.maximum(np.ceil(lower * (1 - ROUNDING) - 0.01), costs.min(axis=1))
        attained = alone[np.arange(rows.size), slot] <= lower
        self.base[rows] = lower - self.cost.slope * now_us
        self.solved[rows] = attained
        for h, at, cost in zip(rows[attained].tolist(), slot[attained].tolist(), lower[attained].tolist(), strict=True):
            self.covers[h] = Cover(int(cost), (at,))


def _fractional(costs: Floats, sizes: Ints, used: Bools, lack: Ints) -> Floats:
    """By host: the cost of freeing `lack` of one resource if instances could be evicted in parts, a lower bound."""
    amounts = np.where(used, sizes, 0).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(amounts > 0, costs / amounts, np.inf)
    order = np.argsort(rate, axis=1)
    row = np.arange(len(order))[:, None]
    amounts, rate = amounts[row, order], rate[row, order]
    before = np.cumsum(amounts, axis=1) - amounts
    parts = np.clip(lack[:, None] - before, 0, amounts)
    with np.errstate(invalid="ignore"):
        total: Floats = np.where(parts > 0, parts * rate, 0.0).sum(axis=1)
    return total
