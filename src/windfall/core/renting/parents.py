"""What each unfinished task of a workflow waits for, as planners see it: its parents, and its turn for a licence. Pure.

Planners know which task follows which, and not what the whole server counts. So where licences let `n` tasks of a
workflow run at once, the tasks that need one are put in an order, and each follows the one that is `n` places before
it: then at most `n` of them overlap in a plan. The engine itself gives licences to ready tasks in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from windfall.core.events import TaskClass
from windfall.core.state.jobs.bags import Bag
from windfall.graph import Graph


def turns(order: Sequence[int], at_once: int) -> Iterator[tuple[int, int]]:
    """Pairs (earlier, later): the later task waits for the earlier one, so that at most `at_once` run."""
    return zip(order, order[max(1, at_once) :], strict=False)


def in_order(graph: Graph, needing: set[int], running: set[int]) -> list[int]:
    """These tasks so that none stands before one that it depends on; those that run come first."""
    first = [task for task in needing if task in running]
    return sorted(first) + [task for task in graph.order() if task in needing and task not in running]


def of_workflow(bag: Bag, open_: list[int], there: Mapping[str, int]) -> dict[int, list[int]]:
    """By unfinished task those that it follows. `there`: units (in thousandths) that the whole server has, by name."""
    if bag.shape is None:
        return {}
    unfinished = set(open_)
    parents: dict[int, list[int]] = {}
    for task in open_:
        for child in bag.shape.children_of(task):
            if child in unfinished:
                parents.setdefault(child, []).append(task)
    for name in sorted(there):
        for earlier, later in _turns_for(bag, name, there[name], unfinished):
            if earlier not in parents.get(later, ()):
                parents.setdefault(later, []).append(earlier)
    return parents


def _turns_for(bag: Bag, name: str, there: int, unfinished: set[int]) -> list[tuple[int, int]]:
    needs = [_need(rules, name) for rules in bag.classes]
    if bag.shape is None or not any(needs):
        return []
    needing = {task for task in unfinished if needs[bag.class_of(task)]}
    running = {task for task in needing if task in bag.attempts.live}
    pairs = turns(in_order(bag.shape, needing, running), there // max(needs))
    return [(earlier, later) for earlier, later in pairs if later not in running]


def _need(rules: TaskClass, name: str) -> int:
    return next((need for each, need in rules.needs if each == name), 0)
