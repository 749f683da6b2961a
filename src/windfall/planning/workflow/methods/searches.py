"""Searches from several plans, and what they took. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windfall.planning.workflow.bounds import work_bound_usd
from windfall.planning.workflow.methods.search import MAX_TASKS_ANNEALED, Search
from windfall.planning.workflow.model import Effort, Plan, Problem

MOST_STARTS = 3
LOOKS_OF_A_SEARCH, LOOKS_OF_A_SEARCH_PER_TASK = 110_000, 800  # more than the larger are spent on several searches
FEW_TASKS, LOOKS_OF_FEW = 7, 1_000  # a search for up to 7 tasks tries 1,000 machines times the square of their number
SHORT_SHARE = 0.1  # of the effort of a search, for the short one from each start


def search_from(problem: Problem, starts: Sequence[Plan], rng: np.random.Generator, looks: int) -> tuple[Plan, Effort]:
    """The cheapest plan found from these, cheapest first, and what that took.

    `looks`: how many machines may be tried in all.
    """
    searches = _Searches(problem, rng, starts[0])
    # Several: where whole cycles are at stake, one long search ends in one valley as often as a short one.
    times = max(1, looks // looks_of_a_search(problem.n)) if problem.n <= MAX_TASKS_ANNEALED else 1
    distinct = _distinct(problem, starts)
    short = int(SHORT_SHARE * (looks // times))
    for _ in range(times):
        found = [searches.run(plan, short) for plan in distinct]
        best = min(found, key=lambda search: search.best_value).best
        searches.run(best, looks // times - len(found) * short)
    effort = Effort(tried=searches.tried, allowed=looks, searches=searches.count, better=tuple(searches.better))
    return searches.best, effort


def looks_of_a_search(tasks: int) -> int:
    """Machines tried in one search for this many tasks; more are spent on another one."""
    if tasks <= FEW_TASKS:
        return LOOKS_OF_FEW * tasks**2
    return max(LOOKS_OF_A_SEARCH, LOOKS_OF_A_SEARCH_PER_TASK * tasks)


class _Searches:
    """The cheapest plan of all searches so far, and what they took."""

    def __init__(self, problem: Problem, rng: np.random.Generator, first: Plan) -> None:
        self.problem, self.rng, self.floor = problem, rng, work_bound_usd(problem)
        self.best, self.count, self.tried = first, 0, 0
        self.better = [(0, first.expected_usd(problem))]

    def run(self, plan: Plan, looks: int) -> Search:
        """Search from this plan, and keep what is found if it is the cheapest so far."""
        search = Search(self.problem, plan, self.rng)
        search.run(looks, self.floor)
        self.count += 1
        self.tried += search.looks
        usd = search.best.expected_usd(self.problem)
        if usd < self.better[-1][1] - 1e-12:
            self.best = search.best
            self.better.append((self.tried, usd))
        return search


def _distinct(problem: Problem, plans: Sequence[Plan]) -> list[Plan]:
    """The first few that differ in cost."""
    chosen: list[Plan] = []
    for plan in plans:
        if all(abs(plan.cost_usd(problem) - other.cost_usd(problem)) > 1e-9 for other in chosen):
            chosen.append(plan)
        if len(chosen) == MOST_STARTS:
            break
    return chosen
