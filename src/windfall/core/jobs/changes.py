"""Jobs and hosts as people change them: submitted, sealed, changed, cancelled, retried; blocked, drained. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from windfall.core.events import (
    HostBlocked,
    HostDrained,
    HostUnblocked,
    JobCancelled,
    JobChanged,
    JobRetried,
    JobSealed,
    JobShaped,
    JobSubmitted,
    JobTaken,
    Nothing,
    ServerStarted,
    TasksAdded,
    TasksChosen,
    TasksTaken,
)
from windfall.core.jobs import attempts
from windfall.core.renting import plans
from windfall.core.sites import site
from windfall.core.state import dag
from windfall.core.state.bags import FINAL, Bag, Terms
from windfall.core.state.columns import CANCELLED, FAILED, WAITING
from windfall.core.state.hosts import LIVE
from windfall.core.state.state import State


def nothing(state: State, event: Any, policies: Any) -> Nothing:
    """The event says it all."""
    return Nothing()


def apply_server_started(state: State, event: ServerStarted, decided: Nothing) -> None:
    """Nobody could reach a server that was not there: silence until now does not count."""
    state.settings = event.settings
    for number in [*state.hosts.unknown]:
        host = state.hosts[number]
        host.state = LIVE
        state.hosts.live_slots += host.slots
    state.hosts.live = OrderedDict.fromkeys(sorted([*state.hosts.live, *state.hosts.unknown]))
    state.hosts.unknown.clear()
    for number in state.hosts.live:
        state.hosts[number].times.seen_t = event.t
    site.welcome(state, event.t)


def on_job_submitted(state: State, event: JobSubmitted, policies: Any) -> JobTaken:
    known = state.bags.by_key.get(event.rules.key) if event.rules.key else None
    return JobTaken(state.bags.next) if known is None else JobTaken(known, known=True)


def apply_job_submitted(state: State, event: JobSubmitted, decided: JobTaken) -> None:
    if decided.known:
        return
    state.bags.add(Bag.new(decided.job, event.rules, event.classes, event.t))


def apply_job_shaped(state: State, event: JobShaped, decided: Nothing) -> None:
    shape = state.bags.shapes.get(event.shape)
    if shape is None:
        shape = state.bags.shapes[event.shape] = dag.unpack(event.offsets, event.children)
    state.bags[event.job].take_shape(shape)


def on_tasks_added(state: State, event: TasksAdded, policies: Any) -> TasksTaken:
    return TasksTaken(state.bags[event.job].total)


def apply_tasks_added(state: State, event: TasksAdded, decided: TasksTaken) -> None:
    bag = state.bags[event.job]
    bag.grow(event.count, event.klass)
    if bag.stopped:
        bag.stop(bag.stopped)
    attempts.settle(state, bag, event.t)


def apply_job_sealed(state: State, event: JobSealed, decided: Nothing) -> None:
    bag = state.bags[event.job]
    bag.sealed = True
    attempts.settle(state, bag, event.t)
    plans.follow(state, bag)


def apply_job_changed(state: State, event: JobChanged, decided: Nothing) -> None:
    bag = state.bags[event.job]
    bag.terms = Terms(event.rules, bag.classes if event.classes is None else event.classes, bag.tail)
    attempts.settle(state, bag, event.t)
    plans.follow(state, bag)


def on_job_cancelled(state: State, event: JobCancelled, policies: Any) -> TasksChosen:
    bag = state.bags[event.job]
    if event.tasks is None:
        return TasksChosen([])
    tasks = list(dict.fromkeys(event.tasks))
    open_ = [task for task in tasks if 0 <= task < bag.total and bag.columns.state[task] not in FINAL]
    if bag.shape is not None:
        # What waits for a task that will never be done would wait for ever.
        below = (task for task in dag.descendants(bag.shape, open_) if task < bag.total)
        open_ += [task for task in below if bag.columns.state[task] not in FINAL]
    return TasksChosen(open_)


def apply_job_cancelled(state: State, event: JobCancelled, decided: TasksChosen) -> None:
    bag = state.bags[event.job]
    if event.tasks is None:
        attempts.stop_job(state, bag, event.reason or "cancelled")
        bag.sealed = True
    for task in decided.tasks:
        if bag.columns.state[task] == WAITING:
            bag.withdraw(task)
        bag.move(task, CANCELLED)
        attempts.cancel_attempts(state, bag, task)
    attempts.settle(state, bag, event.t)


def on_job_retried(state: State, event: JobRetried, policies: Any) -> TasksChosen:
    bag = state.bags[event.job]
    wanted = (FAILED, CANCELLED) if event.cancelled else (FAILED,)
    # A task that is named twice is given one new attempt.
    tasks = range(bag.total) if event.tasks is None else dict.fromkeys(event.tasks)
    return TasksChosen([task for task in tasks if 0 <= task < bag.total and bag.columns.state[task] in wanted])


def apply_job_retried(state: State, event: JobRetried, decided: TasksChosen) -> None:
    """The same tasks under the same ids, with fresh budgets; attempts go on being counted."""
    bag = state.bags[event.job]
    if decided.tasks:
        bag.stopped = ""
    for task in decided.tasks:
        bag.columns.failures[task] = bag.columns.losses[task] = 0
        if bag.columns.state[task] == FAILED:
            cause = bag.columns.cause[task]
            bag.tally.causes[cause] -= 1
            if not bag.tally.causes[cause]:
                del bag.tally.causes[cause]
        attempts.requeue(state, bag, task)
    attempts.settle(state, bag, event.t)


def apply_host_blocked(state: State, event: HostBlocked, decided: Nothing) -> None:
    host = state.host(event.host)
    if host is not None:
        host.access.blocked, host.access.blocked_until = event.reason or "blocked", event.until


def apply_host_unblocked(state: State, event: HostUnblocked, decided: Nothing) -> None:
    host = state.host(event.host)
    if host is not None:
        host.access.blocked, host.access.blocked_until, host.access.draining = "", None, False
        host.record.pardon()


def apply_host_drained(state: State, event: HostDrained, decided: Nothing) -> None:
    host = state.host(event.host)
    if host is not None:
        host.access.draining = True
