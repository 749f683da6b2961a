"""Move preemptible instances instead of ending them, to empty hosts or to make way for a normal request. Pure.

The paper leaves this as future work. Plans are lists of single moves that can be carried out in order: at its turn,
every move finds room at its target.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from windfall.numeric import Bools, Ints, np
from windfall.placement.hosts.packing import best_fit, shares
from windfall.placement.site import Site


class Move(Struct, frozen=True):
    instance: str
    source: str
    target: str


class Plan(Struct, frozen=True):
    """Moves in order, and the hosts that are empty once they are done."""

    moves: tuple[Move, ...]
    emptied: tuple[str, ...]


def consolidate(site: Site, max_moves: int = 1_000) -> Plan:
    """Empty as many hosts as best fit can, the least used first. Hosts with a normal instance are never emptied."""
    free = site.free_f.copy()
    used = site.capacity - free
    occupied: Bools = np.any(used > 0, axis=0)
    movable = occupied & ~np.any(site.capacity > site.free_n, axis=0)
    targets = occupied.copy()
    moves: list[Move] = []
    emptied = []
    share = shares(used, site.capacity)
    for h in sorted(np.flatnonzero(movable).tolist(), key=lambda h: (share[h], h)):
        # A host that has received an instance is not emptied: that would move the instance twice.
        if (free[:, h] != site.free_f[:, h]).any():
            continue
        targets[h] = False
        placing = _place_all(site, list(site.on_host[h]), free, targets)
        if placing is None or len(moves) + len(placing) > max_moves:
            targets[h] = True
            continue
        moves += [Move(identity, site.names[h], site.names[target]) for identity, target in placing]
        emptied.append(site.names[h])
        for identity, target in placing:
            free[:, target] -= site.instances[identity].units
        free[:, h] = site.capacity[:, h]
    return Plan(tuple(moves), tuple(emptied))


def rehome(site: Site, victims: Sequence[str]) -> tuple[Move, ...]:
    """Moves for those victims of one host that fit on another, largest first. The other victims must end."""
    free = site.free_f.copy()
    elsewhere = np.ones(len(site.names), dtype=np.bool_)
    for identity in victims:
        elsewhere[site.instances[identity].host] = False
    moves = []
    for identity in _largest_first(site, victims):
        placed = site.instances[identity]
        target = best_fit(free, site.capacity, placed.units, elsewhere)
        if target is not None:
            free[:, target] -= placed.units
            moves.append(Move(identity, site.names[placed.host], site.names[target]))
    return tuple(moves)


def _place_all(site: Site, ids: list[str], free: Ints, targets: Bools) -> list[tuple[str, int]] | None:
    """A target for every instance; None if one fits nowhere."""
    trial = free.copy()
    placing = []
    for identity in _largest_first(site, ids):
        units = site.instances[identity].units
        target = best_fit(trial, site.capacity, units, targets)
        if target is None:
            return None
        trial[:, target] -= units
        placing.append((identity, target))
    return placing


def _largest_first(site: Site, ids: Sequence[str]) -> list[str]:
    def share(identity: str) -> float:
        placed = site.instances[identity]
        return float(shares(placed.units[:, None], site.capacity[:, placed.host, None])[0])

    return sorted(ids, key=lambda identity: (-share(identity), identity))
