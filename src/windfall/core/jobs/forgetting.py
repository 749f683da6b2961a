"""Whether a job that has ended may be forgotten. Pure: looks and chooses."""

from __future__ import annotations

from typing import Any

from windfall.core.decisions import JobLetGo
from windfall.core.events import JobForgotten
from windfall.core.state.state import State


def on_job_forgotten(state: State, event: JobForgotten, policies: Any) -> JobLetGo:
    return JobLetGo(why_kept(state, event.job))


def why_kept(state: State, job: int) -> str:
    """What still needs a job; empty if nothing does."""
    bag = state.bags.get(job)
    if bag is None:
        return f"there is no job {job}"
    if bag.finished_t is None:
        return f"job {job} has not ended: it is {bag.state}"
    fleet = state.fleet
    if job in fleet.by_fleet or job in fleet.plans or job in fleet.book.of_job:
        return f"job {job} is planned with rented machines: its bill would be lost"
    like = next((other.number for other in state.bags.values() if other.rules.like == job), None)
    if like is not None:
        return f"job {like} has the tasks of job {job}: it is of the same class"
    return ""
