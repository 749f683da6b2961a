"""The work of a fleet as its planners see it: waiting tasks by kind, machines with free cores, queues. Pure.

Times are those of the snapshot. On-demand offers are numbered first; `spot` follows them in `every`. Only planners that
say so rent spot machines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from heapq import heapify, heapreplace

from msgspec import Struct
from msgspec.structs import replace

from windfall.planning.at_once import counted
from windfall.planning.contract import ONDEMAND, SPOT, Job, Machine, Phase, Plan, Snapshot, Task
from windfall.planning.fleet.owners import let_in
from windfall.planning.offers import Offer
from windfall.planning.room import Room, market_key

MOST_PERIOD_S, LEAST_PERIOD_S = 60.0, 0.5
PERIODS_PER_CYCLE = 20
"""A fleet is planned this often in its shortest billing cycle, and at least every minute."""
HORIZON_PERIODS = 10
"""Tasks that begin within this many periods are reserved; later ones wait for a later plan."""


class Waiting(Struct):
    """A task that has not begun. `ready`: its parents are done. `parents`: those that are not."""

    id: int
    task: Task
    kind: int
    parents: tuple[int, ...]

    @property
    def ready(self) -> bool:
        return not self.parents


class Slots:
    """A machine, there or to be rented: when its cores are free if it does what runs and what is put in its queue."""

    __slots__ = ("free_t", "kept", "label", "machine", "offer", "paid_until_t", "queue", "running_until_t")

    def __init__(self, label: str, offer: int, cores: int, ready_t: float, machine: Machine | None = None) -> None:
        self.label, self.offer, self.machine = label, offer, machine
        self.free_t = [ready_t] * cores
        self.running_until_t = ready_t
        self.paid_until_t = math.inf
        self.queue: list[int] = []
        self.kept = True

    def starts_t(self, cores: int, not_before_t: float) -> float:
        """When this number of cores is free together."""
        if cores == 1:
            return max(not_before_t, min(self.free_t))
        return max(not_before_t, sorted(self.free_t)[cores - 1])

    def put(self, name: int, cores: int, start_t: float, end_t: float) -> None:
        """Reserve the cores that are free first."""
        order = sorted(range(len(self.free_t)), key=self.free_t.__getitem__)
        for core in order[:cores]:
            self.free_t[core] = end_t
        self.queue.append(name)


class Cycles(Struct, frozen=True):
    """Billing cycles of one machine, one after the other."""

    from_t: float
    count: int
    cycle_s: float
    price_usd: float

    @property
    def usd(self) -> float:
        return self.count * self.price_usd

    def usd_before(self, t: float) -> float:
        """Of those that begin before t."""
        return min(self.count, max(0, math.ceil((t - self.from_t) / self.cycle_s - 1e-9))) * self.price_usd


class Gap(Struct, frozen=True):
    """Time in which a machine has nothing to begin, and the seconds by which the tasks behind it may begin later."""

    from_t: float
    until_t: float
    spare_s: float


class Work:
    """A snapshot of a fleet, sorted for planning."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot, self.t = snapshot, snapshot.t
        self.offers = tuple(offer for offer in snapshot.offers if offer.market == ONDEMAND)
        """On demand."""
        self.spot = tuple(offer for offer in snapshot.offers if offer.market == SPOT)
        self.every = self.offers + self.spot
        self.rents_spot = False
        """Set by a planner that gives work to spot machines."""
        self.number = {market_key(offer): place for place, offer in enumerate(self.every)}
        self.jobs = {job.number: job for job in snapshot.jobs}
        self.kinds: list[Task] = []
        """One task of each kind: tasks of one kind run equally long everywhere."""
        self.run_s: list[list[float]] = []
        """By kind and on-demand offer; infinite where it does not fit."""
        self.every_run_s: list[list[float]] = []
        """The same with spot offers behind them."""
        self._kind: dict[tuple[object, ...], int] = {}
        self.running_until_t: dict[int, float] = {}
        self.runs_on: dict[int, str] = {}
        for machine in snapshot.machines:
            # What is hibernated may never resume: it waits, and goes on there if it does before it begins elsewhere.
            for run in machine.running if machine.phase != Phase.HIBERNATED else ():
                self.running_until_t[run.task] = self.t + run.left_s
                self.runs_on[run.task] = machine.id
        self.waiting = [
            Waiting(id_, task, self._kind_of(task), snapshot.after.get(id_, ()))
            for id_, task in snapshot.tasks.items()
            if id_ not in self.running_until_t
        ]
        self.backlog = [(each, self._kind_of(each.task)) for each in snapshot.backlog]
        """Work that is not shown task by task, with the kind of its tasks."""
        self.by_job: dict[int, list[Waiting]] = {}
        for wait in self.waiting:
            self.by_job.setdefault(wait.task.job, []).append(wait)

    def _kind_of(self, task: Task) -> int:
        key = (task.runtime_s, task.task_class, task.cores, task.memory_gb, task.checkpoint_mb, task.saved_s,
               task.resources)  # fmt: skip
        found = self._kind.get(key)
        if found is None:
            found = self._kind[key] = len(self.kinds)
            self.kinds.append(task)
            row = [task.seconds_on(offer) if fits(task, offer) else math.inf for offer in self.every]
            self.every_run_s.append(row)
            self.run_s.append(row[: len(self.offers)])
        return found

    @cached_property
    def period_s(self) -> float:
        """Seconds between two plans if nothing happens."""
        cycle_s = min((offer.cycle_s for offer in self.offers), default=math.inf)
        spans = (job.deadline_t - job.submitted_t for job in self.jobs.values())
        shortest_s = min((span for span in spans if span < math.inf), default=math.inf)
        return min(MOST_PERIOD_S, max(LEAST_PERIOD_S, min(cycle_s, shortest_s) / PERIODS_PER_CYCLE))

    def slots(self, market: str = ONDEMAND) -> list[Slots]:
        """The machines of one market that can be given work."""
        found = []
        for machine in self.snapshot.machines:
            offer = self.number.get(market_key(machine.offer))
            if offer is None or machine.phase == Phase.HIBERNATED or machine.noticed_t is not None:
                continue
            if machine.offer.market != market:
                continue
            ready_t = max(self.t, machine.ready_t) if machine.phase == Phase.PENDING else self.t
            slots = Slots(machine.id, offer, machine.offer.cores, ready_t, machine)
            slots.paid_until_t = machine.paid_until_t
            for run in machine.running:
                task = self.snapshot.tasks.get(run.task)
                slots.put(
                    run.task, min(machine.offer.cores, 1 if task is None else task.cores), self.t, self.t + run.left_s
                )
            slots.queue.clear()
            slots.running_until_t = max(slots.free_t)
            found.append(slots)
        return found

    def room(self) -> Room:
        """How many more machines may be rented."""
        return self.snapshot.room()

    def deadline_t(self, job: int) -> float:
        return self.jobs[job].deadline_t

    def job(self, number: int) -> Job:
        return self.jobs[number]


