"""Jobs and hosts as people change them: submitted, sealed, changed, cancelled, retried; blocked, drained. Pure."""

from __future__ import annotations

from typing import Any

from windfall.core.decisions import JobSettled, JobTaken, Nothing, TasksChosen, TasksTaken
from windfall.core.events import JobCancelled, JobChanged, JobRetried, JobSealed, JobSubmitted, TasksAdded
from windfall.core.jobs import stops
from windfall.core.renting import plans
from windfall.core.state.jobs.bags import FINAL
from windfall.core.state.jobs.columns import CANCELLED, FAILED
from windfall.core.state.state import State


def nothing(state: State, event: Any, policies: Any) -> Nothing:
    """Decides nothing: the event holds everything that `apply` needs."""
    return Nothing()


def on_job_submitted(state: State, event: JobSubmitted, policies: Any) -> JobTaken:
    known = state.bags.by_key.get(event.rules.key) if event.rules.key else None
    return JobTaken(state.bags.next) if known is None else JobTaken(known, known=True)


def on_tasks_added(state: State, event: TasksAdded, policies: Any) -> TasksTaken:
    return TasksTaken(state.bags[event.job].total)


def on_job_sealed(state: State, event: JobSealed, policies: Any) -> JobSettled:
    bag = state.bags[event.job]
    return plans.settled(state, bag, bag.rules, sealed=True)


def on_job_changed(state: State, event: JobChanged, policies: Any) -> JobSettled:
    bag = state.bags[event.job]
    settled = plans.settled(state, bag, event.rules, bag.sealed)
    settled.stopped = stops.with_failures(bag, event.rules, 0)
    return settled


def on_job_cancelled(state: State, event: JobCancelled, policies: Any) -> TasksChosen:
    bag = state.bags[event.job]
    if event.tasks is None:
        return TasksChosen([])
    tasks = list(dict.fromkeys(event.tasks))
    open_ = [task for task in tasks if 0 <= task < bag.total and bag.columns.state[task] not in FINAL]
    if bag.shape is not None:
        # Tasks whose parent will never be done would wait for ever.
        below = (task for task in bag.shape.descendants(open_) if task < bag.total)
        open_ += [task for task in below if bag.columns.state[task] not in FINAL]
    return TasksChosen(open_)


def on_job_retried(state: State, event: JobRetried, policies: Any) -> TasksChosen:
    bag = state.bags[event.job]
    wanted = (FAILED, CANCELLED) if event.cancelled else (FAILED,)
    # A task that is named twice is given one new attempt.
    tasks = range(bag.total) if event.tasks is None else dict.fromkeys(event.tasks)
    chosen = TasksChosen([task for task in tasks if 0 <= task < bag.total and bag.columns.state[task] in wanted])
    complete_retry(state, event, chosen)
    return chosen


def complete_retry(state: State, event: JobRetried, chosen: TasksChosen) -> None:
    """A job that was stopped goes on, unless too many of its failed tasks are left out."""
    bag = state.bags[event.job]
    if chosen.tasks:
        failed = sum(bag.columns.state[task] == FAILED for task in chosen.tasks)
        chosen.stopped = stops.with_failures(bag, bag.rules, -failed, stopped="")
