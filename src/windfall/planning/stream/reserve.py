"""Types and deadlines of Greedy and GAIN for one job of a stream, as SCS's paper extends them (algorithm 4). Pure.

Where their tasks run is decided in `planning.fleet.rivals`.
"""

from __future__ import annotations

from windfall.planning.workflow.methods.assign import Assignment, upgrade
from windfall.planning.workflow.methods.fleet import fastest_offers, finish_with, stretched
from windfall.planning.workflow.model import Problem


def assign_gain(problem: Problem) -> Assignment:
    """The cheapest types, upgraded by gain per dollar until the job fits its deadline."""
    offer_of = upgrade(problem)
    return Assignment(offer_of, stretched(problem, finish_with(problem, offer_of)), [-1] * problem.n)


def assign_greedy(problem: Problem) -> Assignment:
    """Deadlines in proportion to the fastest run times; the type is chosen when the task is due to start."""
    offer_of = fastest_offers(problem)
    return Assignment(offer_of, stretched(problem, finish_with(problem, offer_of)), [-1] * problem.n)
