"""Plan a workflow while it runs: follow the plan while it is in time, replan the rest when it is not. Pure.

The first plan comes from one of the planners of workflows: which machine is rented when, and which tasks it runs in
which order. At every review the rest of the plan is played through with what is known now. While it ends in time, and
every task on spot early enough to run again on demand, it is followed; otherwise, and when a task has lost its machine,
the tasks that have not begun are planned again. Spot machines begin only what the plan gives them: a task that was lost
waits for its new place instead of going to any spot machine that is idle.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Container, Mapping, Sequence
from itertools import count

import numpy as np
from msgspec.structs import replace

from windfall.graph import from_edges
from windfall.planning import data
from windfall.planning.at_once import counted
from windfall.planning.contract import ONDEMAND, SPOT, Later, Phase, Plan, Snapshot, Start, Task
from windfall.planning.misfits import without_misfits
from windfall.planning.offers import GIB, Offer
from windfall.planning.room import market_key
from windfall.planning.spot.live import Learner, observed_markets
from windfall.planning.workflow import sets
from windfall.planning.workflow.choice import chosen, seats_of
from windfall.planning.workflow.model import Plan as Made
from windfall.planning.workflow.model import Problem, Workflow, make_problem
from windfall.planning.workflow.seats import (
    TIME_RESERVE,
    Queues,
    Seat,
    at_risk,
    due_of,
    in_best_order,
    in_order,
    intended,
    new_seat,
    orders,
    pause_s,
    play,
    rented,
    rescue_s,
    rest_usd,
    running_until,
)

MARGIN_S = 2.0
"""Idle machines are stopped this long before their next billing cycle."""
REVIEW_SHARE = 0.5
"""Share of that reserve that a review may find used up before tasks are placed anew."""
MOST_MENDS = 3
"""How often tasks that are at risk are placed anew, until none is."""
FIRST_PLAN_LOOKS = 450_000
"""Effort of the first plan, in machines tried: a second or two."""
SHORT_CYCLE_S = 60.0
NO_OFFER_S = 10.0
"""Time to the next plan while no machine can be had."""
REVIEW_S = 60.0
"""Time between two reviews without an event where a machine waits for its place without a deadline."""


class WorkflowPlanner:
    """One of the planners of workflows as a `Planner`: it reviews its plan at every call."""

    names_up_to = math.inf

    def __init__(self, name: str, effort: int = FIRST_PLAN_LOOKS) -> None:
        self.name, self.effort = name, effort

    def __call__(self, snapshot: Snapshot) -> Plan:
        snapshot = without_misfits(counted(data.spread(paced(snapshot))))
        view = sets.bundled(snapshot)
        return self._planned(snapshot) if view is None else sets.unbundled(self._planned(view.snapshot), view)

    def _planned(self, snapshot: Snapshot) -> Plan:
        if not snapshot.tasks:
            return Plan(stop=[machine.id for machine in snapshot.machines], because=["every task is done"])
        if not snapshot.machines and not snapshot.last_later:
            return self._first(snapshot)
        return self._reviewed(snapshot)

    def _reviewed(self, snapshot: Snapshot) -> Plan:
        """The queues of the last plan, or those that replace them."""
        return _to_plan(snapshot, *reviewed(snapshot))

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
        if not offers:
            # Others have as many machines as there are, or all were refused a moment ago.
            because = ["no offer has a machine left for it now"]
            return Plan(replan_t=snapshot.t + NO_OFFER_S, because=because)
        problem = make_problem(workflow, _believed(snapshot, offers), max(0.0, snapshot.deadline_t - snapshot.t))
        made, why = first_plan(problem, self.name, np.random.default_rng(0), self.effort)
        seats = seats_of(problem, made, offers, ids, snapshot.t)
        plan = _to_plan(snapshot, in_best_order(snapshot, seats), _reason(seats, ids))
        plan.predicted_cost_usd = snapshot.spent_usd + made.cost_usd(problem)
        if made.effort is not None:
            plan.because.append(f"the search {made.effort.said()}")
        if why:
            plan.because.append(why)
        return plan


def first_plan(problem: Problem, planner: str, rng: np.random.Generator, looks: int) -> tuple[Made, str]:
    """The plan that a run begins with, and why it was preferred to others if there were any."""
    return chosen(problem, planner, rng, looks, lambda snapshot: reviewed(snapshot)[0])


def reviewed(snapshot: Snapshot) -> tuple[Queues, str]:
    """The queues to go on with, and why: those of the last plan while that is in time and nothing is at risk."""
    seats = [*rented(snapshot), *intended(snapshot)]
    kept = in_best_order(loosened(snapshot), seats)
    if not kept.found.late_ms and not kept.found.risky:
        return kept, "the plan is in time"
    fresh = _fresh(snapshot, seats)
    now = in_best_order(snapshot, seats)
    if math.isfinite(now.found.finish_t) and now.is_as_sure_as(fresh):
        return now, "the plan is late or at risk, and replanning would not help"
    risky = kept.found.risky
    reason = (
        "a task has lost its machine"
        if math.isinf(kept.found.finish_t)
        else "the plan would be late"
        if kept.found.finish_t > snapshot.deadline_t
        else f"{risky} task{'s' * (risky != 1)} on spot could not run again in time"
    )
    return fresh, f"{reason}; tasks that have not begun are planned again"


def _believed(snapshot: Snapshot, offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """The offers, those of which a machine was seen with the rate of interruption that the law has learned."""
    # Hours of on-demand machines say nothing of how often spot is interrupted.
    every = (*snapshot.offers, *(machine.offer for machine in snapshot.machines))
    spot = {offer.key for offer in every if offer.market == SPOT}
    seen = {key: market for key, market in observed_markets(snapshot).items() if key in spot}
    learner = Learner(seen, snapshot.t - snapshot.begun_t, snapshot.t)
    return tuple(
        replace(offer, interruptions_per_h=3600.0 * learner.rates(offer).interrupts_per_s)
        if offer.market == SPOT and offer.key in seen and seen[offer.key].up_s > 0
        else offer
        for offer in offers
    )


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
    for task in in_order(snapshot, key=lambda task: task, done=()):
        depth[task] = 1 + max((depth[parent] for parent in snapshot.after.get(task, ())), default=0)
    root = math.sqrt(max(depth.values(), default=1))
    tasks = {
        number: task
        if task.mean_s is None
        else replace(task, runtime_s=task.mean_s + (task.runtime_s - task.mean_s) / root)
        for number, task in snapshot.tasks.items()
    }
    reserve_s = snapshot.deadline_t - snapshot.begun_t - planned_s(snapshot.deadline_t - snapshot.begun_t)
    deadline_t = snapshot.deadline_t - reserve_s if math.isfinite(reserve_s) else snapshot.deadline_t
    return replace(snapshot, tasks=tasks, deadline_t=deadline_t)


def planned_s(deadline_s: float) -> float:
    """Seconds that a plan has to a deadline this long after the submission: without the reserve of time."""
    return deadline_s * (1.0 - TIME_RESERVE)


def loosened(snapshot: Snapshot) -> Snapshot:
    """A paced snapshot for reviews: a plan is left only when half of the reserve of time is used up."""
    whole_s = (snapshot.deadline_t - snapshot.begun_t) / (1.0 - TIME_RESERVE)
    slack_s = TIME_RESERVE * REVIEW_SHARE * whole_s
    return replace(snapshot, deadline_t=snapshot.deadline_t + slack_s) if math.isfinite(slack_s) else snapshot


def _fresh(snapshot: Snapshot, seats: Sequence[Seat]) -> Queues:
    """The better of what is mended and of all placed anew; all anew where a full pool holds up what is mended."""
    choices = [*(mended(snapshot, seats, in_order) for in_order in orders(snapshot)), replanned(snapshot)]
    options = [in_best_order(snapshot, each) for each in choices]
    able = [option for option in options if math.isfinite(option.found.finish_t)]
    return min(able, key=lambda option: option.found, default=options[-1])


def replanned(snapshot: Snapshot) -> list[Seat]:
    """New queues for all tasks that have not begun: by due time, each where it costs least and ends in time."""
    return placed(snapshot, rented(snapshot), None)


def mended(snapshot: Snapshot, seats: Sequence[Seat], in_order: bool = False) -> list[Seat]:
    """The same queues, but for tasks that are in none, at risk or late: each of these goes where it costs least and
    ends in time."""
    found = list(seats)
    for _ in range(MOST_MENDS):
        moved = _to_move(snapshot, found, in_order)
        if not moved:
            break
        found = placed(snapshot, found, moved)
    return found


def _to_move(snapshot: Snapshot, seats: Sequence[Seat], in_order: bool) -> set[int]:
    """The tasks in no queue; if there are none, those at risk and those that end after their due time."""
    queued = {task for seat in seats for task in seat.tasks}
    if unplaced := snapshot.tasks.keys() - queued - running_until(snapshot).keys():
        return unplaced
    ends, due_t = play(snapshot, seats, in_order), due_of(snapshot)
    if ends is None:
        return set()  # queues that wait for each other
    return {*at_risk(snapshot, seats, ends), *(task for task in queued if ends[task] > due_t[task] + 1e-6)}


def placed(snapshot: Snapshot, seats: Sequence[Seat], moved: Container[int] | None) -> list[Seat]:
    """Queues in which these tasks are placed anew, by due time; None: all. The others stay where they are.

    A task that fits on no machine while its pools are full is in no queue, nor are its descendants: `_release` makes
    room for it.
    """
    queues = [[task for task in seat.tasks if moved is not None and task not in moved] for seat in seats]
    kept = [(seat, queue) for seat, queue in zip(seats, queues, strict=True) if queue or not seat.is_new]
    home = {task: number for number, (_, queue) in enumerate(kept) for task in queue}
    open_ = [replace(seat, tasks=[], free_t=list(seat.free_t)) for seat, _ in kept]
    begin = {seat.label: list(seat.free_t) for seat in open_}
    starts: dict[int, float] = {}
    ends, due_t, room = running_until(snapshot), due_of(snapshot), snapshot.room()
    for seat in open_:
        if seat.is_new:
            room.take(seat.offer)
    names = (label for number in count() if (label := f"again-{number}") not in begin)
    for task in in_order(snapshot, key=lambda task: (due_t[task], task), done=list(ends)):
        need = snapshot.tasks[task]
        ready_t = max((ends.get(parent, math.inf) for parent in snapshot.after.get(task, ())), default=snapshot.t)
        if math.isinf(ready_t):
            continue
        if task in home:
            seat = open_[home[task]]
            start_t = max(ready_t, sorted(seat.free_t)[min(need.cores, len(seat.free_t)) - 1])
        else:
            new = [new_seat(snapshot, offer, ready_t) for offer in snapshot.offers if room.of(offer) > 0]
            chosen = _cheapest(snapshot, need, ready_t, due_t[task], [*open_, *new])
            if chosen is None:
                continue
            seat, start_t = chosen
        if seat.is_new and not seat.label:
            seat.label = next(names)
            room.take(seat.offer)
            begin[seat.label] = list(seat.free_t)
            open_.append(seat)
        seat.book(start_t + need.seconds_on(seat.offer))
        starts[task], ends[task] = start_t, seat.append(need, start_t)
    orders = [queue for _, queue in kept] + [[] for _ in open_[len(kept) :]]
    return [
        replace(seat, free_t=begin[seat.label], tasks=_merged(seat.tasks, order, starts))
        for seat, order in zip(open_, orders, strict=True)
    ]


def _cheapest(
    snapshot: Snapshot, need: Task, ready_t: float, due_t: float, seats: Sequence[Seat]
) -> tuple[Seat, float] | None:
    """Where a task costs least and ends in time, with its start; where it ends first if it is late everywhere."""
    options = [(seat, start_t) for seat in seats if (start_t := seat.start_t(need, ready_t)) < math.inf]
    able = [(seat, start_t, start_t + need.seconds_on(seat.offer)) for seat, start_t in options]
    in_time = [option for option in able if option[2] + rescue_s(snapshot, need, option[0]) <= due_t + 1e-6]
    if in_time:
        return min(in_time, key=lambda option: (option[0].extra_usd(option[2]), option[2]))[:2]
    if not able:
        return None
    return min(
        able, key=lambda option: (option[2] + rescue_s(snapshot, need, option[0]), option[0].extra_usd(option[2]))
    )[:2]


def _merged(tasks: Sequence[int], kept: Sequence[int], starts: Mapping[int, float]) -> list[int]:
    """Kept tasks in their order, each of the others before the first of them that begins later."""
    here, left = set(kept), deque(task for task in kept if task in starts)
    found: list[int] = []
    for task in sorted((task for task in tasks if task not in here), key=lambda task: (starts[task], task)):
        while left and starts[left[0]] <= starts[task]:
            found.append(left.popleft())
        found.append(task)
    return [*found, *left]


def _to_plan(snapshot: Snapshot, queues: Queues, because: str) -> Plan:
    """The seats as a plan: machines due now are started, the others go into `later`.

    So do those due now whose pool is full: they wait until another machine of it is stopped.
    """
    t, room, seats, found = snapshot.t, snapshot.room(), queues.seats, queues.found
    # A task of a machine that is rented later waits for it: on another one it would cost what was not planned.
    plan = Plan(because=[because], only_reserved=True, in_order=queues.in_order)
    if math.isfinite(found.finish_t):
        plan.predicted_finish_t = found.finish_t
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
    left_usd = found.usd if math.isfinite(found.usd) else rest_usd(snapshot, seats, {})
    plan.predicted_cost_usd = snapshot.spent_usd + left_usd
    if any(offer.market == ONDEMAND for offer in snapshot.offers):
        plan.spot_until_t = t
    plan.replan_t = min((entry.at_t for entry in plan.later if not _is_due(entry, t)), default=math.inf)
    if math.isfinite(snapshot.deadline_t):
        plan.replan_t = min(plan.replan_t, t + pause_s(snapshot))
    elif any(_is_due(entry, t) for entry in plan.later):
        plan.replan_t = min(plan.replan_t, t + REVIEW_S)
    _release(snapshot, seats, plan)
    return plan


def _release(snapshot: Snapshot, seats: Sequence[Seat], plan: Plan) -> None:
    """Stop machines without work just before their next billing cycle, or at once if cycles are short or their place
    in a full pool is waited for."""
    awaited = _awaited_pools(snapshot, seats, plan)
    needed = set() if awaited and _stands_still(snapshot, seats) else {seat.label for seat in seats if seat.tasks}
    for machine in snapshot.machines:
        if machine.running or machine.id in needed or machine.phase is Phase.PENDING:
            continue
        at_t = machine.paid_until_t - MARGIN_S
        is_due = machine.offer.cycle_s < SHORT_CYCLE_S or at_t <= snapshot.t + 1e-3 or machine.offer.pool in awaited
        if machine.phase is Phase.HIBERNATED or is_due:
            plan.stop.append(machine.id)
            if machine.phase is not Phase.HIBERNATED and (plan.assign.get(machine.id) or machine.waiting):
                plan.assign[machine.id] = []
        else:
            plan.replan_t = min(plan.replan_t, at_t)


def _stands_still(snapshot: Snapshot, seats: Sequence[Seat]) -> bool:
    """Whether no task runs and none can begin: its machines wait for tasks of machines that wait for their places."""
    if any(machine.running or machine.phase is Phase.PENDING for machine in snapshot.machines):
        return False
    return all(snapshot.after.get(task) for seat in seats if not seat.is_new for task in seat.tasks)


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
