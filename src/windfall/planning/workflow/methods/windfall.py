"""Windfall's own planner of workflows: many constructed plans, then a search with exact billing from the best. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np
from msgspec import structs

from windfall.planning.workflow.methods.assign import cheapest_offers
from windfall.planning.workflow.methods.fleet import (
    Fleet,
    Option,
    cheapest_option,
    fastest_offers,
    finish_with,
    place_all,
    stretched,
)
from windfall.planning.workflow.methods.parts import MIN_PART_TASKS, planned_by_parts, split
from windfall.planning.workflow.methods.rivals import gain, greedy, ic_pcp, ic_pcp_within, prolis
from windfall.planning.workflow.methods.scs import scs
from windfall.planning.workflow.methods.search import MAX_TASKS_ANNEALED
from windfall.planning.workflow.methods.searches import FEW_TASKS, looks_of_a_search, search_from
from windfall.planning.workflow.methods.timeline import to_plan
from windfall.planning.workflow.model import Effort, Plan, Problem, earliest_finish

LOOKS = 1_200_000  # machines tried in the search; a few seconds
MIN_LOOKS, LOOKS_PER_TASK = 200_000, 30_000  # a small workflow needs fewer
SEARCHES_OF_FEW = 4  # searches for a very small workflow: nothing cheaper was found by more
CONSTRUCTION_EFFORT = 60_000  # tasks placed while constructing our own plans
MIN_CONSTRUCTED_PLANS = 3  # of our own, at any size
MAX_TASKS_ALL_PLANNERS = 10_000  # above this only the planners whose plans are the best starts at that size
STEPS_PER_TASK = 1_000  # of IC-PCP in a very large workflow: about half a minute for 50,000 tasks
LOOKS_PER_TASK_OF_A_PART = 50  # in the search for a part of a large workflow
MOST_PARTS, PARTS_LOOKS = 8, 2.0  # parts of a small workflow, and the effort for all of them over that for the whole


def windfall(problem: Problem, rng: np.random.Generator, looks: int = LOOKS) -> Plan:
    """The plan of least expected cost found that keeps the deadline; if none does, the one that ends first.

    A workflow of independent parts is also planned part by part, and the search for the whole begins with the cheaper
    plan.
    """
    is_large = problem.n > MAX_TASKS_ANNEALED
    parts = split(problem, MIN_PART_TASKS if is_large else -(-problem.n // MOST_PARTS))
    more: list[Plan] = []
    spent: list[Effort | None] = []
    if len(parts) > 1:

        def plan_part(part: Problem, share: float) -> Plan:
            if is_large:
                part_looks = max(int(share * looks), LOOKS_PER_TASK_OF_A_PART * part.n)
                planned = planned_whole(part, rng, part_looks, MIN_CONSTRUCTED_PLANS * part.n)
            else:
                part_looks = int(PARTS_LOOKS * looks) // len(parts)
                planned = planned_whole(part, rng, part_looks, CONSTRUCTION_EFFORT // len(parts))
            spent.append(planned.effort)
            return planned

        made = planned_by_parts(problem, parts, plan_part)
        more = [] if made is None else [made]
    whole = planned_whole(problem, rng, looks, max(CONSTRUCTION_EFFORT, MIN_CONSTRUCTED_PLANS * problem.n), more)
    return structs.replace(whole, effort=_with_parts(whole.effort, spent))


def _with_parts(whole: Effort | None, parts: Iterable[Effort | None]) -> Effort | None:
    """The effort with that for the parts, which were planned before."""
    known = [part for part in parts if part is not None]
    if whole is None or not known:
        return whole
    before = sum(part.tried for part in known)
    return Effort(
        tried=before + whole.tried,
        allowed=whole.allowed + sum(part.allowed for part in known),
        searches=whole.searches + sum(part.searches for part in known),
        better=tuple((before + tried, usd) for tried, usd in whole.better),
    )


def planned_whole(
    problem: Problem, rng: np.random.Generator, looks: int, effort: int, more: Sequence[Plan] = ()
) -> Plan:  # fmt: skip
    """Many constructed plans, those in `more`, and a search from the best.

    `effort`: tasks placed while constructing our own plans.
    """
    plans: list[Plan] = [*more]
    if problem.n <= MAX_TASKS_ALL_PLANNERS:
        plans += _constructed(problem, effort)
    else:
        # Each plan of a very large workflow takes seconds. Our own constructions are hardly ever the best start there.
        plans.append(prolis(problem))
        if not more and (by_paths := ic_pcp_within(problem, STEPS_PER_TASK * problem.n)) is not None:
            plans.append(by_paths)
        if not any(plan.kept(problem) for plan in plans):
            plans += _constructed(problem, effort)
    kept = sorted((plan for plan in plans if plan.kept(problem)), key=lambda plan: plan.expected_usd(problem))
    if not kept:
        late = min(plans, key=lambda plan: (plan.makespan, plan.cost_usd(problem)))
        return structs.replace(late, planner="windfall")
    return _improved(problem, kept, rng, looks)


def _improved(problem: Problem, kept: list[Plan], rng: np.random.Generator, looks: int) -> Plan:
    """The best that searches from these plans find.

    Plans whose machines follow each other in the places of a full pool are not searched from: tasks that move would
    make them overlap.
    """
    starts = [plan for plan in kept if plan.is_allowed_at_once(problem)]
    if not starts:
        return structs.replace(kept[0], planner="windfall")
    looks = looks_of(problem.n, looks)
    found, effort = search_from(problem, starts, rng, looks)
    best = min((found, kept[0]), key=lambda plan: plan.expected_usd(problem))
    return structs.replace(best, planner="windfall", effort=effort)


def looks_of(tasks: int, looks: int) -> int:
    """How many of `looks` machines the search for a workflow of so few tasks needs."""
    if tasks <= FEW_TASKS:
        return min(looks, SEARCHES_OF_FEW * looks_of_a_search(tasks))
    return min(looks, MIN_LOOKS + LOOKS_PER_TASK * tasks)


def _constructed(problem: Problem, effort: int) -> Iterator[Plan]:
    """Plans of the literature, and our own for each split of the deadline and subset of the offers."""
    yield _soonest(problem)
    is_large = problem.n > MAX_TASKS_ALL_PLANNERS
    for planner in () if is_large else (greedy, prolis, gain, scs, ic_pcp):
        yield planner(problem)
    if problem.deadline < earliest_finish(problem):
        return
    left = effort
    for subset in _subsets(problem)[: 1 if is_large else None]:
        for due in _deadlines(problem)[-1 if is_large else 0 :]:
            left -= problem.n
            if left < 0:
                return

            def choose(fleet: Fleet, task: int, ready: int, due: int, subset: frozenset[int] = subset) -> Option | None:
                return _cheapest_within(fleet, task, ready, due, subset)

            yield to_plan(problem, place_all(problem, due, due, choose).machines, "windfall")


def _soonest(problem: Problem) -> Plan:
    """Every task where it ends first: the plan that meets a deadline if list scheduling can."""
    tail = problem.workflow.graph.tail([min(row) for row in zip(*problem.duration, strict=True)])
    fleet = place_all(problem, [0] * problem.n, [-float(length) for length in tail], lambda *_: None)
    return to_plan(problem, fleet.machines, "windfall")


def _subsets(problem: Problem) -> list[frozenset[int]]:
    """All offers, each alone, each pair: a few machines of one type often beat a mixture by whole cycles."""
    every = range(len(problem.offers))
    return [frozenset(every), *(frozenset(pair) for size in (1, 2) for pair in combinations(every, size))]


def _deadlines(problem: Problem) -> list[list[int]]:
    """Three splits of the deadline over the tasks: by fastest times, by cheapest times, and as late as possible."""
    graph = problem.workflow.graph
    fastest = [min(row) for row in zip(*problem.duration, strict=True)]
    tail = graph.tail(fastest)
    latest = [problem.deadline - tail[task] + fastest[task] for task in range(problem.n)]
    by_fastest = stretched(problem, finish_with(problem, fastest_offers(problem)))
    by_cheapest = stretched(problem, finish_with(problem, cheapest_offers(problem)))
    return [by_fastest, [min(a, b) for a, b in zip(by_cheapest, latest, strict=True)], latest]


def _cheapest_within(fleet: Fleet, task: int, ready: int, due: int, subset: frozenset[int]) -> Option | None:
    """The least added cost among these offers; among all offers if these cannot keep the task's deadline."""
    fitting = (option for option in fleet.options(task, ready, due) if option.offer in subset)
    best = min(fitting, key=lambda option: (option.cost, option.end), default=None)
    return best or cheapest_option(fleet, task, ready, due)
