"""The nouns of a site: hosts that one owns, instances on them, what is asked for. Pure data; `site` decides on it."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from windfall.core.state.hosts.pools import PoolRules

if TYPE_CHECKING:
    from windfall.core.events import SiteHostReported

Resources = dict[str, float]

WAITING, PLACED, RUNNING, LEAVING, ENDED, REFUSED = "waiting", "placed", "running", "leaving", "ended", "refused"
OPEN = frozenset({PLACED, RUNNING, LEAVING})
"""States in which an instance takes up room on its host."""
HOLDING = frozenset({PLACED, RUNNING})
"""States in which it will go on doing so."""


class ReviewRules(Struct, frozen=True, array_like=True):
    """What the owner of a site has switched on beyond making way for normal requests. All off unless set."""

    market: bool = False
    """Preemptible instances bid; one price for all; those that bid less end."""
    reserve_usd: float = 0.0
    """The least price of an hour of one vCPU."""
    bid_usd: float = 0.0
    """What a worker bids for an hour."""
    consolidate_s: float | None = None
    """Hosts are emptied where all moves from one host lose at most this much work; None: never."""
    power_usd: float = 0.0
    """What an hour of a whole host costs: instances whose next cycle does not pay for their share end. 0: never."""
    every_s: float = 60.0
    cycle_s: float = 3600.0
    """Billing cycle of a preemptible instance, from its start: only full ones are paid."""

    @property
    def on(self) -> bool:
        return self.market or self.consolidate_s is not None or self.power_usd > 0


class SiteRules(Struct, frozen=True, array_like=True):
    """A site as its owner sets it up. `instance` is what one preemptible instance takes of a host."""

    name: str
    instance: Resources
    limit: int = 1000
    grace_s: float = 10.0
    cost: str = "work"
    idle_exit_s: float = 60.0
    price_usd: float = 0.0
    per_minute: float = 600.0
    weighers: dict[str, float] = {}
    """How hosts are ranked, by names of `placement`; empty: the cheapest victims decide."""
    only_tags: list[str] = []
    """Preemptible instances go only to hosts with all of these tags."""
    review: ReviewRules = ReviewRules()

    @property
    def slots(self) -> int:
        return max(1, int(self.instance.get("vcpu", 1)))

    @property
    def pool(self) -> PoolRules:
        """The same as a pool of the overlay: its workers are the preemptible instances."""
        return PoolRules(self.name, "site", self.limit, self.slots, self.price_usd, self.per_minute)


class Wish(Struct, frozen=True, array_like=True):
    """A request: a command and what it takes. `queue`: wait for room; else it is refused where there is none."""

    resources: Resources
    argv: list[str]
    wall_s: float | None = None
    queue: bool = True
    tags: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    grace_s: float = 10.0
    key: str = ""
    """A request that is sent again with the same key is the same request."""
    bid_usd: float | None = None
    """The most that an hour of it may cost: it is preemptible, and the market decides. None: a normal request."""


class InstanceEnd(Struct, array_like=True):
    """How an instance ended, on the server's clock. `start` is None if it never began."""

    number: int
    cause: str
    exit: int | None
    start: float | None
    end: float
    text: str = ""
    rss_bytes: int = 0


class Placement(Struct, array_like=True):
    """Where an instance goes and who makes way. `cost` is in the units of the site's cost function."""

    number: int
    host: str
    victims: list[int] = []
    cost: int = 0
    why: list[str] = []


class SiteHost(Struct, array_like=True):
    """A host with an agent on it."""

    name: str
    boot: str
    n: int
    capacity: Resources
    tags: list[str]
    joined_t: float
    seen_t: float
    state: str = "live"
    left: str = ""
    secret: str = ""
    """The hash of its agent's secret; empty for an agent that has none."""


class Instance(Struct, array_like=True):
    """One instance: a worker (preemptible), or somebody's command (with a `wish`; preemptible if it bids)."""

    number: int
    resources: Resources
    asked_t: float
    wish: Wish | None = None
    state: str = WAITING
    host: str = ""
    placed_t: float | None = None
    started_t: float | None = None
    leaving_t: float | None = None
    ended_t: float | None = None
    told: bool = False
    """The host's agent has been told to run it."""
    after: list[int] = field(default_factory=list)
    """It starts when these have gone."""
    victims: list[int] = field(default_factory=list)
    cost: int = 0
    why: list[str] = field(default_factory=list)
    evicted_by: int | None = None
    cause: str = ""
    exit: int | None = None
    text: str = ""
    rss_bytes: int = 0

    @property
    def preemptible(self) -> bool:
        return self.wish is None or self.wish.bid_usd is not None

    @property
    def is_worker(self) -> bool:
        return self.wish is None


class SiteState(Struct, array_like=True):
    """A site: its hosts, its instances by number, and those that have ended, in that order."""

    rules: SiteRules
    hosts: dict[str, SiteHost] = field(default_factory=dict)
    instances: dict[int, Instance] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    next: int = 1
    look_t: float = inf
    """When an agent may have been silent for too long; early is harmless."""
    review_t: float = inf
    """When the market is cleared, hosts are emptied, and instances that do not pay end."""
    price_usd: float | None = None
    """What the last clearing of the market made an hour of one vCPU cost."""
    notes: list[tuple[float, str]] = field(default_factory=list)
    """When the reviews did something, and why; the newest last."""

    def name_of(self, number: int) -> str:
        return f"{self.rules.name}-{number}"

    def bid_usd(self, one: Instance) -> float | None:
        """What an instance bids for an hour; None if it is not in the market."""
        if not self.rules.review.market:
            return None
        return self.rules.review.bid_usd if one.wish is None else one.wish.bid_usd

    def on(self, host: str) -> list[Instance]:
        """What takes up room on a host, in the order in which it was asked for."""
        return [one for one in self.instances.values() if one.host == host and one.state in OPEN]

    def problems(self) -> list[str]:
        """Every broken invariant of the site as a sentence; empty if the state is right. For tests."""
        found = []
        for host in self.hosts.values():
            held = [one for one in self.on(host.name) if one.state in HOLDING]
            for resource, amount in host.capacity.items():
                used = sum(one.resources.get(resource, 0) for one in held)
                if host.state == "live" and used > amount + 1e-6:
                    found.append(f"{host.name} of {self.rules.name} holds {used:g} of {amount:g} {resource}")
            if host.state == "gone" and self.on(host.name):
                found.append(f"{host.name} is gone and runs {len(self.on(host.name))} instances")
        for one in self.instances.values():
            if (one.state in OPEN) != bool(one.host) and one.state != ENDED:
                found.append(f"{self.name_of(one.number)} is {one.state} on '{one.host}'")
            if one.evicted_by is not None and not one.preemptible:
                found.append(f"{self.name_of(one.number)} is normal and was evicted")
            if (one.state in (ENDED, REFUSED)) != (one.number in self.ended):
                found.append(f"{self.name_of(one.number)} is {one.state}: wrong about its end")
        return found

    def waiting(self) -> list[Instance]:
        return [one for one in self.instances.values() if one.state == WAITING]


def described(known: SiteHost | None, event: SiteHostReported) -> SiteHost:
    if known is None or event.capacity is not None:
        joined_t = known.joined_t if known is not None and known.state != "gone" else event.t
        capacity, tags = event.capacity or {}, event.tags or []
        secret = event.secret or (known.secret if known is not None else "")
        return SiteHost(event.host, event.boot, event.n, capacity, list(tags), joined_t, event.t, secret=secret)
    secret = event.secret or known.secret
    return replace(known, boot=event.boot, n=event.n, seen_t=event.t, state="live", left="", secret=secret)
