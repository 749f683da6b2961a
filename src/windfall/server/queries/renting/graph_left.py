"""The tasks of a workflow as its planner knows them, for a simulation of what is left of it. Reads only."""

from __future__ import annotations

from windfall.api.asking import OpenGraph, OpenTask
from windfall.core.renting.runtimes import Outlook, unit_of
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import HELD, WAITING
from windfall.core.state.state import State

MOST_TASKS = 2_000
"""Larger workflows take minutes to simulate."""


def graph_of(state: State, bag: Bag) -> OpenGraph | None:
    """`tasks` (class, expected seconds at speed 1, cores, bytes, whether it is open) and `edges` (parent, child).

    None of a bag, and of a workflow that is too large to simulate. Seconds are null where nothing is known.
    """
    if bag.shape is None or bag.total > MOST_TASKS:
        return None
    expected = [_per_unit(state, bag, index) for index in range(len(bag.classes))]
    tasks: list[OpenTask] = []
    for task, phase in enumerate(bag.columns.state):
        index = bag.class_of(task)
        rules, per_unit = bag.classes[index], expected[index]
        tasks.append(
            {
                "class": index,
                "estimate_s": None if per_unit is None else per_unit * unit_of(bag, task),
                "cpus": rules.cpus,
                "memory_bytes": rules.memory_for(1),
                "open": phase in (WAITING, HELD),
            }
        )
    edges = [[int(parent), task] for task in range(bag.total) for parent in bag.shape.parents_of(task)]
    return {"tasks": tasks, "edges": edges}


def _per_unit(state: State, bag: Bag, index: int) -> float | None:
    """Seconds, or multiples of each task's own estimate."""
    if state.learned.run_times.get(bag.class_key(index)):
        return Outlook(state, bag, index, bag.rules.confidence, state.t).mean_s
    return 1.0 if bag.progress.estimates else bag.classes[index].estimate_s
