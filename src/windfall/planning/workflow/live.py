"""Plan a workflow while it runs: follow the plan while it is in time, replan the rest when it is not. Pure.

The first plan comes from one of the planners of workflows: which machine is rented when, and which tasks it runs in
which order. At every review the rest of the plan is played through with what is known now. While it ends in time, and
every task on spot early enough to run again on demand, it is followed; otherwise, and when a task has lost its machine,
the tasks that have not begun are planned again. Spot machines begin only what the plan gives them: a task that was lost
waits for its new place instead of going to any spot machine that is idle.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from windfall.graph import from_edges
from windfall.planning import data
from windfall.planning.at_once import counted
from windfall.planning.contract import ONDEMAND, SPOT, Later, Phase, Plan, Snapshot, Start, Task
from windfall.planning.offers import GIB, Offer
from windfall.planning.room import market_key
from windfall.planning.workflow import sets
from windfall.planning.workflow.model import US, Workflow, make_problem
from windfall.planning.workflow.planners import plan as plan_offline

MARGIN_S = 2.0
"""Idle machines are stopped this long before their next billing cycle."""
REVIEWS_PER_DEADLINE = 20
"""Reviews without an event: a late task causes none."""
TIME_RESERVE = 0.02
"""Share of the time to the deadline that plans leave unused: for exchanges, slow disks and late boots."""
FIRST_PLAN_LOOKS = 300_000
"""Effort of the first plan, in machines tried: about a second."""
SHORT_CYCLE_S = 60.0
MIN_REVIEW_S, REVIEW_S = 1.0, 60.0
"""Time between two reviews without an event: at least, and where a machine waits for its place without a deadline."""


class Seat(Struct):
    """One machine, rented or intended: when its cores are free, and its queue."""

    label: str
    offer: Offer
    at_t: float
    free_t: list[float]
    tasks: list[int] = field(default_factory=list)
    is_new: bool = False
    paid_until_t: float = -math.inf
    begun: bool = True

    def start_t(self, task: Task, ready_t: float) -> float:
        """When a task could begin here behind the queue; infinite if it does not fit."""
        if not task.fits(self.offer):
            return math.inf
        return max(ready_t, sorted(self.free_t)[task.cores - 1])

    def append(self, task: Task, start_t: float) -> float:
        end_t = start_t + task.seconds_on(self.offer)
        for _ in range(task.cores):
            self.free_t.remove(min(self.free_t))
        self.free_t += [end_t] * task.cores
        self.tasks.append(task.id)
        return end_t

    def extra_usd(self, end_t: float) -> float:
        """Dollars to keep the machine until `end_t`, beyond what is paid."""
        if not self.begun:
            return self.offer.cycles(end_t - self.at_t) * self.offer.price_usd
        over_s = end_t - self.paid_until_t
        return 0.0 if over_s <= 1e-6 else math.ceil(over_s / self.offer.cycle_s - 1e-9) * self.offer.price_usd

    def book(self, end_t: float) -> None:
        """Count the machine as paid until `end_t`, in whole billing cycles."""
        if not self.begun:
            self.begun, self.paid_until_t = True, self.at_t
        over_s = end_t - self.paid_until_t
        if over_s > 1e-6:
            self.paid_until_t += math.ceil(over_s / self.offer.cycle_s - 1e-9) * self.offer.cycle_s


class WorkflowPlanner:
    """One of the planners of workflows as a `Planner`: it reviews its plan at every call."""

    names_up_to = math.inf

    def __init__(self, name: str, effort: int = FIRST_PLAN_LOOKS) -> None:
        self.name, self.effort = name, effort

    def __call__(self, snapshot: Snapshot) -> Plan:
        snapshot = counted(data.spread(paced(snapshot)))
        view = sets.bundled(snapshot)
        return self._planned(snapshot) if view is None else sets.unbundled(self._planned(view.snapshot), view)

    def _planned(self, snapshot: Snapshot) -> Plan:
        if not snapshot.tasks:
            return Plan(stop=[machine.id for machine in snapshot.machines], because=["every task is done"])
        if not snapshot.machines and not snapshot.last_later:
            return self._first(snapshot)
        seats = [*_rented(snapshot), *_intended(snapshot)]
        finish_t, at_risk = review(snapshot, seats)
        if finish_t <= snapshot.deadline_t and not at_risk:
            return _to_plan(snapshot, seats, finish_t, "the plan is in time")
        fresh = replanned(snapshot)
        new_finish_t, still_at_risk = review(snapshot, fresh)
        if math.isfinite(finish_t) and not _is_better((new_finish_t, still_at_risk), (finish_t, at_risk), snapshot):
            return _to_plan(snapshot, seats, finish_t, "the plan is late or at risk, and replanning would not help")
        reason = (
            "a task has lost its machine"
            if math.isinf(finish_t)
            else "the plan would be late"
            if finish_t > snapshot.deadline_t
            else f"{at_risk} task{'s' * (at_risk != 1)} on spot could not run again in time"
        )
        return _to_plan(snapshot, fresh, new_finish_t, f"{reason}; tasks that have not begun are planned again")

    def _first(self, snapshot: Snapshot) -> Plan:
        """The plan before any machine is rented, by the planner of this name."""
        ids = sorted(snapshot.tasks)
        number = {task: place for place, task in enumerate(ids)}
        edges = [(number[parent], number[child]) for child, parents in snapshot.after.items() for parent in parents]
        tasks = [snapshot.tasks[task] for task in ids]
        workflow = Workflow(
            name="", ids=[str(task) for task in ids], classes=[task.task_class for task in tasks],
            runtime_s=[task.runtime_s for task in tasks], cores=[task.cores for task in tasks],
            memory_bytes=[round(task.memory_gb * GIB) for task in tasks], graph=from_edges(len(ids), edges),
            resources=[task.resources for task in tasks] if any(task.resources for task in tasks) else [],
        )  # fmt: skip
        offers = tuple(offer for offer in snapshot.offers if snapshot.left_of(offer))
        problem = make_problem(workflow, offers, max(0.0, snapshot.deadline_t - snapshot.t))
        made = plan_offline(problem, self.name, np.random.default_rng(0), self.effort)
        seats = []
        for place, lease in enumerate(made.leases):
            mine = sorted((made.start[k], k) for k in range(problem.n) if made.machine[k] == place)
            offer, at_t = offers[lease.offer], snapshot.t + lease.start / US
            seats.append(Seat(f"new-{place}", offer, at_t, _free(offer, at_t), [ids[k] for _, k in mine], True))
        finish_t = snapshot.t + made.makespan / US
        plan = _to_plan(snapshot, seats, finish_t, _reason(seats, ids))
        plan.predicted_cost_usd = snapshot.spent_usd + made.cost_usd(problem)
        return plan


def _reason(seats: list[Seat], tasks: Sequence[int]) -> str:
    """`rent 2 'spot-2' machines: the cheapest plan found for 14 tasks`."""
    kinds = Counter(seat.offer.name for seat in seats)
    machines = ", ".join(f"{count} '{name}' machine{'s' * (count != 1)}" for name, count in kinds.items())
    return f"rent {machines or 'no machine'}: the cheapest plan found for {len(tasks)} task{'s' * (len(tasks) != 1)}"


def paced(snapshot: Snapshot) -> Snapshot:
    """The snapshot for a planner that knows no uncertainty: a slack in every run time, and a reserve of time.

    Along a chain of n tasks delays partly cancel out: the slack of each is divided by the square root of n.
    """
    depth: dict[int, int] = {}
    for task in _in_order(snapshot, key=lambda task: task, done=()):
        depth[task] = 1 + max((depth[parent] for parent in snapshot.after.get(task, ())), default=0)
    root = math.sqrt(max(depth.values(), default=1))
    tasks = {
        number: task
        if task.mean_s is None
        else replace(task, runtime_s=task.mean_s + (task.runtime_s - task.mean_s) / root)
        for number, task in snapshot.tasks.items()
    }
    reserve_s = TIME_RESERVE * (snapshot.deadline_t - snapshot.begun_t)
    deadline_t = snapshot.deadline_t - reserve_s if math.isfinite(reserve_s) else snapshot.deadline_t
    return replace(snapshot, tasks=tasks, deadline_t=deadline_t)


def _free(offer: Offer, at_t: float) -> list[float]:
    return [at_t + offer.lag_s] * offer.cores


def _rented(snapshot: Snapshot) -> list[Seat]:
    """The machines that are rented and not hibernated, with what runs on them; their queues as their tasks."""
    seats = []
    for machine in snapshot.machines:
        if machine.phase is Phase.HIBERNATED or machine.noticed_t is not None:
            continue
        free_t = [max(snapshot.t, machine.ready_t)] * machine.offer.cores
        for entry in machine.running:
            for _ in range(snapshot.tasks[entry.task].cores):
                free_t.remove(min(free_t))
            free_t += [snapshot.t + entry.left_s] * snapshot.tasks[entry.task].cores
        paid_t = machine.paid_until_t if math.isfinite(machine.paid_until_t) else snapshot.t
        seats.append(Seat(machine.id, machine.offer, snapshot.t, free_t, list(machine.waiting), paid_until_t=paid_t))
    return seats


def _intended(snapshot: Snapshot) -> list[Seat]:
    """The machines that the last plan intended to rent later and that still have tasks."""
    seats = []
    reserved = {task for machine in snapshot.machines for task in machine.tasks()}
    for entry in snapshot.last_later:
        tasks = [task for task in entry.tasks if task in snapshot.tasks and task not in reserved]
        if tasks:
            at_t = max(snapshot.t, entry.at_t)
            seats.append(Seat(entry.label, entry.offer, at_t, _free(entry.offer, at_t), tasks, True))
    return seats


def _is_better(new: tuple[float, int], old: tuple[float, int], snapshot: Snapshot) -> bool:
    """Whether a plan with this finish and these tasks at risk is to be preferred: in time first, then safe."""
    lateness = [max(0.0, finish_t - snapshot.deadline_t) for finish_t, _ in (new, old)]
    return (lateness[0], new[1]) < (lateness[1] - 1e-6, old[1]) or (lateness[0] <= lateness[1] and new[1] < old[1])


def review(snapshot: Snapshot, seats: Sequence[Seat]) -> tuple[float, int]:
    """When the workflow ends if these machines run their queues, and how many tasks that have not begun are at risk.

    A task is at risk on a spot machine that, lost at the task's very end, leaves no time to run it and what comes after
    it on demand. The finish is infinite if a task is in no queue.
    """
    ends = play(snapshot, seats)
    if ends is None:
        return math.inf, 0
    due_t = _due(snapshot)
    at_risk = sum(
        ends[task] + _rescue_s(snapshot, snapshot.tasks[task], seat) > due_t[task] + 1e-6
        for seat in seats
        if seat.offer.market == SPOT
        for task in seat.tasks
    )
    return max(ends.values(), default=snapshot.t), at_risk


def play(snapshot: Snapshot, seats: Sequence[Seat]) -> dict[int, float] | None:
    """When each task ends if these machines run their queues; None if a task is in no queue."""
    running = {entry.task: snapshot.t + entry.left_s for machine in snapshot.machines for entry in machine.running
               if machine.phase is not Phase.HIBERNATED}  # fmt: skip
    home = {task: seat for seat in seats for task in seat.tasks}
    if any(task not in running and task not in home for task in snapshot.tasks):
        return None
    places = {task: place for seat in seats for place, task in enumerate(seat.tasks)}
    ends = dict(running)
    free = {seat.label: list(seat.free_t) for seat in seats}
    for task in _in_order(snapshot, key=lambda task: (places.get(task, -1), task), done=running):
        need, seat = snapshot.tasks[task], home[task]
        cores = free[seat.label]
        cores.sort()
        ready_t = max((ends[parent] for parent in snapshot.after.get(task, ())), default=snapshot.t)
        start_t = max(ready_t, cores[min(need.cores, len(cores)) - 1])
        ends[task] = start_t + need.seconds_on(seat.offer)
        cores[: need.cores] = [ends[task]] * min(need.cores, len(cores))
    return ends


def _in_order(snapshot: Snapshot, key: Callable[[int], Any], done: Iterable[int]) -> Iterator[int]:
    """Tasks behind their parents; among those that may begin, the least key first."""
    finished = set(done)
    children: dict[int, list[int]] = {}
    missing: dict[int, int] = {}
    for child, parents in snapshot.after.items():
        open_ = [parent for parent in parents if parent not in finished]
        missing[child] = len(open_)
        for parent in open_:
            children.setdefault(parent, []).append(child)
    heap = [(key(task), task) for task in snapshot.tasks if task not in finished and not missing.get(task)]
    heapq.heapify(heap)
    while heap:
        _, task = heapq.heappop(heap)
        yield task
        for child in children.get(task, ()):
            missing[child] -= 1
            if not missing[child] and child not in finished:
                heapq.heappush(heap, (key(child), child))


def replanned(snapshot: Snapshot) -> list[Seat]:
    """New queues for the tasks that have not begun: by due time, each where it costs least and ends in time.

    A task that fits on no machine while its pools are full is in no queue, nor are its descendants: `_release` makes
    room for it.
    """
    seats = [replace(seat, tasks=[]) for seat in _rented(snapshot)]
    free_t = {seat.label: list(seat.free_t) for seat in seats}
    ends = {entry.task: snapshot.t + entry.left_s for machine in snapshot.machines for entry in machine.running
            if machine.phase is not Phase.HIBERNATED}  # fmt: skip
    due_t = _due(snapshot)
    room = snapshot.room()
    names = count()
    for task in _in_order(snapshot, key=lambda task: (due_t[task], task), done=list(ends)):
        need = snapshot.tasks[task]
        ready_t = max((ends.get(parent, math.inf) for parent in snapshot.after.get(task, ())), default=snapshot.t)
        if math.isinf(ready_t):
            continue
        new = [_new_seat(snapshot, offer, ready_t) for offer in snapshot.offers if room.of(offer) > 0]
        options = [(seat, seat.start_t(need, ready_t)) for seat in (*seats, *new)]
        able = [
            (seat, start_t, start_t + need.seconds_on(seat.offer)) for seat, start_t in options if start_t < math.inf
        ]
        if not able:
            continue
        in_time = [option for option in able if option[2] + _rescue_s(snapshot, need, option[0]) <= due_t[task] + 1e-6]
        if in_time:
            seat, start_t, end_t = min(in_time, key=lambda option: (option[0].extra_usd(option[2]), option[2]))
        else:
            seat, start_t, end_t = min(
                able,
                key=lambda option: (
                    option[2] + _rescue_s(snapshot, need, option[0]),
                    option[0].extra_usd(option[2]),
                ),
            )
        if seat.is_new and not seat.label:
            seat.label = f"again-{next(names)}"
            room.take(seat.offer)
            free_t[seat.label] = list(seat.free_t)
            seats.append(seat)
        seat.book(end_t)
        ends[task] = seat.append(need, start_t)
    return [replace(seat, free_t=free_t[seat.label]) for seat in seats]


def _rescue_s(snapshot: Snapshot, task: Task, seat: Seat) -> float:
    """Seconds to run a task again on demand that spot loses at its very end, boot included; 0.0 on demand."""
    if seat.offer.market != SPOT:
        return 0.0
    sure = [offer.lag_s + task.seconds_on(offer) for offer in snapshot.offers if offer.market == ONDEMAND]
    return min(sure, default=0.0)


def _new_seat(snapshot: Snapshot, offer: Offer, ready_t: float) -> Seat:
    at_t = max(snapshot.t, ready_t - offer.lag_s)
    return Seat("", offer, at_t, _free(offer, at_t), is_new=True, begun=False)


def _due(snapshot: Snapshot) -> dict[int, float]:
    """When each task must end so that its descendants, on the quickest machines on demand, can still be in time."""
    offers = snapshot.offers or tuple(machine.offer for machine in snapshot.machines)
    quickest = {id_: _quickest_s(task, offers) for id_, task in snapshot.tasks.items()}
    due_t = dict.fromkeys(snapshot.tasks, snapshot.deadline_t)
    for task in reversed(list(_in_order(snapshot, key=lambda task: task, done=()))):
        for parent in snapshot.after.get(task, ()):
            due_t[parent] = min(due_t[parent], due_t[task] - quickest[task])
    return due_t


def _quickest_s(task: Task, offers: Sequence[Offer]) -> float:
    able = [offer for offer in offers if task.fits(offer)] or offers
    sure = [offer for offer in able if offer.market == ONDEMAND] or able
    return min(task.seconds_on(offer) for offer in sure)


def _to_plan(snapshot: Snapshot, seats: Sequence[Seat], finish_t: float, because: str) -> Plan:
    """The seats as a plan: machines due now are started, the others go into `later`.

    So do those due now whose pool is full: they wait until another machine of it is stopped.
    """
    t, room = snapshot.t, snapshot.room()
    plan = Plan(because=[because], predicted_finish_t=finish_t if math.isfinite(finish_t) else None)
    waiting = {machine.id: list(machine.waiting) for machine in snapshot.machines}
    for seat in seats:
        if not seat.is_new:
            if seat.tasks != waiting[seat.label]:
                plan.assign[seat.label] = seat.tasks
        elif _is_due(seat, t) and room.of(seat.offer):
            room.take(seat.offer)
            plan.start.append(Start(seat.label, seat.offer))
            plan.assign[seat.label] = seat.tasks
        else:
            plan.later.append(Later(seat.label, seat.offer, seat.at_t, tuple(seat.tasks)))
    ends = play(snapshot, seats) or {}
    plan.predicted_cost_usd = snapshot.spent_usd + math.fsum(
        Seat("", seat.offer, seat.at_t, [], begun=False).extra_usd(max(ends.get(task, t) for task in seat.tasks))
        for seat in seats
        if seat.is_new and seat.tasks
    )
    if any(offer.market == ONDEMAND for offer in snapshot.offers):
        plan.spot_until_t = t
    plan.replan_t = min((entry.at_t for entry in plan.later if not _is_due(entry, t)), default=math.inf)
    pause_s = (snapshot.deadline_t - snapshot.begun_t) / REVIEWS_PER_DEADLINE
    if math.isfinite(pause_s):
        plan.replan_t = min(plan.replan_t, t + max(MIN_REVIEW_S, pause_s))
    elif any(_is_due(entry, t) for entry in plan.later):
        plan.replan_t = min(plan.replan_t, t + REVIEW_S)
    _release(snapshot, seats, plan)
    return plan


def _release(snapshot: Snapshot, seats: Sequence[Seat], plan: Plan) -> None:
    """Stop machines without work just before their next billing cycle, or at once if cycles are short or their place
    in a full pool is waited for."""
    needed = {seat.label for seat in seats if seat.tasks}
    awaited = _awaited_pools(snapshot, seats, plan)
    for machine in snapshot.machines:
        if machine.running or machine.id in needed or machine.phase is Phase.PENDING:
            continue
        at_t = machine.paid_until_t - MARGIN_S
        is_due = machine.offer.cycle_s < SHORT_CYCLE_S or at_t <= snapshot.t + 1e-3 or machine.offer.pool in awaited
        if machine.phase is Phase.HIBERNATED or is_due:
            plan.stop.append(machine.id)
        else:
            plan.replan_t = min(plan.replan_t, at_t)


def _awaited_pools(snapshot: Snapshot, seats: Sequence[Seat], plan: Plan) -> set[str]:
    """The full pools that a machine due now waits for, or a task that is in no queue."""
    room = snapshot.room()
    full = [offer for offer in snapshot.offers if room.of_offer(offer) and not room.of(offer)]
    if not full:
        return set()
    due = {market_key(entry.offer) for entry in plan.later if _is_due(entry, snapshot.t)}
    placed = {task for seat in seats for task in seat.tasks}
    placed.update(entry.task for machine in snapshot.machines for entry in machine.running)
    unplaced = [task for number, task in snapshot.tasks.items() if number not in placed]
    return {offer.pool for offer in full if market_key(offer) in due or any(task.fits(offer) for task in unplaced)}


def _is_due(entry: Seat | Later, t: float) -> bool:
    return entry.at_t <= t + 1e-3
