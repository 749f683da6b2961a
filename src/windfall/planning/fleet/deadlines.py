"""Which type of machine each waiting task of a fleet should have, and by when (SCS, section 3.3.1). Pure.

The answer for a job depends on its kind: the tasks that are left, their dependencies, and the time left. Jobs of one
kind share it (SCS's job classes), and it is kept for later plans, because it is a function of these alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from windfall.graph import from_edges
from windfall.planning.fleet.model import Waiting, Work, unlimited
from windfall.planning.offers import GIB, Offer
from windfall.planning.workflow.methods.assign import Assignment
from windfall.planning.workflow.model import NEVER, US, NoOffer, Problem, Workflow, make_problem

STEPS = 48
"""The time left to a job is rounded down to its deadline divided by this."""
Method = Callable[[Problem], Assignment]
TaskKind = tuple[float, str, int, float, tuple[tuple[str, float], ...]]
"""Run time at speed 1, class, cores, memory in GB, resources."""


class Wish(Struct, frozen=True):
    """What a task should have. `latest_t`: the end after which its descendants could not keep their types."""

    offer: int
    begin_t: float
    due_t: float
    latest_t: float
    bundled_with: int = -1
    """The task whose machine it should continue on."""


Row = tuple[int, float, float, float, int]
"""Offer, begin, due and latest end in seconds from now, and the place of the task that it is bundled with."""


def assigned(
    work: Work,
    method: Method,
    waits_s: list[float] | None = None,
    allowed: frozenset[int] | None = None,
    boot_counts: bool = False,
) -> dict[int, Wish]:
    """A wish for every waiting task that fits somewhere.

    `waits_s`: by offer, until a machine of it is free, for jobs that have begun; a new job waits for a boot.
    `boot_counts`: whether that boot counts from the arrival of the job; else from now on, until it begins.
    `allowed`: the offers to use; a job that could not be in time with these may use all.
    """
    every = msgspec.msgpack.encode(unlimited(work.offers))
    some = every if allowed is None else msgspec.msgpack.encode(without_others(work.offers, allowed))
    found: dict[int, Wish] = {}
    for number, tasks in work.by_job.items():
        if work.job(number).is_workflow:
            waits = _waits(work, tasks, number, waits_s, boot_counts)
            wishes = _of_workflow(work, tasks, number, method, some, waits) if some != every else None
            if wishes is None or any(wish.due_t > work.deadline_t(number) for wish in wishes.values()):
                wishes = _of_workflow(work, tasks, number, method, every, waits) or {}
            found |= wishes
        else:
            found |= _of_bag(work, tasks, work.deadline_t(number), allowed)
    return found


def without_others(offers: tuple[Offer, ...], allowed: frozenset[int]) -> tuple[Offer, ...]:
    """The offers without limits, those that are not allowed with a limit of 0."""
    return tuple(
        offer if place in allowed else replace(offer, limit=0) for place, offer in enumerate(unlimited(offers))
    )


def _of_bag(
    work: Work, tasks: list[Waiting], deadline_t: float, allowed: frozenset[int] | None = None
) -> dict[int, Wish]:
    """Every task may begin now and is due at the deadline, on the type that does its work for the least money."""
    chosen: dict[int, int] = {}
    found = {}
    for wait in tasks:
        if wait.kind not in chosen:
            chosen[wait.kind] = for_bag(work, wait.kind, deadline_t, allowed)
        offer = chosen[wait.kind]
        if offer >= 0:
            found[wait.id] = Wish(offer, work.t, deadline_t, deadline_t)
    return found


def for_bag(work: Work, kind: int, deadline_t: float, allowed: frozenset[int] | None = None) -> int:
    """The cheapest offer on which the task is in time; the fastest if none is; -1 if it fits nowhere."""
    rows = [
        (offer.lag_s + run_s > deadline_t - work.t, _cost_usd(work.kinds[kind].cores, offer, run_s), run_s, place)
        for place, (offer, run_s) in enumerate(zip(work.offers, work.run_s[kind], strict=True))
        if run_s < math.inf
    ]
    in_time = [row for row in rows if not row[0]]
    in_time = [row for row in in_time if allowed is None or row[3] in allowed] or in_time
    if in_time:
        return min(in_time, key=lambda row: row[1:])[3]
    return min(rows, key=lambda row: row[2:], default=(False, 0.0, 0.0, -1))[3]


def _cost_usd(cores: int, offer: Offer, run_s: float) -> float:
    """A task's share of a machine, as if it were billed continuously."""
    return run_s / offer.cycle_s * offer.price_usd * cores / offer.cores


def _of_workflow(
    work: Work, tasks: list[Waiting], number: int, method: Method, offers: bytes, waits: tuple[int, ...]
) -> dict[int, Wish] | None:
    """None if a task fits none of these offers. `waits`: as `_waits` has it."""
    tasks = sorted((wait for wait in tasks if min(work.run_s[wait.kind]) < math.inf), key=lambda wait: wait.id)
    job = work.job(number)
    step_s = max(1e-3, min(job.deadline_t - job.submitted_t, 1e9) / STEPS)
    runs = sorted({parent for wait in tasks for parent in wait.parents if parent in work.running_until_t})
    place = {id_: at for at, id_ in enumerate([wait.id for wait in tasks] + runs)}
    edges = tuple((place[parent], place[wait.id]) for wait in tasks for parent in wait.parents if parent in place)
    kinds = tuple(kind_of(wait) for wait in tasks)
    left = tuple(math.ceil((work.running_until_t[id_] - work.t) / (step_s / 4)) * step_s / 4 for id_ in runs)
    steps = max(0, int((job.deadline_t - work.t) / step_s + 1e-9)) if job.deadline_t < math.inf else STEPS
    rows = template(method, kinds, edges, left, offers, steps * step_s, waits)
    if rows is None:
        return None
    return {
        wait.id: Wish(
            row[0], work.t + row[1], work.t + row[2], work.t + row[3],
            -1 if row[4] < 0 else (tasks[row[4]].id if row[4] < len(tasks) else runs[row[4] - len(tasks)]),
        )
        for wait, row in zip(tasks, rows, strict=True)
    }  # fmt: skip


