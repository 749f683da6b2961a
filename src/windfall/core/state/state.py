"""Everything that decisions depend on, in a few parts. Pure data; each part saves itself (snapshot.py)."""

from __future__ import annotations

from math import inf

from msgspec import Struct, field

from windfall.core.events import Settings
from windfall.core.sites.instances import SiteState
from windfall.core.sites.view import SiteView
from windfall.core.state.bags import Bags
from windfall.core.state.fleet import Fleet
from windfall.core.state.hosts import Host, Hosts
from windfall.core.supply.overlay import Matching, PoolState
from windfall.planning.estimates import Record as RunTimes
from windfall.timeouts.online import Decision, Memory


class Advice(Struct, array_like=True):
    """What a pool has taught about a bag: the timeout and why, and how long nearly all results take to come."""

    pool: str
    bag: str
    decision: Decision
    latency_95_s: float | None = None


class Learned(Struct, array_like=True):
    """What finished and lost attempts have taught."""

    latencies: Memory = field(default_factory=Memory)
    """By pool and by bag: see core.liveness.timeouts."""
    advice: dict[str, Advice] = field(default_factory=dict)
    run_times: dict[str, RunTimes] = field(default_factory=dict)
    """Finished attempts by class of tasks, of the jobs that are planned."""


class Supply(Struct):
    """Pools that can be asked for workers, and the last matching of waiting tasks with them."""

    pools: dict[str, PoolState] = field(default_factory=dict)
    matching: Matching = field(default_factory=Matching)
    asked: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Requests that no pool has answered yet, by number: the pool and how many workers."""
    next_ask: int = 1
    look_t: float = inf
    """When to see whether workers are missing."""


class State:
    """The whole state after record `seq`, at time `t`."""

    __slots__ = ("bags", "fleet", "hosts", "learned", "seq", "settings", "site_views", "sites", "supply", "t")

    def __init__(self) -> None:
        self.seq = 0
        self.t = 0.0
        self.settings = Settings()
        self.bags = Bags()
        self.hosts = Hosts()
        self.fleet = Fleet()
        self.supply = Supply()
        self.learned = Learned()
        self.sites: dict[str, SiteState] = {}
        self.site_views: dict[str, SiteView] = {}
        """The sites as the placement library keeps them: made from the state, not saved."""

    def host(self, name: str) -> Host | None:
        return self.hosts.by_name.get(name)

    def touch(self, job: int) -> None:
        """Something has happened that could change the plan of a job."""
        plan = self.fleet.plans.get(job)
        if plan is not None:
            plan.changed_seq = self.seq + 1
            self.fleet.plans_due[job] = None
