"""Where the waiting tasks of a job stand: in queues, reserved for machines, or behind their parents. Pure data."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from windfall.core.state.saving import Ints
from windfall.quick import quickly_set


class TaskQueue:
    """The waiting tasks of one class: ranges of fresh ones, and single ones that come back. O(1) at both ends."""

    __slots__ = ("again", "fresh", "size")

    def __init__(self) -> None:
        self.fresh: deque[tuple[int, int]] = deque()
        self.again: deque[int] = deque()
        self.size = 0

    def add_range(self, first: int, end: int) -> None:
        if end > first:
            self.fresh.append((first, end))
            self.size += end - first

    def add(self, task: int) -> None:
        """One fresh task; those that become ready side by side make a range again."""
        if self.fresh and self.fresh[-1][1] == task:
            self.fresh[-1] = (self.fresh[-1][0], task + 1)
        else:
            self.fresh.append((task, task + 1))
        self.size += 1

    def give_back(self, task: int) -> None:
        self.again.append(task)
        self.size += 1

    def take(self, first: int, count: int) -> None:
        """Remove what a decision has assigned: the front of the fresh ranges, or one of those that came back."""
        fresh = self.fresh
        if fresh and fresh[0][0] == first:
            end = fresh[0][1]
            if first + count == end:
                fresh.popleft()
            else:
                fresh[0] = (first + count, end)
        elif self.again and self.again[0] == first:
            self.again.popleft()
        else:
            self.again.remove(first)
        self.size -= count

    def discard(self, task: int) -> None:
        """Remove one task wherever it stands (a cancellation, or a late result of a task that waits again)."""
        self.size -= 1
        if task in self.again:
            self.again.remove(task)
            return
        pieces: deque[tuple[int, int]] = deque()
        for start, end in self.fresh:
            if start <= task < end:
                pieces += [piece for piece in ((start, task), (task + 1, end)) if piece[1] > piece[0]]
            else:
                pieces.append((start, end))
        self.fresh = pieces

    def discard_all(self, tasks: set[int]) -> None:
        """Remove many at once: costs what stands in the queue, not that times what goes."""
        self.size -= len(tasks)
        self.again = deque(task for task in self.again if task not in tasks)
        pieces: deque[tuple[int, int]] = deque()
        ordered = sorted(tasks)
        for start, end in self.fresh:
            for task in ordered[bisect_left(ordered, start) : bisect_left(ordered, end)]:
                if task > start:
                    pieces.append((start, task))
                start = task + 1
            if end > start:
                pieces.append((start, end))
        self.fresh = pieces

    def clear(self) -> None:
        self.fresh.clear()
        self.again.clear()
        self.size = 0

    def __iter__(self) -> Iterator[int]:
        yield from self.again
        for start, end in self.fresh:
            yield from range(start, end)

    def saved(self) -> Any:
        return [list(self.fresh), list(self.again)]

    @classmethod
    def restored(cls, values: Any) -> TaskQueue:
        queue = cls()
        fresh, again = values
        for first, end in fresh:
            queue.add_range(first, end)
        queue.again.extend(again)
        queue.size += len(again)
        return queue


@quickly_set
class Queues(Struct, array_like=True):
    """Where waiting tasks stand: in the queue of their class, reserved for a machine, or behind their parents."""

    by_class: list[TaskQueue]
    held: int = 0
    """Waiting tasks that stand in no queue because a parent is not done."""
    reserved: dict[int, int] = field(default_factory=dict)
    """Waiting tasks that a plan has reserved for a machine, and its number: they stand in no queue either."""
    reserved_ready: int = 0
    """Reserved tasks whose parents are all done."""
    parents_left: Ints = field(default_factory=Ints)
    """In a workflow: how many parents of each task are not done."""
    replicas: dict[int, int] = field(default_factory=dict)
    """By running task, in the order of entry: how many of its replicas wait to be sent."""
    replicated_t: float = 0.0
    """When the running tasks were last looked at for replicas that wait in the queue."""

    @property
    def queued_replicas(self) -> int:
        return sum(self.replicas.values())

    def add_replica(self, task: int) -> None:
        self.replicas[task] = self.replicas.get(task, 0) + 1

    def take_replica(self, task: int) -> None:
        """One replica of the task is sent, if one waits."""
        left = self.replicas.pop(task, 1) - 1
        if left:
            self.replicas[task] = left
