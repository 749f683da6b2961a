"""Pools as the engine knows them: their rules, what they were asked for, how they behaved. Pure data."""

from __future__ import annotations

from math import inf

from msgspec import Struct, field

Pools = tuple[str, ...]
"""The names of the pools that a group of bags admits, sorted."""
Flow = list[tuple[Pools, dict[str, int]]]
"""A matching as it is kept: for each group the slots that each pool gives it."""


class PoolRules(Struct, frozen=True, array_like=True):
    """A pool as its owner configures it."""

    name: str
    kind: str = "local"
    limit: int = 0
    """Queued and running workers together, at most."""
    slots: int = 1
    """Tasks that one worker runs at once."""
    price_usd: float = 0.0
    per_minute: float = 60.0
    """Workers that are asked for in a minute, at most, however great the demand."""
    joins_itself: bool = False
    """Workers come of their own accord (volunteers): what they take is supply, nothing is asked of the pool."""
    backlog: int = 0
    """Workers that may be pending at once: more are asked for only when some of them have come. 0: no such limit."""
    least_slots: int = 0
    """A worker may be smaller than `slots` if less work waits, down to this; 0: all are of one size."""
    deadline_s: float = 0.0
    """Of volunteers: how long an attempt may take while nothing was learned; 0: as for other hosts."""
    least_deadline_s: float = 0.0
    """Of volunteers: how long it may take at least, whatever was learned."""


class Breaker(Struct, frozen=True, array_like=True):
    """How far a pool is trusted to bring workers: errors in a row, the last of them, and until when it is not asked."""

    errors: int = 0
    closed_until: float | None = None
    last_error: str = ""


OPEN, PAUSED, DRAINING, ENDING = "open", "paused", "draining", "ending"


class PoolMode(Struct, frozen=True, array_like=True):
    """What an operator has said about a pool that is not open, since when and why."""

    mode: str
    since_t: float
    reason: str = ""


class AddedPool(Struct, frozen=True, array_like=True):
    """A pool that was added to the state: every server on it opens it."""

    name: str
    entry: str
    """Its settings as JSON, as they would stand below [[pool]]."""
    base: str
    """Folder from which paths in it are meant."""
    added_t: float = 0.0


NEVER_CAME_KEPT = 10
"""Workers of a pool that ended before they came whose last words are kept."""


class PoolState(Struct, array_like=True):
    """What the server knows of a pool: what it was asked for, and how it behaved."""

    rules: PoolRules
    queued: int = 0
    asked_t: float = -inf
    allowance: float = 0.0
    """Workers that may be asked for now; refills with time (a token bucket of one minute)."""
    errors: int = 0
    """Failed requests in a row."""
    closed_until: float | None = None
    """The breaker is open until then; after it one request is made as a test."""
    last_error: str = ""
    never_came: list[tuple[float, str, str]] = field(default_factory=list)
    """(when, host, last words) of the last workers that ended before they asked for work, the newest last."""
    moved_t: float = -inf
    """When fewer workers were pending than before, or the first of them began to wait."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Slots of the workers of unanswered requests, by number, where they are smaller than the rules say."""

    def wait_for(self, count: int, t: float) -> None:
        """Note the number of pending workers at this time."""
        if count < self.queued or not self.queued:
            self.moved_t = t
        self.queued = count

    def saved(self, t: float) -> float:
        """Workers that may be asked for at `t` by the rate alone."""
        rate = self.rules.per_minute
        return min(rate, self.allowance + (t - self.asked_t) * rate / 60.0) if self.asked_t > -inf else rate

    def note(self, breaker: Breaker) -> None:
        self.errors, self.closed_until, self.last_error = breaker.errors, breaker.closed_until, breaker.last_error


class Matching(Struct):
    """A flow from groups of bags to pools, in slots."""

    flow: dict[Pools, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, flow: Flow) -> Matching:
        return cls({tuple(group): dict(flows) for group, flows in flow})

    def listed(self) -> Flow:
        return [(group, {pool: n for pool, n in flows.items() if n}) for group, flows in self.flow.items()]

    def of_pool(self, pool: str) -> int:
        return sum(flows.get(pool, 0) for flows in self.flow.values())

    def of_group(self, group: Pools) -> int:
        return sum(self.flow.get(group, {}).values())

    def total(self) -> int:
        return sum(sum(flows.values()) for flows in self.flow.values())


class Ask(Struct, array_like=True):
    """Ask `count` workers of a pool. `because` says what they are for; `held_back` what was not asked for, and why."""

    pool: str
    count: int
    because: str = ""
    held_back: str = ""
    number: int = 0
    """Its own, by which an answer is told from another."""
    slots: int = 0
    """Of each worker; 0: as the rules of the pool say."""
