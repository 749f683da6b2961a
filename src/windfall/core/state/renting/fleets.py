"""Fleets with a name: the rules they were created with, their mode, and how plans name tasks of many jobs. Pure data.

Every renting job is served by one fleet. A job that names none has one of its own, under its own number; a named fleet
has a number from the same counter as jobs.
"""

from __future__ import annotations

from msgspec import Struct, field

OPEN, PAUSED, DRAINING, DELETED = "open", "paused", "draining", "deleted"
"""paused: rents nothing new. draining: takes no job and ends its machines when its jobs have ended."""
TASK_BITS = 32


class FleetRules(Struct, frozen=True, array_like=True):
    """What a fleet was created with. The budget limits what its machines cost in each `budget_s` since then."""

    name: str
    pools: list[str]
    planner: str = ""
    budget_microusd: int | None = None
    budget_s: float = 3600.0
    owner: str = ""
    owner_shares: dict[str, float] = {}
    """By owner of jobs, the weight of its jobs while the fleet cannot run all at once; 1 for those not named."""
    owner_caps: dict[str, int] = {}
    """By owner of jobs, the cores that its tasks hold or have reserved at most."""


class NamedFleet(Struct, array_like=True):
    number: int
    rules: FleetRules
    created_t: float
    mode: str = OPEN
    mode_t: float | None = None
    forgotten_jobs: int = 0


class Use(Struct, frozen=True, array_like=True, gc=False):
    """A job held `cores` of a machine between two readings of its meter, in seconds held."""

    job: int
    from_s: float
    to_s: float
    cores: float


def named(fleet: int, job: int, task: int) -> int:
    """A task as the plans of a fleet write it: its own number in a job's own fleet, else with the job above it."""
    return task if job == fleet else job << TASK_BITS | task


def meant(fleet: int, name: int) -> tuple[int, int]:
    """The job and the task that a plan of this fleet means."""
    job = name >> TASK_BITS
    return (job, name & (1 << TASK_BITS) - 1) if job else (fleet, name)


class FleetBook(Struct):
    """Named fleets by number, which fleet serves which job, and the jobs of each that have not ended."""

    by_number: dict[int, NamedFleet] = field(default_factory=dict)
    by_name: dict[str, int] = field(default_factory=dict)
    """Without those that are deleted: their names may be used again."""
    of_job: dict[int, int] = field(default_factory=dict)
    """Only of jobs in named fleets."""
    active: dict[int, dict[int, None]] = field(default_factory=dict)
    """By fleet: its jobs that are planned and have not ended. Not saved: it follows from the jobs."""

    def add(self, fleet: NamedFleet) -> None:
        self.by_number[fleet.number] = fleet
        if fleet.mode != DELETED:
            self.by_name[fleet.rules.name] = fleet.number
        self.active.setdefault(fleet.number, {})

    def enter(self, job: int, fleet: int) -> None:
        self.of_job[job] = fleet
        self.active[fleet][job] = None

    def note(self, job: int, has_ended: bool) -> None:
        """Keep `active` true to a job that has ended or goes on again."""
        fleet = self.of_job.get(job)
        if fleet is None:
            return
        if has_ended:
            self.active[fleet].pop(job, None)
        else:
            self.active[fleet][job] = None


def budget_since_t(fleet: NamedFleet, t: float) -> float:
    """When the period of a fleet's budget that holds t began."""
    period_s = fleet.rules.budget_s
    return fleet.created_t + max(0.0, (t - fleet.created_t) // period_s) * period_s
