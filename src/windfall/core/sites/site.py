"""The site in the engine: which host runs an instance and which instances are evicted for it (OPIE, live). Pure.

`placement` decides on what the state says (`site_view`). The room of victims counts as free when they are chosen; what
is placed there starts when they have ended (`after`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import msgspec

from windfall.core.decisions import SiteSettled
from windfall.core.events import InstanceCancelled, InstanceRequested, InstancesWanted, SiteHostReported, SiteLooked
from windfall.core.jobs import stops
from windfall.core.liveness import leases, lessons
from windfall.core.sites import market, review
from windfall.core.sites.instances import (
    HOLDING,
    PLACED,
    WAITING,
    Instance,
    SiteHost,
    SiteState,
    described,
)
from windfall.core.sites.scratch import Scratch, request_of
from windfall.core.sites.view import SiteViews
from windfall.core.state.hosts.hosts import GONE, LIVE
from windfall.core.state.hosts.pools import PoolState
from windfall.core.state.jobs.causes import Loss
from windfall.core.state.state import State
from windfall.placement import Request
from windfall.placement.model import to_units
from windfall.wire.messages import CANCELLED, LOST, PREEMPTED

if TYPE_CHECKING:
    from windfall.core.engine import Policies

OVERTAKEN = "a newer report has come"
GIVEN_UP = "the host was given up: what it runs counts as lost, and it has to begin anew"


# --- deciding -------------------------------------------------------------------------------------------------------


def on_instance_requested(state: State, event: InstanceRequested, policies: Policies) -> SiteSettled:
    site = state.sites[event.site]
    known = _with_key(site, event.wish.key)
    if known is not None:
        return SiteSettled(known.number, repeat=True)
    asked = Instance(site.next, event.wish.resources, event.t, event.wish)
    settled = SiteSettled(asked.number)
    _place(Scratch(state, site, policies.sites, event.t, site.hosts), site, [asked], settled)
    return settled


def _with_key(site: SiteState, key: str) -> Instance | None:
    if not key:
        return None
    return next((one for one in site.instances.values() if one.wish is not None and one.wish.key == key), None)


def on_instances_wanted(state: State, event: InstancesWanted, policies: Policies) -> SiteSettled:
    site = state.sites[event.site]
    scratch = Scratch(state, site, policies.sites, event.t, site.hosts)
    settled = SiteSettled()
    refused = review.does_not_pay(site, event.t)
    if refused:
        settled.denied.append((site.next, [refused]))
        return settled
    count = event.count
    if site.rules.review.market:
        count = market.clear_market(scratch, site, bids_of(site), settled, event.count)
        if count < event.count:
            settled.denied.append((site.next + count, [market.outbid(site, settled.price_usd)]))
    for number in range(site.next, site.next + count):
        found = scratch.place(number, Request(True, site.rules.instance, tuple(site.rules.only_tags)))
        if not found.host:
            settled.denied.insert(0, (number, found.why))
            break
        settled.placed.append(found)
    return settled


def bids_of(site: SiteState) -> list[Instance]:
    return [one for one in site.waiting() if site.bid_usd(one) is not None]


def _place(scratch: Scratch, site: SiteState, asked: list[Instance], settled: SiteSettled) -> None:
    """Normal requests take their place; then those that bid do, as the market says."""
    bids = [one for one in asked if site.bid_usd(one) is not None]
    for one in asked:
        if site.bid_usd(one) is not None:
            continue
        found = scratch.place(one.number, request_of(one))
        if found.host:
            settled.placed.append(found)
        elif one.state == WAITING and one.number == settled.number:
            settled.denied.append((one.number, found.why))
    if bids:
        known = {one.number for one in bids}
        market.clear_market(scratch, site, [*bids, *(one for one in bids_of(site) if one.number not in known)], settled)


def on_site_host_reported(state: State, event: SiteHostReported, policies: Policies) -> SiteSettled:
    site = state.sites[event.site]
    known = site.hosts.get(event.host)
    same_boot = known is not None and known.boot == event.boot
    if known is not None and known.state != GONE and _is_behind(known, event):
        return SiteSettled(refused=OVERTAKEN)
    # Numbers have no gaps: one means that our log was cut off behind an answer that the agent has seen.
    skipped = known is not None and same_boot and (known.state == GONE or event.n > known.n + 1)
    if skipped or (not same_boot and event.capacity is None):
        return SiteSettled(refused=GIVEN_UP)
    if known is not None and same_boot and event.n == known.n:
        return SiteSettled(repeat=True)
    settled = SiteSettled()
    reported = {end.number: end for end in event.ended}
    ended = []
    for one in site.on(event.host):
        end = reported.get(one.number)
        if end is not None and one.wish is not None and end.start is None and end.cause == PREEMPTED:
            settled.returned.append(one.number)
        elif end is not None:
            ended.append(one.number)
        elif event.leaving or not same_boot:
            _lose(one, settled, f"the agent of {event.host} left" if event.leaving else "its host's agent restarted")
    ended += [number for number, _, _ in settled.ended]
    if _offers_too_little(site, event, {*ended, *settled.returned}):
        return SiteSettled(refused=GIVEN_UP)
    settled.lost = _attempts_lost(state, site, ended)
    complete(state, event.t, settled)
    if event.leaving:
        settled.gone.append(event.host)
    news = event.capacity is not None or known is None or known.state != LIVE or ended or settled.returned
    if news:
        _place_those_that_wait(state, site, policies.sites, event.t, settled, _hosts_after(site, event), ended)
    return settled


def _is_behind(known: SiteHost, event: SiteHostReported) -> bool:
    """An agent that has been replaced still reports: a boot begins by saying what the host offers."""
    return event.n < known.n if event.boot == known.boot else event.capacity is None


def _offers_too_little(site: SiteState, event: SiteHostReported, gone: Collection[int]) -> bool:
    """Whether a host says that it has less than its instances take which go on. No agent does while it runs."""
    if event.capacity is None:
        return False
    free = {name: to_units(amount) for name, amount in event.capacity.items()}
    for one in site.on(event.host):
        if one.state in HOLDING and one.number not in gone:
            for name, amount in one.resources.items():
                free[name] = free.get(name, 0) - to_units(amount)
    return min(free.values(), default=0) < 0


def _hosts_after(site: SiteState, event: SiteHostReported) -> dict[str, SiteHost]:
    """The hosts as they are once the report has been taken in."""
    hosts = dict(site.hosts)
    hosts[event.host] = described(hosts.get(event.host), event)
    if event.leaving:
        del hosts[event.host]
    return hosts


def on_instance_cancelled(state: State, event: InstanceCancelled, policies: Policies) -> SiteSettled:
    """One that its host has not heard of ends at once; any other is told to leave."""
    site = state.sites[event.site]
    one = site.instances.get(event.number)
    settled = SiteSettled(event.number)
    if one is None or one.state not in (WAITING, PLACED) or one.told:
        return settled
    settled.ended.append((one.number, CANCELLED, event.reason or "cancelled"))
    if one.state == PLACED:
        _place_those_that_wait(state, site, policies.sites, event.t, settled, site.hosts, [one.number])
    return settled


def silences(state: State, site: SiteState, t: float) -> tuple[list[str], list[str]]:
    """Hosts whose agents have just been silent for a lease, and for two: like workers, unknown and then lost."""
    lease_s = state.settings.lease_s
    silent = [host.name for host in site.hosts.values() if host.state == LIVE and host.seen_t + lease_s <= t]
    gone = [host.name for host in site.hosts.values() if host.state != GONE and host.seen_t + 2 * lease_s <= t]
    return [name for name in silent if name not in gone], gone


def on_site_looked(state: State, event: SiteLooked, policies: Policies) -> SiteSettled:
    site = state.sites[event.site]
    settled = SiteSettled()
    settled.silent, settled.gone = silences(state, site, event.t)
    for name in settled.gone:
        for one in site.on(name):
            _lose(one, settled, f"the agent of {name} is silent")
    ended = [number for number, _, _ in settled.ended]
    settled.lost = _attempts_lost(state, site, ended)
    complete(state, event.t, settled)
    hosts = {name: host for name, host in site.hosts.items() if name not in settled.gone}
    if settled.returned:
        _place_those_that_wait(state, site, policies.sites, event.t, settled, hosts, ended)
    elif site.review_t <= event.t:
        scratch = Scratch(state, site, policies.sites, event.t, hosts, frozenset(ended))
        review.review(scratch, site, bids_of(site), settled)
    return settled


def _lose(one: Instance, settled: SiteSettled, text: str) -> None:
    """Its host goes. A request that the host never heard of waits again; anything else may have run: it is lost."""
    if one.wish is not None and one.state == PLACED and not one.told:
        settled.returned.append(one.number)
    else:
        settled.ended.append((one.number, CANCELLED if one.cause == CANCELLED else LOST, text))


def _attempts_lost(state: State, site: SiteState, ended: list[int]) -> list[Loss]:
    """What the workers that have ended had in hand and did not report."""
    workers = [state.host(site.name_of(number)) for number in ended]
    return leases.losses_of(state, [host for host in workers if host is not None and host.state != GONE])


def complete(state: State, t: float, settled: SiteSettled) -> None:
    """Add to the losses what else follows from them."""
    settled.stopped = stops.after_losses(state, settled.lost)
    settled.lessons = lessons.of_losses(state, settled.lost, t)


def _place_those_that_wait(
    state: State,
    site: SiteState,
    views: SiteViews,
    t: float,
    settled: SiteSettled,
    hosts: Mapping[str, SiteHost],
    ended: list[int],
) -> None:
    """In the order in which they came; a smaller one may go before a larger one that still does not fit."""
    gone = frozenset([*ended, *settled.returned])
    waiting = [
        one
        for one in site.instances.values()
        if (one.state == WAITING or one.number in settled.returned) and one.number not in ended
    ]
    if waiting:
        _place(Scratch(state, site, views, t, hosts, gone), site, waiting, settled)


def why_now(state: State, site: SiteState, views: SiteViews, one: Instance, t: float) -> list[str]:
    """Why a request waits, as things stand: what the next attempt to place it would say."""
    bid = market.waits(site, one)
    return bid or Scratch(state, site, views, t, site.hosts).place(one.number, request_of(one)).why


# --- what the overlay asks ------------------------------------------------------------------------------------------


def room(site: SiteState) -> int:
    """How many more preemptible instances fit now without an eviction, on hosts that may have them."""
    size = {name: to_units(amount) for name, amount in site.rules.instance.items() if to_units(amount)}
    fits, tags = 0, set(site.rules.only_tags)
    for host in site.hosts.values():
        if host.state != LIVE or not size or not tags <= set(host.tags):
            continue
        free = {name: to_units(host.capacity.get(name, 0)) for name in size}
        for one in site.on(host.name):
            if one.state in HOLDING:
                for name in size:
                    free[name] -= to_units(one.resources.get(name, 0))
        fits += max(0, min(free[name] // size[name] for name in size))
    return fits


def starts_nothing(state: State, pool: str, t: float) -> str:
    """Why the pool, if it is a site, starts no worker whatever room there is: too dear. Empty if one could start.

    Such a site is not asked, so that it does not look like a pool that fails and is tried less and less often.
    """
    site = state.sites.get(pool)
    if site is None:
        return ""
    return review.does_not_pay(site, t) or market.too_dear(site)


def with_room(state: State) -> dict[str, PoolState]:
    """The pools, those of sites limited to what their hosts can take: a site that is full is not at fault.

    Workers that follow others to another host are pending, too, though nobody has asked for them.
    """
    pools = dict(state.supply.pools)
    for name, site in state.sites.items():
        pool = pools.get(name)
        if pool is not None:
            workers = [one.number for one in site.instances.values() if one.is_worker and one.state in HOLDING]
            pending = sum(state.host(site.name_of(number)) is None for number in workers)
            limit = min(pool.rules.limit, len(workers) + room(site))
            rules = msgspec.structs.replace(pool.rules, limit=limit)
            pools[name] = msgspec.structs.replace(pool, rules=rules, queued=max(pool.queued, pending))
    return pools
