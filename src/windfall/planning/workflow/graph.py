"""A workflow as arrays: tasks, edges in compressed rows, readiness, levels and critical paths. Pure, no recursion.

100,000 tasks are six arrays, not 100,000 objects; every pass is linear in tasks plus edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class CycleFound(ValueError):
    """The edges contain a cycle; `tasks` walks once round it, by index."""

    def __init__(self, tasks: list[int]) -> None:
        super().__init__(f"cycle of {len(tasks)} tasks")
        self.tasks = tasks


class Graph(Struct, frozen=True, eq=False):
    """Who waits for whom. Row `i` of `parents` is `parent[parent_ptr[i]:parent_ptr[i + 1]]`, and so for children."""

    n: int
    parent_ptr: Ints
    parent: Ints
    child_ptr: Ints
    child: Ints
    order: Ints  # topological, ties by index

    def parents(self) -> list[list[int]]:
        return _rows(self.parent_ptr, self.parent)

    def children(self) -> list[list[int]]:
        return _rows(self.child_ptr, self.child)

    def levels(self) -> Ints:
        """The length of the longest chain of tasks before each task."""
        return np.asarray(self.earliest_finish([1] * self.n), dtype=np.int64) - 1

    def earliest_finish(self, duration: Sequence[int]) -> list[int]:
        """The end of each task when nothing but its parents holds it back, from time 0."""
        end = [0] * self.n
        parents = self.parents()
        for task in self.order.tolist():
            end[task] = duration[task] + max((end[p] for p in parents[task]), default=0)
        return end

    def tail(self, duration: Sequence[int]) -> list[int]:
        """The longest path that begins with each task, the task itself included (its upward rank)."""
        tail = [0] * self.n
        children = self.children()
        for task in reversed(self.order.tolist()):
            tail[task] = duration[task] + max((tail[c] for c in children[task]), default=0)
        return tail

    def critical_path(self, duration: Sequence[int]) -> list[int]:
        """One longest path, from an entry task to an exit task."""
        tail = self.tail(duration)
        children = self.children()
        at = max(range(self.n), key=tail.__getitem__, default=None)
        path: list[int] = []
        while at is not None:
            path.append(at)
            at = max(children[at], key=tail.__getitem__, default=None)
        return path


def build(n: int, edges: Iterable[tuple[int, int]]) -> Graph:
    """A graph of `n` tasks from (parent, child) pairs; repeated pairs count once. Raises CycleFound."""
    pairs = np.unique(np.array(sorted(edges), dtype=np.int64).reshape(-1, 2), axis=0)
    child_ptr, child = _compress(n, pairs[:, 0], pairs[:, 1])
    parent_ptr, parent = _compress(n, pairs[:, 1], pairs[:, 0])
    order = _topological(n, parent_ptr, _rows(child_ptr, child))
    if len(order) < n:
        raise CycleFound(_one_cycle(order, _rows(parent_ptr, parent)))
    return Graph(n, parent_ptr, parent, child_ptr, child, np.asarray(order, dtype=np.int64))


def _compress(n: int, row: Ints, value: Ints) -> tuple[Ints, Ints]:
    by_row = np.lexsort((value, row))
    ptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(row, minlength=n), out=ptr[1:])
    return ptr, value[by_row]


def _rows(ptr: Ints, value: Ints) -> list[list[int]]:
    flat, bounds = value.tolist(), ptr.tolist()
    return [flat[begin:end] for begin, end in pairwise(bounds)]


def _topological(n: int, parent_ptr: Ints, children: list[list[int]]) -> list[int]:
    missing = np.diff(parent_ptr).tolist()
    order = [task for task in range(n) if missing[task] == 0]
    for task in order:  # grows while we walk it
        for child in children[task]:
            missing[child] -= 1
            if missing[child] == 0:
                order.append(child)
    return order


def _one_cycle(sorted_part: list[int], parents: list[list[int]]) -> list[int]:
    """Every task outside the sorted part has a parent outside it: walking up must come back to a task seen before."""
    done = set(sorted_part)
    at = next(task for task in range(len(parents)) if task not in done)
    seen: dict[int, int] = {}
    walk: list[int] = []
    while at not in seen:
        seen[at] = len(walk)
        walk.append(at)
        at = next(p for p in parents[at] if p not in done)
    return walk[seen[at] :][::-1]