def fits(task: Task, offer: Offer) -> bool:
    return task.fits(offer) and offer.most != 0


class FleetPlanner:
    """A function from the work of a fleet to a plan, as a `Planner`. It names every task."""

    names_up_to = math.inf

    def __init__(self, plan: Callable[[Work], Plan]) -> None:
        self._plan = plan

    def __call__(self, snapshot: Snapshot) -> Plan:
        snapshot = counted(snapshot)
        work = Work(snapshot)
        if not work.offers:
            return Plan(because=["its pools offer no on-demand machines"], only_reserved=True)
        fair, held_back = let_in(snapshot, work.period_s)
        if fair is not snapshot:
            work = Work(fair)
        plan = self._plan(work)
        plan.only_reserved = True
        plan.because += held_back
        plan.stop += [label for label in _useless(work, plan) if label not in plan.stop]
        if held_back:
            plan.replan_t = min(plan.replan_t, work.t + work.period_s)
        if plan.replan_t == math.inf and (work.waiting or snapshot.machines):
            plan.replan_t = work.t + work.period_s
        return plan


def _useless(work: Work, plan: Plan) -> list[str]:
    """Machines without work that the planner gives none: their offers are gone, or they are spot or hibernated."""
    queued = {task for queue in plan.assign.values() for task in queue}
    found = []
    for machine in work.snapshot.machines:
        is_used = market_key(machine.offer) in work.number and (machine.offer.market == ONDEMAND or work.rents_spot)
        if is_used and machine.phase != Phase.HIBERNATED:
            continue
        if machine.phase != Phase.PENDING and all(task in queued for task in machine.tasks()):
            found.append(machine.id)
    return found


