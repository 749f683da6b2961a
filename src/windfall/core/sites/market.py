"""The market of a live site: who bids, what an hour costs, who starts and who ends. Pure.

`placement` finds the price (`evictions.market`); here it is asked with what the state says, and each outcome gets a
sentence. Workers of the overlay bid what the site's rules say, commands what their owners said.
"""

from __future__ import annotations

from collections.abc import Sequence

from windfall.core.decisions import SiteSettled
from windfall.core.sites.instances import Instance, Placement, SiteState
from windfall.core.sites.scratch import Scratch, request_of
from windfall.numeric import Bools
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
    claims, tied = [], {}
    for bid in (*named, *new):
        hosts = _hosts_for(scratch, bid.request)
        # What fits nowhere must not raise the price for others.
        if hosts is not None and hosts.any():
            claims.append(bid.claim)
            if bid.request.tags:
                tied[bid.claim.id] = hosts
    found = clear(library, claims, round(site.rules.review.reserve_usd * 1e6), UNIT, tied)
    settled.price_usd = found.price_microusd_per_h / 1e6
    for identity in found.terminated:
        _end(scratch, site, identity, _costs(settled.price_usd), settled)
    for identity, winner in found.displaced:
        who = winner if winner in asked else "a new worker"
        why = "may run only on hosts like this one" if winner in tied else "needs so much room on one host"
        _end(scratch, site, identity, f"{who} bids more and {why}", settled)
    _start_winners(scratch, site, asked, found, settled)
    return sum(name not in asked for name, _ in found.admitted)


class _Bid:
    """A claim on room that waits."""

    def __init__(self, name: str, usd: float, request: Request) -> None:
        self.request = request
        self.claim = Placed(name, True, 0.0, request.resources, bid_usd_per_h=usd)


def _worker(site: SiteState) -> Request:
    return Request(True, site.rules.instance, tuple(site.rules.only_tags))


def _hosts_for(scratch: Scratch, request: Request) -> Bools | None:
    """The hosts that could take it beside their normal instances; None if no host has such a resource."""
    library = scratch.library
    if any(amount and name not in library.resources for name, amount in request.resources.items()):
        return None
    alone = Request(False, request.resources, request.tags)
    return passing(stages(library, alone, library.units(request.resources), None))


def _end(scratch: Scratch, site: SiteState, identity: str, why: str, settled: SiteSettled) -> None:
    one = site.instances[int(identity.rpartition("-")[2])]
    settled.leaving.append((one.number, f"{_bids(site, one)}; {why}"))
    scratch.end(identity)


def _start_winners(
    scratch: Scratch, site: SiteState, asked: dict[str, Instance], found: Cleared, settled: SiteSettled
) -> None:
    """Those for which others make way take the host that was found for them, before others take its room; so do those
    that are tied to a tag."""
    host_of, served = dict(found.admitted), {winner for _, winner in found.displaced}
    for name, one in sorted(asked.items(), key=lambda item: not (request_of(item[1]).tags or item[0] in served)):
        why = f"{_bids(site, one)}; {_costs(found.price_microusd_per_h / 1e6)}"
        leaving = [identity for identity, winner in found.displaced if winner == name]
        placement = _place(scratch, one, host_of[name], leaving) if name in host_of else None
        if placement is not None and placement.host:
            placement.why = [why, *placement.why]
            settled.placed.append(placement)
        elif one.number == settled.number:
            settled.denied.append((one.number, [why, _waits_for(one)]))


def _place(scratch: Scratch, one: Instance, host: str, leaving: Sequence[str]) -> Placement:
    """`leaving`: who makes way for it there."""
    request = request_of(one)
    if not (request.tags or leaving):
        return scratch.place(one.number, request)
    scratch.put(host, one.number, request)
    why = f"{', '.join(leaving)} makes way on {host}" if leaving else f"{host} has room"
    return Placement(one.number, host, why=[why])


def _waits_for(one: Instance) -> str:
    tags = request_of(one).tags
    if tags:
        return f"it waits for room on hosts with {', '.join(tags)}, for lower bids there, or for a lower price"
    return "it waits for room on one host, for lower bids there, or for a lower price"


def waits(site: SiteState, one: Instance) -> list[str]:
    """Why a bid waits; empty for a normal request."""
    if site.bid_usd(one) is None:
        return []
    price = "the market has not been cleared yet" if site.price_usd is None else _costs(site.price_usd)
    return [f"{_bids(site, one)}; {price}", _waits_for(one)]


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
