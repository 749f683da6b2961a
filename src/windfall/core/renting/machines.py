"""Rented machines in the engine: ordered, booting, busy, asleep, ended, and the tasks that wait for them. Pure.

A machine is rented for one job, by its plan (core.plans), and its worker is one host. While a machine sleeps its host's
silence means nothing.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from msgspec.structs import replace

from windfall.core.events import (
    AGAIN,
    FRESH,
    Assigned,
    MachineEnded,
    MachineHibernated,
    MachineNoticed,
    MachineRefused,
    MachineResumed,
    MachineSettled,
    MachineStarted,
    Nothing,
    OffersConfigured,
    PricesReported,
    StrangersSeen,
)
from windfall.core.jobs import attempts
from windfall.core.liveness import leases
from windfall.core.renting import money
from windfall.core.state.bags import Bag
from windfall.core.state.fleet import (
    ENDED,
    HIBERNATED,
    PENDING,
    REFUSED,
    RUNNING,
    TAKEN,
    MachineState,
    Seen,
    machine_of,
    owed_microusd,
)
from windfall.core.state.hosts import GONE, Host
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


def reserve(state: State, bag: Bag, queues: list[tuple[int, list[int]]]) -> None:
    """Give machines new queues. What was reserved for them and is named no more waits for anybody."""
    for number, _ in queues:
        unreserve(state, state.fleet.machines[number])
    for number, tasks in queues:
        bag.reserve(number, tasks)
        state.fleet.machines[number].queue = list(tasks)
    state.bags.refresh(bag)


def unreserve(state: State, machine: MachineState) -> None:
    """What is reserved for a machine may run anywhere again."""
    bag = state.bags[machine.job]
    for task in queue_of(state, machine):
        bag.unreserve(task)
    machine.queue = []
    state.bags.refresh(bag)


# --- what happens to machines ---------------------------------------------------------------------------------------


def joined(state: State, host: Host, t: float) -> None:
    """The worker of a machine has asked for work: it has booted, or is awake again."""
    machine = machine_of(state, host)
    if machine is None or not machine.there:
        return
    if machine.phase == PENDING:
        machine.phase, machine.ready_t, machine.host = RUNNING, t, host.number
        if machine.meter.since_t is None:
            machine.meter = money.start(t)
        _seen(state, machine).started_t = t
        state.touch(machine.job)
    elif machine.phase == HIBERNATED:
        wake(state, machine, t)


def note_idle(state: State, host: Host) -> None:
    """After an answer: has the machine of this host run out of work?"""
    machine = machine_of(state, host)
    if machine is None or not machine.there:
        return
    idle = not host.held and not queue_of(state, machine)
    if idle and not machine.idle:
        state.touch(machine.job)
    machine.idle = idle


def apply_offers_configured(state: State, event: OffersConfigured, decided: Nothing) -> None:
    state.fleet.offers[event.pool] = list(event.offers)
    for job in state.fleet.plans:
        state.touch(job)


def apply_prices_reported(state: State, event: PricesReported, decided: Nothing) -> None:
    prices = dict(event.prices)
    changed = [
        replace(offer, price_usd=prices[offer.name]) if offer.name in prices else offer
        for offer in state.fleet.offers.get(event.pool, ())
    ]
    state.fleet.offers[event.pool] = changed
    for machine in state.fleet.there.values():
        if machine.there and machine.offer.pool == event.pool and machine.offer.name in prices:
            held_s = money.held_s(machine.meter, event.t)
            machine.rates.append((held_s, money.microusd(prices[machine.offer.name])))
    for job in state.fleet.plans:
        state.touch(job)


def apply_machine_started(state: State, event: MachineStarted, decided: Nothing) -> None:
    machine = state.fleet.machines.get(event.machine)
    if machine is None or machine.id:
        return
    machine.id = event.id
    seen = _seen(state, machine)
    seen.refusals, seen.started_t = 0, event.t
    if machine.offer.bills_boot and machine.meter.since_t is None and machine.there:
        machine.meter = money.start(event.at)


def apply_machine_refused(state: State, event: MachineRefused, decided: Nothing) -> None:
    machine = state.fleet.machines.get(event.machine)
    if machine is None or not machine.there or machine.id:
        return
    if event.capacity:
        _seen(state, machine).refuse(machine.offer, event.t)
    machine.error = event.error
    _finish(state, machine, event.t, REFUSED)


def apply_machine_noticed(state: State, event: MachineNoticed, decided: Nothing) -> None:
    machine = state.fleet.machines.get(event.machine)
    if machine is not None and machine.there and machine.noticed_t != event.until:
        machine.noticed_t = event.until
        state.touch(machine.job)


def apply_machine_hibernated(state: State, event: MachineHibernated, decided: Nothing) -> None:
    machine = state.fleet.machines.get(event.machine)
    if machine is None or machine.phase in (ENDED, HIBERNATED):
        return
    seen = _seen(state, machine)
    seen.slept += 1
    seen.cut(event.at)
    seen.up_s += max(0.0, event.at - awake_since(machine))
    machine.phase, machine.noticed_t = HIBERNATED, None
    machine.meter = money.pause(machine.meter, event.at)
    machine.sleeps.append((event.at, None))
    host = state.hosts.get(machine.host)
    if host is not None and host.state != GONE:
        leases.fall_asleep(state, host)
    state.touch(machine.job)


def apply_machine_resumed(state: State, event: MachineResumed, decided: Nothing) -> None:
    machine = state.fleet.machines.get(event.machine)
    if machine is None or machine.phase != HIBERNATED:
        return
    wake(state, machine, event.at)
    host = state.hosts.get(machine.host)
    if host is not None and host.state == HIBERNATED:
        leases.wake_up(state, host, event.t)


def wake(state: State, machine: MachineState, at: float) -> None:
    asleep_t = machine.sleeps[-1][0]
    at = max(at, asleep_t)
    machine.sleeps[-1] = (asleep_t, at)
    machine.meter = money.resume(machine.meter, at)
    machine.phase = PENDING if machine.ready_t is None else RUNNING
    seen = _seen(state, machine)
    seen.woken += 1
    seen.asleep_s += at - asleep_t
    state.touch(machine.job)


def on_machine_ended(state: State, event: MachineEnded, policies: Any) -> MachineSettled:
    machine = state.fleet.machines.get(event.machine)
    host = None if machine is None or not machine.there else state.hosts.get(machine.host)
    return MachineSettled([] if host is None else leases.losses_of(state, [host]))


def apply_machine_ended(state: State, event: MachineEnded, decided: MachineSettled) -> None:
    machine = state.fleet.machines.get(event.machine)
    if machine is None or not machine.there:
        return
    if machine.phase == HIBERNATED:
        _seen(state, machine).asleep_s += max(0.0, event.at - machine.sleeps[-1][0])
        machine.sleeps[-1] = (machine.sleeps[-1][0], event.at)
    elif machine.ready_t is not None or event.cause == TAKEN:
        _seen(state, machine).up_s += max(0.0, event.at - awake_since(machine))
    if event.cause == TAKEN:
        _seen(state, machine).taken += 1
        _seen(state, machine).cut(event.at)
    machine.meter = money.end(machine.meter, event.at, taken=event.cause == TAKEN)
    _finish(state, machine, event.at, event.cause)
    leases.apply_losses(state, decided.lost, event.t)
    host = state.hosts.get(machine.host)
    if host is not None and host.state != GONE:
        for key in list(host.held):
            attempts.release(state, state.bags[key[0]], key[1], key[2])
        leases.leave(state, host, f"its machine ended: {event.cause}")


def apply_strangers_seen(state: State, event: StrangersSeen, decided: Nothing) -> None:
    state.fleet.strangers[event.pool] = list(event.strangers)


def _finish(state: State, machine: MachineState, t: float, cause: str) -> None:
    machine.phase, machine.cause, machine.ended_t = ENDED, cause, t
    state.fleet.there.pop(machine.number, None)
    unreserve(state, machine)
    state.touch(machine.job)


def awake_since(machine: MachineState) -> float:
    """Since when it has been up without a break; before its boot is over, since it was asked for."""
    woke_t = machine.sleeps[-1][1] if machine.sleeps else None
    return woke_t if woke_t is not None else (machine.ready_t or machine.requested_t)


def _seen(state: State, machine: MachineState) -> Seen:
    return state.fleet.markets.setdefault(machine.offer.key, Seen())
