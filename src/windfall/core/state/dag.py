"""Who waits for whom in a workflow: readiness, descendants, critical paths. Pure; linear in tasks and edges.

A shape is stored once and shared by all jobs that have it, as the instances of a class do; a job of its own has only
its counters, four bytes a task. 100,000 tasks are four arrays, not 100,000 objects.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise


class BadShape(ValueError):
    """The arrays describe no graph without cycles."""


class Shape:
    """Edges in compressed rows: the children of task `i` are `children[offsets[i]:offsets[i + 1]]`."""

    __slots__ = ("_parent", "_parent_offsets", "children", "key", "offsets", "parent_counts")

    def __init__(self, offsets: array[int], children: array[int]) -> None:
        self.offsets, self.children = offsets, children
        self.parent_counts = array("I", bytes(4 * self.tasks))
        for child in children:
            self.parent_counts[child] += 1
        self.key = hashlib.sha256(b"%d " % len(offsets) + offsets.tobytes() + children.tobytes()).hexdigest()[:32]
        self._parent: array[int] | None = None
        self._parent_offsets: array[int] | None = None

    @property
    def tasks(self) -> int:
        return len(self.offsets) - 1

    @property
    def edges(self) -> int:
        return len(self.children)

    def children_of(self, task: int) -> array[int]:
        return self.children[self.offsets[task] : self.offsets[task + 1]]

    def parents_of(self, task: int) -> array[int]:
        """Made at the first look: running a workflow needs only the children."""
        if self._parent is None or self._parent_offsets is None:
            self._parent_offsets, self._parent = self._upwards()
        return self._parent[self._parent_offsets[task] : self._parent_offsets[task + 1]]

    def _upwards(self) -> tuple[array[int], array[int]]:
        ends = array("I", [0])
        for count in self.parent_counts:
            ends.append(ends[-1] + count)
        free = ends[:]
        parent = array("I", bytes(4 * self.edges))
        for task in range(self.tasks):
            for child in self.children_of(task):
                parent[free[child]] = task
                free[child] += 1
        return ends, parent

    def order(self) -> array[int]:
        """Every task behind its parents, ties by number; shorter than the workflow if there is a cycle."""
        left = self.parent_counts[:]
        order = array("I", (task for task, count in enumerate(left) if not count))
        at = 0
        while at < len(order):
            order.extend(finish(self, left, order[at]))
            at += 1
        return order


def from_edges(tasks: int, edges: Iterable[tuple[int, int]]) -> Shape:
    """A shape from (parent, child) pairs, repeated ones counted once. BadShape: a cycle, or no such task."""
    pairs = sorted(set(edges))
    if any(not (0 <= parent < tasks and 0 <= child < tasks) for parent, child in pairs):
        raise BadShape(f"an edge leads out of the {tasks} tasks")
    counts = [0] * tasks
    for parent, _ in pairs:
        counts[parent] += 1
    offsets = array("I", [0])
    for count in counts:
        offsets.append(offsets[-1] + count)
    return _acyclic(Shape(offsets, array("I", [child for _, child in pairs])))


def unpack(offsets: bytes, children: bytes) -> Shape:
    """A shape from its packed arrays, every number in them checked."""
    if len(offsets) % 4 or len(children) % 4 or not offsets:
        raise BadShape("the arrays of a shape have four bytes a number")
    rows, values = array("I"), array("I")
    rows.frombytes(offsets)
    values.frombytes(children)
    tasks = len(rows) - 1
    if rows[0] != 0 or rows[-1] != len(values) or any(a > b for a, b in pairwise(rows)):
        raise BadShape("the rows of a shape do not add up")
    if values and max(values) >= tasks:
        raise BadShape(f"an edge leads out of the {tasks} tasks")
    return _acyclic(Shape(rows, values))


def _acyclic(shape: Shape) -> Shape:
    if len(shape.order()) < shape.tasks:
        raise BadShape("the tasks wait for each other in a circle")
    return shape


# --- a job's own counters -------------------------------------------------------------------------------------------


def counters(shape: Shape, done: Iterable[int] = ()) -> array[int]:
    """For each task, how many of its parents are not done."""
    left = shape.parent_counts[:]
    for task in done:
        finish(shape, left, task)
    return left


def finish(shape: Shape, left: array[int], task: int) -> list[int]:
    """One more task is done: the tasks that wait for no other now. Costs its own children, whatever the workflow."""
    offsets = shape.offsets
    freed = []
    for child in shape.children[offsets[task] : offsets[task + 1]]:
        left[child] -= 1
        if not left[child]:
            freed.append(child)
    return freed


# --- looking around -------------------------------------------------------------------------------------------------


def descendants(shape: Shape, tasks: Iterable[int]) -> list[int]:
    """Everything that waits for these tasks, directly or not, by number; the tasks themselves are not meant."""
    seen = bytearray(shape.tasks)
    found = list(tasks)
    roots = set(found)
    for task in found:  # grows while we walk it
        for child in shape.children_of(task):
            if not seen[child]:
                seen[child] = 1
                found.append(child)
    return [task for task in range(shape.tasks) if seen[task] and task not in roots]


def walk_up(shape: Shape, task: int, passes: Callable[[int], bool]) -> Iterator[int]:
    """The ancestors of a task, the nearest first, through those that `passes`; each one once."""
    seen = {task}
    to_see = [task]
    for at in to_see:  # grows while we walk it
        for parent in shape.parents_of(at):
            if parent not in seen:
                seen.add(parent)
                yield parent
                if passes(parent):
                    to_see.append(parent)


def upward_ranks(shape: Shape, run_s: Sequence[float]) -> array[float]:
    """The longest path that begins with each task, its own run time included: what is left to do when it may start."""
    rank = array("d", bytes(8 * shape.tasks))
    for task in reversed(shape.order()):
        below = max((rank[child] for child in shape.children_of(task)), default=0.0)
        rank[task] = run_s[task] + below
    return rank


def critical_path(shape: Shape, run_s: Sequence[float]) -> list[int]:
    """One longest path by run time, from a task that waits for nobody to one that nobody waits for."""
    if not shape.tasks:
        return []
    rank = upward_ranks(shape, run_s)
    # The first among equals: no decision may depend on chance.
    at = max(range(shape.tasks), key=lambda task: (rank[task], -task))
    path = [at]
    while children := shape.children_of(at):
        at = max(children, key=lambda task: (rank[task], -task))
        path.append(at)
    return path
