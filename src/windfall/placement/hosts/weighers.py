"""How good a host is for a request: raw weights, higher is better, read from h_f. Pure.

The total is the sum of multiplier times weight, each weigher's weights first normalised to [0, 1] over the hosts that
passed the filters (section 4.1 of the paper). A weigher that gives all of them the same weight adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from windfall.numeric import Floats, Ints, np
from windfall.placement.evictions.costs import HOUR_US, Cost, Period, Revenue
from windfall.placement.hosts.filters import room
from windfall.placement.site import Site

CHEAPEST = "cheapest"  # by the cost of the cheapest sufficient victim set; the scheduler computes it

# A plain weigher: (site, need, now in microseconds) -> raw weight of every host.
Weigher = Callable[[Site, Ints, int], Floats]


def overcommit(site: Site, need: Ints, now_us: int) -> Floats:
    """-1 where something must be evicted (algorithm 3)."""
    return np.where(room(site.free_f, need), 0.0, -1.0)


def _minus_all(cost: Cost, site: Site, need: Ints, now_us: int) -> Floats:
    costs = np.where(site.used, cost(site.preemptibles(slice(None)), now_us), 0)
    result: Floats = -costs.sum(axis=1) / cost.scale
    return result


def billed_by(cycle_us: int) -> Mapping[str, Weigher]:
    """The weighers that count by billing cycle, of instances that are billed by this one.

    `period`: minus the consumed part of the cycle, summed over ALL preemptible instances (algorithm 4 as printed).
    `revenue`: minus the money that could not be billed if ALL of them were evicted now.
    """
    return {"period": partial(_minus_all, Period(cycle_us)), "revenue": partial(_minus_all, Revenue(cycle_us))}


def spread(site: Site, need: Ints, now_us: int) -> Floats:
    """The free share of the host, on average over the resources asked for: the emptiest host first."""
    asked = np.flatnonzero(need)
    if not asked.size:
        asked = np.arange(len(site.resources))
    capacity = np.maximum(site.capacity[asked], 1)
    share: Floats = (site.free_f[asked] / capacity).mean(axis=0)
    return share


def pack(site: Site, need: Ints, now_us: int) -> Floats:
    """The fullest host first. Beside `overcommit`, or it would rather evict than start an empty host."""
    return -spread(site, need, now_us)


WEIGHERS: Mapping[str, Weigher] = {
    "overcommit": overcommit,
    "pack": pack,
    "spread": spread,
    **billed_by(HOUR_US),
}
WEIGHER_NAMES = (CHEAPEST, *sorted(WEIGHERS))


def normalised(raw: Floats) -> Floats:
    low, high = raw.min(), raw.max()
    if high == low:
        return np.zeros_like(raw)
    result: Floats = (raw - low) / (high - low)
    return result
