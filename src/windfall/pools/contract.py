"""The contract of every pool: start a worker somewhere, list what there is, stop one. Types only; touches nothing.

Idempotent start: the name of an order is its client token. Stop until gone: `stop` is called again until `list` shows
the end. `list` is the truth, and the whole of it: a pool whose provider answers in pages reads all of them, and one
that could not read a page returns an error, never a part. Budgets: a pool says how often it may be listed
(`interval_s`), how far apart its other calls must be (`Spaced`), and an error may say when to come back
(`PoolError.retry_after_s`); the keepers obey, double their waits with every failure in a row, and count no call twice.
Notices: a pool that is told of changes by its provider (`Told`) tells the keeper, which then need not wait.

There is one contract, and two keepers use it. The keeper of workers (`drivers/keepers/pools.py`) orders workers when
tasks wait; the keeper of machines (`drivers/keepers/machines.py`) orders what a plan rents, and such an order names an
offer. A pool carries out one call at a time and decides nothing: how often to try again, how long to wait after an
error and what to give up belongs to the keepers and to the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from windfall.planning.offers import Offer

PENDING, RUNNING, HIBERNATED, ENDED = "pending", "running", "hibernated", "ended"
RELEASED, TAKEN, FAILED = "released", "taken", "failed"

CAPACITY, QUOTA, CREDENTIALS, INVALID, TRANSIENT = "capacity", "quota", "credentials", "invalid", "transient"
KINDS_OF_ERROR = (CAPACITY, QUOTA, CREDENTIALS, INVALID, TRANSIENT)


class Order(Struct, frozen=True):
    """Start one worker that asks the server for work under the name `host`.

    The name is the client token: it is unique in a state, and an order that comes twice starts one worker.
    """

    host: str
    slots: int = 1
    machine: int | None = None
    """Number of the rented machine, which the worker's ad must show; None for a worker that no plan rents."""
    offer: Offer | None = None
    """What to rent; None for the only thing that the pool has."""


class PoolError(Struct, frozen=True):
    """Why a call failed: the provider's own words, and of which kind the error is.

    capacity: nothing is free now. quota: a limit of ours is reached. credentials: we are not let in. invalid: the same
    call will never succeed. transient: it may succeed in a while.
    """

    error: str
    kind: str = CAPACITY
    retry_after_s: float = 0.0
    """Seconds after which the provider wants to be asked again, if it said so; no call is made before."""

    @property
    def is_capacity(self) -> bool:
        return self.kind in (CAPACITY, QUOTA)


class Seen(Struct, frozen=True):
    """One worker or machine as the provider shows it; `since_t` is when its phase began, in Unix seconds."""

    id: str
    phase: str
    since_t: float = 0.0
    host: str | None = None
    """The name in the order; None if this server's state did not order it."""
    cause: str = ""
    """Cause of its end: released, taken, failed; empty for a worker that ended in good order."""
    taken_at_t: float | None = None
    """Unix time at which the provider will reclaim it, if notice was given."""
    about: str = ""
    """Last words of one that ended by itself; whose it is, of one that is not ours."""


class PriceMove(Struct, frozen=True):
    """From `since_t` on (Unix time), a cycle of an offer costs this much."""

    offer: str
    price_usd: float
    since_t: float


class Check(Struct, frozen=True):
    """One finding of `doctor`: what was looked at, what is wrong (empty: nothing), and what to do about it."""

    what: str
    error: str = ""
    hint: str = ""


Rows = list[Seen]  # `list` is also the name of a method
Checks = list[Check]
Answers = list[str | PoolError]


class Pool(Protocol):
    """A provider. Calls block and are made from one thread at a time; none of them raises.

    Whatever a pool starts carries the name of the order and the id of the state, so that the next server finds it. A
    worker without work, or without its server, ends by itself: nothing that was forgotten runs for long.
    """

    offers: tuple[Offer, ...]
    """What plans can rent here; empty if the pool only starts workers. May change with a call of `list`."""
    interval_s: float
    """Seconds between two calls of `list`, at least."""

    def start(self, order: Order) -> str | PoolError:
        """Start a worker; return the provider's id when it has been accepted, not when it asks for work."""
        ...

    def stop(self, id: str, gently: bool = False) -> PoolError | None:
        """End one; no error if it has ended already. Gently: let it finish its running tasks, if the pool can.

        It is called again until `list` shows the end.
        """
        ...

    def list(self) -> Rows | PoolError:
        """All there are, the truth: an accepted order that is not listed has ended.

        One that has ended is listed for at least a minute, with its last words if it failed.
        """
        ...

    def doctor(self) -> Checks:
        """Look at everything that a worker needs, without starting one. May be called beside another call."""
        ...

    def close(self) -> None:
        """The server stops. What was started keeps running, and the next server finds it."""
        ...


@runtime_checkable
class Told(Protocol):
    """A pool that its provider tells of changes (a watch, a queue of events) need not be asked to know of them."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Called once, before any other call: call `changed` whenever `list` would show something new, from any thread.

        The keeper lists soon after, and else as seldom as `interval_s` says: a notice that was lost costs time only.
        """
        ...


@runtime_checkable
class StartsMany(Protocol):
    """A pool whose provider takes several orders in one call, as a batch system takes a job array."""

    def start_many(self, orders: Sequence[Order]) -> Answers:
        """One answer for each order, in their order; what `start` promises holds for each of them."""
        ...


@runtime_checkable
class Spaced(Protocol):
    """A pool whose provider limits the rate of calls."""

    gap_s: float
    """Seconds between two calls of `start` or `stop`, at least."""


def gap_s(pool: Pool) -> float:
    """Seconds between two calls of `start` or `stop` of a pool, at least; 0 where it sets no limit."""
    return pool.gap_s if isinstance(pool, Spaced) else 0.0


@runtime_checkable
class Dated(Protocol):
    """A pool whose provider says from when on a machine is billed, beside what `Pool` says."""

    def billed_from_t(self, id: str) -> float | None:
        """Unix time from which a machine is billed that `start` has answered for or `list` has shown.

        None if that is not known: it is billed from the order on then.
        """
        ...


@runtime_checkable
class MovingPrices(Protocol):
    """A pool whose prices move, beside what `Pool` says."""

    def price_moves(self) -> list[PriceMove]:
        """The moves of the last day or so, the oldest first; those that were told before are told again."""
        ...
