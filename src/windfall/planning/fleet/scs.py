"""SCS over all jobs of a fleet: deadlines, load vectors, consolidation, scaling, EDF (algorithm 3). Pure."""

from __future__ import annotations

import math

import numpy as np

from windfall.planning.contract import Phase, Plan, Running, Start
from windfall.planning.fleet.deadlines import Method, Wish, assigned, for_bag
from windfall.planning.fleet.model import (
    HORIZON_PERIODS,
    Slots,
    Waiting,
    Work,
    first_deadlines_first,
    queues_of,
)
from windfall.planning.stream import control
from windfall.planning.stream.control import Busy, Decision, Market, Rented, Rules
from windfall.planning.workflow.methods.assign import assign
from windfall.units import show_duration

UNLIMITED = 10**6


def plan(work: Work) -> Plan:
    """One loop of SCS on a snapshot."""
    return plan_with(work, assigned(work, assign, waits_s(work), boot_counts=True))


def plan_with(work: Work, wishes: dict[int, Wish]) -> Plan:
    """One loop, with these deadlines and types of tasks."""
    tasks = [wait for wait in work.waiting if wait.id in wishes]
    slots = work.slots()
    rules = Rules(period_s=work.period_s, bin_s=work.period_s)
    decision = _decide(work, tasks, wishes, slots, rules)
    offer_of = {wait.id: wishes[wait.id].offer for wait in tasks}
    for place, offer in decision.moves:
        if place < len(tasks):
            offer_of[tasks[place].id] = offer
    found = Plan(replan_t=work.t + work.period_s if tasks or slots else math.inf)
    new = _started(work, decision, found)
    entries = [(_due_t(work, wait, wishes, offer_of), wait, offer_of[wait.id]) for wait in tasks]
    partner = {wait.id: wishes[wait.id].bundled_with for wait in tasks}
    ends = first_deadlines_first(work, entries, [*slots, *new], partner, work.t + HORIZON_PERIODS * work.period_s)
    found.assign = queues_of([*slots, *new])
    _release(work, decision, slots, found)
    _tell(work, decision, found, ends, slots, new)
    return found


def waits_s(work: Work) -> list[float]:
    """By offer: seconds until a machine of it is free, at most a boot."""
    free_s = [offer.lag_s for offer in work.offers]
    for slots in work.slots():
        free_s[slots.offer] = min(free_s[slots.offer], min(slots.free_t) - work.t)
    return free_s


def _due_t(work: Work, wait: Waiting, wishes: dict[int, Wish], offer_of: dict[int, int]) -> float:
    """When a task is due; one that was moved to a slower type may take longer."""
    wish = wishes[wait.id]
    if offer_of[wait.id] == wish.offer:
        return wish.due_t
    return max(wish.due_t, max(wish.begin_t, work.t) + work.run_s[wait.kind][offer_of[wait.id]])


def _decide(work: Work, tasks: list[Waiting], wishes: dict[int, Wish], slots: list[Slots], rules: Rules) -> Decision:
    """What the control loop says of acquisition, release and moves."""
    chosen = [wishes[wait.id] for wait in tasks]
    later = _backlog(work)
    waiting = control.Waiting(
        kind=np.array([wait.kind for wait in tasks] + [kind for kind, _, _, _ in later], dtype=np.int64),
        offer=np.array([wish.offer for wish in chosen] + [offer for _, offer, _, _ in later], dtype=np.int64),
        begin_s=np.array([wish.begin_t for wish in chosen] + [work.t] * len(later), dtype=np.float64),
        due_s=np.minimum([wish.due_t for wish in chosen] + [due_t for _, _, due_t, _ in later], work.t + 1e9),
        latest_s=np.minimum([wish.latest_t for wish in chosen] + [due_t for _, _, due_t, _ in later], work.t + 1e9),
        ready=np.array([wait.ready for wait in tasks] + [False] * len(later), dtype=bool),
        count=np.array([1.0] * len(tasks) + [count for _, _, _, count in later]) if later else None,
    )
    durations = np.array(work.run_s, dtype=np.float64).reshape(len(work.kinds), len(work.offers))
    cores = np.array([offer.cores for offer in work.offers], dtype=np.float64)
    shares = np.array([task.cores for task in work.kinds], dtype=np.float64).reshape(-1, 1) / cores
    return control.control(work.t, waiting, _rented(work, slots), durations, _market(work, slots), rules, shares)


def _backlog(work: Work) -> list[tuple[int, int, float, float]]:
    """Kind, offer, end and count of the tasks that are not shown one by one."""
    rows = ((each, kind, for_bag(work, kind, each.task.deadline_t)) for each, kind in work.backlog)
    return [(kind, offer, each.task.deadline_t, each.count) for each, kind, offer in rows if offer >= 0]


