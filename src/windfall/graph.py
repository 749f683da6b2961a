"""Which task of a workflow waits for which: readiness, descendants, critical paths. Pure, no recursion.

The engine runs workflows by it and the planners plan by it. A graph is packed arrays, not an object per task, and every
pass is linear in tasks plus edges. Jobs of one class share their graph; a job of its own has only its counters, four
bytes a task.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

Number = TypeVar("Number", int, float)
MOST_TASKS_WITH_KEPT_ROWS = 200
"""Graphs of at most this many tasks keep their rows of neighbours as lists."""


class BadGraph(ValueError):
    """The arrays or edges describe no graph without cycles."""


class CycleFound(BadGraph):
    """The edges contain a cycle; `tasks` walks once round it, by index."""

    def __init__(self, tasks: list[int]) -> None:
        super().__init__(f"{len(tasks)} tasks wait for each other in a circle")
        self.tasks = tasks


class Graph:
    """Edges in compressed rows: the children of task `i` are `children[offsets[i]:offsets[i + 1]]`."""

    __slots__ = (
        "_child_rows", "_order", "_parent", "_parent_offsets", "_parent_rows", "children", "key", "offsets",
        "parent_counts",
    )  # fmt: skip

    def __init__(self, offsets: array[int], children: array[int]) -> None:
        """Raises CycleFound. The arrays must be consistent (see `unpack`)."""
        self.offsets, self.children = offsets, children
        self.parent_counts = array("I", bytes(4 * self.tasks))
        for child in children:
            self.parent_counts[child] += 1
        packed = b"%d " % len(offsets) + offsets.tobytes() + children.tobytes()
        self.key = hashlib.sha256(packed).hexdigest()[:32]
        """Equal graphs have equal keys."""
        self._parent: array[int] | None = None
        self._parent_offsets: array[int] | None = None
        self._child_rows: list[list[int]] | None = None
        self._parent_rows: list[list[int]] | None = None
        self._order = self._sorted()
        if len(self._order) < self.tasks:
            raise CycleFound(self._one_cycle())

    @property
    def tasks(self) -> int:
        return len(self.offsets) - 1

    @property
    def edges(self) -> int:
        return len(self.children)

    # --- neighbours -------------------------------------------------------------------------------------------------

    def children_of(self, task: int) -> array[int]:
        return self.children[self.offsets[task] : self.offsets[task + 1]]

    def parents_of(self, task: int) -> array[int]:
        offsets, parent = self._upwards()
        return parent[offsets[task] : offsets[task + 1]]

    def child_rows(self) -> list[list[int]]:
        """The children of each task, as lists: quicker than `children_of` for passes over the whole graph.

        Small graphs keep them, for planners that pass over one graph again and again: do not change the lists.
        """
        if self._child_rows is not None:
            return self._child_rows
        rows = _rows(self.offsets, self.children)
        if self.tasks <= MOST_TASKS_WITH_KEPT_ROWS:
            self._child_rows = rows
        return rows

    def parent_rows(self) -> list[list[int]]:
        """The parents of each task, as lists; kept as `child_rows` are."""
        if self._parent_rows is not None:
            return self._parent_rows
        rows = _rows(*self._upwards())
        if self.tasks <= MOST_TASKS_WITH_KEPT_ROWS:
            self._parent_rows = rows
        return rows

    def _upwards(self) -> tuple[array[int], array[int]]:
        """Offsets and parents; made at the first use, because running a workflow needs only the children."""
        if self._parent is None or self._parent_offsets is None:
            ends = array("I", [0])
            for count in self.parent_counts:
                ends.append(ends[-1] + count)
            free = ends[:]
            parent = array("I", bytes(4 * self.edges))
            for task, row in enumerate(self.child_rows()):
                for child in row:
                    parent[free[child]] = task
                    free[child] += 1
            self._parent_offsets, self._parent = ends, parent
        return self._parent_offsets, self._parent

    # --- a job's own counters ---------------------------------------------------------------------------------------

    def counters(self, done: Iterable[int] = ()) -> array[int]:
        """For each task, how many of its parents are not done."""
        left = self.parent_counts[:]
        for task in done:
            self.finish(left, task)
        return left

    def finish(self, left: array[int], task: int) -> list[int]:
        """Count a task as done in `left`; returns the tasks that wait for no other now. Costs its own children only."""
        offsets = self.offsets
        freed = []
        for child in self.children[offsets[task] : offsets[task + 1]]:
            left[child] -= 1
            if not left[child]:
                freed.append(child)
        return freed

    # --- passes over the graph --------------------------------------------------------------------------------------

    def order(self) -> array[int]:
        """Every task behind its parents, ties by index."""
        return self._order

    def levels(self) -> list[int]:
        """The length of the longest chain of tasks before each task."""
        return [end - 1 for end in self.earliest_finish([1] * self.tasks)]

    def earliest_finish(self, duration: Sequence[int]) -> list[int]:
        """The end of each task if only its parents hold it back, from time 0."""
        end = [0] * self.tasks
        parents = self.parent_rows()
        for task in self._order:
            end[task] = duration[task] + max((end[p] for p in parents[task]), default=0)
        return end

    def tail(self, duration: Sequence[Number]) -> list[Number]:
        """The longest path that begins with each task, the task included (its upward rank), in units of `duration`."""
        tail = [duration[0] * 0] * self.tasks if self.tasks else []
        children = self.child_rows()
        for task in reversed(self._order):
            below = [tail[child] for child in children[task]]
            tail[task] = duration[task] + max(below) if below else duration[task]
        return tail

    def critical_path(self, duration: Sequence[Number]) -> list[int]:
        """One longest path, from an entry task to an exit task; ties go to the lowest index. Empty without tasks."""
        tail = self.tail(duration)
        at = max(range(self.tasks), key=lambda task: (tail[task], -task), default=None)
        path: list[int] = []
        while at is not None:
            path.append(at)
            at = max(self.children_of(at), key=lambda task: (tail[task], -task), default=None)
        return path

    def descendants(self, tasks: Iterable[int]) -> list[int]:
        """All tasks that wait for these, directly or not, by index; without the given ones."""
        seen = bytearray(self.tasks)
        found = list(tasks)
        roots = set(found)
        for task in found:  # grows during the loop
            for child in self.children_of(task):
                if not seen[child]:
                    seen[child] = 1
                    found.append(child)
        return [task for task in range(self.tasks) if seen[task] and task not in roots]

    def walk_up(self, task: int, passes: Callable[[int], bool]) -> Iterator[int]:
        """The ancestors of a task, nearest first, each once; beyond an ancestor only if `passes` accepts it."""
        seen = {task}
        to_see = [task]
        for at in to_see:  # grows during the loop
            for parent in self.parents_of(at):
                if parent not in seen:
                    seen.add(parent)
                    yield parent
                    if passes(parent):
                        to_see.append(parent)

    def _sorted(self) -> array[int]:
        """The topological order; shorter than the graph if there is a cycle."""
        left = self.parent_counts[:]
        order = array("I", (task for task, count in enumerate(left) if not count))
        at = 0
        while at < len(order):
            order.extend(self.finish(left, order[at]))
            at += 1
        return order

    def _one_cycle(self) -> list[int]:
        """Every task outside the order has a parent outside it: walking up must come back to a task seen before."""
        done = set(self._order)
        at = next(task for task in range(self.tasks) if task not in done)
        seen: dict[int, int] = {}
        walk: list[int] = []
        while at not in seen:
            seen[at] = len(walk)
            walk.append(at)
            at = next(parent for parent in self.parents_of(at) if parent not in done)
        return walk[seen[at] :][::-1]


def from_edges(tasks: int, edges: Iterable[tuple[int, int]]) -> Graph:
    """A graph of `tasks` tasks from (parent, child) pairs; repeated pairs count once. Raises BadGraph."""
    pairs = sorted(set(edges))
    if any(not (0 <= parent < tasks and 0 <= child < tasks) for parent, child in pairs):
        raise BadGraph(f"an edge leads out of the {tasks} tasks")
    counts = [0] * tasks
    for parent, _ in pairs:
        counts[parent] += 1
    offsets = array("I", [0])
    for count in counts:
        offsets.append(offsets[-1] + count)
    return Graph(offsets, array("I", [child for _, child in pairs]))


def unpack(offsets: bytes, children: bytes) -> Graph:
    """A graph from its packed arrays, every number checked. Raises BadGraph."""
    if len(offsets) % 4 or len(children) % 4 or not offsets:
        raise BadGraph("the arrays of a graph have four bytes a number")
    rows, values = array("I"), array("I")
    rows.frombytes(offsets)
    values.frombytes(children)
    tasks = len(rows) - 1
    if rows[0] != 0 or rows[-1] != len(values) or any(a > b for a, b in pairwise(rows)):
        raise BadGraph("the rows of a graph do not add up")
    if values and max(values) >= tasks:
        raise BadGraph(f"an edge leads out of the {tasks} tasks")
    return Graph(rows, values)


def _rows(offsets: array[int], values: array[int]) -> list[list[int]]:
    flat = values.tolist()
    return [flat[begin:end] for begin, end in pairwise(offsets)]
