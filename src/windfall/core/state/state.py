"""Everything that decisions depend on, in a few parts. Pure data; each part saves itself (snapshot.py)."""

from __future__ import annotations

from math import inf

from msgspec import Struct, field

from windfall.core.events import Settings
from windfall.core.sites.instances import SiteState
from windfall.core.state.hosts.hosts import Host, Hosts
from windfall.core.state.hosts.learned import Learned
from windfall.core.state.hosts.pools import AddedPool, Matching, PoolMode, PoolState
from windfall.core.state.jobs.bags import Bags
from windfall.core.state.renting.fleet import Fleet


class Supply(Struct):
    """Pools that can be asked for workers, and the last matching of waiting tasks with them."""

    pools: dict[str, PoolState] = field(default_factory=dict)
    matching: Matching = field(default_factory=Matching)
    asked: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Requests that no pool has answered yet, by number: the pool and how many workers."""
    next_ask: int = 1
    modes: dict[str, PoolMode] = field(default_factory=dict)
    """Pools that are paused, drained or ended by an operator; all others are open. Those that rent machines, too."""
    added: dict[str, AddedPool] = field(default_factory=dict)
    """Pools that every server on this state opens, beside those of its pools.toml."""
    look_t: float = inf
    """When to see whether workers are missing."""


class State:
    """The whole state after record `seq`, at time `t`."""

    __slots__ = ("bags", "fleet", "hosts", "learned", "seq", "settings", "sites", "supply", "t")

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

    def host(self, name: str) -> Host | None:
        return self.hosts.by_name.get(name)

    def was_forgotten(self, number: int) -> bool:
        """Whether a job had this number and is no more. Jobs and named fleets have their numbers from one counter."""
        return 0 < number < self.bags.next and number not in self.bags and number not in self.fleet.book.by_number

    def touch(self, job: int, by_t: float = -inf) -> None:
        """Something has happened that could change the plan of a job's fleet; the number of a fleet does as well.

        `by_t`: until then it may wait for other changes, if the fleet is so large that its changes are collected.
        """
        if not self.fleet.plans:
            return
        plan = self.fleet.plan_of(job)
        if plan is not None:
            plan.changed_seq = self.seq + 1
            plan.change_by_t = min(plan.change_by_t, by_t)
            self.fleet.plans_due[plan.fleet] = None
