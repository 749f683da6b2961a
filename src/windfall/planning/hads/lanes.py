"""The schedule of one machine's cores and memory, as HADS builds it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import Struct

from windfall.planning.contract import Machine, Snapshot, Task
from windfall.planning.offers import Offer

TOLERANCE_S = 1e-6


class Slot(Struct, frozen=True):
    """One task's time on a core."""

    task: int
    start_t: float
    end_t: float
    memory_gb: float


class Lanes:
    """The schedule of one machine. A task starts on the first free core once its memory fits until its end."""

    def __init__(self, offer: Offer, ready_t: float) -> None:
        self.offer = offer
        self.free_t = [ready_t] * offer.cores
        self.slots: list[Slot] = []

    @classmethod
    def of(cls, machine: Machine, snapshot: Snapshot) -> Lanes:
        """The schedule of a rented machine: its running tasks, then its queue in order."""
        lanes = cls(machine.offer, max(snapshot.t, machine.ready_t))
        for core, entry in enumerate(machine.running):
            end_t = snapshot.t + entry.left_s
            lanes.slots.append(Slot(entry.task, snapshot.t, end_t, snapshot.tasks[entry.task].memory_gb))
            lanes.free_t[core] = end_t
        for task in machine.waiting:
            lanes.append(snapshot.tasks[task])
        return lanes

    def start_t(self, task: Task) -> float:
        """The earliest start of a task appended now; infinite if the machine lacks memory or resources."""
        if not holds(self.offer, task):
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


def holds(offer: Offer, task: Task) -> bool:
    """Whether a machine has the memory and the resources; HADS plans a core for each task."""
    return task.memory_gb <= offer.memory_gb and offer.has(task.resources)


def longest_first(tasks: Iterable[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: (-task.runtime_s, task.id))
