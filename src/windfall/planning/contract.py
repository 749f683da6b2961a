"""What every planner of bags looks at and what it proposes: a snapshot in, a plan out. Types only. Pure.

A planner is a function of the snapshot alone: called again with the same one it says the same. It is called when
something has happened that could change its mind (a machine came, slept, woke, went or was refused; tasks came back; a
machine ran out of work) and at the time at which its last plan asked to look again. The engine validates what it says
against the state of that moment: a plan proposes, it cannot do harm.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Protocol

from msgspec import Struct, field

from windfall.planning.offers import Offer

# Measured by HADS's authors: what it takes to store or restore a checkpoint.
CHECKPOINT_S = 13.0
CHECKPOINT_S_PER_MB = 0.04

SPOT, ONDEMAND = "spot", "on-demand"


class Phase(StrEnum):
    """The states of a machine in HADS, and the time before it is there."""

    PENDING = "pending"
    BUSY = "busy"
    IDLE = "idle"
    HIBERNATED = "hibernated"


class Task(Struct, frozen=True):
    """One task: seconds on a machine of speed 1, memory, and the progress that a checkpoint holds (in such seconds).

    `runtime_s` is the quantile of the run time that the job's confidence demands, `mean_s` what to expect.
    """

    id: int
    runtime_s: float
    memory_gb: float = 0.0
    task_class: str = ""
    checkpoint_mb: float | None = None
    saved_s: float = 0.0
    mean_s: float | None = None
    cores: int = 1

    def seconds_on(self, offer: Offer) -> float:
        """What it takes there from the beginning, or from its checkpoint where it has one."""
        speed, runtime_s = offer.speed_for(self.task_class), self.runtime_s
        if self.checkpoint_mb is None or self.saved_s <= 0.0:
            return runtime_s / speed
        restore_s = CHECKPOINT_S + CHECKPOINT_S_PER_MB * self.checkpoint_mb
        return min(runtime_s / speed, restore_s + max(0.0, runtime_s - self.saved_s) / speed)


class Group(Struct, frozen=True):
    """`count` tasks alike that wait and are reserved for no machine; `task` stands for each of them (its id is -1)."""

    task: Task
    count: int


class Running(Struct, frozen=True):
    """A task on a core (or asleep with its machine) and the seconds it still takes there."""

    task: int
    left_s: float


class Machine(Struct, frozen=True, kw_only=True):
    """A rented machine as the planner sees it; `paid_until_t` is the end of its present billing cycle.

    `waiting` is its queue: tasks reserved for it that have not begun.
    """

    id: str
    offer: Offer
    phase: Phase
    ready_t: float = 0.0
    running: tuple[Running, ...] = ()
    waiting: tuple[int, ...] = ()
    paid_until_t: float = math.inf
    asleep_since_t: float | None = None
    noticed_t: float | None = None
    """When the provider has said that it will take the machine, if it has."""
    awake_since_t: float | None = None
    """Since when it has been up without a break; what it has survived so far tells as much as what was taken."""

    def tasks(self) -> tuple[int, ...]:
        return (*(entry.task for entry in self.running), *self.waiting)


class Market(Struct, frozen=True, kw_only=True):
    """What has been seen of an offer so far, by all jobs: how long its machines lived and how often they were taken."""

    up_s: float = 0.0
    taken: int = 0
    slept: int = 0
    woken: int = 0
    asleep_s: float = 0.0
    refused: int = 0
    refused_t: float | None = None
    """When a start was last refused for want of capacity."""
    started_t: float | None = None
    """When one last started."""
    spells: int = 0
    """How often some were taken or put to sleep, those that went together counted once."""


class Later(Struct, frozen=True):
    """A machine that the plan means to rent at `at_t`, for these tasks in this order."""

    label: str
    offer: Offer
    at_t: float
    tasks: tuple[int, ...]


class Snapshot(Struct, frozen=True, kw_only=True):
    """Everything a planner knows at one moment: unfinished tasks, machines, offers.

    `tasks` holds every unfinished task where the planner names tasks (`names_up_to`); else only those that run
    or are reserved, and the rest in `groups`. Offers that cannot be had at the moment have a `limit` of what is there.
    """

    t: float
    deadline_t: float
    tasks: dict[int, Task]
    machines: tuple[Machine, ...]
    offers: tuple[Offer, ...]
    groups: tuple[Group, ...] = ()
    markets: dict[str, Market] = {}
    """By the key of the offer."""
    begun_t: float = 0.0
    """When the job was submitted."""
    spent_usd: float = 0.0
    """What its machines have cost so far, begun cycles in full."""
    budget_usd: float | None = None
    confidence: float = 0.95
    after: dict[int, tuple[int, ...]] = {}
    """In a workflow: the unfinished parents of each task that has any."""
    total: int = 0
    """How many tasks the job has, finished ones included."""
    is_workflow: bool = False
    last_later: tuple[Later, ...] = ()
    """What the last plan meant to rent later and has not rented yet."""

    def left_of(self, offer: Offer) -> int:
        """How many more machines of this offer may be started."""
        used = sum(machine.offer.key == offer.key and machine.offer.market == offer.market for machine in self.machines)
        return max(0, (offer.limit if offer.limit is not None else self.unfinished) - used)

    @property
    def unfinished(self) -> int:
        return len(self.tasks) + sum(group.count for group in self.groups)


class Start(Struct, frozen=True):
    """Rent one machine of this offer; `label` is its name until it has one."""

    label: str
    offer: Offer


class Rejected(Struct, frozen=True):
    """An alternative that was looked at, and its price."""

    what: str
    cost_usd: float


class Moves(Struct, omit_defaults=True):
    """Tasks that a plan moves from one machine to another, by where they go, and spot machines that steal tasks."""

    to_idle: int = 0
    to_busy: int = 0
    to_new: int = 0
    thieves: int = 0


class Plan(Struct, kw_only=True):
    """What to do now and when to look again. `assign` holds the whole queue of every machine that changes.

    A task that is named in no queue may be taken by any machine of the job. One that runs on a machine that sleeps and
    is assigned elsewhere is given up there and starts again.
    """

    start: list[Start] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)
    assign: dict[str, list[int]] = field(default_factory=dict)
    replan_t: float = field(default=math.inf, name="replan_t")  # as logs and `windfall events` call it
    """When to plan again if nothing happens before."""
    spot_until_t: float = math.inf
    """From then on a machine that may vanish begins only what is reserved for it."""
    because: list[str] = field(default_factory=list)
    predicted_finish_t: float | None = None
    predicted_cost_usd: float | None = None
    """Of the whole job, what was spent included."""
    rejected: list[Rejected] = field(default_factory=list)
    later: list[Later] = field(default_factory=list)
    """What it means to rent later: it is shown again in the next snapshot (`last_later`), and binds nobody."""
    moves: Moves = field(default_factory=Moves)
    """Counted for reports; `assign` is what is carried out. Only HADS fills it in."""


class Planner(Protocol):
    """Of jobs of up to `names_up_to` unfinished tasks it says which task runs where; larger ones it sees in groups."""

    names_up_to: float

    def __call__(self, snapshot: Snapshot) -> Plan: ...
