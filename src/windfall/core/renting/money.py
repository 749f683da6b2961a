"""What machines cost: meters, billing cycles, an exact ledger and budgets. Pure; bills are integer micro-dollars.

A meter runs while a machine is held and stands still while it is hibernated. Every begun cycle is owed in full, except
the last one if the provider reclaimed the machine and the tariff says that it is free. The price of a cycle may be a
fraction of a micro-dollar (a second of a cheap machine), so the bill of a machine is rounded once, and not its price.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

# A billionth of a cycle over is a rounding error of the seconds, not a cycle.
ROUNDING = 1e-9


def microusd(usd: float) -> int:
    """Dollars at the edge, micro-dollars inside."""
    return round(usd * 1_000_000)


@lru_cache(maxsize=1024)
def price_microusd(usd: float) -> float:
    """The price of a cycle: whole micro-dollars where it is whole but for a rounding error, else the fraction.

    Remembered: all machines of an offer have the same, and it is asked for each of them.
    """
    exact = usd * 1_000_000
    return round(exact) if abs(exact - round(exact)) < ROUNDING * max(1.0, exact) else exact


def usd(amount_microusd: int) -> float:
    return amount_microusd / 1_000_000


class Tariff(Struct, frozen=True, kw_only=True):
    """Price of one cycle; `minimum_s` is billed in any case (a second-by-second tariff often has a minute)."""

    cycle_microusd: float
    cycle_s: float
    minimum_s: float = 0.0
    free_if_taken: bool = True
    free_if_taken_within_s: float = 0.0
    """A machine that the provider ends before it was held for this long is free."""


class Cycles(Protocol):
    """How long billing cycles are: of a tariff, and of an offer."""

    @property
    def cycle_s(self) -> float: ...
    @property
    def minimum_s(self) -> float: ...


class Meter(Struct, frozen=True):
    """Seconds held so far, and since when it runs; `since_t=None` while hibernated or after the end."""

    held_s: float = 0.0
    since_t: float | None = None
    ended: bool = False
    taken: bool = False


def start(t: float) -> Meter:
    return Meter(since_t=t)


def held_s(meter: Meter, t: float) -> float:
    """Billable seconds up to t."""
    return meter.held_s + (max(0.0, t - meter.since_t) if meter.since_t is not None else 0.0)


def pause(meter: Meter, t: float) -> Meter:
    """The machine was hibernated. A second notice changes nothing."""
    return replace(meter, held_s=held_s(meter, t), since_t=None)


def resume(meter: Meter, t: float) -> Meter:
    """The machine came back; one that has ended does not."""
    if meter.ended or meter.since_t is not None:
        return meter
    return replace(meter, since_t=t)


def end(meter: Meter, t: float, *, taken: bool = False) -> Meter:
    """The machine has ended: given back by us, or reclaimed by the provider. The first end counts."""
    return meter if meter.ended else replace(pause(meter, t), ended=True, taken=taken)


def owed_microusd(tariff: Tariff, meter: Meter, t: float) -> int:
    """What is owed at t for all begun cycles."""
    return round(owed_cycles(tariff, meter, t) * tariff.cycle_microusd)


def owed_cycles(tariff: Tariff, meter: Meter, t: float) -> int:
    """The cycles begun up to t, one at least; without the last one where the provider's end makes it free."""
    if meter.taken and held_s(meter, t) < tariff.free_if_taken_within_s:
        return 0
    seconds = max(held_s(meter, t), tariff.minimum_s)
    cycles = seconds / tariff.cycle_s
    if meter.taken and tariff.free_if_taken:
        return math.floor(cycles + ROUNDING)
    return max(1, math.ceil(cycles - ROUNDING))


def owed_at_rates(tariff: Tariff, meter: Meter, t: float, rates: Sequence[tuple[float, float]]) -> int:
    """The same with prices that move: `rates` are (seconds held, price of a cycle that begins then or later)."""
    cycles = owed_cycles(tariff, meter, t)
    owed, first, price = 0.0, 0, tariff.cycle_microusd
    for seconds, rate in rates:
        begins = min(cycles, max(first, math.ceil(seconds / tariff.cycle_s - ROUNDING)))
        owed += (begins - first) * price
        first, price = begins, rate
    return round(owed + (cycles - first) * price)


def paid_until_t(tariff: Cycles, meter: Meter, t: float) -> float:
    """When the present cycle ends, if the machine is held until then; infinite while it is hibernated or after its
    end.
    """
    if meter.since_t is None:
        return math.inf
    seconds = held_s(meter, t)
    begun = max(1, math.floor(seconds / tariff.cycle_s + ROUNDING) + 1)
    return t + max(begun * tariff.cycle_s, tariff.minimum_s) - seconds


class Budget(Struct, frozen=True):
    """A limit on what may be committed. It stops launching and never ends what is already paid for."""

    limit_microusd: int | None = None

    def allows(self, committed: int, first_cycle_microusd: int) -> bool:
        """Whether one more machine may be started: its first cycle is owed at once."""
        return self.limit_microusd is None or committed + first_cycle_microusd <= self.limit_microusd
