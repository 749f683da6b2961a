"""A market of preemptible instances: one price by supply and demand; instances that bid less end. Pure.

The paper leaves this as future work. Supply is what normal instances leave free on the whole site. Claims are the
running preemptible instances that carry a bid, and the bids that wait. They are granted from the highest bid per unit
down; the first that no longer fits ends the granting and sets the price for all, so every winner pays at most its bid,
and every claim that bids more than the price keeps its place. What stays idle is less than that first refused claim.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from windfall.numeric import Ints
from windfall.placement.hosts.filters import room
from windfall.placement.hosts.packing import best_fit
from windfall.placement.model import Instance
from windfall.placement.site import Site


class Cleared(Struct, frozen=True):
    """The outcome of one clearing. `price_microusd_per_h` is for one `unit` (or its like in the scarcest resource)."""

    price_microusd_per_h: int
    admitted: tuple[tuple[str, str], ...]  # waiting bids that start: (id, host)
    terminated: tuple[str, ...]  # running instances that bid no more than the price, once supply is used up
    waiting: tuple[str, ...]  # bids not granted, or granted while no host has that much in one piece


class _Claim(Struct, frozen=True):
    instance: Instance
    units: Ints
    rate: int  # micro-dollars per hour and unit
    running: bool


def clear(site: Site, bids: Sequence[Instance], reserve_microusd_per_h: int = 0, unit: str = "vcpu") -> Cleared:
    """One clearing. `bids` wait for a place; each needs `bid_usd_per_h`. Nothing is booted or ended here."""
    claims = _claims(site, bids, unit)
    price, granted = _grant(site, claims, reserve_microusd_per_h)
    ending = tuple(claim.instance.id for claim in claims[granted:] if claim.running)
    free = site.free_f.copy()
    for identity in ending:
        placed = site.instances[identity]
        free[:, placed.host] += placed.units
    admitted = []
    for claim in claims[:granted]:
        h = None if claim.running else best_fit(free, site.capacity, claim.units)
        if h is not None:
            free[:, h] -= claim.units
            admitted.append((claim.instance.id, site.names[h]))
    starting = {identity for identity, _ in admitted}
    return Cleared(price, tuple(admitted), ending, tuple(bid.id for bid in bids if bid.id not in starting))


def _claims(site: Site, bids: Sequence[Instance], unit: str) -> list[_Claim]:
    """All claims, the highest bid per unit first; on a tie the running one, so that equal bids cause no change."""
    running = [placed.instance for placed in site.instances.values() if placed.slot >= 0]
    total = site.capacity.sum(axis=1, dtype=object)  # Python integers: a large site in bytes overflows 64 bits
    units_total = total[site.resources.index(unit)]
    claims = []
    for instance, runs in [*((i, True) for i in running), *((i, False) for i in bids)]:
        if instance.bid_usd_per_h is None:
            if not runs:
                raise ValueError(f"'{instance.id}' waits without a bid")
            continue
        units = site.units(instance.resources)
        if not runs and not room(site.free_n, units).any():
            continue  # fits on no host: it must not raise the price for others
        share = max((int(n) / int(t) for n, t in zip(units, total, strict=True) if t), default=0.0)
        size = share * int(units_total) / 1e6
        rate = round(instance.bid_usd_per_h * 1e6 / size) if size else 2**62
        claims.append(_Claim(instance, units, rate, runs))
    claims.sort(key=lambda claim: (-claim.rate, not claim.running, claim.instance.id))
    return claims


def _grant(site: Site, claims: Sequence[_Claim], reserve: int) -> tuple[int, int]:
    """The price, and how many of the claims, in their order, are granted."""
    supply = site.free_n.clip(0).sum(axis=1, dtype=object)
    bidding = {claim.instance.id for claim in claims}
    for placed in site.instances.values():
        if placed.slot >= 0 and placed.instance.id not in bidding:
            supply = supply - placed.units  # runs outside the market, and stays
    for granted, claim in enumerate(claims):
        if claim.rate < reserve:
            return reserve, granted
        supply = supply - claim.units
        if (supply < 0).any():
            return claim.rate, granted
    return reserve, len(claims)
