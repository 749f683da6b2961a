"""Rented machines in the engine: ordered, booting, busy, hibernated, ended, and the tasks that wait for them. Pure.

A machine is rented for one fleet, by its plan (`plans`), and its worker is one host. While it is hibernated its host's
silence means nothing.
"""

from __future__ import annotations

from math import ceil, inf
from typing import Any

from windfall.core.decisions import (
    AGAIN,
    FRESH,
    OTHERS_RUN,
    RETURNED,
    SECOND_ATTEMPT,
    Assigned,
    MachineSettled,
    OfferJudged,
    Units,
)
from windfall.core.events import MachineEnded, MachineRefused
from windfall.core.jobs import attempts, stops
from windfall.core.liveness import leases, lessons
from windfall.core.matching.units import FreeUnits
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.jobs import columns
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.renting import fleet
from windfall.core.state.renting.fleet import (
    FAILED,
    RELEASED,
    TAKEN,
    MachineState,
    Seen,
    again_of,
    owed_microusd,
    row_of,
)
from windfall.core.state.renting.fleets import meant
from windfall.core.state.state import State
from windfall.planning.contract import SPOT
from windfall.planning.offers import Offer

REFUSED_PAUSE_CYCLES = 1 / 60
"""Time for which an offer that was refused is not asked for again, in cycles; doubles with every refusal."""
LONGEST_PAUSE_CYCLES = 1 / 2
LONGEST_SPOT_PAUSE_S = 600.0
"""Spot that was refused is asked for again at least this often: only by asking is it seen to be back."""
LEAST_PAUSE_S = 1.0
PAUSE_BOOTS = 10.0


def machines_of(state: State, number: int) -> list[MachineState]:
    """The machines of a fleet, those that have ended too; a job's own fleet has the number of the job."""
    return [state.fleet.machines[machine] for machine in state.fleet.by_fleet.get(number, ())]


def spent_microusd(state: State, number: int, t: float) -> int:
    """What the machines of a fleet cost up to t."""
    return sum(owed_microusd(machine, t) for machine in machines_of(state, number))


def after_stop_microusd(state: State, number: int, t: float) -> int:
    """What providers bill for cycles that began after they were told to stop the machines of a fleet."""
    return sum(fleet.after_stop_microusd(machine, t) for machine in machines_of(state, number))


def pools_of(state: State, bag: Bag) -> list[str]:
    """The pools whose offers may be rented for a job: those of its fleet."""
    named = state.fleet.book.by_number.get(state.fleet.serving(bag.number))
    return bag.rules.rent_from if named is None else named.rules.pools


# --- tasks for machines ---------------------------------------------------------------------------------------------


def free_slots(state: State, host: Host) -> int:
    """Slots of a machine that are free: it gets no work ahead, so that what has not begun can still go elsewhere."""
    used = 0
    for job, task, number in host.held:
        bag = state.bags[job]
        if not attempts.is_live(bag, task, number):
            continue  # given up while it was hibernated: it is told so before it gets anything new
        used += width_of(bag, task)
    return host.slots - used


def width_of(bag: Bag, task: int) -> int:
    """Slots that a task takes."""
    return max(1, ceil(bag.classes[bag.class_of(task)].cpus))


def deadline_first(bag: Bag) -> tuple[float, int]:
    """The order of the jobs of a fleet; those without a deadline come last."""
    return inf if bag.rules.deadline_s is None else bag.submitted_t + bag.rules.deadline_s, bag.number


