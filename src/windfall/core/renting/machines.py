"""Rented machines in the engine: ordered, booting, busy, asleep, ended, and the tasks that wait for them. Pure.

A machine is rented for one job, by its plan (core.plans), and its worker is one host. While a machine sleeps its host's
silence means nothing.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from windfall.core.events import (
    AGAIN,
    FRESH,
    Assigned,
    MachineEnded,
    MachineSettled,
)
from windfall.core.jobs import attempts
from windfall.core.liveness import leases
from windfall.core.state.fleet import FAILED, RELEASED, TAKEN, MachineState, owed_microusd
from windfall.core.state.hosts import Host
from windfall.core.state.state import State


def machines_of(state: State, job: int) -> list[MachineState]:
    return [state.fleet.machines[number] for number in state.fleet.by_job.get(job, ())]


def spent_microusd(state: State, job: int, t: float) -> int:
    """What the machines of a job cost up to t."""
    return sum(owed_microusd(machine, t) for machine in machines_of(state, job))


# --- tasks for machines ---------------------------------------------------------------------------------------------


def free_slots(state: State, host: Host) -> int:
    """Slots of a machine that are free: it gets no work ahead, so that what has not begun can still go elsewhere."""
    used = 0
    for job, task, number in host.held:
        bag = state.bags[job]
        if not attempts.is_live(bag, task, number):
            continue  # given up while it slept: it hears so before it gets anything new
        used += max(1, ceil(bag.classes[bag.class_of(task)].cpus))
    return host.slots - used


def queue_of(state: State, machine: MachineState) -> list[int]:
    """The tasks that wait for this machine. The bag has the last word: its list may name some that are no more."""
    reserved = state.bags[machine.job].queues.reserved
    return [task for task in machine.queue if reserved.get(task) == machine.number]


def reserved_for(state: State, machine: MachineState, host: Host, room: int) -> tuple[list[Assigned], int]:
    """Tasks of the machine's own queue that can begin now, and the slots that they take."""
    bag = state.bags[machine.job]
    if bag.rules.paused or bag.stopped:
        return [], 0
    picked: list[Assigned] = []
    used, memory_free = 0, host.memory_bytes - host.memory_held
    for task in queue_of(state, machine):
        if used >= room:
            break
        rules = bag.classes[bag.class_of(task)]
        number = bag.columns.attempts[task] + 1
        width, need = max(1, ceil(rules.cpus)), rules.memory_for(number)
        if used + width > room or (host.memory_bytes and need > memory_free) or bag.is_held(task):
            continue
        memory_free -= need
        used += width
        picked.append(Assigned(bag.number, task, 1, number, None, AGAIN if number > 1 else FRESH))
    return picked, used


# --- what happens to machines ---------------------------------------------------------------------------------------


def on_machine_ended(state: State, event: MachineEnded, policies: Any) -> MachineSettled:
    machine = state.fleet.machines.get(event.machine)
    if machine is None or not machine.there:
        return MachineSettled()
    host = state.hosts.get(machine.host)
    return MachineSettled([] if host is None else leases.losses_of(state, [host]), event.cause or _cause(machine))


def _cause(machine: MachineState) -> str:
    """Why a machine that its provider shows no more has ended, as far as can be told."""
    if machine.stopping:
        return RELEASED
    return TAKEN if machine.noticed_t is not None else FAILED


def awake_since(machine: MachineState) -> float:
    """Since when it has been up without a break; before its boot is over, since it was asked for."""
    woke_t = machine.sleeps[-1][1] if machine.sleeps else None
    return woke_t if woke_t is not None else (machine.ready_t or machine.requested_t)
