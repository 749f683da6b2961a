"""Plan a workflow of independent parts part by part. Pure.

Parts that share no edge share nothing but the limits of offers and pools. A search over some hundred tasks finds what
one over many thousands does not, and the time grows with the size only. Equal parts are planned once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import structs

from windfall.graph import from_edges
from windfall.planning.workflow.model import Lease, Plan, Problem, Workflow

MIN_PART_TASKS = 200
"""Components of a large workflow are planned together up to this size."""


def split(problem: Problem, least: int) -> list[list[int]]:
    """The tasks of each part, in order; one part if the workflow is connected.

    Components are planned together up to `least` tasks, so that small ones share machines.
    """
    graph = problem.workflow.graph
    root = list(range(problem.n))

    def find(task: int) -> int:
        while root[task] != task:
            root[task] = root[root[task]]
            task = root[task]
        return task

    for task, parents in enumerate(graph.parent_rows()):
        for parent in parents:
            a, b = find(task), find(parent)
            root[max(a, b)] = min(a, b)
    components: defaultdict[int, list[int]] = defaultdict(list)
    for task in range(problem.n):
        components[find(task)].append(task)
    parts: list[list[int]] = []
    for tasks in components.values():
        if parts and len(parts[-1]) + len(tasks) <= least:
            parts[-1] = sorted([*parts[-1], *tasks])
        else:
            parts.append(tasks)
    return parts


def restricted(problem: Problem, tasks: Sequence[int]) -> Problem:
    """The problem of some of the tasks, none of which has a parent elsewhere."""
    whole, exposure, place = problem.workflow, problem.exposure, {task: k for k, task in enumerate(tasks)}
    parents = whole.graph.parent_rows()
    edges = [(place[parent], place[task]) for task in tasks for parent in parents[task]]
    workflow = Workflow(
        name=whole.name, ids=[whole.ids[t] for t in tasks], classes=[whole.classes[t] for t in tasks],
        runtime_s=[whole.runtime_s[t] for t in tasks], cores=[whole.cores[t] for t in tasks],
        memory_bytes=[whole.memory_bytes[t] for t in tasks], graph=from_edges(len(tasks), edges),
        resources=[whole.resources[t] for t in tasks] if whole.resources else [],
    )  # fmt: skip
    return structs.replace(
        problem, workflow=workflow, duration=[[row[t] for t in tasks] for row in problem.duration],
        exposure=structs.replace(
            exposure, chance=exposure.chance[:, list(tasks)], rerun_by=[exposure.rerun_by[t] for t in tasks],
            due=[[row[t] for t in tasks] for row in exposure.due],
            loss_usd=[[row[t] for t in tasks] for row in exposure.loss_usd],
        ),
    )  # fmt: skip


def planned_by_parts(
    problem: Problem, parts: Sequence[Sequence[int]], plan: Callable[[Problem, float], Plan]
) -> Plan | None:
    """The plans of all parts side by side; None if one misses the deadline or they need more machines than there are.

    `plan(part, share)`: the plan of one part, which has this share of all tasks.
    """
    known: dict[tuple[bytes, ...], Plan] = {}
    leases: list[Lease] = []
    machine, start, end = [0] * problem.n, [0] * problem.n, [0] * problem.n
    for tasks in parts:
        part = restricted(problem, tasks)
        shape = _shape(part)
        made = known.get(shape)
        if made is None:
            made = known[shape] = plan(part, len(tasks) / problem.n)
        if not made.kept(part):
            return None
        for k, task in enumerate(tasks):
            machine[task], start[task], end[task] = len(leases) + made.machine[k], made.start[k], made.end[k]
        leases += made.leases
    rented = np.bincount([lease.offer for lease in leases], minlength=len(problem.offers))
    return Plan("windfall", leases, machine, start, end) if problem.allows(rented.tolist()) else None


def _shape(part: Problem) -> tuple[bytes, ...]:
    """What the plan of a part depends on."""
    edges = [(parent, task) for task, row in enumerate(part.workflow.graph.parent_rows()) for parent in row]
    rows = (edges, part.duration, part.workflow.cores, part.workflow.memory_bytes, part.exposure.due)
    return tuple(np.asarray(row, dtype=np.int64).tobytes() for row in rows)
