"""Workflows in scenarios: from a file, or of a simple shape (pipeline, parallel, hybrid). Touches the file named."""

from __future__ import annotations

from itertools import pairwise
from math import isqrt
from pathlib import Path

from msgspec import Struct

from windfall.errors import BadInput
from windfall.sim.inputs.traces import find_file
from windfall.workflows import read

Edges = tuple[tuple[int, int], ...]
"""(parent, child) by number."""
LEAST = {"pipeline": 2, "parallel": 3, "hybrid": 4}


class Flow(Struct, frozen=True):
    """A workflow's tasks as a simulated world needs them."""

    edges: Edges
    run_times_s: tuple[float, ...] = ()
    classes: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    memory_bytes: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()

    @property
    def tasks(self) -> int:
        return len(self.run_times_s)


def from_file(name: str, place: str, where: Path, data: Path | None) -> Flow:
    """WfFormat 1.5 or workflow.toml, with a run time for every task."""
    path = find_file(name, place, where, data)
    try:
        columns = read(path).for_planning()
    except BadInput as error:
        raise BadInput(f"{place}: {error.message}", hint=error.hint, code="bad-scenario") from None
    edges = tuple((parent, task) for task, parents in enumerate(columns.graph.parent_rows()) for parent in parents)
    return Flow(
        edges, tuple(columns.runtime_s), tuple(columns.classes), tuple(columns.cores), tuple(columns.memory_bytes),
        tuple(columns.nodes),
    )  # fmt: skip


def of_shape(shape: str, tasks: int, place: str) -> Edges:
    """The edges of a simple shape with this number of tasks."""
    if tasks < LEAST[shape]:
        raise BadInput(f"{place}.tasks: a {shape} has {LEAST[shape]} at least", hint=f"tasks = {LEAST[shape]}")
    if shape == "pipeline":
        return tuple((task, task + 1) for task in range(tasks - 1))
    last, inner = tasks - 1, range(1, tasks - 1)
    if shape == "parallel":
        return (*((0, task) for task in inner), *((task, last) for task in inner))
    return _hybrid(last)


def _hybrid(last: int) -> Edges:
    """One task, then layers in which each task waits for two neighbours in the layer before, then one task."""
    width = max(2, isqrt(last - 1))
    layers = [list(range(first, min(first + width, last))) for first in range(1, last, width)]
    edges = {(0, task) for task in layers[0]}
    for above, below in pairwise(layers):
        for place, task in enumerate(below):
            edges |= {(above[place % len(above)], task), (above[(place + 1) % len(above)], task)}
    inner = {parent for parent, _ in edges}
    edges |= {(task, last) for layer in layers for task in layer if task not in inner}
    return tuple(sorted(edges))
