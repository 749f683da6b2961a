"""Which waiting jobs of a shared fleet its planner sees one by one, and the rest by class. Pure.

A plan reserves what begins soon, so of very many jobs only the most urgent matter one by one. Of the others the planner
is told how much work there is and when it is due: that tells how many machines to rent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import nsmallest

from windfall.core.renting import machines
from windfall.core.renting.arrivals import class_of
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import HELD, WAITING
from windfall.core.state.state import State
from windfall.planning.contract import Backlog, Task

LEAST_SHOWN, MOST_SHOWN = 500, 2_000
"""As many jobs are shown as there are cores, but not fewer and not more than these."""
BUCKETS = 20.0
"""Deadlines of the rest are rounded down to the time left divided by this."""


def shown_and_rest(state: State, fleet: int) -> tuple[list[Bag], list[Bag]]:
    """The jobs of a fleet that are shown, in the order of their deadlines, and those that are told of by class.

    A job that runs or has a reservation is shown. A job's own fleet has that job alone.
    """
    own = state.bags.get(fleet)
    if own is not None:
        return [own], []
    active, bags = state.fleet.book.active[fleet], state.bags
    cores = sum(machine.offer.cores for machine in state.fleet.there_of.get(fleet, {}).values())
    most = min(MOST_SHOWN, max(LEAST_SHOWN, cores))
    if len(active) <= most:
        return sorted((bags[job] for job in active), key=machines.deadline_first), []
    due = [(bag.submitted_t + (bag.rules.deadline_s or math.inf), job) for job, bag in ((j, bags[j]) for j in active)]
    last = nsmallest(most, due)[-1]
    shown, rest = list[Bag](), list[Bag]()
    for entry in due:
        bag = bags[entry[1]]
        (shown if entry <= last or bag.attempts.live or bag.queues.reserved else rest).append(bag)
    return sorted(shown, key=machines.deadline_first), rest


def told(rest: list[Bag], t: float, tasks_of: Callable[[Bag], list[Task]]) -> tuple[Backlog, ...]:
    """Equal tasks of jobs of one class that are due at about one time. `tasks_of`: one task of each class of a job."""
    counts: dict[tuple[object, int], int] = {}
    first: dict[tuple[object, int], Bag] = {}
    for bag in rest:
        deadline_s = bag.rules.deadline_s or 1e9
        key = class_of(bag), int((bag.submitted_t - t) / deadline_s * BUCKETS)
        unfinished = bag.counts[WAITING] + bag.counts[HELD]
        if key in first:
            counts[key] += unfinished
        else:
            first[key], counts[key] = bag, unfinished
    rows: list[Backlog] = []
    for key, count in counts.items():
        tasks = tasks_of(first[key])
        rows += [Backlog(task, count / len(tasks)) for task in tasks]
    return tuple(rows)
