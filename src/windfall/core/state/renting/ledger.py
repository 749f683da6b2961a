"""What forgotten jobs have cost: by month and pool for ever, and by job for the newest of them. Pure data.

The sum over months and pools is what their bills were, to the micro-dollar.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct, field

MOST_JOBS = 10_000
"""Forgotten jobs whose bills are told apart; those of older ones are in the sums alone."""


class PaidJob(Struct, frozen=True, array_like=True, gc=False):
    """The bill of one forgotten job; `machines`: its own. Of a job in a named fleet it is its share, which the machines
    of the fleet still hold."""

    job: int
    name: str
    owner: str
    finished_t: float
    machines: int
    microusd: int


class Ledger(Struct, array_like=True):
    """Sums are of machines that are forgotten; `jobs` tells forgotten jobs apart."""

    months: dict[str, dict[str, int]] = field(default_factory=dict)
    """Micro-dollars by month (UTC, as in 2026-11) in which machines ended, and by pool."""
    jobs: dict[int, PaidJob] = field(default_factory=dict)
    machines: int = 0

    @property
    def total_microusd(self) -> int:
        return sum(sum(pools.values()) for pools in self.months.values())

    def pools(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for pools in self.months.values():
            found.update(pools)
        return found

    def add_machine(self, month: str, pool: str, microusd: int) -> None:
        pools = self.months.setdefault(month, {})
        pools[pool] = pools.get(pool, 0) + microusd
        self.machines += 1

    def add_job(self, paid: PaidJob) -> None:
        self.jobs[paid.job] = paid
        if len(self.jobs) > MOST_JOBS:
            del self.jobs[next(iter(self.jobs))]
