"""The review of a site: clear its market, empty hosts, end instances that do not pay. Pure.

Each is switched on by the site's rules (`ReviewRules`). What a review does to an instance is told in a sentence, which
the instance and the site keep.
"""

from __future__ import annotations

from itertools import groupby
from math import exp

from windfall.core.decisions import SiteSettled
from windfall.core.sites.instances import RUNNING, Instance, Placement, SiteState
from windfall.core.sites.market import clear_market
from windfall.core.sites.scratch import Scratch
from windfall.core.state.hosts.hosts import LIVE
from windfall.placement import Request
from windfall.placement.evictions.consolidate import Move, consolidate
from windfall.placement.evictions.costs import micros
from windfall.placement.evictions.proactive import unprofitable
from windfall.placement.model import to_units

HOUR_S = 3600.0
LATE_S = 5.0
"""A review may come this much after the end of a billing cycle and still end the instance as of that cycle."""


def review(scratch: Scratch, site: SiteState, bids: list[Instance], settled: SiteSettled) -> None:
    rules = site.rules.review
    settled.review_t = scratch.t + rules.every_s
    if not scratch.library.names:
        return
    if rules.market:
        clear_market(scratch, site, bids, settled)
    if rules.power_usd > 0:
        _end_what_does_not_pay(scratch, site, settled)
    if rules.consolidate_s is not None:
        _empty_hosts(scratch, site, settled)


# --- instances that do not pay --------------------------------------------------------------------------------------


def _end_what_does_not_pay(scratch: Scratch, site: SiteState, settled: SiteSettled) -> None:
    """At the end of its billing cycle, not before; the next review comes when the next such cycle ends."""
    t, power, cycle_s = scratch.t, site.rules.review.power_usd, site.rules.review.cycle_s
    per_h = evictions_per_h(site, t)
    late_s = min(LATE_S, cycle_s / 2)
    found = unprofitable(scratch.library, t - late_s, cycle_s + late_s, per_h, power, micros(cycle_s))
    for end in found:
        number = _number(end.instance)
        began_s = _began_s(scratch, end.instance)
        if number not in site.instances or end.at_s <= began_s:
            continue  # it has only just begun: its first cycle is not over
        if end.at_s > t:
            settled.review_t = min(settled.review_t or end.at_s, end.at_s)
            continue
        earns, share = _earns_usd(scratch, end.instance), _share(scratch, end.instance)
        settled.leaving.append((number, _loss(earns, _survives(site, t), share * power)))
        scratch.end(end.instance)


def does_not_pay(site: SiteState, t: float) -> str:
    """Why no worker is started: on no host would an hour of it pay for its share of the power. Empty if one would."""
    power, tags = site.rules.review.power_usd, set(site.rules.only_tags)
    hosts = [host for host in site.hosts.values() if host.state == LIVE and tags <= set(host.tags)]
    if power <= 0 or not hosts:
        return ""
    need = {name: to_units(amount) for name, amount in site.rules.instance.items()}
    least = min(max(n / max(1, to_units(host.capacity.get(name, 0))) for name, n in need.items()) for host in hosts)
    market, price = site.rules.review, site.rules.price_usd
    if market.market:
        price = min(market.bid_usd, (site.price_usd or market.reserve_usd) * site.rules.instance.get("vcpu", 1.0))
    survives = _survives(site, t)
    return _loss(price, survives, least * power) if price * survives < least * power else ""


def _survives(site: SiteState, t: float) -> float:
    """The chance that an instance is not evicted within a billing cycle."""
    return exp(-evictions_per_h(site, t) * site.rules.review.cycle_s / HOUR_S)


def _loss(earns: float, survives: float, costs: float) -> str:
    return (
        f"an hour of it earns ${earns:.6g} with a chance of {survives:.0%} that it is not evicted before; "
        f"its share of the host costs ${costs:.6g}"
    )


def evictions_per_h(site: SiteState, t: float) -> float:
    """How often a preemptible instance of this site has been evicted for a normal request, by those remembered."""
    seen = [one for one in site.instances.values() if one.preemptible and one.started_t is not None]
    hours = sum((one.ended_t if one.ended_t is not None else t) - (one.started_t or t) for one in seen) / HOUR_S
    return sum(one.evicted_by is not None for one in seen) / max(1.0, hours)


def _began_s(scratch: Scratch, identity: str) -> float:
    placed = scratch.library.instances[identity]
    return float(scratch.library.start_us[placed.host, placed.slot]) / 1e6


def _earns_usd(scratch: Scratch, identity: str) -> float:
    placed = scratch.library.instances[identity]
    return float(scratch.library.price_microusd_per_h[placed.host, placed.slot]) / 1e6


def _share(scratch: Scratch, identity: str) -> float:
    """The share of its host that it takes: the largest one over all resources."""
    placed = scratch.library.instances[identity]
    capacity = scratch.library.capacity[:, placed.host]
    return max(int(n) / max(1, int(c)) for n, c in zip(placed.units, capacity, strict=True))


# --- hosts that could be empty --------------------------------------------------------------------------------------


def _empty_hosts(scratch: Scratch, site: SiteState, settled: SiteSettled) -> None:
    """Workers move: one starts on the other host, and the one here is told to leave."""
    plan = consolidate(scratch.library)
    number = site.next
    # The moves from one host stand together. Leaving a host out gives those that follow more room, not less.
    for source, group in groupby(plan.moves, key=lambda move: move.source):
        moves = list(group)
        if not _may_move(scratch, site, moves):
            continue
        for move in moves:
            name = site.name_of(number)
            settled.leaving.append((_number(move.instance), f"{name} on {move.target} follows: {source} is emptied"))
            why = [f"follows {move.instance}, so that {source} is emptied"]
            settled.placed.append(Placement(number, move.target, why=why))
            scratch.end(move.instance)
            scratch.put(move.target, number, Request(True, site.rules.instance))
            number += 1


def _may_move(scratch: Scratch, site: SiteState, moves: list[Move]) -> bool:
    """All are workers that have come, the targets have the tags, and little enough work is lost."""
    library, lost_s = scratch.library, 0.0
    tags = set(site.rules.only_tags)
    for move in moves:
        one = site.instances.get(_number(move.instance))
        if one is None or not one.is_worker or one.state != RUNNING or one.resources != site.rules.instance:
            return False
        if not tags <= set(site.hosts[move.target].tags):
            return False
        placed = library.instances[move.instance]
        lost_s += scratch.t - float(library.saved_us[placed.host, placed.slot]) / 1e6
    return lost_s <= (site.rules.review.consolidate_s or 0.0) + 1e-3


def _number(identity: str) -> int:
    return int(identity.rpartition("-")[2])
