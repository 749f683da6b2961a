"""Windfall's own planner of workflows: many constructed plans, then a search with exact billing from the best. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from msgspec import structs

from windfall.planning.workflow.bounds import work_bound_usd
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
from windfall.planning.workflow.methods.search import MAX_TASKS_ANNEALED, Search
from windfall.planning.workflow.methods.timeline import to_plan
from windfall.planning.workflow.model import Plan, Problem, earliest_finish

LOOKS = 1_200_000  # machines tried in the search; a few seconds
LOOKS_OF_A_SEARCH = 300_000  # more than this are spent on several searches
MIN_LOOKS, LOOKS_PER_TASK = 200_000, 30_000  # a small workflow needs fewer
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
    if len(parts) > 1:

        def plan_part(part: Problem, share: float) -> Plan:
            if not is_large:
                return _planned(part, rng, int(PARTS_LOOKS * looks) // len(parts), CONSTRUCTION_EFFORT // len(parts))
            part_looks = max(int(share * looks), LOOKS_PER_TASK_OF_A_PART * part.n)
            return _planned(part, rng, part_looks, MIN_CONSTRUCTED_PLANS * part.n)

        made = planned_by_parts(problem, parts, plan_part)
        more = [] if made is None else [made]
    return _planned(problem, rng, looks, max(CONSTRUCTION_EFFORT, MIN_CONSTRUCTED_PLANS * problem.n), more)


def _planned(
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
    looks = min(looks, MIN_LOOKS + LOOKS_PER_TASK * problem.n)
    # Several searches: where whole cycles are at stake, one long search ends in one valley as often as a short one.
    times = max(1, looks // LOOKS_OF_A_SEARCH) if problem.n <= MAX_TASKS_ANNEALED else 1
    found = [_searched(problem, starts, rng, looks // times) for _ in range(times)]
    best = min((*found, kept[0]), key=lambda plan: plan.expected_usd(problem))
    return structs.replace(best, planner="windfall")


def _searched(problem: Problem, starts: list[Plan], rng: np.random.Generator, looks: int) -> Plan:
    """A short search from each of the best starts, then a long one from the best of them."""
    floor = work_bound_usd(problem)
    searches = [Search(problem, plan, rng) for plan in _distinct(problem, starts, 3)]
    for search in searches:
        search.run(looks // 10, floor)
    best = min(searches, key=lambda search: search.best_value)
    last = Search(problem, best.best, rng)
    last.run(looks - len(searches) * (looks // 10), floor)
    return min((last.best, best.best), key=lambda plan: plan.expected_usd(problem))


def _distinct(problem: Problem, plans: list[Plan], count: int) -> list[Plan]:
    """The first few that differ in cost."""
    chosen: list[Plan] = []
    for plan in plans:
        if all(abs(plan.cost_usd(problem) - other.cost_usd(problem)) > 1e-9 for other in chosen):
            chosen.append(plan)
        if len(chosen) == count:
            break
    return chosen


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
