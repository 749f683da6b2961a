"""Cost functions of evictions, additive over the victims except `SetCost`. Pure, vectorised.

An additive cost gives every preemptible instance a whole number of small units (a microsecond, a micro-dollar), so
sums are exact and two equal costs are equal. It also says how costs move with time, which lets a cheapest set found
earlier serve as a lower bound later (`cheapest`): a cost may only rise until `falls_at`, at `slope` or faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from windfall.numeric import Ints, np

MICRO = 1_000_000
HOUR_US = 3600 * MICRO
NEVER = 2**63 - 1  # the largest that fits into an array of microseconds


def micros(now_s: float) -> int:
    return round(now_s * MICRO)


class Preemptibles(Struct, frozen=True):
    """Columns of preemptible instances, of any shape: start, price per hour, last checkpoint."""

    start_us: Ints
    price_microusd_per_h: Ints
    saved_us: Ints


class Cost(Protocol):
    """An additive cost. `scale` units make one `unit` on a screen.

    `slope`: units that every instance's cost gains per microsecond, at least, until `falls_at`; `uniform`: exactly so.
    """

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def scale(self) -> int: ...
    @property
    def slope(self) -> int: ...
    @property
    def uniform(self) -> bool: ...

    def __call__(self, batch: Preemptibles, now_us: int) -> Ints:
        """The cost of evicting each instance now: never negative."""

    def falls_at(self, batch: Preemptibles, now_us: int) -> Ints:
        """The next time at which an instance's cost may fall by itself."""


class Period(Struct, frozen=True):
    """Seconds of the billing period consumed so far: not paid, because only full periods are (algorithm 4)."""

    period_us: int = HOUR_US
    name: str = "period"
    unit: str = "s"
    scale: int = MICRO
    slope: int = 1
    uniform: bool = True

    def __call__(self, batch: Preemptibles, now_us: int) -> Ints:
        return (now_us - batch.start_us) % self.period_us

    def falls_at(self, batch: Preemptibles, now_us: int) -> Ints:
        return now_us + self.period_us - self(batch, now_us)


class Count(Struct, frozen=True):
    """The number of victims."""

    name: str = "count"
    unit: str = "victims"
    scale: int = 1
    slope: int = 0
    uniform: bool = True

    def __call__(self, batch: Preemptibles, now_us: int) -> Ints:
        return np.ones(batch.start_us.shape, dtype=np.int64)

    def falls_at(self, batch: Preemptibles, now_us: int) -> Ints:
        return np.full(batch.start_us.shape, NEVER, dtype=np.int64)


class Revenue(Struct, frozen=True):
    """Money that cannot be billed: price times the consumed part of the billing period."""

    period_us: int = HOUR_US
    name: str = "revenue"
    unit: str = "USD"
    scale: int = MICRO
    slope: int = 0
    uniform: bool = False

    def __call__(self, batch: Preemptibles, now_us: int) -> Ints:
        consumed_us = (now_us - batch.start_us) % self.period_us
        # In floats: price x time overflows 64 bits at a few thousand dollars an hour.
        lost: Ints = np.rint(batch.price_microusd_per_h * (consumed_us / HOUR_US)).astype(np.int64)
        return lost

    def falls_at(self, batch: Preemptibles, now_us: int) -> Ints:
        return now_us + self.period_us - (now_us - batch.start_us) % self.period_us


class Work(Struct, frozen=True):
    """The work that is lost: run time since the last checkpoint, or since the start."""

    name: str = "work"
    unit: str = "s"
    scale: int = MICRO
    slope: int = 1
    uniform: bool = True

    def __call__(self, batch: Preemptibles, now_us: int) -> Ints:
        lost: Ints = np.maximum(now_us - np.maximum(batch.saved_us, batch.start_us), 0)
        return lost

    def falls_at(self, batch: Preemptibles, now_us: int) -> Ints:
        return np.full(batch.start_us.shape, NEVER, dtype=np.int64)


class SetCost(Struct, frozen=True):
    """A cost that is not a sum over the victims, such as the number of groups that lose a member.

    `of` gets the victims' ids and, in the same order, their groups. It must not fall when a victim is added: the search
    prunes by that. `limit`: sets to look at, per host, before settling for the best so far.
    """

    name: str
    unit: str
    of: Callable[[Sequence[str], Sequence[str]], int]
    scale: int = 1
    limit: int = 20_000


def groups_disturbed(ids: Sequence[str], groups: Sequence[str]) -> int:
    """Every group counts once; an instance without a group counts for itself."""
    return len({(group or identity, bool(group)) for identity, group in zip(ids, groups, strict=True)})


GROUPS = SetCost("groups", "groups", groups_disturbed)
