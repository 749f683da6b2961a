"""The safety net of a bag: until when on-demand alone could still finish everything, should all spot vanish. Pure.

No estimate of interruptions enters here, so none can argue it away: what is not finished and not on an on-demand
machine must fit, from its beginning or its checkpoint, on the on-demand machines there are and those that may still be
started, and end by the deadline.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from windfall.planning.bags.packing import Bin, Item, fill, fresh, lease_usd, ondemand_offers, width
from windfall.planning.contract import Snapshot
from windfall.planning.offers import Offer

STEPS = 12


class Net:
    """On-demand capacity at one moment: machines that are there (with their own work), and how many more may come."""

    def __init__(
        self, snapshot: Snapshot, bins: Iterable[Bin], left: dict[tuple[str, str], int], margin_s: float
    ) -> None:
        self.offers = ondemand_offers(snapshot)
        self.bins, self.left, self.t = list(bins), left, snapshot.t
        self.by_t = snapshot.deadline_t - margin_s

    def rescue(self, items: Sequence[Item], at_t: float) -> tuple[list[Bin], list[int]]:
        """The machines that would be started at this time for these tasks, and how many of each fit nowhere."""
        left = [item.count for item in items]
        for bin in self.bins:
            free_t = [max(free_t, at_t) for free_t in bin.free_t]
            idle = replace(bin, free_t=free_t, placed=[], since_t=max(bin.since_t, at_t))
            fill(replace(idle, keep_t=math.inf), items, left, self.by_t)
        opened: list[Bin] = []
        for offer in self.offers:
            for _ in range(self.left.get(ident(offer), 0)):
                bin = fresh("", offer, at_t, math.inf)
                if not any(left) or not fill(bin, items, left, self.by_t):
                    break
                opened.append(bin)
        return opened, left

    def holds(self, items: Sequence[Item], at_t: float) -> bool:
        return not any(self.rescue(items, at_t)[1])

    def rescuable(self, items: Sequence[Item]) -> list[Item]:
        """Those for which a rescue that begins now is in time; for the others nothing is to be gained by one."""
        missing = self.rescue(items, self.t)[1]
        kept = [replace(item, count=item.count - late) for item, late in zip(items, missing, strict=True)]
        return [item for item in kept if item.count]

    def latest_t(self, items: Sequence[Item]) -> float:
        """The last moment at which a rescue of all of them is in time; -inf where it is too late already."""
        if not items:
            return math.inf
        high_t = min(self.by_t - min(self.alone_s(item), self._there_s(item)) for item in items)
        if high_t <= self.t:
            return -math.inf
        if self.holds(items, high_t):
            return high_t
        if not self.holds(items, self.t):
            return -math.inf
        low_t = self.t
        for _ in range(STEPS):
            middle_t = (low_t + high_t) / 2
            low_t, high_t = (middle_t, high_t) if self.holds(items, middle_t) else (low_t, middle_t)
        return low_t

    def alone_s(self, item: Item) -> float:
        """The quickest rescue of one such task by a machine that is not there yet; infinite where there is none."""
        able = [offer for offer in self.offers if width(item.task, offer) <= offer.cores]
        return min((offer.lag_s + item.surely_s(offer) for offer in able), default=math.inf)

    def _there_s(self, item: Item) -> float:
        """The same by a machine that is there, whatever else it has to do."""
        able = [bin.offer for bin in self.bins if width(item.task, bin.offer) <= bin.offer.cores]
        return min((item.surely_s(offer) for offer in able), default=math.inf)


def price_usd(bins: Iterable[Bin], at_t: float) -> float:
    """What new machines cost that are kept until their work is done."""
    return sum(lease_usd(bin.offer, bin.end_t() - at_t) for bin in bins)


def ident(offer: Offer) -> tuple[str, str]:
    """One type may be on offer in both markets under one name."""
    return offer.key, offer.market


def left_of_each(snapshot: Snapshot) -> dict[tuple[str, str], int]:
    """How many more machines of each offer may be started."""
    return {ident(offer): snapshot.left_of(offer) for offer in snapshot.offers}
