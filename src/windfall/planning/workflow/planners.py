"""Every workflow planner by its name, behind one interface: a problem in, a plan out. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import structs

from windfall.planning.workflow.methods.rivals import gain, greedy, ic_pcp, prolis
from windfall.planning.workflow.methods.scs import scs
from windfall.planning.workflow.methods.windfall import LOOKS, windfall
from windfall.planning.workflow.model import US, Effort, Plan, Problem
from windfall.planning.workflow.risk import chance_of_any, without_failures

Planner = Callable[[Problem], Plan]

RIVALS: dict[str, Planner] = {"scs": scs, "greedy": greedy, "gain": gain, "ic-pcp": ic_pcp, "prolis": prolis}
NAMES = ("windfall", *RIVALS)


def plan(problem: Problem, planner: str, rng: np.random.Generator, looks: int = LOOKS) -> Plan:
    """The plan of one planner; only `windfall` uses the generator and `looks` (see `search`).

    If the deadline leaves no time to run again what may fail, on-demand machines are planned without that time (spot
    never is), and the published risk says so.
    """

    def made(problem: Problem) -> Plan:
        return windfall(problem, rng, looks) if planner == "windfall" else RIVALS[planner](problem)

    careful = made(problem)
    if not problem.exposure.matters or careful.kept(problem):
        return careful
    bold = made(structs.replace(problem, exposure=without_failures(problem.exposure, problem.offers)))
    return min((careful, bold), key=lambda plan: (not plan.met(problem), plan.expected_usd(problem)))


def publish(problem: Problem, plan: Plan) -> dict[str, Any]:
    """The plan in its public form: seconds and dollars, machines and tasks by name."""
    names = problem.workflow.ids
    machines = [
        {
            "id": f"m{number}",
            "offer": problem.offers[lease.offer].name,
            "start_s": lease.start / US,
            "end_s": lease.end / US,
            "cost_usd": problem.cost(lease.offer, lease.end - lease.start),
        }
        for number, lease in enumerate(plan.leases, start=1)
    ]
    tasks = [
        {"id": names[i], "machine": f"m{plan.machine[i] + 1}", "start_s": plan.start[i] / US, "end_s": plan.end[i] / US}
        for i in range(problem.n)
    ]
    document: dict[str, Any] = {
        "cost_usd": plan.cost_usd(problem),
        "makespan_s": plan.makespan / US,
        "met": plan.met(problem),
        "machines": machines,
        "tasks": tasks,
    }
    if plan.effort is not None:
        document["search"] = _search(plan.effort)
    return document | {"risk": _risk(problem, plan)} if problem.exposure.matters else document


def _search(effort: Effort) -> dict[str, Any]:
    """What the search took, and the expected dollars of the first plan and of each cheaper one, by machines tried."""
    better = [{"tried": tried, "expected_usd": usd} for tried, usd in effort.better]
    return {"tried": effort.tried, "allowed": effort.allowed, "searches": effort.searches, "better": better}


def _risk(problem: Problem, plan: Plan) -> dict[str, float]:
    """Expected cost with losses, expected number of losses, and the chance of one too late to run again in time."""
    exposure = problem.exposure
    chance = [float(exposure.chance[plan.leases[m].offer, t]) for t, m in enumerate(plan.machine)]
    too_late = [chance[t] for t, end in enumerate(plan.end) if end > exposure.rerun_by[t]]
    return {
        "expected_usd": plan.expected_usd(problem),
        "losses_expected": math.fsum(chance),
        "chance_late": chance_of_any(too_late),
    }
