"""Whether a job that has ended may be forgotten. Pure: looks and chooses."""

from __future__ import annotations

from typing import Any

from windfall.core.decisions import JobLetGo
from windfall.core.events import JobForgotten
from windfall.core.renting.shares import charged_to_job_microusd
from windfall.core.state.state import State

BILL_SETTLES_S = 3600.0
"""Prices of the last cycles may be reported late, and a plan that was begun before may name a job's tasks."""


def on_job_forgotten(state: State, event: JobForgotten, policies: Any) -> JobLetGo:
    refused = why_kept(state, event.job, event.t)
    if refused or event.job not in state.fleet.book.of_job:
        return JobLetGo(refused)
    return JobLetGo(refused, charged_to_job_microusd(state, event.job, event.t))


def why_kept(state: State, job: int, t: float) -> str:
    """What still needs a job at t; empty if nothing does. The bill of its own machines stays in the ledger."""
    bag = state.bags.get(job)
    if bag is None:
        return f"there is no job {job}"
    if bag.finished_t is None:
        return f"job {job} has not ended: it is {bag.state}"
    fleet = state.fleet
    if job in fleet.book.of_job and t < bag.finished_t + BILL_SETTLES_S:
        return f"job {job} shares the machines of a fleet: it is kept for an hour after its end"
    for number in fleet.by_fleet.get(job, ()):
        machine = fleet.machines[number]
        if machine.there:
            return f"job {job} has a machine that has not ended: {machine.name}"
        if machine.ended_t is not None and t < machine.ended_t + BILL_SETTLES_S:
            return f"the bill of job {job} is open until an hour after its last machine has ended"
    like = next((other.number for other in state.bags.values() if other.rules.like == job), None)
    if like is not None:
        return f"job {like} has the tasks of job {job}: it is of the same class"
    return ""
