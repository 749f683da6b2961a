"""Where the tasks of a workflow stand in a picture: in columns by depth; of a large one its steps. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Any

from windfall import graph as graphs
from windfall.workflows.wfformat import class_of

Json = dict[str, Any]
Place = tuple[float, float]
MOST_TASKS = 400
"""Above this many tasks single tasks cannot be told apart: their steps are drawn instead."""


def steps_of(tasks: list[Json]) -> tuple[list[str], list[Place], Counter[tuple[int, int]]]:
    """The steps of a workflow by name, their positions, and the number of edges between each two steps."""
    depth = depths([task["parents"] for task in tasks])
    names = [class_of(task["name"]) for task in tasks]
    first: dict[str, int] = {}
    for name, level in zip(names, depth, strict=True):
        first[name] = min(level, first.get(name, level))
    ordered = sorted(first, key=lambda name: (first[name], name))
    number = {name: index for index, name in enumerate(ordered)}
    columns = {level: column for column, level in enumerate(sorted(set(first.values())))}
    beside = Counter(first.values())
    seen: Counter[int] = Counter()
    place: list[Place] = []
    for name in ordered:
        level = first[name]
        place.append((columns[level], (beside[level] - 1) / 2 - seen[level]))
        seen[level] += 1
    edges = Counter(
        (number[names[parent]], number[name])
        for task, name in zip(tasks, names, strict=True)
        for parent in task["parents"]
        if names[parent] != name
    )
    return ordered, place, edges


def state_of(task: Json) -> str:
    """The state of a task, with those that wait told apart: for a host, for a parent, for nothing that will come."""
    if task["state"] != "waiting":
        return str(task["state"])
    if task["blocked"]:
        return "blocked"
    return "waiting" if task["parents_left"] else "ready"


def depths(parents: list[list[int]]) -> list[int]:
    """The length of the longest chain before each task."""
    shape = graphs.from_edges(len(parents), ((parent, task) for task, mine in enumerate(parents) for parent in mine))
    depth = [0] * len(parents)
    for task in shape.order():
        depth[task] = 1 + max((depth[parent] for parent in parents[task]), default=-1)
    return depth


def layout(parents: list[list[int]]) -> list[Place]:
    """A place for each task: its depth, and beside that the middle of its parents' places, spread evenly."""
    place: list[Place] = [(0, 0.0)] * len(parents)
    levels: dict[int, list[int]] = {}
    for task, level in enumerate(depths(parents)):
        levels.setdefault(level, []).append(task)
    for level in sorted(levels):
        mine = sorted(levels[level], key=lambda task: (_middle(parents[task], place), task))
        for rank, task in enumerate(mine):
            place[task] = (level, (len(mine) - 1) / 2 - rank)
    return place


def _middle(parents: list[int], place: list[Place]) -> float:
    return -sum(place[parent][1] for parent in parents) / len(parents) if parents else 0.0