def first_deadlines_first(
    work: Work, tasks: list[tuple[float, Waiting, int]], slots: list[Slots], partner: dict[int, int], horizon_t: float
) -> dict[int, float]:
    """EDF per offer: put (due, task, offer) into the queues of machines; returns when each task is expected to end.

    A task goes to the core of its offer that is free first, or follows the parent that it is bundled with. Tasks that
    would begin behind the horizon are put nowhere.
    """
    ends = dict(work.running_until_t)
    heaps: dict[int, list[tuple[float, float, int, Slots]]] = {}
    for place, each in enumerate(slots):
        if each.kept:
            heaps.setdefault(each.offer, []).append((min(each.free_t), -each.paid_until_t, place, each))
    for heap in heaps.values():
        heapify(heap)
    by_label = {each.label: each for each in slots if each.kept}
    where = dict(work.runs_on)
    for _, wait, offer in sorted(tasks, key=lambda entry: (entry[0], entry[1].id)):
        if any(parent not in ends for parent in wait.parents):
            continue
        ready_t = max((ends[parent] for parent in wait.parents), default=work.t)
        cores, run_s = wait.task.cores, work.run_s[wait.kind][offer]
        with_ = by_label.get(where.get(partner.get(wait.id, -1), ""))
        if with_ is not None and with_.offer == offer and with_.starts_t(cores, ready_t) <= ready_t:
            chosen = with_
        else:
            found = first_free(heaps.get(offer, []), cores, ready_t)
            if found is None:
                continue
            chosen = found
        start_t = chosen.starts_t(cores, ready_t)
        ends[wait.id] = start_t + run_s
        if start_t > horizon_t:
            continue
        chosen.put(wait.id, cores, start_t, start_t + run_s)
        where[wait.id] = chosen.label
    return ends


def first_free(heap: list[tuple[float, float, int, Slots]], cores: int, ready_t: float) -> Slots | None:
    """The machine on which this number of cores is free first. Entries of the heap may be old: free times only grow."""
    if not heap:
        return None
    while True:
        free_t, paid, place, slots = heap[0]
        now_t = min(slots.free_t)
        if now_t > free_t:
            heapreplace(heap, (now_t, paid, place, slots))
            continue
        break
    if cores == 1:
        return heap[0][3]
    able = [entry[3] for entry in heap if len(entry[3].free_t) >= cores]
    return min(able, key=lambda each: each.starts_t(cores, ready_t), default=None)


def queues_of(slots: list[Slots]) -> dict[str, list[int]]:
    """The queues that differ from those that the machines have."""
    return {
        each.label: each.queue
        for each in slots
        if (each.queue if each.machine is None else each.queue != list(each.machine.waiting))
    }


def unlimited(offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
    """The offers without the limits of this moment, which change too often for answers to be kept."""
    return tuple(replace(offer, limit=0 if offer.most == 0 else None, pool_limit=None) for offer in offers)


__all__ = [
    "Cycles", "FleetPlanner", "Gap", "Slots", "Waiting", "Work", "first_deadlines_first", "first_free", "fits",
    "queues_of", "unlimited",
]  # fmt: skip