def _market(work: Work, slots: list[Slots]) -> Market:
    mine = [sum(each.offer == place for each in slots) for place in range(len(work.offers))]
    room = work.room()
    more = [room.of(offer) for offer in work.offers]
    return Market(
        cycle_s=np.array([offer.cycle_s for offer in work.offers]),
        lag_s=np.array([offer.lag_s for offer in work.offers]),
        price_usd=np.array([offer.price_usd for offer in work.offers]),
        limit=np.array([min(UNLIMITED, here + new) for here, new in zip(mine, more, strict=True)], dtype=np.int64),
    )


def _rented(work: Work, slots: list[Slots]) -> Rented:
    leased, up, free = [], [], []
    for each in slots:
        machine = each.machine
        assert machine is not None
        boots = machine.phase == Phase.PENDING
        # In the loop a lease is known by where its cycle ends.
        ends_t = machine.paid_until_t if machine.paid_until_t < math.inf else work.t + machine.offer.cycle_s
        leased.append(ends_t - machine.offer.cycle_s)
        up.append(machine.ready_t if boots else work.t)
        free.append(max([work.t, *(work.t + max(run.left_s, 1e-3) for run in machine.running)]))
    runs = [
        (each.offer, *_running(work, each.offer, run)) for each in slots if each.machine for run in each.machine.running
    ]
    busy = Busy(
        np.array([offer for offer, _, _ in runs], dtype=np.int64),
        np.array([until_t for _, until_t, _ in runs], dtype=np.float64),
        np.array([share for _, _, share in runs], dtype=np.float64),
    )
    columns = [np.array(column, dtype=np.float64) for column in (leased, up, free)]
    return Rented(np.array([each.offer for each in slots], dtype=np.int64), columns[0], columns[1], columns[2], busy)


def _running(work: Work, offer: int, run: Running) -> tuple[float, float]:
    """Until when a running task is load, and the part of a machine that it takes.

    What is left of a task of a bag counts as its waiting tasks do, spread over the time to the deadline: those can wait
    until it ends. Children wait for a task of a workflow, so that takes its cores for as long as it runs.
    """
    task, left_s = work.snapshot.tasks.get(run.task), max(run.left_s, 1e-3)
    if task is None:
        return work.t + left_s, 1.0
    part = task.cores / work.offers[offer].cores
    slack_s = min(task.deadline_t - work.t, 1e9)
    if work.job(task.job).is_workflow or slack_s <= left_s:
        return work.t + left_s, part
    return work.t + slack_s, part * left_s / slack_s


def _started(work: Work, decision: Decision, found: Plan) -> list[Slots]:
    """Machines to rent, as places for tasks."""
    new: list[Slots] = []
    room = work.room()
    for place, count in enumerate(decision.acquire.tolist()):
        offer = work.offers[place]
        for _ in range(min(count, room.of(offer))):
            room.take(offer)
            label = f"new-{len(new) + 1}"
            found.start.append(Start(label, offer))
            new.append(Slots(label, place, offer.cores, work.t + offer.lag_s))
    return new


def _release(work: Work, decision: Decision, slots: list[Slots], found: Plan) -> None:
    """Idle machines near the end of a cycle that the load does not need, unless a task was put there."""
    for place in decision.release:
        each = slots[place]
        if not each.queue and each.machine is not None and not each.machine.running:
            found.stop.append(each.label)


def _tell(
    work: Work, decision: Decision, found: Plan, ends: dict[int, float], slots: list[Slots], new: list[Slots]
) -> None:
    for place, count in enumerate(decision.acquire.tolist()):
        if count:
            there = sum(each.offer == place for each in slots)
            found.because.append(
                f"the load needs {int(decision.needed[place])} of {work.offers[place].name} within "
                f"{show_duration(work.offers[place].lag_s + work.period_s)}, {there} are there: {count} more"
            )
    if decision.moves:
        found.because.append(f"{len(decision.moves)} tasks go to machines of other types that have room")
    for label in found.stop:
        found.because.append(f"m{label} is idle and its cycle ends before the next plan")
    predict(work, found, ends, [*slots, *new])


def predict(work: Work, found: Plan, ends: dict[int, float], slots: list[Slots]) -> None:
    """Fill in when the tasks that are placed end, and what the fleet will have cost then."""
    found.predicted_finish_t = max(ends.values(), default=work.t)
    cost = work.snapshot.spent_usd
    for each in slots:
        offer = work.every[each.offer]
        end_t = max(each.free_t) if each.queue else each.running_until_t
        paid_t = work.t if each.machine is None else each.paid_until_t
        if paid_t < math.inf and end_t > paid_t:
            cost += offer.price_usd * math.ceil((end_t - paid_t) / offer.cycle_s - 1e-9)
    found.predicted_cost_usd = cost


__all__ = ["Method", "plan", "plan_with", "predict", "waits_s"]
