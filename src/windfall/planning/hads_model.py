"""What HADS looks at and what it proposes: tasks, machines, a snapshot, a plan, and the lanes of a machine. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct, field

from windfall.planning.offers import Offer

# Measured by HADS's authors: what it takes to store or restore a checkpoint.
CHECKPOINT_S = 13.0
CHECKPOINT_S_PER_MB = 0.04
TOLERANCE_S = 1e-6


class Phase(StrEnum):
    """The states of a machine in HADS, and the time before it is there."""

    PENDING = "pending"
    BUSY = "busy"
    IDLE = "idle"
    HIBERNATED = "hibernated"


class Task(Struct, frozen=True):
    """One task: seconds on a machine of speed 1, memory, and the progress that a checkpoint holds (in such seconds)."""

    id: int
    runtime_s: float
    memory_gb: float = 0.0
    task_class: str = ""
    checkpoint_mb: float | None = None
    saved_s: float = 0.0

    def seconds_on(self, offer: Offer) -> float:
        """What it takes there from the beginning, or from its checkpoint where it has one."""
        speed = offer.speed_for(self.task_class)
        if self.checkpoint_mb is None or self.saved_s <= 0.0:
            return self.runtime_s / speed
        restore_s = CHECKPOINT_S + CHECKPOINT_S_PER_MB * self.checkpoint_mb
        return min(self.runtime_s / speed, restore_s + (self.runtime_s - self.saved_s) / speed)


class Running(Struct, frozen=True):
    """A task on a core (or asleep with its machine) and the seconds it still takes there."""

    task: int
    left_s: float


class Machine(Struct, frozen=True, kw_only=True):
    """A rented machine as the planner sees it; `paid_until_t` is the end of its present billing cycle."""

    id: str
    offer: Offer
    phase: Phase
    ready_t: float = 0.0
    running: tuple[Running, ...] = ()
    waiting: tuple[int, ...] = ()
    paid_until_t: float = math.inf

    def tasks(self) -> tuple[int, ...]:
        return (*(entry.task for entry in self.running), *self.waiting)


class Snapshot(Struct, frozen=True, kw_only=True):
    """Everything HADS knows at one moment: unfinished tasks, machines, offers."""

    t: float
    deadline_t: float
    tasks: dict[int, Task]
    machines: tuple[Machine, ...]
    offers: tuple[Offer, ...]

    def left_of(self, offer: Offer) -> int:
        """How many more machines of this offer may be started."""
        used = sum(
            machine.offer.name == offer.name and machine.offer.market == offer.market for machine in self.machines
        )
        return max(0, (offer.limit if offer.limit is not None else len(self.tasks)) - used)


class Start(Struct, frozen=True):
    """Rent one machine of this offer; `label` is its name until it has one."""

    label: str
    offer: Offer


class Rejected(Struct, frozen=True):
    """An alternative that was looked at, and its price."""

    what: str
    cost_usd: float


class Plan(Struct, kw_only=True):
    """What to do now and when to look again. `assign` holds the whole queue of every machine that changes."""

    start: list[Start] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)
    assign: dict[str, list[int]] = field(default_factory=dict)
    look_again_t: float = math.inf
    because: list[str] = field(default_factory=list)
    predicted_finish_t: float | None = None
    rejected: list[Rejected] = field(default_factory=list)


class Slot(Struct, frozen=True):
    """One task's time on a core."""

    task: int
    start_t: float
    end_t: float
    memory_gb: float


class Lanes:
    """The cores of one machine over time: where a task appended now would start, with room in memory all along."""

    def __init__(self, offer: Offer, ready_t: float) -> None:
        self.offer = offer
        self.free_t = [ready_t] * offer.cores
        self.slots: list[Slot] = []

    @classmethod
    def of(cls, machine: Machine, snapshot: Snapshot) -> Lanes:
        """The lanes of a machine that runs: its running tasks, then its queue in order."""
        lanes = cls(machine.offer, max(snapshot.t, machine.ready_t))
        for core, entry in enumerate(machine.running):
            end_t = snapshot.t + entry.left_s
            lanes.slots.append(Slot(entry.task, snapshot.t, end_t, snapshot.tasks[entry.task].memory_gb))
            lanes.free_t[core] = end_t
        for task in machine.waiting:
            lanes.append(snapshot.tasks[task])
        return lanes

    def start_t(self, task: Task) -> float:
        """The earliest start on a free core; infinite where the machine is too small in memory."""
        if task.memory_gb > self.offer.memory_gb:
            return math.inf
        free_t, seconds = min(self.free_t), task.seconds_on(self.offer)
        moments = [free_t, *sorted(slot.end_t for slot in self.slots if slot.end_t > free_t)]
        room_gb = self.offer.memory_gb - task.memory_gb + TOLERANCE_S
        return next(moment for moment in moments if self._peak_gb(moment, moment + seconds) <= room_gb)

    def end_t(self, task: Task) -> float:
        return self.start_t(task) + task.seconds_on(self.offer)

    def append(self, task: Task) -> Slot:
        start_t = self.start_t(task)
        slot = Slot(task.id, start_t, start_t + task.seconds_on(self.offer), task.memory_gb)
        self.slots.append(slot)
        self.free_t[self.free_t.index(min(self.free_t))] = slot.end_t
        return slot

    def finish_t(self) -> float:
        return max((slot.end_t for slot in self.slots), default=-math.inf)

    def _peak_gb(self, start_t: float, end_t: float) -> float:
        moments = [start_t, *(slot.start_t for slot in self.slots if start_t < slot.start_t < end_t)]
        return max(
            sum(slot.memory_gb for slot in self.slots if slot.start_t <= moment < slot.end_t) for moment in moments
        )


def longest_first(tasks: Iterable[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: (-task.runtime_s, task.id))
