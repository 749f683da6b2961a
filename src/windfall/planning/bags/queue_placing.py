"""Place tasks where they are queued, or on cores that share one queue (`shared_queue`). Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING

from msgspec.structs import replace

from windfall.planning.bags.packing import MAX_TASKS_PACKED_EXACTLY, Bin, Item, Placed, all_narrow, fill
from windfall.planning.bags.shared_queue import Core, begun_in_time, run_times
from windfall.planning.contract import ONDEMAND, SPOT

if TYPE_CHECKING:
    from windfall.planning.bags.planning_pass import PlanningPass


def keep_queues(decided: PlanningPass, left: list[int]) -> None:
    """Place tasks on the machines for which they are reserved, in order, as far as they end in paid time.

    They were packed to end just in time; a new layout places the longest first and may not find that again.
    """
    places = {number: place for place, item in enumerate(decided.items) for number in item.ids}
    for bin in [bin for bin in decided.bins if bin.name in decided.awake]:
        for place in [places[number] for number in decided.awake[bin.name].waiting if number in places]:
            if left[place] > 0 and fill(bin, [decided.items[place]], [1], decided.by_t):
                bin.placed[-1] = replace(bin.placed[-1], item=place)
                left[place] -= 1


def share_queue(decided: PlanningPass, left: list[int]) -> None:
    """If the cores of machines begin all tasks that are left in time, place each where it begins soonest.

    Spot machines alone are tried first, then all machines.
    """
    waiting = sum(left)
    items = [item for item, count in zip(decided.items, left, strict=True) if count]
    if not decided.shares_queue or not 0 < waiting <= MAX_TASKS_PACKED_EXACTLY:
        return
    if any(item.slack_s <= 0.0 for item in items) or not all_narrow(items, decided.bins):
        return
    mean_s = math.fsum(item.task.runtime_s * n for item, n in zip(decided.items, left, strict=True)) / waiting
    quantile_s = mean_s + max(item.slack_s for item in items)
    law = run_times(mean_s, quantile_s, decided.snapshot.run_time_quantile or decided.snapshot.confidence)
    begin_by_t = _begin_by(decided, items, quantile_s)
    for markets in ({SPOT}, {SPOT, ONDEMAND}):
        bins = [bin for bin in decided.bins if bin.offer.market in markets and begin_by_t[bin.offer.market] > decided.t]
        placed = sum(entry.count for bin in bins for entry in bin.placed)
        cores = _cores(decided, bins, mean_s, begin_by_t)
        if bins and waiting + placed <= begun_in_time(cores, law):
            _place_soonest(decided, bins, left)
            decided.begin_by_t = min([decided.begin_by_t, *(begin_by_t[bin.offer.market] for bin in bins)])
            return


def _begin_by(decided: PlanningPass, items: Sequence[Item], quantile_s: float) -> dict[str, float]:
    """By market: the last moment at which each of these tasks may begin there and still be moved to a new
    on-demand machine, or be rescued, if it has not begun or is lost."""
    lag_s = min((o.lag_s for o in decided.safety_net.offers if decided.left.of(o) > 0), default=0.0)
    return {
        SPOT: min(item.due_t for item in items) - quantile_s,
        ONDEMAND: decided.by_t - decided.margin_s - lag_s - quantile_s,
    }


def _place_soonest(decided: PlanningPass, bins: Sequence[Bin], left: list[int]) -> None:
    soonest = [(min(bin.free_t), bin.name, number) for number, bin in enumerate(bins)]
    heapify(soonest)
    for place, item in enumerate(decided.items):
        for _ in range(left[place]):
            start_t, name, number = soonest[0]
            bin = bins[number]
            core = bin.free_t.index(start_t)
            bin.free_t[core] = start_t + item.task.seconds_on(bin.offer)
            bin.placed.append(Placed(place, 1, start_t, bin.free_t[core]))
            heapreplace(soonest, (min(bin.free_t), name, number))
        left[place] = 0
    for bin in bins:
        bin.keep_t = decided.kept(bin, bin.keep_t)


def _cores(decided: PlanningPass, bins: Sequence[Bin], mean_s: float, begin_by_t: dict[str, float]) -> Counter[Core]:
    """The cores of these machines as they are now, without what this pass has placed on them, and their numbers."""
    found = Counter[Core]()
    for bin in bins:
        machine, speed = decided.awake.get(bin.name), decided.prices.speed(bin.offer)
        free_at_t = (bin.since_t,) if machine is None else decided.free_before[bin.name]
        busy, alike = (0, bin.offer.cores) if machine is None else (len(machine.running), 1)
        # Only in time that is paid for: whether to pay for more is decided elsewhere.
        until_t = min(begin_by_t[bin.offer.market], bin.keep_t - mean_s / speed)
        for place, free_t in enumerate(free_at_t):
            found[Core(max(0.0, free_t - decided.t), place < busy, until_t - decided.t, speed)] += alike
    return found
