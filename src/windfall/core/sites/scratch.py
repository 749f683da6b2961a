"""A site at one moment, on which decisions are tried out one after the other. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from windfall.core.sites.instances import Instance, Placement, SiteHost, SiteState
from windfall.core.sites.view import SiteViews
from windfall.core.state.state import State
from windfall.numeric import np
from windfall.placement import Cost, Count, Decision, Period, Request, Revenue, Scheduler, Work
from windfall.placement.evictions.costs import micros
from windfall.placement.explain import why as reasons
from windfall.placement.hosts.weighers import billed_by

COSTS: Mapping[str, Cost] = {"work": Work(), "period": Period(), "count": Count(), "revenue": Revenue()}
EXPLAINED_HOSTS = 50
"""On larger sites the reasons leave out the weights of the hosts that were not chosen."""
PACKED = {"cheapest": 1.0, "overcommit": 1.0, "pack": 0.1}
"""Where hosts are emptied, instances that come are put beside others, or the emptied hosts would fill again."""


class Scratch:
    """A site at one moment, to be changed while a decision is made; the state stays as it is."""

    def __init__(
        self,
        state: State,
        site: SiteState,
        views: SiteViews,
        t: float,
        hosts: Mapping[str, SiteHost],
        ended: Collection[int] = (),
    ) -> None:
        self.t, self._name_of = t, site.name_of
        self._view = views.of(state, site.rules.name)
        self._view.sync(state, site, t, hosts, ended)
        self.library = self._view.library
        # Ties are broken by the place in the log: no generator whose state would have to be saved.
        rng = np.random.default_rng(state.seq)
        packed = PACKED if site.rules.review.consolidate_s is not None else None
        cycle_us = micros(site.rules.review.cycle_s)
        self.scheduler = Scheduler(
            self.library, _cost(site.rules.cost, cycle_us), site.rules.weighers or packed, rng, billed_by(cycle_us)
        )

    def end(self, identity: str) -> None:
        """Count the room of an instance as free."""
        self._view.remove(identity)

    def put(self, host: str, number: int, request: Request) -> None:
        """Take room that is known to be there."""
        self._view.take(host, (), self._name_of(number), request, self.t)

    def place(self, number: int, request: Request) -> Placement:
        """Find a host and take the room. `host` is empty where there is none."""
        unknown = [name for name, amount in request.resources.items() if amount and name not in self.library.resources]
        if not self.library.names:
            return Placement(number, "", why=["no host of the site is there"])
        if unknown:
            return Placement(number, "", why=[f"no host of the site has any {name}" for name in unknown])
        decision, why = self._decide(request)
        if decision.host is None:
            return Placement(number, "", why=why)
        self._view.take(decision.host, decision.victims, self._name_of(number), request, self.t)
        victims = [int(victim.rpartition("-")[2]) for victim in decision.victims]
        return Placement(number, decision.host, victims, decision.cost, why)

    def _decide(self, request: Request) -> tuple[Decision, list[str]]:
        if request.preemptible:
            # Preemptible instances come by the hundred; their placement needs no explanation.
            decision = self.scheduler.decide(request, self.t)
            return decision, [f"{decision.host} has room" if decision.host else "no host of the site has room"]
        few = len(self.library.names) <= EXPLAINED_HOSTS
        weighed = (self.scheduler.weigh if few else self.scheduler.outline)(request, self.t)
        return weighed.decision, reasons(self.scheduler, request, weighed)


def _cost(name: str, cycle_us: int) -> Cost:
    """The cost of that name, of instances that are billed by this cycle."""
    billed: Mapping[str, Cost] = {"period": Period(cycle_us), "revenue": Revenue(cycle_us)}
    return billed.get(name) or COSTS[name]


def request_of(one: Instance) -> Request:
    tags = tuple(one.wish.tags) if one.wish is not None else ()
    return Request(one.preemptible, one.resources, tags)
