"""Greedy and GAIN for a fleet, as SCS's paper extends them (algorithm 4): each job reserves machines for itself. Pure.

A reservation stays until the task has begun. A machine that no task holds goes back near the end of its cycle.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from windfall.planning.contract import Phase, Plan, Start
from windfall.planning.fleet.deadlines import Method, Wish, assigned
from windfall.planning.fleet.model import Slots, Waiting, Work, queues_of
from windfall.planning.fleet.scs import predict
from windfall.planning.room import Room
from windfall.planning.stream.reserve import assign_gain, assign_greedy


def plan_greedy(work: Work) -> Plan:
    """A task takes the cheapest machine on which it is in time, rented or new, when a new one would boot for it."""
    return _plan(work, assign_greedy, _greedy)


def plan_gain(work: Work) -> Plan:
    """Types by gain per dollar; a task takes a machine of its type that is free when it begins, or a new one."""
    return _plan(work, assign_gain, _gain)


Choose = Callable[[Work, Waiting, Wish, float, list[Slots], Room], "Slots | int | None"]
"""The machine for a task, or the offer of a new one; None if nothing more can be rented."""


def _plan(work: Work, method: Method, choose: Choose) -> Plan:
    wishes = assigned(work, method)
    slots, room = work.slots(), work.room()
    found = Plan()
    ends = dict(work.running_until_t)
    held = _kept(work, slots, ends)
    order = sorted(
        (wait for wait in work.waiting if wait.id in wishes), key=lambda wait: (wishes[wait.id].due_t, wait.id)
    )
    for wait in order:
        wish = wishes[wait.id]
        if wait.id in held or any(parent not in ends for parent in wait.parents):
            continue
        begin_t = max([work.t, *(ends[parent] for parent in wait.parents)])
        if not wait.ready and begin_t > work.t + work.offers[wish.offer].lag_s + work.period_s:
            continue
        chosen = choose(work, wait, wish, begin_t, slots, room)
        if chosen is None:
            continue
        if isinstance(chosen, int):
            chosen = _rent(work, chosen, slots, room, found)
        start_t = chosen.starts_t(wait.task.cores, begin_t)
        ends[wait.id] = start_t + work.run_s[wait.kind][chosen.offer]
        chosen.put(wait.id, wait.task.cores, start_t, ends[wait.id])
    found.assign = queues_of(slots)
    for each in slots:
        near = each.paid_until_t - work.t <= work.period_s
        machine = each.machine
        if near and machine is not None and not each.queue and not machine.running and machine.phase != Phase.PENDING:
            found.stop.append(each.label)
            found.because.append(f"m{each.label} is reserved for no task and its cycle ends before the next plan")
    predict(work, found, ends, slots)
    return found


def _kept(work: Work, slots: list[Slots], ends: dict[int, float]) -> set[int]:
    """What is reserved stays where it is."""
    waiting = {wait.id: wait for wait in work.waiting}
    held: set[int] = set()
    for each in slots:
        for name in () if each.machine is None else each.machine.waiting:
            wait = waiting.get(name)
            if wait is None or math.isinf(work.run_s[wait.kind][each.offer]):
                continue
            ready_t = max([work.t, *(ends.get(parent, work.t) for parent in wait.parents)])
            start_t = each.starts_t(wait.task.cores, ready_t)
            ends[name] = start_t + work.run_s[wait.kind][each.offer]
            each.put(name, wait.task.cores, start_t, ends[name])
            held.add(name)
    return held


def _rent(work: Work, offer: int, slots: list[Slots], room: Room, found: Plan) -> Slots:
    label = f"new-{len(found.start) + 1}"
    found.start.append(Start(label, work.offers[offer]))
    found.because.append(f"no machine is free in time: one more of {work.offers[offer].name}")
    room.take(work.offers[offer])
    new = Slots(label, offer, work.offers[offer].cores, work.t + work.offers[offer].lag_s)
    slots.append(new)
    return new


def _gain(work: Work, wait: Waiting, wish: Wish, begin_t: float, slots: list[Slots], room: Room) -> Slots | int | None:
    cores = wait.task.cores
    mine = [each for each in slots if each.offer == wish.offer and len(each.free_t) >= cores]
    for each in mine:
        if each.starts_t(cores, begin_t) <= begin_t:
            return each
    if room.of(work.offers[wish.offer]) > 0:
        return wish.offer
    return min(mine, key=lambda each: each.starts_t(cores, begin_t), default=None) or _any(work, wait, begin_t, slots)


def _greedy(
    work: Work, wait: Waiting, wish: Wish, begin_t: float, slots: list[Slots], room: Room
) -> Slots | int | None:
    cores, run_s = wait.task.cores, work.run_s[wait.kind]
    free = [
        each
        for each in slots
        if len(each.free_t) >= cores
        and each.starts_t(cores, begin_t) <= begin_t
        and begin_t + run_s[each.offer] <= wish.due_t
    ]
    if free:
        return min(free, key=lambda each: work.offers[each.offer].price_usd)
    able = [place for place in range(len(work.offers)) if room.of(work.offers[place]) > 0 and run_s[place] < math.inf]
    ends_t = {place: max(begin_t, work.t + work.offers[place].lag_s) + run_s[place] for place in able}
    in_time = [place for place in able if ends_t[place] <= wish.due_t]
    if in_time:
        return min(in_time, key=lambda place: (work.offers[place].price_usd, place))
    soonest = _any(work, wait, begin_t, slots)
    if not able:
        return soonest
    best = min(able, key=lambda place: (ends_t[place], place))
    if soonest is not None and soonest.starts_t(cores, begin_t) + run_s[soonest.offer] <= ends_t[best]:
        return soonest
    return best


def _any(work: Work, wait: Waiting, begin_t: float, slots: list[Slots]) -> Slots | None:
    """The machine on which the task ends first."""
    cores, run_s = wait.task.cores, work.run_s[wait.kind]
    able = [each for each in slots if len(each.free_t) >= cores and run_s[each.offer] < math.inf]
    return min(able, key=lambda each: each.starts_t(cores, begin_t) + run_s[each.offer], default=None)