def reserved_for(state: State, machine: MachineState, host: Host, room: int) -> tuple[list[Assigned], int]:
    """Second attempts that the plan asks for and tasks of the machine's own queue that can begin now, and the slots
    that they take."""
    picked: list[Assigned] = []
    used, memory_free = 0, host.memory_bytes - host.memory_held
    free: FreeUnits | None = None
    second = again_of(state, machine)
    planned = state.fleet.plans[machine.fleet].plan
    in_order = planned is not None and planned.in_order
    beside = set(machine.beside)
    for place, name in enumerate((*second, *row_of(state, machine))):
        if used >= room:
            break
        job, task = meant(machine.fleet, name)
        bag = state.bags[job]
        if bag.rules.paused or bag.stopped:
            continue
        rules = bag.classes[bag.class_of(task)]
        if rules.container and not host.has_containers:
            continue
        number = bag.columns.attempts[task] + 1
        width, need = max(1, ceil(rules.cpus)), bag.memory_for(task, number)
        if used + width > room or (host.memory_bytes and need > memory_free) or bag.is_held(task):
            if in_order and place >= len(second) and _is_waited_for(bag, task, bool(host.held or picked)):
                break
            continue
        units: Units = ()
        if rules.needs:
            free = free or FreeUnits(state, host)
            taken = free.take(rules.needs)
            if taken is None:
                continue
            units = taken
        memory_free -= need
        used += width
        is_second = place < len(second) or name in beside
        why = SECOND_ATTEMPT if is_second else AGAIN if number > 1 else FRESH
        picked.append(Assigned(bag.number, task, 1, number, None, why, None, units))
    return picked, used


def _is_waited_for(bag: Bag, task: int, is_busy: bool) -> bool:
    """Whether the first task of a queue that is kept in order holds up those behind it: it will be able to begin.

    Not if its parent may be one that has failed, nor if it is too large for a machine on which nothing runs.
    """
    return not (bag.counts[columns.FAILED] or bag.counts[columns.CANCELLED]) if bag.is_held(task) else is_busy


# --- what happens to machines ---------------------------------------------------------------------------------------


def on_machine_ended(state: State, event: MachineEnded, policies: Any) -> MachineSettled:
    machine = state.fleet.machines.get(event.machine)
    if machine is None or not machine.there:
        return MachineSettled()
    host = state.hosts.get(machine.host)
    lost = [] if host is None else leases.losses_of(state, [host])
    if machine.stopping:
        # We gave it back: its tasks are not to blame, and this is no loss that counts against them.
        lost = [(*loss[:3], loss[3] if loss[3] == OTHERS_RUN else RETURNED) for loss in lost]
    settled = MachineSettled(lost, event.cause or _cause(machine))
    complete(state, event, settled)
    return settled


def _cause(machine: MachineState) -> str:
    """Why a machine that its provider shows no more has ended, as far as can be told."""
    if machine.stopping:
        return RELEASED
    return TAKEN if machine.noticed_t is not None else FAILED


def complete(state: State, event: MachineEnded, settled: MachineSettled) -> None:
    """Add to the losses what else follows from them."""
    settled.stopped = stops.after_losses(state, settled.lost)
    settled.lessons = lessons.of_losses(state, settled.lost, event.t)


def on_machine_refused(state: State, event: MachineRefused, policies: Any) -> OfferJudged:
    """A start was refused: for want of capacity, by a quota, or as invalid. Several at once count once."""
    machine = state.fleet.machines.get(event.machine)
    seen = None if machine is None else state.fleet.markets.get(machine.offer.key)
    if machine is None or seen is None:
        return OfferJudged(1)
    return OfferJudged(seen.refusals + (event.t >= shut_until_t(seen, machine.offer)))


def shut_until_t(seen: Seen, offer: Offer) -> float:
    """Until when this offer is not asked for again."""
    if seen.refused_t is None or not seen.refusals:
        return -inf
    return seen.refused_t + pause_s(offer, seen.refusals)


def pause_s(offer: Offer, refusals: int) -> float:
    """Seconds for which an offer is not asked for again after this many refusals in a row."""
    # At least one billing cycle or, where cycles are seconds, one boot: a lack of capacity lasts longer than a moment.
    unit_s = max(offer.cycle_s, PAUSE_BOOTS * offer.lag_s)
    units = min(LONGEST_PAUSE_CYCLES, REFUSED_PAUSE_CYCLES * 2.0 ** min(refusals - 1, 20))
    longest_s = LONGEST_SPOT_PAUSE_S if offer.market == SPOT else inf
    return max(LEAST_PAUSE_S, min(longest_s, units * unit_s))
