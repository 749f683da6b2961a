"""What one more job would mean for a fleet: when it would be done beside the others, and what it would cost. Pure.

All waiting tasks are laid out with and without the job, as Windfall's planner of fleets does it, but nothing waits for
later arrivals: every machine that is needed is ordered at once. A promise must hold if all spot machines are gone:
their tasks are laid out on demand like those that wait. Owners are counted on with the cores of their caps, and where
the fleet cannot run all at once, with those of their shares.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from windfall.planning.contract import ONDEMAND, Job, Snapshot, Task
from windfall.planning.fleet.deadlines import assigned
from windfall.planning.fleet.mix import mix_of
from windfall.planning.fleet.model import Cycles, Slots, Work, fits
from windfall.planning.fleet.owners import cores_by_owner
from windfall.planning.fleet.scs import waits_s
from windfall.planning.fleet.windfall import Layout
from windfall.planning.workflow.methods.assign import assign

TRIES = 6
"""Deadlines tried for the earliest one that holds."""
STEP = 1.25
"""Each deadline that is tried is at least this multiple of the one before."""


class NewJob(Struct, frozen=True):
    """A job that is not submitted yet. `tasks`: their ids are their places, from 0. `after`: parents by place."""

    tasks: tuple[Task, ...]
    after: dict[int, tuple[int, ...]]
    deadline_s: float
    owner: str = ""


class Verdict(Struct, frozen=True):
    """`finish_s` and `earliest_s` count from now. `late_others`: jobs that would be late because of it."""

    finish_s: float
    met: bool
    late_others: tuple[int, ...]
    extra_usd: float
    over_budget_usd: float = 0.0
    """What the budget of a period lacks at most."""
    earliest_s: float | None = None
    """The earliest deadline that would be kept within the budget, if the wanted one is not; None: none was found."""
    without_limits: Verdict | None = None
    """The same if the offers had no limits, where that helps."""
    fits_nowhere: bool = False
    budget_usd: float | None = None
    """The budget of a period that would suffice, if that of the fleet does not."""

    @property
    def holds(self) -> bool:
        """In time, nobody else late, within the budget."""
        return self.met and not self.late_others and self.over_budget_usd <= 0


class _Laid(Struct):
    finish_t: dict[int, float]
    cycles: list[Cycles]

    @property
    def usd(self) -> float:
        return math.fsum(each.usd for each in self.cycles)


def judge(snapshot: Snapshot, new: NewJob) -> Verdict:
    """Whether a job would keep its deadline beside the others."""
    snapshot = replace(snapshot, machines=tuple(each for each in snapshot.machines if each.offer.market == ONDEMAND))
    offers = Work(snapshot).offers
    if not all(any(fits(task, offer) for offer in offers) for task in new.tasks):
        return Verdict(math.inf, False, (), 0.0, fits_nowhere=True)
    before = _laid_out(snapshot)
    found = _compared(snapshot, new, before)
    if not found.holds and found.over_budget_usd > 0:
        # The layout orders all machines at once; fewer may do.
        fewer = _compared(_affordable(snapshot), new, before)
        found = fewer if fewer.holds else found
    if found.holds:
        return found
    found = replace(found, earliest_s=_earliest_s(snapshot, new, before, found))
    limited = any(offer.limit is not None or offer.pool_limit is not None for offer in snapshot.offers)
    if limited and not (found.met and not found.late_others):
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
    over, budget_usd = lacking_usd(snapshot, after.cycles)
    return Verdict(
        finish_s, finish_s <= new.deadline_s, late, max(0.0, after.usd - before.usd), over, budget_usd=budget_usd
    )


def lacking_usd(snapshot: Snapshot, cycles: Sequence[Cycles]) -> tuple[float, float | None]:
    """Dollars that the budget of some period lacks for these cycles, and the budget that would suffice."""
    if snapshot.budget_usd is None:
        return 0.0, None
    period = snapshot.budget_period
    here_usd = snapshot.budget_usd - snapshot.spent_usd
    if period is None:
        over = math.fsum(each.usd for each in cycles) - here_usd
        return (over, snapshot.budget_usd + over) if over > 1e-6 else (0.0, None)
    over, until_t, before_usd = 0.0, period.until_t, 0.0
    last_t = max((each.from_t + (each.count - 1) * each.cycle_s for each in cycles), default=snapshot.t)
    while True:
        so_far_usd = math.fsum(each.usd_before(until_t) for each in cycles)
        over = max(over, so_far_usd - before_usd - here_usd)
        if until_t > last_t:
            return (over, period.usd + over) if over > 1e-6 else (0.0, None)
        before_usd, here_usd, until_t = so_far_usd, period.usd, until_t + period.length_s


def _earliest_s(snapshot: Snapshot, new: NewJob, before: _Laid, found: Verdict) -> float | None:
    """The deadline at which the job would be done, tried until it holds and makes nobody late."""
    wanted_s = max(found.finish_s, new.deadline_s)
    if found.over_budget_usd > 0:
        snapshot, wanted_s = _affordable(snapshot), STEP * wanted_s
    for _ in range(TRIES):
        if math.isinf(wanted_s):
            return None
        tried = _compared(snapshot, replace(new, deadline_s=wanted_s), before)
        if tried.holds:
            return wanted_s
        wanted_s = max(tried.finish_s, wanted_s * STEP)
    return None


def _affordable(snapshot: Snapshot) -> Snapshot:
    """The same, with no more machines of an offer than the budget of a period pays for one cycle."""
    assert snapshot.budget_usd is not None
    usd = snapshot.budget_usd - snapshot.spent_usd
    if snapshot.budget_period is not None:
        usd = min(usd, snapshot.budget_period.usd)
    there = Counter(machine.offer.key for machine in snapshot.machines)
    offers = []
    for offer in snapshot.offers:
        most = there[offer.key] + (int(usd / offer.price_usd + 1e-9) if offer.price_usd > 0 else len(snapshot.tasks))
        offers.append(replace(offer, limit=max(1, most if offer.limit is None else min(offer.limit, most))))
    return replace(snapshot, offers=tuple(offers))


def _with(snapshot: Snapshot, new: NewJob, number: int) -> Snapshot:
    deadline_t = snapshot.t + new.deadline_s
    place = number << 32
    tasks = {
        place | task.id: replace(task, id=place | task.id, job=number, deadline_t=deadline_t) for task in new.tasks
    }
    after = {place | task: tuple(place | parent for parent in parents) for task, parents in new.after.items()}
    job = Job(number, deadline_t, snapshot.t, bool(new.after), owner=new.owner, total=len(new.tasks), kind=-1)
    return replace(
        snapshot, tasks=snapshot.tasks | tasks, after=snapshot.after | after, jobs=(*snapshot.jobs, job),
        total=snapshot.total + len(tasks), deadline_t=max(snapshot.deadline_t, deadline_t),
    )  # fmt: skip


def _cores_of_owners(work: Work) -> dict[str, Slots]:
    """The cores that each limited owner may hold, with what its running tasks hold of them."""
    found = {owner: Slots(owner, 0, cores, work.t) for owner, cores in cores_by_owner(work.snapshot).items()}
    for id_, until_t in work.running_until_t.items():
        task = work.snapshot.tasks.get(id_)
        mine = None if task is None else found.get(work.job(task.job).owner)
        if task is not None and mine is not None:
            mine.put(id_, min(task.cores, len(mine.free_t)), work.t, until_t)
    return found


def _laid_out(snapshot: Snapshot) -> _Laid:
    """When each job is done if everything that it needs is ordered now, and the cycles that are still to be paid."""
    work = Work(snapshot)
    mix = mix_of(work)
    layout = Layout(work, mix, assigned(work, assign, waits_s(work), mix.allowed), gathers=False)
    layout.cores_of_owner = _cores_of_owners(work)
    layout.place_all()
    finish_t: dict[int, float] = {}
    for id_, task in snapshot.tasks.items():
        finish_t[task.job] = max(finish_t.get(task.job, 0.0), layout.ends.get(id_, math.inf))
    return _Laid(finish_t, layout.to_pay())
