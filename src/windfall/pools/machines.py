"""What a pool that rents machines can do: start one, stop one, tell what there is. Types only; touches nothing."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from windfall.planning.offers import Offer

PENDING, RUNNING, HIBERNATED, ENDED = "pending", "running", "hibernated", "ended"
RELEASED, TAKEN, FAILED = "released", "taken", "failed"


class Order(Struct, frozen=True):
    """Rent one machine. `number` is its name with us and tags it at the provider; ordered twice, it is started once.

    Its worker asks for work under the name `host` and says `machine = number` in its ad.
    """

    number: int
    offer: Offer
    host: str


class Refused(Struct, frozen=True):
    """Why there is none: for want of capacity (it may be had later) or for a reason that will not pass by itself."""

    error: str
    capacity: bool = True


class Seen(Struct, frozen=True):
    """One machine as the provider shows it; `since_t` is when its phase began, in Unix seconds."""

    id: str
    phase: str
    since_t: float
    number: int | None = None
    """Ours, by its tag; None for one that this server did not order."""
    cause: str = ""
    """Of one that has ended: released, taken, failed."""
    taken_at_t: float | None = None
    """When the provider will take it, if it has said so."""
    about: str = ""


class MachinePool(Protocol):
    """A provider of machines. Calls block and are made from one thread at a time; none of them raises.

    `look` is the truth: what it does not show for an order that was taken is gone. One that has ended is shown for at
    least a minute after its end.
    """

    offers: tuple[Offer, ...]

    def start(self, order: Order) -> str | Refused:
        """The provider's id of the machine, or why there is none."""
        ...

    def stop(self, id: str) -> None:
        """End a machine; one that has ended already is no error."""
        ...

    def look(self) -> list[Seen]: ...

    def close(self) -> None:
        """The server stops. Machines go on: the next server finds them by their tags."""
        ...
