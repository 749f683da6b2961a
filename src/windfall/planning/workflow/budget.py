"""The earliest finish within a budget: bisection over deadlines. Pure."""

from __future__ import annotations

from collections.abc import Callable

from windfall.planning.workflow.model import NEVER, US, Plan, Problem, earliest_finish

MAX_DEADLINES_TRIED = 8  # each halves the interval, or better
CLOSE_ENOUGH_RATIO = 1.03  # of the ends of the interval


def soonest_within(
    budget_usd: float, make: Callable[[float], Problem], plan: Callable[[Problem], Plan]
) -> tuple[Problem, Plan]:
    """The plan with the earliest finish found whose expected cost is within the budget.

    If even the longest useful deadline costs more, the cheapest plan found.
    """
    first = make(1.0)
    low_s = earliest_finish(first) / US
    high_s = low_s + _one_by_one_s(first)
    best = _planned(make(high_s), plan)
    if best[1].expected_usd(best[0]) > budget_usd:
        return best
    high_s = best[1].makespan / US
    for _ in range(MAX_DEADLINES_TRIED):
        if high_s <= low_s * CLOSE_ENOUGH_RATIO:
            break
        middle_s = (low_s + high_s) / 2
        tried = _planned(make(middle_s), plan)
        if tried[1].met(tried[0]) and tried[1].expected_usd(tried[0]) <= budget_usd:
            best, high_s = tried, tried[1].makespan / US
        else:
            low_s = middle_s
    return best


def _planned(problem: Problem, plan: Callable[[Problem], Plan]) -> tuple[Problem, Plan]:
    return problem, plan(problem)


def _one_by_one_s(problem: Problem) -> float:
    """Seconds for all tasks one after the other on their slowest machines, twice: more time gains nothing."""
    usable = [[row[t] for row in problem.duration if row[t] < NEVER] for t in range(problem.n)]
    return 2 * sum(max(times) for times in usable) / US + max(problem.lag) / US
