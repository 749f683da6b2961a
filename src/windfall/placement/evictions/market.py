"""A market of preemptible instances: one price by supply and demand; instances that bid less end. Pure.

The paper leaves this as future work. Supply is what normal instances leave free on the whole site. Claims are the
running preemptible instances that carry a bid, and the bids that wait. They are granted from the highest bid per unit
down; the first that no longer fits ends the granting and sets the price for all, so every winner pays at most its bid,
and every claim that bids more than the price keeps its place. What stays idle is less than that first refused claim.

Supply is that of the whole site, so a bid may win although it fits on no single host, or on none of those to which it
is tied. Then it takes the place of the lowest bids on one host. Where these are as high as its own or higher, it is
left out: it must not raise the price of room that it could not use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from windfall.numeric import Bools, Ints
from windfall.placement.hosts.filters import room
from windfall.placement.hosts.packing import best_fit
from windfall.placement.model import Instance
from windfall.placement.site import Site


class Cleared(Struct, frozen=True):
    """The outcome of one clearing. `price_microusd_per_h` is for one `unit` (or its like in the scarcest resource)."""

    price_microusd_per_h: int
    admitted: tuple[tuple[str, str], ...]  # waiting bids that start: (id, host)
    terminated: tuple[str, ...]  # running instances that bid no more than the price, once supply is used up
    waiting: tuple[str, ...]  # bids not granted, or left out because no host could take them
    displaced: tuple[tuple[str, str], ...] = ()  # running instances that make way on one host: (id, the winner's id)


class _Claim(Struct, frozen=True):
    instance: Instance
    units: Ints
    rate: int  # micro-dollars per hour and unit
    running: bool


def clear(
    site: Site,
    bids: Sequence[Instance],
    reserve_microusd_per_h: int = 0,
    unit: str = "vcpu",
    tied: Mapping[str, Bools] | None = None,
) -> Cleared:
    """One clearing. `bids` wait for a place; each needs `bid_usd_per_h`. Nothing is booted or ended here.

    `tied`: for bids that not every host may take, the hosts that may.
    """
    tied = tied or {}
    claims = _claims(site, bids, unit)
    left_out: list[_Claim] = []
    while True:
        price, granted = _grant(site, claims, reserve_microusd_per_h)
        seating = _Seating(site, claims, granted)
        shut_out = set()
        # Bids that are tied go first: others find room on more hosts.
        for claim in sorted(claims[:granted], key=lambda claim: claim.instance.id not in tied):
            identity = claim.instance.id
            if not claim.running and not seating.seat(claim, tied.get(identity)):
                shut_out.add(identity)
        if not shut_out:
            break
        left_out += [claim for claim in claims if claim.instance.id in shut_out]
        claims = [claim for claim in claims if claim.instance.id not in shut_out]
    for claim in left_out:
        # Without them others were seated in another way, which may have left room.
        if claim.rate >= price:
            seating.seat(claim, tied.get(claim.instance.id))
    starting = {identity for identity, _ in seating.admitted}
    waiting = tuple(bid.id for bid in bids if bid.id not in starting)
    ending = tuple(claim.instance.id for claim in seating.ending if not (claim.rate >= price and seating.keep(claim)))
    return Cleared(price, tuple(seating.admitted), ending, waiting, tuple(seating.displaced))


class _Seating:
    """Hosts for the claims that are granted, once those that are not have left."""

    def __init__(self, site: Site, claims: Sequence[_Claim], granted: int) -> None:
        self.site, self.free = site, site.free_f.copy()
        self.ending = [claim for claim in claims[granted:] if claim.running]
        self.staying = [claim for claim in claims[:granted] if claim.running]
        self.admitted: list[tuple[str, str]] = []
        self.displaced: list[tuple[str, str]] = []
        for claim in self.ending:
            self._leave(claim.instance.id)

    def keep(self, claim: _Claim) -> bool:
        """Let one that would end stay, if nobody has taken its room: a winner may have found its host elsewhere."""
        h = self.site.instances[claim.instance.id].host
        if (self.free[:, h] < claim.units).any():
            return False
        self.free[:, h] -= claim.units
        return True

    def _leave(self, identity: str) -> None:
        placed = self.site.instances[identity]
        self.free[:, placed.host] += placed.units

    def seat(self, claim: _Claim, allowed: Bools | None) -> bool:
        """Give it a host, of those that are allowed. It may take the place of lower claims. False: there is no room."""
        h = best_fit(self.free, self.site.capacity, claim.units, allowed)
        if h is None:
            h = self._make_way(claim, allowed)
        if h is None:
            return False
        self.free[:, h] -= claim.units
        self.admitted.append((claim.instance.id, self.site.names[h]))
        return True

    def _make_way(self, claim: _Claim, allowed: Bools | None) -> int | None:
        """The allowed host whose lower claims bid least together for the room that is needed; they leave it."""
        lower: dict[int, list[_Claim]] = {}
        for other in reversed(self.staying):
            h = self.site.instances[other.instance.id].host
            if other.rate < claim.rate and (allowed is None or allowed[h]):
                lower.setdefault(h, []).append(other)
        found = [(h, self._cheapest(h, others, claim.units)) for h, others in lower.items()]
        enough = [(sum(_bid(one) for one in victims), h, victims) for h, victims in found if victims]
        if not enough:
            return None
        _, h, victims = min(enough, key=lambda each: each[:2])
        for one in victims:
            self._leave(one.instance.id)
            self.displaced.append((one.instance.id, claim.instance.id))
        gone = {one.instance.id for one in victims}
        self.staying = [one for one in self.staying if one.instance.id not in gone]
        return h

    def _cheapest(self, h: int, others: Sequence[_Claim], need: Ints) -> list[_Claim]:
        """Claims on a host, the lowest first, until there is room, without those that it does not take."""
        free, victims = self.free[:, h].copy(), []
        for one in others:
            if (free >= need).all():
                break
            free += one.units
            victims.append(one)
        if (free < need).any():
            return []
        for one in sorted(victims, key=_bid, reverse=True):
            if (free - one.units >= need).all():
                free -= one.units
                victims.remove(one)
        return victims


def _bid(claim: _Claim) -> float:
    return claim.instance.bid_usd_per_h or 0.0


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
