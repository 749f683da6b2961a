"""A site as the placement library keeps it, brought up to date before each decision. Pure: a cache of the state.

Only hosts that differ from what the library has are put in anew, each in the order of its instances' numbers. So the
library looks the same whether it was kept or made from a snapshot, and gives the same victims.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from windfall.core.sites.instances import HOLDING, Instance, Resources, SiteHost, SiteRules, SiteState
from windfall.placement import Host, Request, Site
from windfall.placement import Instance as Placed
from windfall.placement.evictions.costs import micros

if TYPE_CHECKING:
    from windfall.core.state.state import State

Entry = tuple[int, float]
"""An instance's number, and since when it counts as running."""


class SiteView:
    """What the library knows of one site."""

    def __init__(self) -> None:
        self.library = Site([])
        self._offers: list[tuple[str, Resources, list[str]]] = []
        self._rules: SiteRules | None = None
        self._held: dict[str, list[Entry] | None] = {}
        """What lies on each host in the library; None where a decision has tried something out."""

    def sync(
        self, state: State, site: SiteState, t: float, hosts: Mapping[str, SiteHost], ended: Collection[int]
    ) -> None:
        """Let the library say what the state says: live `hosts` and what they hold, without what has `ended`."""
        offers = [(host.name, host.capacity, host.tags) for host in hosts.values() if host.state == "live"]
        if offers != self._offers or site.rules != self._rules:
            self.library = Site([Host(name, capacity, (), tuple(tags)) for name, capacity, tags in offers])
            self._offers, self._rules, self._held = offers, site.rules, {}
        held: dict[str, list[Entry]] = {name: [] for name in self.library.names}
        busy: list[tuple[str, float]] = []
        for one in site.instances.values():
            if one.state not in HOLDING or one.host not in held or one.number in ended:
                continue
            held[one.host].append((one.number, _since(one)))
            if one.preemptible and (sent := _at_work_since(state, site, one)) is not None:
                busy.append((site.name_of(one.number), sent))
        for name, entries in held.items():
            if self._held.get(name, []) != entries:
                self._put_anew(site, name, entries)
        # What is lost with a worker is its oldest attempt; one without work loses nothing.
        self.library.saved_us[:] = micros(t)
        for identity, sent in busy:
            placed = self.library.instances[identity]
            self.library.saved_us[placed.host, placed.slot] = micros(sent)
        if site.rules.review.market:
            self._price(site)

    def _price(self, site: SiteState) -> None:
        """In a market an instance pays the price of its vCPUs, at most its bid."""
        for placed in self.library.instances.values():
            bid = placed.instance.bid_usd_per_h
            if placed.slot >= 0 and bid is not None:
                pays = min(bid, (site.price_usd or 0.0) * placed.instance.resources.get("vcpu", 1.0))
                self.library.price_microusd_per_h[placed.host, placed.slot] = round(pays * 1e6)

    def _put_anew(self, site: SiteState, host: str, entries: list[Entry]) -> None:
        library = self.library
        for identity in list(library.on_host[library.index[host]]):
            library.remove(identity)
        for number, since in entries:
            one = site.instances[number]
            price = site.rules.price_usd or None
            placed = Placed(site.name_of(number), one.preemptible, 0.0, one.resources, price, site.bid_usd(one))
            library.hold(host, placed, since)
        self._held[host] = entries

    def remove(self, identity: str) -> None:
        """Try an end: as `take`."""
        host = self.library.instances[identity].host
        self.library.remove(identity)
        self._held[self.library.names[host]] = None

    def take(self, host: str, victims: Collection[str], identity: str, request: Request, t: float) -> None:
        """Try a placement: later decisions on the same event see it. The next `sync` takes it back."""
        for victim in victims:
            self.library.remove(victim)
        self.library.boot(host, Placed(identity, request.preemptible, 0.0, request.resources), t)
        self._held[host] = None


class SiteViews:
    """The sites of one state as the library knows them."""

    def __init__(self) -> None:
        self._state: State | None = None
        self._views: dict[str, SiteView] = {}

    def of(self, state: State, site: str) -> SiteView:
        if state is not self._state:
            self._state, self._views = state, {}
        return self._views.setdefault(site, SiteView())


def _since(one: Instance) -> float:
    return one.started_t if one.started_t is not None else one.placed_t or one.asked_t


def _at_work_since(state: State, site: SiteState, one: Instance) -> float | None:
    """Since when an instance has had work that would be lost: a command all that it has run."""
    return _oldest_attempt(state, site.name_of(one.number)) if one.is_worker else one.started_t


def _oldest_attempt(state: State, worker: str) -> float | None:
    """Since when a worker's oldest attempt has been out."""
    host = state.host(worker)
    if host is None or not host.held or host.state == "gone":
        return None
    sent = [
        attempt.sent
        for job, task, number in host.held
        for attempt in state.bags[job].attempts.live.get(task, ())
        if attempt.number == number
    ]
    return min(sent, default=None)
