"""A lower bound of the cost of a stream of jobs: no planner can pay less. Pure.

The bound pays for the seconds in which tasks run, and for nothing else: no idle machine, no boot, no unused part of a
billing cycle. Two rules remain: every task runs, and no chain of tasks takes longer than the deadline. For each kind of
job this is a linear programme, in which a task may be divided among types of machines.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from windfall.planning.workflow.methods.assign import share_cost
from windfall.planning.workflow.model import NEVER, US, Problem


def least_usd(problem: Problem) -> float:
    """Dollars that the work of one job costs at least by its deadline; its fastest types if it cannot be in time."""
    n, offers = problem.n, range(len(problem.offers))
    pairs = [(task, o) for task in range(n) for o in offers if problem.duration[o][task] < NEVER]
    seconds = np.array([problem.duration[o][task] / US for task, o in pairs])
    dollars = np.array([share_cost(problem, task, o) for task, o in pairs])
    deadline_s = max(problem.deadline / US, _fastest_s(problem))
    # Columns: the part of each task on each type, then the end of each task. Rows: own length, then each edge.
    of_task = np.array([task for task, _ in pairs])
    columns = np.arange(len(pairs))
    ends = len(pairs)
    rows, cols, values = [of_task, np.arange(n)], [columns, ends + np.arange(n)], [seconds, -np.ones(n)]
    edges = [(task, child) for task in range(n) for child in problem.workflow.graph.children_of(task)]
    for at, (task, child) in enumerate(edges):
        mine = columns[of_task == child]
        rows.append(np.full(len(mine) + 2, n + at))
        cols.append(np.concatenate([mine, [ends + task, ends + child]]))
        values.append(np.concatenate([seconds[mine], [1.0, -1.0]]))
    size = (n + len(edges), ends + n)
    precedence = coo_matrix((np.concatenate(values), (np.concatenate(rows), np.concatenate(cols))), shape=size)
    whole = coo_matrix((np.ones(len(pairs)), (of_task, columns)), shape=(n, ends + n))
    found = linprog(
        np.concatenate([dollars, np.zeros(n)]),
        A_ub=precedence.tocsr(), b_ub=np.zeros(size[0]), A_eq=whole.tocsr(), b_eq=np.ones(n),
        bounds=[(0, 1)] * ends + [(0, deadline_s)] * n, method="highs",
    )  # fmt: skip
    assert found.status == 0, found.message
    return float(found.fun)


def _fastest_s(problem: Problem) -> float:
    fastest = [min(row[task] for row in problem.duration) for task in range(problem.n)]
    return max(problem.workflow.graph.earliest_finish(fastest), default=0) / US
