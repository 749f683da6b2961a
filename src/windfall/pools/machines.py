"""The contract of a pool that rents machines: start one, stop one, list all. Types only; touches nothing."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from windfall.planning.offers import Offer

PENDING, RUNNING, HIBERNATED, ENDED = "pending", "running", "hibernated", "ended"
RELEASED, TAKEN, FAILED = "released", "taken", "failed"


class Order(Struct, frozen=True):
    """Rent one machine. The provider tags it with `number`; the same number ordered twice starts one machine.

    Its worker asks for work under the name `host` and has `machine = number` in its ad.
    """

    number: int
    offer: Offer
    host: str


class Refused(Struct, frozen=True):
    """Why no machine was started: lack of capacity (a later try may succeed) or a permanent reason."""

    error: str
    capacity: bool = True


class Seen(Struct, frozen=True):
    """One machine as the provider shows it; `since_t` is when its phase began, in Unix seconds."""

    id: str
    phase: str
    since_t: float
    number: int | None = None
    """The number in its tag; None if this server did not order it."""
    cause: str = ""
    """Cause of its end: released, taken, failed."""
    taken_at_t: float | None = None
    """Unix time at which the provider will reclaim it, if notice was given."""
    about: str = ""


class MachinePool(Protocol):
    """A provider of machines. Calls block and are made from one thread at a time; none of them raises.

    `look` is authoritative: an accepted order that it does not show has ended. A machine is shown for at least a minute
    after its end.
    """

    offers: tuple[Offer, ...]

    def start(self, order: Order) -> str | Refused:
        """Start a machine; return the provider's id, or why it was refused."""
        ...

    def stop(self, id: str) -> None:
        """End a machine; no error if it has ended already."""
        ...

    def look(self) -> list[Seen]: ...

    def close(self) -> None:
        """The server stops. Machines keep running: the next server finds them by their tags."""
        ...
