"""Tasks on hibernated machines: how long they may wait there, and when they move to time that is paid for. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from windfall.planning.bags.packing import (
    TOLERANCE_S,
    Bin,
    HibernatedMachine,
    Item,
    expected_left_s,
    fill,
    longest_first,
)
from windfall.planning.contract import Machine, Task
from windfall.planning.room import market_key

if TYPE_CHECKING:
    from windfall.planning.bags.planning_pass import PlanningPass


def resume_limit_t(machine: Machine, items: Sequence[Item]) -> float:
    """The last moment at which it may resume and end each of its tasks by their due times."""
    left_s = {entry.task: entry.left_s for entry in machine.running}
    free_s = sorted([*left_s.values(), *[0.0] * (machine.offer.cores - len(left_s))])
    limit_t = math.inf
    for item in items:
        if item.ids[0] in left_s:
            end_s = left_s[item.ids[0]]
        else:
            end_s = free_s.pop(0) + item.task.seconds_on(machine.offer)
            free_s = sorted([*free_s, end_s])
        limit_t = min(limit_t, item.due_t - end_s)
    return limit_t


class PaidTime:
    """Which machines of a pass have room for one more task. Of many, nearly none has: all are asked at once."""

    def __init__(self, bins: Sequence[Bin], by_t: float) -> None:
        self._offers = {market_key(bin.offer): bin.offer for bin in bins}
        numbers = {key: number for number, key in enumerate(self._offers)}
        self._offer_of = np.array([numbers[market_key(bin.offer)] for bin in bins], dtype=np.intp)
        self._free_t = np.array([min(bin.free_t) for bin in bins])
        self._until_t = np.array([min(bin.keep_t, by_t) for bin in bins]) + TOLERANCE_S

    def places_for(self, task: Task) -> list[int]:
        """The places of machines that have a core free for long enough, in rising order. Some may still not do."""
        if not self._offers:
            return []
        seconds = np.array([task.seconds_on(offer) for offer in self._offers.values()])[self._offer_of]
        places: list[int] = np.flatnonzero(self._free_t + seconds <= self._until_t).tolist()
        return places

    def changed(self, place: int, bin: Bin) -> None:
        self._free_t[place] = min(bin.free_t)


def take_over(decided: PlanningPass, hibernated: HibernatedMachine, paid: PaidTime) -> None:
    """Move tasks of a hibernated machine to time that is paid for anyway."""
    for item in longest_first(hibernated.items):
        for place in paid.places_for(item.task):
            bin = decided.bins[place]
            if not _ends_sooner(decided, bin, item, hibernated):
                continue
            if fill(bin, [item], [1], decided.by_t):
                paid.changed(place, bin)
                bin.placed[-1] = replace(bin.placed[-1], item=len(decided.items))
                decided.items.append(item)
                hibernated.items = [other for other in hibernated.items if other is not item]
                break


def _ends_sooner(decided: PlanningPass, bin: Bin, item: Item, hibernated: HibernatedMachine) -> bool:
    """Whether a task that has begun on a hibernated machine is expected to end sooner if it begins again here."""
    left_s = [entry.left_s for entry in hibernated.machine.running if entry.task == item.ids[0]]
    if not left_s or not decided.risk_weight or not decided.worth_waiting(hibernated):
        return True
    offer = hibernated.machine.offer
    left = expected_left_s(decided.snapshot.tasks[item.ids[0]], left_s[0]) * decided.stretch(offer)
    resumed_t = decided.t + decided.prices.resumes_after_s(offer) + left
    return min(bin.free_t) + item.task.seconds_on(bin.offer) * bin.stretch < resumed_t
