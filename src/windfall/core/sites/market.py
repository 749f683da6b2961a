"""The market of a live site: who bids, what an hour costs, who starts and who ends. Pure.

`placement` finds the price (`evictions.market`); here it is asked with what the state says, and each outcome gets a
sentence. Workers of the overlay bid what the site's rules say, commands what their owners said.
"""

from __future__ import annotations

from collections.abc import Sequence

from windfall.core.decisions import SiteSettled
from windfall.core.sites.instances import Instance, SiteState
from windfall.core.sites.scratch import Scratch, request_of
from windfall.placement import Instance as Placed
from windfall.placement import Request
from windfall.placement.evictions.market import Cleared, clear
from windfall.placement.hosts.filters import passing, stages

UNIT = "vcpu"
NOBODY = "no host of the site is there"


def clear_market(
    scratch: Scratch, site: SiteState, bids: Sequence[Instance], settled: SiteSettled, workers: int = 0
) -> int:
    """Clear the market. Bids that win are placed, instances that bid too little leave. How many new workers win."""
    library = scratch.library
    if UNIT not in library.resources:
        settled.denied += [(one.number, [NOBODY]) for one in bids if one.number == settled.number]
        return 0
    new = [_Bid(f"{site.rules.name}+{n:06d}", site.rules.review.bid_usd, _worker(site)) for n in range(workers)]
    asked = {site.name_of(one.number): one for one in bids}
    named = [_Bid(name, site.bid_usd(one) or 0.0, request_of(one)) for name, one in asked.items()]
    claims = [bid.claim for bid in (*named, *new) if _fits_somewhere(scratch, bid.request)]
    found = clear(library, claims, round(site.rules.review.reserve_usd * 1e6), UNIT)
    settled.price_usd = found.price_microusd_per_h / 1e6
    for identity in found.terminated:
        one = site.instances[int(identity.rpartition("-")[2])]
        settled.leaving.append((one.number, f"{_bids(site, one)}; {_costs(settled.price_usd)}"))
        scratch.end(identity)
    _start_winners(scratch, site, asked, found, settled)
    return sum(name not in asked for name, _ in found.admitted)


class _Bid:
    """A claim on room that waits."""

    def __init__(self, name: str, usd: float, request: Request) -> None:
        self.request = request
        self.claim = Placed(name, True, 0.0, request.resources, bid_usd_per_h=usd)


def _worker(site: SiteState) -> Request:
    return Request(True, site.rules.instance, tuple(site.rules.only_tags))


def _fits_somewhere(scratch: Scratch, request: Request) -> bool:
    """Some host could take it beside its normal instances; what fits nowhere must not raise the price for others."""
    library = scratch.library
    if any(amount and name not in library.resources for name, amount in request.resources.items()):
        return False
    alone = Request(False, request.resources, request.tags)
    return bool(passing(stages(library, alone, library.units(request.resources), None)).any())


def _start_winners(
    scratch: Scratch, site: SiteState, asked: dict[str, Instance], found: Cleared, settled: SiteSettled
) -> None:
    winners = {name for name, _ in found.admitted}
    price = found.price_microusd_per_h / 1e6
    for name, one in asked.items():
        why = f"{_bids(site, one)}; {_costs(price)}"
        placement = scratch.place(one.number, request_of(one)) if name in winners else None
        if placement is not None and placement.host:
            placement.why = [why, *placement.why]
            settled.placed.append(placement)
        elif one.number == settled.number:
            settled.denied.append((one.number, [why, "it waits for room, or for a lower price"]))


def waits(site: SiteState, one: Instance) -> list[str]:
    """Why a bid waits; empty for a normal request."""
    if site.bid_usd(one) is None:
        return []
    price = "the market has not been cleared yet" if site.price_usd is None else _costs(site.price_usd)
    return [f"{_bids(site, one)}; {price}", "it waits for room, or for a lower price"]


def outbid(site: SiteState, price_usd: float | None) -> str:
    """Why the market gives no room to new workers; there is no price where there is no host."""
    if price_usd is None:
        return NOBODY
    return f"workers bid ${site.rules.review.bid_usd:.6g} an hour; {_costs(price_usd)}"


def too_dear(site: SiteState) -> str:
    """Why the market would give no room to a new worker, by its last price. Empty if it may."""
    rules = site.rules.review
    if not rules.market:
        return ""
    price = max(site.price_usd or 0.0, rules.reserve_usd)
    return outbid(site, price) if rules.bid_usd < price * site.rules.instance.get(UNIT, 1.0) else ""


def _bids(site: SiteState, one: Instance) -> str:
    return f"it bids ${site.bid_usd(one) or 0.0:.6g} an hour for {one.resources.get(UNIT, 0):g} vCPU"


def _costs(price_usd: float) -> str:
    return f"an hour of one vCPU costs ${price_usd:.6g}"
