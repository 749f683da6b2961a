"""What a bag's policy answers, and the answers of a bag that has none. Pure: ads in, verdicts out.

The engine sees policies only through `BagPolicy`. The ClassAd implementation (`windfall.policy`) is injected, so that
nothing in here knows the language that policies are written in.

An ad is a plain dict from attribute name to value: bool, int, float, str, or a nested ad or list of these. A missing
key is *undefined*. The caller may change an ad between two calls: policies keep no reference to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct, field

Ad = Mapping[str, Any]
NOTHING: Ad = {}
# What a task looks like to policies before it has replicas, where the engine says nothing more about it.
UNREPLICATED: Ad = {"NumberOfReplicas": 0}

Seen = dict[Any, Any]
"""What policies note about one host while it asks, so that equal questions of many bags are asked once."""

# GridBot's six policies, in the order in which a person reads them.
POLICIES = ("JobRequirements", "Rank", "Concurrency", "Deadline", "ReplicationRequirements", "GridPolicy")


class Verdict(Struct, frozen=True, gc=False):
    """What one bag says to one asking host. `concurrency` counts what runs there already as well."""

    matches: bool
    rank: float
    concurrency: int


class Clause(Struct, frozen=True):
    """One clause of a policy, evaluated: `ok` is what decides, the rest says why.

    For a comparison `actual` is the left value, `wanted` the bound, and `missing` by how much a number falls short
    (None where there is no distance, as between two names).
    """

    policy: str
    text: str
    value: Any
    ok: bool
    detail: str = ""
    attribute: str = ""
    actual: Any = None
    wanted: Any = None
    missing: float | None = None


class BagPolicy(Protocol):
    """A bag's policies, compiled. Every answer is a function of the arguments alone, so that a log can be replayed."""

    @property
    def expressions(self) -> dict[str, str]:
        """The source texts by policy name; a policy that is not there has its default."""
        ...

    @property
    def looks_at_bag(self) -> bool:
        """Could two bags with these policies answer differently, but for the default rank?"""
        ...

    @property
    def is_steady(self) -> bool:
        """Do `match` and `deadline_s` answer a host the same until its ad, its slots, the bag's rules or its phase
        change? Then they are asked once."""
        ...

    @property
    def may_replicate(self) -> bool:
        """Could there be a task that ReplicationRequirements wants replicated?"""
        ...

    def match(
        self, host: Ad, bag: Ad, queue: Ad, pool: Ad, now: float, job: Ad = UNREPLICATED, seen: Seen | None = None
    ) -> Verdict:
        """The bag's answer to a host, for every task without running replicas at once (GridBot 6.4).

        `job` is what those tasks share; an attribute in which they differ has no place in it. `seen` is kept by the
        caller for one host at one time, and changes no answer.
        """
        ...

    def standing(self, host: Ad, bag: Ad, queue: Ad, pool: Ad, now: float, job: Ad = UNREPLICATED) -> Verdict:
        """Rank and Concurrency alone, whatever JobRequirements says: what the replicas of a bag queue by."""
        ...

    def match_replica(self, host: Ad, job: Ad, bag: Ad, queue: Ad, pool: Ad, now: float) -> bool:
        """May this host run one more replica of this task? JobRequirements and ReplicationRequirements."""
        ...

    def replicates(self, job: Ad, bag: Ad, queue: Ad, now: float) -> bool:
        """Shall one more replica of this task enter the queue? ReplicationRequirements alone: no host asks."""
        ...

    def deadline_s(self, host: Ad, job: Ad, bag: Ad, pool: Ad, now: float, queue: Ad = NOTHING) -> float | None:
        """How long an attempt may take on this host before it is given up; None: the policy sets no limit."""
        ...

    def wants_pool(self, bag: Ad, pool: Ad, now: float, queue: Ad = NOTHING) -> bool:
        """May workers be asked of this pool on behalf of this bag? (GridPolicy)"""
        ...

    def explain(
        self, host: Ad, bag: Ad, queue: Ad = NOTHING, pool: Ad = NOTHING, now: float = 0.0, job: Ad | None = None,
        shared: Ad = UNREPLICATED,
    ) -> list[Clause]:  # fmt: skip
        """The clauses that `match` decides by, with `shared` as its job; with `job`, those of `match_replica`."""
        ...


def default_rank(bag: Ad) -> float:
    """A bag ranks by its priority."""
    return float(bag.get("Priority", 0.0))


def default_concurrency(host: Ad) -> int:
    """A host holds as many attempts as it offers slots; one that says nothing holds one."""
    return int(host.get("Slots", host.get("Cpus", 1)))


def default_replication(bag: Ad) -> bool:
    """Speculative replicas only help at the end of a bag; before that they take the place of unsent tasks."""
    return bag.get("Tail") is True


class DefaultPolicy(Struct, frozen=True):
    """The policy of a bag that writes none: any host, by priority, as much as the host offers, replicas in the tail.

    Cores and memory that a task needs are no matter of policy; the engine looks at those first.
    """

    expressions: dict[str, str] = field(default_factory=dict)

    @property
    def looks_at_bag(self) -> bool:
        return True

    @property
    def is_steady(self) -> bool:
        return True

    @property
    def may_replicate(self) -> bool:
        return True

    def match(
        self, host: Ad, bag: Ad, queue: Ad, pool: Ad, now: float, job: Ad = UNREPLICATED, seen: Seen | None = None
    ) -> Verdict:
        return Verdict(True, default_rank(bag), default_concurrency(host))

    def standing(self, host: Ad, bag: Ad, queue: Ad, pool: Ad, now: float, job: Ad = UNREPLICATED) -> Verdict:
        return self.match(host, bag, queue, pool, now, job)

    def match_replica(self, host: Ad, job: Ad, bag: Ad, queue: Ad, pool: Ad, now: float) -> bool:
        return default_replication(bag)

    def replicates(self, job: Ad, bag: Ad, queue: Ad, now: float) -> bool:
        return default_replication(bag)

    def deadline_s(self, host: Ad, job: Ad, bag: Ad, pool: Ad, now: float, queue: Ad = NOTHING) -> float | None:
        return None

    def wants_pool(self, bag: Ad, pool: Ad, now: float, queue: Ad = NOTHING) -> bool:
        return True

    def explain(
        self, host: Ad, bag: Ad, queue: Ad = NOTHING, pool: Ad = NOTHING, now: float = 0.0, job: Ad | None = None,
        shared: Ad = UNREPLICATED,
    ) -> list[Clause]:  # fmt: skip
        if job is None:
            return []
        return [replication_by_default(bag)]


def replication_by_default(bag: Ad) -> Clause:
    """The one default that can refuse something, as a clause."""
    ok = default_replication(bag)
    return Clause(
        policy="ReplicationRequirements",
        text="BOT.Tail",
        value=bag.get("Tail"),
        ok=ok,
        detail="" if ok else "replicas are made in the tail phase only",
        attribute="BOT.Tail",
        actual=bag.get("Tail"),
        wanted=True,
    )