def _waits(
    work: Work, tasks: list[Waiting], number: int, waits_s: list[float] | None, boot_counts: bool
) -> tuple[int, ...]:
    """By offer the quarters of a boot for which the next task of a job waits."""
    job = work.job(number)
    begun = len(tasks) < job.total
    if waits_s is None or not (begun or boot_counts):
        return (4,) * len(work.offers)
    age_s = math.inf if begun else work.t - job.submitted_t
    pairs = zip(work.offers, waits_s, strict=True)
    return tuple(_quarters(max(wait_s, offer.lag_s - age_s), offer.lag_s) for offer, wait_s in pairs)


def _quarters(wait_s: float, lag_s: float) -> int:
    return 0 if lag_s <= 0 else min(4, max(0, math.ceil(wait_s / lag_s * 4 - 1e-9)))


def kind_of(wait: Waiting) -> TaskKind:
    """Run times rounded up to three digits: many tasks are equal then, and share an answer."""
    run_s = max(wait.task.runtime_s, 1e-6)
    unit = 10.0 ** (math.floor(math.log10(run_s)) - 2)
    task = wait.task
    return math.ceil(run_s / unit - 1e-9) * unit, task.task_class, task.cores, task.memory_gb, task.resources


@lru_cache(maxsize=20_000)
def template(
    method: Method, kinds: tuple[TaskKind, ...], edges: tuple[tuple[int, int], ...], running_s: tuple[float, ...],
    offers: bytes, left_s: float, waits: tuple[int, ...],
) -> list[Row] | None:  # fmt: skip
    """The wishes of a job of this kind with this time left, by the places of its tasks; running ones come last.

    None if a task fits none of the offers.
    """
    n = len(kinds)
    try:
        problem = _problem(kinds, edges, running_s, offers, left_s, waits)
    except NoOffer:
        return None
    found = method(problem)
    offer_of, due = found.offer_of, found.due
    own = [problem.duration[offer][task] for task, offer in enumerate(offer_of)]
    tail = problem.workflow.graph.tail(own)
    parents = problem.workflow.graph.parent_rows()
    rows: list[Row] = []
    for task in range(n):
        begin_s = max(
            (due[parent] if parent < n else running_s[parent - n] * US for parent in parents[task]), default=0
        )
        latest_s = left_s - (tail[task] - own[task]) / US
        due_s = due[task] / US
        rows.append((offer_of[task], begin_s / US, due_s, max(latest_s, due_s), found.bundled_with[task]))
    return rows


def _problem(
    kinds: tuple[TaskKind, ...], edges: tuple[tuple[int, int], ...], running_s: tuple[float, ...],
    offers: bytes, left_s: float, waits: tuple[int, ...],
) -> Problem:  # fmt: skip
    """The waiting tasks as a problem of their own; what runs is a task that ends at its time on every type."""
    base = _alone(kinds, offers)
    more, tasks = len(running_s), base.workflow
    lag = [lag * quarters // 4 for lag, quarters in zip(base.lag, waits, strict=True)]
    workflow = Workflow(
        name="",
        ids=tasks.ids + [""] * more,
        classes=tasks.classes + [""] * more,
        runtime_s=tasks.runtime_s + list(running_s),
        cores=tasks.cores + [1] * more,
        memory_bytes=tasks.memory_bytes + [0] * more,
        graph=_graph(len(kinds) + more, edges),
        resources=tasks.resources + [()] * more if tasks.resources else [],
    )
    duration = [
        row + [max(1, math.ceil(seconds * US) - lag[o]) for seconds in running_s] for o, row in enumerate(base.duration)
    ]
    deadline = math.floor(min(left_s, NEVER / US / 4) * US)
    return replace(base, workflow=workflow, lag=lag, duration=duration, deadline=deadline)


def fastest_s(kinds: tuple[TaskKind, ...], edges: tuple[tuple[int, int], ...], offers: bytes) -> float:
    """Seconds of the longest chain of tasks on the fastest types, after one boot; infinite if a task fits nowhere."""
    try:
        base = _alone(kinds, offers)
    except NoOffer:
        return math.inf
    fastest = [min(row[task] for row in base.duration) for task in range(len(kinds))]
    longest = max(_graph(len(kinds), edges).earliest_finish(fastest), default=0)
    return (longest + min(base.lag)) / US


_graph = lru_cache(maxsize=20_000)(from_edges)


@lru_cache(maxsize=20_000)
def _alone(kinds: tuple[TaskKind, ...], offers: bytes) -> Problem:
    """Tasks of these kinds without edges or a deadline: their durations on each type. Raises NoOffer."""
    workflow = Workflow(
        name="",
        ids=[str(place) for place in range(len(kinds))],
        classes=[kind[1] for kind in kinds],
        runtime_s=[kind[0] for kind in kinds],
        cores=[kind[2] for kind in kinds],
        memory_bytes=[math.ceil(kind[3] * GIB) for kind in kinds],
        graph=_graph(len(kinds), ()),
        resources=[kind[4] for kind in kinds] if any(kind[4] for kind in kinds) else [],
    )
    return make_problem(workflow, msgspec.msgpack.decode(offers, type=tuple[Offer, ...]), math.inf)
