"""An offer: what a pool rents, its speed for a class of tasks and its price per billing cycle. Pure."""

from __future__ import annotations

import math

from msgspec import Struct

from windfall.resources import GPUS

GIB = 1024.0**3
"""Bytes of the GB in which memory is said: a power of 1024, as everywhere."""


class PriceLaw(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a price moves: changes per hour, and the deviation of one step and of all prices, both of the logarithm."""

    changes_per_h: float
    step: float
    spread: float


class Offer(Struct, frozen=True, kw_only=True):
    """One machine type in one market. `speed` is relative to the reference machine; a table gives it per class of task.

    A lease is billed from the request to the release, the boot included, every begun cycle in full.
    """

    name: str
    price_usd: float
    cores: int = 1
    memory_gb: float = math.inf
    speed: float | dict[str, float] = 1.0
    cycle_s: float = 3600.0
    lag_s: float = 0.0
    market: str = "on-demand"
    limit: int | None = None
    pool: str = ""
    """The pool that rents it; empty in a file of offers alone."""
    minimum_s: float = 0.0
    """The shortest time that is billed; tariffs per second often have a minute."""
    bills_boot: bool = True
    """Whether billing begins with the request or when the machine is ready."""
    free_if_taken: bool = True
    """Whether the last, partial cycle is free when the provider ends the machine."""
    free_if_taken_within_s: float = 0.0
    """A machine that the provider ends before it was held for this long is free: an hour at some."""
    when_taken: str = "terminate"
    """What the provider does to a spot machine: terminate, stop (it may be started again) or hibernate."""
    interruptions_per_h: float | None = None
    """The expected hazard rate, if known; observations outweigh it with time."""
    resumes_per_h: float | None = None
    """The rate at which hibernated machines resume, likewise."""
    price_moves: PriceLaw | None = None
    """How its price is expected to move; None: it stays."""
    pool_limit: int | None = None
    """Most machines of all offers of its pool together, hibernated ones not counted; None: no such limit."""
    gpus: int = 0
    """GPUs of one machine."""
    resources: dict[str, float] = {}
    """Units of other resources, by name."""
    region: str = ""
    """Where its machines are; data of the same region costs nothing to fetch, unless a table says otherwise."""
    data_usd_per_gb: float | dict[str, float] = 0.0
    """Dollars for a GB that a machine fetches; a table gives them per region of the data, `default` for others."""
    data_mb_per_s: float | dict[str, float] | None = None
    """How fast data comes, likewise; None: its time is not counted."""
    start_usd: float = 0.0
    """Dollars for each machine beside its cycles: the data that it fetches for a job (planning.data)."""

    @property
    def key(self) -> str:
        """The offer among those of all pools."""
        return f"{self.pool}/{self.name}"

    @property
    def most(self) -> int | None:
        """Most machines of this offer at once, by its own limit and its pool's; None: no limit."""
        return min((limit for limit in (self.limit, self.pool_limit) if limit is not None), default=None)

    @property
    def compared_usd(self) -> float:
        """The price of a cycle with that of the data, spread over an hour: for comparisons with other offers."""
        return self.price_usd + self.start_usd * self.cycle_s / 3600.0

    @property
    def units(self) -> dict[str, float]:
        """Units of all resources by name, GPUs among them."""
        return {**self.resources, GPUS: self.gpus} if self.gpus else self.resources

    def has(self, needs: tuple[tuple[str, float], ...]) -> bool:
        """Whether a machine has these units of resources."""
        if not needs:
            return True
        units = self.units
        return all(need <= units.get(name, 0.0) for name, need in needs)

    def speed_for(self, task_class: str) -> float:
        """The speed for one class of tasks; a table falls back on its entry `default`, then on 1.0."""
        if isinstance(self.speed, dict):
            return self.speed.get(task_class, self.speed.get("default", 1.0))
        return self.speed

    def cycles(self, lease_s: float) -> int:
        """Billing cycles of a lease: at least one. Less than a billionth of a cycle over counts as rounding."""
        return max(1, math.ceil(lease_s / self.cycle_s - 1e-9))
