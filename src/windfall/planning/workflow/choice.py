"""The plan that a run of a workflow begins with: of several plans the one whose played runs cost least. Pure.

The search counts a loss as the lost task run again. What a loss truly costs depends on what comes after the task, so
the search is repeated with losses that weigh less and more, and on demand alone; then runs of each plan are played.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace

from windfall.planning.contract import SPOT, Snapshot, Task
from windfall.planning.offers import GIB, Offer
from windfall.planning.workflow.methods.searches import FEW_TASKS
from windfall.planning.workflow.methods.windfall import CONSTRUCTION_EFFORT, looks_of, planned_whole
from windfall.planning.workflow.model import NEVER, US, Plan, Problem
from windfall.planning.workflow.planners import plan as made_by
from windfall.planning.workflow.rollouts import Bills, bills
from windfall.planning.workflow.seats import Queues, Seat, cores_free, in_best_order
from windfall.planning.workflow.sets import SetOffer

LOSS_WEIGHTS = (0.3, 3.0)
"""Of the expected cost of losses in the searches beside the first."""
MORE_EFFORT, MORE_EFFORT_FOR_FEW = 1 / 6, 1 / 2
"""Effort of each of these searches over that of the first, which is short for very few tasks."""
FIRST_RUNS, MOST_RUNS, TASKS_PLAYED = 6, 40, 1_000
"""Runs played of each plan, most runs of each of the two best plans, and most tasks in all runs of these. Few runs do
not tell plans apart, because a bill is often one of two, with a loss and without. A live planner has ten seconds for a
plan."""
MOST_TASKS = 100
"""In larger workflows the first search decides."""
LATER_BY_S = 1.0
"""Machines that are not rented at once are rented this much later than planned."""


def chosen(
    problem: Problem, planner: str, rng: np.random.Generator, looks: int, reviewed: Callable[[Snapshot], Queues]
) -> tuple[Plan, str]:
    """The plan of this planner, of Windfall's own the cheapest in played runs; and why, if there was a choice."""
    looks = looks_of(problem.n, looks)
    first = made_by(problem, planner, rng, looks)
    if planner != "windfall" or not _may_lose(problem, first):
        return first, ""
    plans, share = [first], MORE_EFFORT_FOR_FEW if problem.n <= FEW_TASKS else MORE_EFFORT
    for other, starts in _variants(problem, first):
        made = planned_whole(other, rng, int(share * looks), int(share * CONSTRUCTION_EFFORT), starts)
        if made.kept(problem) and all(made.cost_usd(problem) != each.cost_usd(problem) for each in plans):
            plans.append(made)
    if len(plans) == 1:
        return first, ""
    played = [_played(problem, made, reviewed, FIRST_RUNS, rng) for made in plans]
    finalists = sorted(range(len(plans)), key=played.__getitem__)[:2]
    more = min(MOST_RUNS, TASKS_PLAYED // problem.n) - FIRST_RUNS
    for place in finalists:
        if more > 0 and _uses_spot(problem, plans[place]):
            played[place] += _played(problem, plans[place], reviewed, more, rng)
    best = min(finalists, key=played.__getitem__)
    return plans[best], _why(played.pop(best), played)


def _why(best: Bills, others: Sequence[Bills]) -> str:
    """`with losses it costs $0.9600 on average in played runs, 2 other plans $1.2900 and $1.0100`."""
    usd = [f"${each.usd:.4f}" for each in others]
    listed = " and ".join(filter(None, [", ".join(usd[:-1]), usd[-1]]))
    which = f"{len(usd)} other plans" if len(usd) > 1 else "another plan"
    return f"with losses it costs ${best.usd:.4f} on average in played runs, {which} {listed}"


def _may_lose(problem: Problem, made: Plan) -> bool:
    """Whether a machine of this plan may be lost, and whether that can be played."""
    if problem.n > MOST_TASKS or any(isinstance(offer, SetOffer) for offer in problem.offers):
        return False
    spot = {number for number, offer in enumerate(problem.offers) if offer.market == SPOT}
    used = {(made.leases[machine].offer, task) for task, machine in enumerate(made.machine)}
    return any(offer in spot and problem.exposure.chance[offer, task] > 0.0 for offer, task in used)


def _variants(problem: Problem, first: Plan) -> list[tuple[Problem, list[Plan]]]:
    """The same problem with losses that weigh less or more, and without spot, each with plans to search from."""
    exposure = problem.exposure
    found: list[tuple[Problem, list[Plan]]] = []
    for weight in LOSS_WEIGHTS:
        loss_usd = [[weight * usd for usd in row] for row in exposure.loss_usd]
        found.append((replace(problem, exposure=replace(exposure, loss_usd=loss_usd)), [first]))
    duration = [
        [NEVER] * problem.n if offer.market == SPOT else row
        for offer, row in zip(problem.offers, problem.duration, strict=True)
    ]
    if all(min(column) < NEVER for column in zip(*duration, strict=True)):
        found.append((replace(problem, duration=duration), []))
    return found


def _played(
    problem: Problem, made: Plan, reviewed: Callable[[Snapshot], Queues], runs: int, rng: np.random.Generator
) -> Bills:
    snapshot = _snapshot(problem)
    seats = seats_of(problem, made, problem.offers, range(problem.n), 0.0)
    return bills(
        snapshot, in_best_order(snapshot, seats), reviewed, runs if _uses_spot(problem, made) else 1, rng
    )  # fmt: skip


def _uses_spot(problem: Problem, made: Plan) -> bool:
    return any(problem.offers[lease.offer].market == SPOT for lease in made.leases)


def _snapshot(problem: Problem) -> Snapshot:
    """What a live planner is shown when the run begins."""
    workflow = problem.workflow
    tasks = {
        number: Task(
            number, workflow.runtime_s[number], workflow.memory_bytes[number] / GIB, workflow.classes[number],
            cores=workflow.cores[number], resources=workflow.resources_of(number),
        )
        for number in range(problem.n)
    }  # fmt: skip
    after = {task: tuple(parents) for task, parents in enumerate(workflow.graph.parent_rows()) if parents}
    return Snapshot(
        t=0.0, deadline_t=problem.deadline / US, tasks=tasks, machines=(), offers=problem.offers, after=after,
        total=problem.n, is_workflow=True,
    )  # fmt: skip


def seats_of(problem: Problem, made: Plan, offers: Sequence[Offer], ids: Sequence[int], t: float) -> list[Seat]:
    """The machines of a plan with their queues; `ids`: the tasks by their number in the problem."""
    seats = []
    for place, lease in enumerate(made.leases):
        mine = sorted((made.start[k], k) for k in range(problem.n) if made.machine[k] == place)
        # A little later than planned: the first task of a later machine often ends exactly when the parent of its
        # second does, and a core that is free before takes what was planned for the end.
        at_t = t + lease.start / US + (LATER_BY_S if lease.start else 0.0)
        offer = offers[lease.offer]
        seats.append(Seat(f"new-{place}", offer, at_t, cores_free(offer, at_t), [ids[k] for _, k in mine], True))
    return seats
