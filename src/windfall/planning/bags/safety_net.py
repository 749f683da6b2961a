"""The safety net of a bag: until when on-demand machines alone could still meet the deadline. Pure.

Every unfinished task that is not on an on-demand machine must fit, from its start or its checkpoint, on the on-demand
machines that run and those that may still be started. No estimate of interruptions enters here, so no wrong estimate
can break it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from windfall.planning.bags.packing import (
    Bin,
    Item,
    Sizes,
    count_copies,
    fill,
    fresh,
    lease_usd,
    ondemand_offers,
    sizes_on,
    width,
)
from windfall.planning.contract import Snapshot
from windfall.planning.room import Room, market_key

BISECTION_STEPS, BISECTION_STEPS_FOR_MANY, MANY_ITEMS = 12, 6, 150
"""The last moment for a rescue is never found too late; with many different tasks it may be found a little earlier."""


class SafetyNet:
    """On-demand capacity: machines that run, with their own work, and `left`: how many more may start."""

    def __init__(self, snapshot: Snapshot, bins: Iterable[Bin], left: Room, margin_s: float) -> None:
        self.offers = ondemand_offers(snapshot)
        self.bins, self.left, self.t = list(bins), left, snapshot.t
        self.by_t = snapshot.deadline_t - margin_s
        self._sizes: tuple[Sequence[Item], dict[str, Sizes]] | None = None
        self._existing = list({market_key(bin.offer): bin.offer for bin in self.bins}.values())

    def rescue(self, items: Sequence[Item], at_t: float) -> tuple[list[Bin], list[int]]:
        """The machines that would be started at `at_t` for these tasks, and how many tasks of each item fit nowhere."""
        left = [item.count for item in items]
        sizes = self._sizes_on(items)
        for bin, count in self._idle_at(at_t):
            self._fill_all(bin, count, items, left, sizes[bin.offer.key])
        opened: list[Bin] = []
        room = self.left.copy()
        for offer in self.offers:
            while any(left) and room.of(offer) > 0:
                before = list(left)
                bin = fresh("", offer, at_t, math.inf)
                if not fill(bin, items, left, self.by_t, sizes[offer.key]):
                    break
                alike = 1 + min(_repeats(before, left), room.of(offer) - 1)
                for place, count in enumerate(before):
                    left[place] -= (count - left[place]) * (alike - 1)
                opened += [bin] * alike
                room.take(offer, alike)
        return opened, left

    def _idle_at(self, at_t: float) -> Iterator[tuple[Bin, int]]:
        """The machines that run as they would be at that moment; neighbours that are the same as one and their count.

        Some time after now, machines are the same: each has done what it does now.
        """
        first, count = None, 0
        for bin in self.bins:
            free_t, since_t = [max(free_t, at_t) for free_t in bin.free_t], max(bin.since_t, at_t)
            if (
                first is not None
                and (free_t, since_t, bin.stretch) == (first.free_t, first.since_t, first.stretch)
                and bin.offer is first.offer
            ):
                count += 1
                continue
            if first is not None:
                yield first, count
            first, count = replace(bin, free_t=free_t, placed=[], since_t=since_t, keep_t=math.inf), 1
        if first is not None:
            yield first, count

    def _fill_all(self, bin: Bin, count: int, items: Sequence[Item], left: list[int], sizes: Sizes) -> None:
        """Fill this number of machines like this one."""
        while count > 0 and any(left):
            before, idle = list(left), replace(bin, free_t=list(bin.free_t), placed=[])
            fill(idle, items, left, self.by_t, sizes)
            count -= 1 + count_copies(idle, before, left, count - 1)

    def holds(self, items: Sequence[Item], at_t: float) -> bool:
        """Whether a rescue of all these tasks that begins at `at_t` is in time."""
        return not any(self.rescue(items, at_t)[1])

    def rescuable(self, items: Sequence[Item]) -> list[Item]:
        """The tasks for which a rescue that begins now is in time. For the others a rescue gains nothing."""
        missing = self.rescue(items, self.t)[1]
        kept = [replace(item, count=item.count - late) for item, late in zip(items, missing, strict=True)]
        return [item for item in kept if item.count]

    def latest_t(self, items: Sequence[Item]) -> float:
        """The last moment at which a rescue of all of them is in time: -inf if it is too late, inf for no tasks."""
        if not items:
            return math.inf
        high_t = min(self.by_t - min(self.rescue_alone_s(item), self._rescue_existing_s(item)) for item in items)
        if high_t <= self.t:
            return -math.inf
        if self.holds(items, high_t):
            return high_t
        if not self.holds(items, self.t):
            return -math.inf
        low_t = self.t
        for _ in range(BISECTION_STEPS if len(items) <= MANY_ITEMS else BISECTION_STEPS_FOR_MANY):
            middle_t = (low_t + high_t) / 2
            low_t, high_t = (middle_t, high_t) if self.holds(items, middle_t) else (low_t, middle_t)
        return low_t

    def _sizes_on(self, items: Sequence[Item]) -> dict[str, Sizes]:
        """By key of an offer: what a task of each item takes there. The last ones are kept: a bisection asks again."""
        if self._sizes is None or self._sizes[0] is not items:
            by_key = {offer.key: offer for offer in (*self.offers, *(bin.offer for bin in self.bins))}
            self._sizes = items, {key: sizes_on(items, offer) for key, offer in by_key.items()}
        return self._sizes[1]

    def rescue_alone_s(self, item: Item) -> float:
        """Seconds of the quickest rescue of one such task by a new machine, boot included; infinite if none fits."""
        able = [offer for offer in self.offers if width(item.task, offer) <= offer.cores]
        return min((offer.lag_s + item.quantile_s(offer) for offer in able), default=math.inf)

    def _rescue_existing_s(self, item: Item) -> float:
        """The same on a machine that runs, its other work ignored."""
        able = [offer for offer in self._existing if width(item.task, offer) <= offer.cores]
        return min((item.quantile_s(offer) for offer in able), default=math.inf)


def _repeats(before: Sequence[int], after: Sequence[int]) -> int:
    """How many more equal machines would take the same tasks: while at least as many again are left of each."""
    taken = [(was - left, left) for was, left in zip(before, after, strict=True) if was > left]
    return max(0, min(left // count for count, left in taken) - 1)


def price_usd(bins: Iterable[Bin], at_t: float) -> float:
    """Dollars for these new machines, started at `at_t` and kept until their work is done."""
    return sum(lease_usd(bin.offer, bin.end_t() - at_t) for bin in bins)
