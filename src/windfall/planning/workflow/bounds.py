"""A lower bound of the cost of any plan, from work and boot alone, for workflows of any size. Pure.

The exact bound for small workflows is a CP-SAT model in a process of its own: `windfall.lab.workflows.cpsat`.
"""

from __future__ import annotations

from windfall.planning.workflow.methods.assign import share_cost
from windfall.planning.workflow.model import Problem


def work_bound_usd(problem: Problem) -> float:
    """Dollars: every task on its cheapest share of a full machine and one boot, but at least one whole lease.

    A lease lasts at least its boot plus the work it carries spread over all its cores, and is paid for that long.
    """
    offers = range(len(problem.offers))
    work = sum(min(share_cost(problem, task, o) for o in offers) for task in range(problem.n))
    boot = min(problem.rate(o) * problem.lag[o] for o in offers)
    shortest = [min(problem.duration[o][task] for task in range(problem.n)) for o in offers]
    one_lease = min(problem.cost(o, problem.lag[o] + shortest[o]) for o in offers)
    return max(work + boot, one_lease)
