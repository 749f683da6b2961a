"""HADS (Teylo et al. 2019), its primary schedule: D_spot (algorithm 1) and the first machines (algorithm 2). Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from windfall.errors import BadInput
from windfall.planning.contract import SPOT, Plan, Start, Task
from windfall.planning.hads.lanes import TOLERANCE_S, Lanes, holds, longest_first
from windfall.planning.offers import Offer
from windfall.planning.room import Room, room_in


class First(Struct, frozen=True):
    """One machine of the primary schedule and the tasks it gets, in order."""

    offer: Offer
    tasks: tuple[int, ...]
    finish_s: float


def slowest(offers: Sequence[Offer], task_class: str = "") -> Offer:
    """The offer with the least throughput: speed times cores."""
    return min(offers, key=lambda offer: (offer.speed_for(task_class) * offer.cores, offer.name))


def worst_makespan_s(tasks: Sequence[Task], offers: Sequence[Offer], max_spot: int) -> float:
    """mkp_w: the makespan of one machine's share of the tasks, the longest ones, on the slowest machine."""
    share = math.ceil(len(tasks) / max_spot)
    able = [offer for offer in offers if all(offer.has(task.resources) for task in tasks)]
    lanes = Lanes(slowest(able or offers), ready_t=0.0)
    for task in longest_first(tasks)[:share]:
        lanes.append(task)
    return max(0.0, lanes.finish_t())


def spot_deadline_s(tasks: Sequence[Task], offers: Sequence[Offer], max_spot: int, deadline_s: float) -> float:
    """D_spot (algorithm 1): the seconds by which spot machines must be done, to leave time for a migration."""
    return deadline_s - worst_makespan_s(tasks, offers, max_spot)


def best_offer(task: Task, room: Room, offers: Sequence[Offer]) -> Offer | None:
    """best_VM: the machine that runs the task soonest; at equal speed the cheaper core, then the larger machine."""
    able = [offer for offer in offers if room.of(offer) > 0 and holds(offer, task)]
    return min(
        able,
        key=lambda offer: (task.seconds_on(offer), offer.price_usd / offer.cores, -offer.cores, offer.name),
        default=None,
    )


def primary(tasks: Sequence[Task], offers: Sequence[Offer], until_s: float) -> list[First] | None:
    """Algorithm 2: first fit by descending memory; a new machine if no other ends before `until_s`. None: impossible.

    Line 16 prints vm_j, but the machine that was chosen, vm_k, leaves the set. The boot lag counts.
    """
    spot = [offer for offer in offers if offer.market == SPOT]
    room = room_in(spot, (), len(tasks))
    chosen: list[tuple[Lanes, list[int]]] = []
    for task in sorted(tasks, key=lambda task: (-task.memory_gb, task.id)):
        home = next((entry for entry in chosen if entry[0].end_t(task) <= until_s + TOLERANCE_S), None)
        if home is None:
            offer = best_offer(task, room, spot)
            if offer is None or offer.lag_s + task.seconds_on(offer) > until_s + TOLERANCE_S:
                return None
            room.take(offer)
            home = (Lanes(offer, ready_t=offer.lag_s), [])
            chosen.append(home)
        home[0].append(task)
        home[1].append(task.id)
    return [First(lanes.offer, tuple(ids), lanes.finish_t()) for lanes, ids in chosen]


def max_spot_of(offers: Sequence[Offer], tasks: int) -> int:
    """How many spot machines there may be at once."""
    spot = [offer for offer in offers if offer.market == SPOT]
    room, taken = room_in(spot, (), tasks), 0
    for offer in spot:
        for _ in range(room.of(offer)):
            room.take(offer)
            taken += 1
    return max(1, taken)


def least_deadline_s(tasks: Sequence[Task], offers: Sequence[Offer]) -> float:
    """The earliest deadline for which there is a primary schedule, to the second; infinite where there is none."""
    spare_s = worst_makespan_s(tasks, offers, max_spot_of(offers, len(tasks)))
    low_s, high_s = 0, 1
    while primary(tasks, offers, high_s) is None:
        low_s, high_s = high_s, 2 * high_s
        if high_s > 2**40:
            return math.inf
    while high_s - low_s > 1:
        middle_s = (low_s + high_s) // 2
        low_s, high_s = (low_s, middle_s) if primary(tasks, offers, middle_s) is not None else (middle_s, high_s)
    return high_s + spare_s


def first_plan(tasks: Sequence[Task], offers: Sequence[Offer], t: float, deadline_t: float) -> Plan:
    """The plan before any machine is rented; raises BadInput with the earliest deadline that can be promised."""
    until_s = spot_deadline_s(tasks, offers, max_spot_of(offers, len(tasks)), deadline_t - t)
    machines = primary(tasks, offers, until_s) if until_s > 0 else None
    if machines is None:
        least_s = least_deadline_s(tasks, offers)
        raise BadInput(
            f"no schedule on spot machines meets a deadline of {deadline_t - t:.0f} s and leaves time to migrate",
            hint=f"the earliest deadline that can be promised is {least_s:.0f} s"
            if math.isfinite(least_s)
            else "at least one task fits on no spot machine on offer, or their limits are too low",
        )
    plan = Plan(because=[f"D_spot is {until_s:.0f} s of {deadline_t - t:.0f} s; {len(machines)} machines by first fit"])
    for place, machine in enumerate(machines):
        label = f"new-{place}"
        plan.start.append(Start(label, machine.offer))
        plan.assign[label] = list(machine.tasks)
    plan.predicted_finish_t = t + max((machine.finish_s for machine in machines), default=0.0)
    plan.predicted_cost_usd = sum(m.offer.cycles(m.finish_s) * m.offer.price_usd for m in machines)
    return plan
