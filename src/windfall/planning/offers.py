"""What a pool rents: one offer, its speed for a class of tasks and its price by the billing cycle. Pure."""

from __future__ import annotations

import math

from msgspec import Struct


class Offer(Struct, frozen=True, kw_only=True):
    """One machine type in one market. `speed` 1.0 is the reference machine; a table gives it per class of task.

    A lease is billed from the request (the boot counts) to the release, every begun cycle in full.
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
    """Billed in any case: a second-by-second tariff often has a minute."""
    bills_boot: bool = True
    """Whether the meter runs from the request on, or from the first moment of use."""
    free_if_taken: bool = True
    """Whether the last, partial cycle is free when the provider ends the machine."""
    when_taken: str = "terminate"
    """What the provider does to a spot machine: terminate, stop (it may be started again) or hibernate."""
    interruptions_per_h: float | None = None
    """How often, if anybody knows beforehand; what is seen counts more with time."""
    resumes_per_h: float | None = None
    """How soon a hibernated machine comes back, likewise."""

    @property
    def key(self) -> str:
        """The offer among those of all pools."""
        return f"{self.pool}/{self.name}"

    def speed_for(self, task_class: str) -> float:
        """The speed for one class of tasks; a table falls back on its entry `default`, then on 1.0."""
        if isinstance(self.speed, dict):
            return self.speed.get(task_class, self.speed.get("default", 1.0))
        return self.speed

    def cycles(self, lease_s: float) -> int:
        """Billing cycles of a lease; one at least, and a billionth of a cycle over is a rounding error, not a cycle."""
        return max(1, math.ceil(lease_s / self.cycle_s - 1e-9))
