"""Place tasks that cannot be in time where they end soonest. Pure."""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from msgspec.structs import replace

from windfall.planning.bags.packing import Item, fill, fresh, ondemand_offers, width
from windfall.planning.contract import ONDEMAND

if TYPE_CHECKING:
    from windfall.planning.bags.planning_pass import PlanningPass


def place_late(decided: PlanningPass, left: list[int]) -> None:
    """Place what cannot be in time where it ends soonest: late is better than never."""
    for place, item in enumerate(decided.items):
        if left[place] <= 0:
            continue
        # (end of one more task, place of the machine): only the machine that takes a task changes.
        ends = [
            (min(bin.free_t) + item.task.seconds_on(bin.offer), number)
            for number, bin in enumerate(decided.bins)
            if width(item.task, bin.offer) <= bin.offer.cores
        ]
        heapify(ends)
        while left[place] > 0 and (number := _soonest(decided, item, ends)) is not None:
            best = decided.bins[number]
            single = [min(left[place], 1 if item.ids else max(1, left[place] // 8))]
            wanted = single[0]
            fill(replace(best, keep_t=math.inf, offer=replace(best.offer, market=ONDEMAND)), [item], single)
            best.placed[-1] = replace(best.placed[-1], item=place)
            decided.late += wanted - single[0]
            left[place] -= wanted - single[0]
            heappush(ends, (min(best.free_t) + item.task.seconds_on(best.offer), number))


def _soonest(decided: PlanningPass, item: Item, ends: list[tuple[float, int]]) -> int | None:
    """The machine on which such a task ends soonest, taken from `ends`, or a new one; None if it fits on none."""
    new = [
        fresh(f"new-{len(decided.bins)}", offer, decided.t, math.inf)
        for offer in ondemand_offers(decided.snapshot) or decided.snapshot.offers
        if decided.left.of(offer) > 0 and width(item.task, offer) <= offer.cores
    ]
    best = min(new, key=lambda bin: min(bin.free_t) + item.task.seconds_on(bin.offer), default=None)
    if best is not None and (not ends or min(best.free_t) + item.task.seconds_on(best.offer) < ends[0][0]):
        decided.open(best)
        return len(decided.bins) - 1
    return heappop(ends)[1] if ends else None
