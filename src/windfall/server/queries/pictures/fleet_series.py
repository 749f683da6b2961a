"""What the pictures of a shared fleet are drawn from: cores rented and used, jobs and deadlines. Reads only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from windfall.core.renting.shares import uses_of
from windfall.core.state.renting.fleet import MachineState
from windfall.core.state.state import State
from windfall.server.queries.pictures.gantt import MOST_ROWS, Point, summed, thinned

Json = dict[str, Any]


def fleet_series(state: State, fleet: int, machines: Sequence[MachineState], since_t: float, end_t: float) -> Json:
    """Seconds count from `since_t`. Jobs are those of this time, the newest if there are many."""
    rented: list[Point] = []
    used: list[Point] = []
    for machine in machines:
        ended_t = end_t if machine.ended_t is None else machine.ended_t
        cores = float(machine.offer.cores)
        rented += [(machine.requested_t - since_t, cores), (ended_t - since_t, -cores)]
        for use in uses_of(state, machine, ended_t):
            begin_t, until_t = (_moment(machine, held_s) for held_s in (use.from_s, use.to_s))
            used += [(begin_t - since_t, use.cores), (min(until_t, ended_t) - since_t, -use.cores)]
    whole = _area(rented)
    jobs = _jobs(state, fleet, since_t, end_t)
    return {
        "rented": summed(sorted(rented)),
        "used": thinned(summed(sorted(used))),
        "used_share": min(1.0, _area(used) / whole) if whole > 0 else 0.0,
        "jobs": jobs[-MOST_ROWS:],
        "jobs_total": len(jobs),
    }


def _area(steps: Sequence[Point]) -> float:
    """Core-seconds below steps that begin and end at zero."""
    return -math.fsum(t_s * change for t_s, change in steps)


def _moment(machine: MachineState, held_s: float) -> float:
    """When the meter of a machine showed this many seconds: it stands still while the machine is hibernated."""
    began_t = machine.requested_t if machine.offer.bills_boot else machine.ready_t or machine.requested_t
    t = began_t + held_s
    for from_t, to_t in machine.sleeps:
        if from_t < t and to_t is not None:
            t += to_t - from_t
    return t


def _jobs(state: State, fleet: int, since_t: float, end_t: float) -> list[Json]:
    found = []
    for job, serving in state.fleet.book.of_job.items():
        bag = state.bags.get(job)
        if serving != fleet or bag is None or bag.rules.deadline_s is None:
            continue
        done_t = end_t if bag.finished_t is None else bag.finished_t
        if done_t < since_t:
            continue
        due_t = bag.submitted_t + bag.rules.deadline_s
        found.append(
            {
                "job": job,
                "name": bag.rules.name,
                "start_s": bag.submitted_t - since_t,
                "end_s": done_t - since_t,
                "deadline_s": due_t - since_t,
                "ended": bag.finished_t is not None,
                "late": done_t > due_t,
            }
        )
    return found
