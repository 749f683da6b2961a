"""Sites as records change them: hosts that report, instances placed, told to leave, ended. Decides nothing."""

from __future__ import annotations

from math import inf

from windfall.core.decisions import Nothing, SiteSettled
from windfall.core.events import (
    InstanceCancelled,
    InstanceRequested,
    InstancesWanted,
    SiteCreated,
    SiteHostReported,
    SiteLooked,
)
from windfall.core.jobs import attempts
from windfall.core.liveness.apply import apply_losses, leave
from windfall.core.sites.instances import (
    ENDED,
    HOLDING,
    LEAVING,
    OPEN,
    PLACED,
    REFUSED,
    RUNNING,
    WAITING,
    Instance,
    Placement,
    SiteState,
    described,
)
from windfall.core.state.hosts.hosts import GONE, LIVE, UNKNOWN
from windfall.core.state.state import State
from windfall.wire.messages import CANCELLED, PREEMPTED

NOTES_KEPT = 50


def apply_site_created(state: State, event: SiteCreated, decided: Nothing) -> None:
    site = state.sites.get(event.rules.name)
    if site is None:
        site = state.sites[event.rules.name] = SiteState(event.rules)
    site.rules, review = event.rules, event.rules.review
    site.review_t = event.t + review.every_s if review.on else inf
    if not review.market:
        site.price_usd = None


def apply_instance_requested(state: State, event: InstanceRequested, decided: SiteSettled) -> None:
    site = state.sites[event.site]
    if decided.repeat:
        return
    site.instances[decided.number] = Instance(decided.number, event.wish.resources, event.t, event.wish)
    site.next = decided.number + 1
    _settle(state, site, decided, event.t)


def apply_instances_wanted(state: State, event: InstancesWanted, decided: SiteSettled) -> None:
    _settle(state, state.sites[event.site], decided, event.t)


def apply_instance_cancelled(state: State, event: InstanceCancelled, decided: SiteSettled) -> None:
    site = state.sites[event.site]
    one = site.instances.get(event.number)
    if not decided.ended and one is not None and one.state in HOLDING:
        _leave(one, event.t, CANCELLED, event.reason or "cancelled")
    _settle(state, site, decided, event.t)


def apply_site_looked(state: State, event: SiteLooked, decided: SiteSettled) -> None:
    site = state.sites[event.site]
    _settle(state, site, decided, event.t)
    site.look_t = next_silence(site, state.settings.lease_s)


def next_silence(site: SiteState, lease_s: float) -> float:
    """When the first of its agents will have been silent for a lease, or for two."""
    there = [host for host in site.hosts.values() if host.state != GONE]
    return min((host.seen_t + lease_s * (1 if host.state == LIVE else 2) for host in there), default=inf)


def apply_site_host_reported(state: State, event: SiteHostReported, decided: SiteSettled) -> None:
    site = state.sites[event.site]
    if decided.refused:
        return
    if decided.repeat:
        site.hosts[event.host].seen_t = event.t
        _tell(site, event.host)
        return
    host = site.hosts[event.host] = described(site.hosts.get(event.host), event)
    for number, t in event.started:
        one = site.instances.get(number)
        if one is not None and one.host == host.name and one.state in OPEN:
            one.started_t = t
            one.state = RUNNING if one.state == PLACED else one.state
    returned = decided.returned
    for end in event.ended:
        one = site.instances.get(end.number)
        if one is not None and one.host == host.name and one.state in OPEN and one.number not in returned:
            one.started_t, one.exit, one.rss_bytes = end.start, end.exit, end.rss_bytes
            _end(state, site, one, end.cause, end.text, end.end)
    if event.leaving:
        host.left = event.leaving
    site.look_t = min(site.look_t, event.t + state.settings.lease_s)
    _settle(state, site, decided, event.t)
    _tell(site, event.host)


def _tell(site: SiteState, host: str) -> None:
    """A report is answered with all that the host shall run."""
    for one in site.on(host):
        one.told = True


def _settle(state: State, site: SiteState, decided: SiteSettled, t: float) -> None:
    for name in decided.silent:
        site.hosts[name].state = UNKNOWN
    for name in decided.gone:
        site.hosts[name].state = GONE
        site.hosts[name].left = site.hosts[name].left or "silent"
    for number in decided.returned:
        one = site.instances[number]
        one.state, one.host, one.placed_t, one.told, one.after, one.victims = WAITING, "", None, False, [], []
    for number, cause, text in decided.ended:
        _end(state, site, site.instances[number], cause, text, t)
    if decided.lost:
        apply_losses(state, decided.lost, decided.lessons, t)
        attempts.stop_jobs(state, decided.stopped, t)
    for number, why in decided.denied:
        asked = site.instances.get(number)
        if asked is not None and asked.wish is not None:
            asked.why = list(why)
            if not asked.wish.queue:
                _end(state, site, asked, "", "", t, REFUSED)
    for number, text in decided.leaving:
        _leave(site.instances[number], t, PREEMPTED, text)
        _note(site, t, f"{site.name_of(number)} ends: {text}")
    for placement in decided.placed:
        _take_place(site, placement, t)
    _take_review(site, decided, t)
    while len(site.ended) > state.settings.bookkeeping.ended_instances_kept:
        del site.instances[site.ended.pop(0)]


def _take_review(site: SiteState, decided: SiteSettled, t: float) -> None:
    if decided.price_usd is not None:
        if decided.price_usd != site.price_usd:
            _note(site, t, f"an hour of one vCPU costs ${decided.price_usd:.6g}")
        site.price_usd = decided.price_usd
    if decided.review_t is not None:
        site.review_t = decided.review_t


def _note(site: SiteState, t: float, text: str) -> None:
    site.notes.append((t, text))
    del site.notes[:-NOTES_KEPT]


def _take_place(site: SiteState, placement: Placement, t: float) -> None:
    if placement.number not in site.instances:  # a worker: nobody asked for it by a number
        site.instances[placement.number] = Instance(placement.number, site.rules.instance, t)
        site.next = placement.number + 1
    for number in placement.victims:
        victim = site.instances[number]
        victim.evicted_by = placement.number
        _leave(victim, t, PREEMPTED, f"makes way for {site.name_of(placement.number)}")
    one = site.instances[placement.number]
    one.state, one.host, one.placed_t = PLACED, placement.host, t
    one.victims, one.cost, one.why = list(placement.victims), placement.cost, list(placement.why)
    one.after = [other.number for other in site.on(placement.host) if other.state == LEAVING]


def _leave(one: Instance, t: float, cause: str, text: str) -> None:
    one.state, one.leaving_t, one.cause, one.text = LEAVING, t, cause, text


def _end(state: State, site: SiteState, one: Instance, cause: str, text: str, t: float, to: str = ENDED) -> None:
    """Whatever it still held as a worker has been judged by the decision; here the worker is gone."""
    if one.state in (ENDED, REFUSED):
        return
    one.state, one.ended_t, one.cause = to, t, cause
    one.text = text or one.text
    site.ended.append(one.number)
    worker = state.host(site.name_of(one.number)) if one.is_worker else None
    if worker is not None and worker.state != GONE:
        leave(state, worker, one.text or "its instance has ended")


def welcome(state: State, t: float) -> None:
    """A server has started: agents could not reach it while it was down, so their leases begin anew."""
    for site in state.sites.values():
        for host in site.hosts.values():
            if host.state != GONE:
                host.state, host.seen_t = LIVE, t
        site.look_t = next_silence(site, state.settings.lease_s)
