"""The moves of an attempt: handed out, ended, given up. Called by `apply` only; they keep bags and hosts consistent."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import TypeVar

from windfall.core.decisions import Assigned, Stop
from windfall.core.events import Key
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.jobs.attempts import Attempt
from windfall.core.state.jobs.bags import FINAL, Bag
from windfall.core.state.jobs.columns import CANCELLED, HELD, WAITING
from windfall.core.state.renting.fleet import held_at, machine_of
from windfall.core.state.renting.fleets import Use, named
from windfall.core.state.state import State

T = TypeVar("T", dict[int, int], list[Attempt])
FAILED_WORK, LOST, REPLICA, CANCELLED_WORK = "failed", "lost", "replica", "cancelled"
"""Why the work of an attempt is wasted: it failed, its host was lost, another attempt was quicker, it was cancelled."""


def hand_out(state: State, host: Host, assigned: Assigned, t: float) -> None:
    """`assigned.count` tasks leave the queue for the host."""
    job, first, count, number, bags = assigned.job, assigned.first, assigned.count, assigned.attempt, state.bags
    bag = bags[job]
    columns, queues, counts, attempts, deadline = bag.columns, bag.queues, bag.counts, bag.attempts, assigned.deadline
    terms = bag._terms
    classes = terms.classes
    klass = bag.class_of(first) if len(classes) > 1 else 0
    if first not in attempts.live:
        # No replica: they have waited until now.
        if queues.reserved and first in queues.reserved:
            machine = state.fleet.machines[queues.reserved[first]]
            machine.queue.remove(named(machine.fleet, job, first))
            bag.withdraw(first)
        else:
            queues.by_class[klass].take(first, count)
        counts[WAITING] -= count
        counts[HELD] += count
    elif queues.replicas:
        queues.take_replica(first)
    for task in range(first, first + count):
        columns.state[task] = HELD
        columns.attempts[task] = number
        attempts.add(task, Attempt(number, host.number, t, deadline, assigned.why))
        host.held[job, task, number] = None
        if deadline is not None:
            bags.deadlines.push((deadline, job, task, number))
    if bags.crowded:
        bags.moved(job)
    if classes[klass].memory_bytes or bag.progress.memory:
        host.memory_held += bag.memory_for(first, number) * count
    if assigned.units:
        state.hosts.give_units(host, (job, first, number), assigned.units)
    bag.tally.attempts += count
    if terms.tail or counts[WAITING] <= queues.held + queues.reserved_ready:
        # Otherwise it has tasks to hand out as before.
        bags.refresh(bag)


def release(state: State, bag: Bag, task: int, number: int, waste: str = "", ran_s: float = inf) -> Attempt | None:
    """Forget one attempt, live or given up; its host no longer holds it. None if it is not known any more.

    `waste`: why its result does not count; empty if it does. `ran_s`: for how long it ran, if that is known.
    """
    attempt = bag.attempts.drop(task, number)
    if attempt is None:
        attempt = given_up(bag, task, number)
        if attempt is None:
            return None
        others = bag.attempts.given_up[task]
        others.remove(attempt)
        if not others:
            del bag.attempts.given_up[task]
    elif state.bags.crowded:
        state.bags.moved(bag.number)
    host = _unhold(state, bag, task, attempt, waste, ran_s)
    if host is not None and host.units:
        state.hosts.free_units(host, (bag.number, task, number))
    return attempt


def let_go(state: State, host: Host, except_: frozenset[Key] = frozenset()) -> None:
    """The host has none of what it held, except these: its process or its machine ended. It may still have results."""
    for key in [key for key in host.held if key not in except_]:
        job, task, number = key
        bag = state.bags[job]
        attempt = release(state, bag, task, number, LOST)
        if attempt is not None and bag.columns.state[task] not in FINAL:
            bag.attempts.released.setdefault(task, {})[number] = attempt.host


def holder(bag: Bag, task: int, number: int) -> int | None:
    """The number of the host that has this attempt or had it last; None if it has said how it ended."""
    attempt = given_up(bag, task, number) if bag.attempts.given_up else None
    return bag.attempts.released.get(task, {}).get(number) if attempt is None else attempt.host


def disown(state: State, host: int) -> None:
    """Nobody may say any more how attempts ended that this host had and that were given up, or went with it."""
    for job in list(state.bags.unfinished):
        book = state.bags[job].attempts
        for task, by_number in list(book.released.items()):
            kept = {number: holder for number, holder in by_number.items() if holder != host}
            if len(kept) < len(by_number):
                _replace(book.released, task, kept)
        for task, attempts in list(book.given_up.items()):
            others = [attempt for attempt in attempts if attempt.host != host]
            if len(others) < len(attempts):
                _replace(book.given_up, task, others)
                for attempt in attempts:
                    if attempt.host == host:
                        _unhold(state, state.bags[job], task, attempt, LOST)


def _replace(book: dict[int, T], task: int, kept: T) -> None:
    if kept:
        book[task] = kept
    else:
        del book[task]


def last_holder(bag: Bag, task: int, number: int) -> int | None:
    """The number of the host that has this attempt, or had it until it restarted or left; None: nobody has."""
    live = bag.attempts.find(task, number)
    return live.host if live is not None else holder(bag, task, number)


def _unhold(state: State, bag: Bag, task: int, attempt: Attempt, waste: str, ran_s: float = inf) -> Host | None:
    """Its host, if it is known, need not report it any more; its units are free only when it does."""
    hosts, of_fleets = state.hosts, state.fleet.book.of_job
    host = hosts.get(attempt.host)
    key = (bag.number, task, attempt.number)
    if host is None or host.held.pop(key, 0) is not None:
        return host
    if of_fleets and bag.number in of_fleets:
        _note_use(state, bag, task, attempt, host)
    if waste and state.fleet.machines:
        _note_waste(state, bag, task, attempt, host, waste, ran_s)
    if host.gang is not None and host.gang == key:
        host.gang, host.session.to_join, host.session.to_begin = None, (), ()
    if host.memory_held:
        host.memory_held -= bag.memory_for(task, attempt.number)
    if host.session.asked_back_t is not None:
        # Not a look into the empty dict: there is one for each host, and it is nowhere near.
        host.session.asked_back.pop(key, None)
        hosts.note_held(host)
    elif hosts.bundled and len(host.held) <= host.slots:
        hosts.bundled.pop(host.number, None)
    return host


def _note_use(state: State, bag: Bag, task: int, attempt: Attempt, host: Host) -> None:
    """An attempt of a job in a shared fleet ends: what it has used of its machine is counted (renting.shares)."""
    machine = machine_of(state, host)
    if machine is not None:
        from_s, to_s = held_at(machine, attempt.sent, state.t), held_at(machine, state.t, state.t)
        machine.uses.append(Use(bag.number, from_s, to_s, bag.classes[bag.class_of(task)].cpus))


def _note_waste(
    state: State, bag: Bag, task: int, attempt: Attempt, host: Host, why: str, ran_s: float
) -> None:  # fmt: skip
    """Core-seconds of a rented machine that went into an attempt whose result does not count.

    An attempt that never reported its start counts from when it was sent.
    """
    machine = machine_of(state, host)
    if machine is not None:
        seconds = held_at(machine, state.t, state.t) - held_at(machine, attempt.sent, state.t)
        known = bag.tally.wasted_core_s
        known[why] = known.get(why, 0.0) + max(0.0, min(seconds, ran_s)) * bag.classes[bag.class_of(task)].cpus


def give_up(bag: Bag, task: int, number: int) -> Attempt | None:
    """Stop counting on a live attempt. Its host may still hold it; a late result is still accepted."""
    attempt = bag.attempts.drop(task, number)
    if attempt is not None:
        bag.attempts.given_up.setdefault(task, []).append(attempt)
        if bag.index is not None and bag.index.crowded:
            bag.index.moved(bag.number)
    return attempt


def requeue(state: State, bag: Bag, task: int, plan_by_t: float = -inf) -> None:
    """The task waits again: in its queue, or in none while it waits for a parent. The caller settles the bag.

    `plan_by_t`: until when its fleet's plan may wait (`State.touch`).
    """
    bag.move(task, WAITING)
    if bag.shape is not None and bag.queues.parents_left[task]:
        bag.queues.held += 1
    else:
        bag.queues.by_class[bag.class_of(task)].give_back(task)
    state.touch(bag.number, plan_by_t)


def cancel_attempts(state: State, bag: Bag, task: int, waste: str = CANCELLED_WORK) -> None:
    """Ask every host that has this task to drop it, at its next exchange. `waste`: what its attempts count as."""
    bag.attempts.gangs.pop(task, None)
    for attempt in [*bag.attempts.drop_all(task), *bag.attempts.given_up.pop(task, [])]:
        host = state.hosts.get(attempt.host)
        if host is not None:
            host.session.to_cancel.append((bag.number, task, attempt.number))
            state.hosts.to_tell[host.number] = None
        _unhold(state, bag, task, attempt, waste)
    if state.bags.crowded:
        state.bags.moved(bag.number)


def settle_results(state: State, bag: Bag, t: float) -> None:
    """`settle` after results and losses: they change neither the rules of a job nor whether it was stopped."""
    counts, bags, queues = bag.counts, state.bags, bag.queues
    waits = counts[WAITING] > queues.held + queues.reserved_ready
    if waits and counts[HELD] and bag.number in bags._ready and not bag._terms.tail:
        # Nearly always: tasks run and wait, as before.
        bags.note_ended()
    else:
        settle(state, bag, t)


def settle(state: State, bag: Bag, t: float) -> None:
    """After a change: notice a job that has ended, keep the ready list true."""
    counts, bags = bag.counts, state.bags
    # What waits for a parent while nothing runs and nothing could run waits for one that failed or was cancelled.
    if not counts[HELD] and counts[WAITING] == bag.queues.held and bag.sealed:
        if bag.finished_t is None:
            bag.finished_t = t
            state.fleet.book.note(bag.number, has_ended=True)
            state.touch(bag.number)
    elif bag.finished_t is not None:
        bag.finished_t = None
        state.fleet.book.note(bag.number, has_ended=False)
    bags.refresh(bag)
    bags.note_ended()


def given_up(bag: Bag, task: int, number: int) -> Attempt | None:
    """The attempt of this number if it was given up and may yet be heard of."""
    return next((attempt for attempt in bag.attempts.given_up.get(task, ()) if attempt.number == number), None)


def is_live(bag: Bag, task: int, number: int) -> bool:
    return bag.attempts.find(task, number) is not None


def live_until(bag: Bag, task: int, number: int, deadline: float) -> bool:
    attempt = bag.attempts.find(task, number)
    return attempt is not None and attempt.deadline == deadline


def stop_jobs(state: State, stopped: Iterable[Stop], t: float) -> None:
    """Carry out which jobs a decision stops."""
    for job, reason in stopped:
        bag = state.bags[job]
        stop_job(state, bag, reason)
        settle(state, bag, t)


def stop_job(state: State, bag: Bag, reason: str) -> None:
    """Cancel everything of a job that has not ended."""
    bag.stop(reason)
    for task in list(bag.attempts.live):
        bag.move(task, CANCELLED)
        cancel_attempts(state, bag, task)
    for task in list(bag.attempts.given_up):
        cancel_attempts(state, bag, task)
