"""Whether the machines on offer can meet a deadline, and the earliest deadline that they can. Pure."""

from __future__ import annotations

import math

from windfall.planning.bags.packing import Item, fill, fresh, longest_first
from windfall.planning.contract import Snapshot


def fits_by(snapshot: Snapshot, by_t: float) -> bool:
    """Whether all machines of both markets together could finish by then if none is interrupted."""
    items = longest_first(
        [Item(t, 1, []) for t in snapshot.tasks.values()] + [Item(g.task, g.count, []) for g in snapshot.groups]
    )
    left = [item.count for item in items]
    for offer in sorted(snapshot.offers, key=lambda offer: (-offer.speed_for(""), offer.key)):
        for _ in range(snapshot.left_of(offer)):
            if not any(left) or not fill(fresh("", offer, snapshot.t, math.inf), items, left, by_t):
                break
    return not any(left)


def earliest_deadline_t(snapshot: Snapshot, margin_s: float) -> float:
    """The earliest deadline that could be met, to the second; infinite if a task fits on no machine."""
    low_s, high_s = 0.0, 1.0
    while not fits_by(snapshot, snapshot.t + high_s):
        low_s, high_s = high_s, 2.0 * high_s
        if high_s > 2.0**40:
            return math.inf
    while high_s - low_s > 0.5:
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (low_s, middle_s) if fits_by(snapshot, snapshot.t + middle_s) else (middle_s, high_s)
    return snapshot.t + high_s + margin_s
