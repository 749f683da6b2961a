"""What one more job would mean for a fleet: when it would be done beside the others, and what it would cost. Pure.

All waiting tasks are laid out with and without the job, as Windfall's planner of fleets does it, but nothing waits for
later arrivals: every machine that is needed is ordered at once.
"""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

from windfall.planning.contract import Job, Snapshot, Task
from windfall.planning.fleet.deadlines import assigned
from windfall.planning.fleet.mix import mix_of
from windfall.planning.fleet.model import Work, fits
from windfall.planning.fleet.scs import waits_s
from windfall.planning.fleet.windfall import Layout
from windfall.planning.workflow.methods.assign import assign

TRIES = 6
"""Deadlines tried for the earliest one that holds."""


class NewJob(Struct, frozen=True):
    """A job that is not submitted yet. `tasks`: their ids are their places, from 0. `after`: parents by place."""

    tasks: tuple[Task, ...]
    after: dict[int, tuple[int, ...]]
    deadline_s: float


class Verdict(Struct, frozen=True):
    """`finish_s` and `earliest_s` count from now. `late_others`: jobs that would be late because of it."""

    finish_s: float
    met: bool
    late_others: tuple[int, ...]
    extra_usd: float
    over_budget_usd: float = 0.0
    """What the fleet would need beyond its budget of the present period."""
    earliest_s: float | None = None
    """The earliest deadline that would be kept, if the wanted one is not; None: none that was tried."""
    without_limits: Verdict | None = None
    """The same if the offers had no limits, where that helps."""
    fits_nowhere: bool = False


class _Laid(Struct):
    finish_t: dict[int, float]
    cost_usd: float


def judge(snapshot: Snapshot, new: NewJob) -> Verdict:
    """Whether a job would keep its deadline beside the others."""
    offers = Work(snapshot).offers
    if not all(any(fits(task, offer) for offer in offers) for task in new.tasks):
        return Verdict(math.inf, False, (), 0.0, fits_nowhere=True)
    before = _laid_out(snapshot)
    found = _compared(snapshot, new, before)
    if found.met and not found.late_others:
        return found
    found = replace(found, earliest_s=_earliest_s(snapshot, new, before, found))
    if any(offer.limit is not None or offer.pool_limit is not None for offer in snapshot.offers):
        free = replace(snapshot, offers=tuple(replace(o, limit=None, pool_limit=None) for o in snapshot.offers))
        freely = _compared(free, new, _laid_out(free))
        if freely.met and not freely.late_others:
            return replace(found, without_limits=freely)
    return found


def _compared(snapshot: Snapshot, new: NewJob, before: _Laid) -> Verdict:
    number = max((job.number for job in snapshot.jobs), default=0) + 1
    after = _laid_out(_with(snapshot, new, number))
    due_t = {job.number: job.deadline_t for job in snapshot.jobs}
    late = tuple(
        job
        for job, finish_t in after.finish_t.items()
        if job in due_t and finish_t > due_t[job] >= before.finish_t.get(job, math.inf)
    )
    finish_s = after.finish_t.get(number, math.inf) - snapshot.t
    over = 0.0 if snapshot.budget_usd is None else max(0.0, after.cost_usd - snapshot.budget_usd)
    return Verdict(finish_s, finish_s <= new.deadline_s, late, max(0.0, after.cost_usd - before.cost_usd), over)


def _earliest_s(snapshot: Snapshot, new: NewJob, before: _Laid, found: Verdict) -> float | None:
    """The deadline at which the job would be done, tried until it holds and makes nobody late."""
    wanted_s = max(found.finish_s, new.deadline_s)
    for _ in range(TRIES):
        if math.isinf(wanted_s):
            return None
        tried = _compared(snapshot, replace(new, deadline_s=wanted_s), before)
        if tried.met and not tried.late_others:
            return wanted_s
        wanted_s = max(tried.finish_s, wanted_s * 1.25)
    return None


def _with(snapshot: Snapshot, new: NewJob, number: int) -> Snapshot:
    deadline_t = snapshot.t + new.deadline_s
    place = number << 32
    tasks = {
        place | task.id: replace(task, id=place | task.id, job=number, deadline_t=deadline_t) for task in new.tasks
    }
    after = {place | task: tuple(place | parent for parent in parents) for task, parents in new.after.items()}
    job = Job(number, deadline_t, snapshot.t, bool(new.after), total=len(new.tasks), kind=-1)
    return replace(
        snapshot, tasks=snapshot.tasks | tasks, after=snapshot.after | after, jobs=(*snapshot.jobs, job),
        total=snapshot.total + len(tasks), deadline_t=max(snapshot.deadline_t, deadline_t),
    )  # fmt: skip


def _laid_out(snapshot: Snapshot) -> _Laid:
    """When each job is done if everything that it needs is ordered now, and what the fleet will have cost then."""
    work = Work(snapshot)
    mix = mix_of(work)
    layout = Layout(work, mix, assigned(work, assign, waits_s(work), mix.allowed), gathers=False)
    layout.place_all()
    finish_t: dict[int, float] = {}
    for id_, task in snapshot.tasks.items():
        finish_t[task.job] = max(finish_t.get(task.job, 0.0), layout.ends.get(id_, math.inf))
    return _Laid(finish_t, snapshot.spent_usd + layout.to_pay_usd())
