"""Best fit: the host that a new instance would leave fullest. Shared by the market, moves and consolidation. Pure."""

from __future__ import annotations

from windfall.numeric import Bools, Floats, Ints, np
from windfall.placement.hosts.filters import room


def shares(amounts: Ints, capacity: Ints) -> Floats:
    """Amounts as a share of capacity by the resource that is used most (the dominant share), per column."""
    share: Floats = (amounts / np.maximum(capacity, 1)).max(axis=0)
    return share


def best_fit(free: Ints, capacity: Ints, need: Ints, allowed: Bools | None = None) -> int | None:
    """The allowed host that `need` fits on with the least left over; None if it fits on none."""
    passes = room(free, need)
    if allowed is not None:
        passes &= allowed
    rows = np.flatnonzero(passes)
    if not rows.size:
        return None
    left = shares(free[:, rows] - need[:, None], capacity[:, rows])
    return int(rows[left.argmin()])
