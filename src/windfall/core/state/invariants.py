"""What must hold in every state; tests check it after every step. Pure."""

from __future__ import annotations

import math
from collections import Counter
from itertools import chain

from windfall.core.state.hosts.hosts import GONE, LIVE, UNKNOWN, Host
from windfall.core.state.jobs.attempts import Attempt, Gang
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import DONE, FAILED, HELD, WAITING
from windfall.core.state.renting.fleet import ENDED, HIBERNATED, MachineState
from windfall.core.state.renting.fleets import meant, named
from windfall.core.state.state import State


def problems(state: State) -> list[str]:
    """Every broken invariant of the state as a sentence; empty if the state is right. Slow: for tests."""
    found: list[str] = []
    for bag in state.bags.values():
        found += _bag_problems(state, bag)
    for host in state.hosts.values():
        books = [LIVE] * (host.number in state.hosts.live) + [UNKNOWN] * (host.number in state.hosts.unknown)
        if books != ([] if host.state in (GONE, HIBERNATED) else [host.state]):
            found.append(f"host {host.name} is {host.state} and stands among {books}")
        if host.may_return != (host.number in state.hosts.bundled):
            found.append(f"host {host.name} holds {len(host.held)} and is wrong about its bundle")
        found += _unit_problems(host)
        found += _held_problems(state, host)
        if (host.number in state.hosts.sharing) != any(index < 0 for _, index, _ in chain(*host.units.values())):
            found.append(f"host {host.name} is wrong about what it has of the server")
        if not host.held.keys() >= host.session.asked_back.keys():
            found.append(f"host {host.name} was asked for what it does not hold")
        if host.session.asked_back and host.session.asked_back_t is None:
            found.append(f"host {host.name} was asked for something, and nobody knows when")
        if host.session.has_news and host.number not in state.hosts.to_tell:
            found.append(f"host {host.name} is to be told something and stands not among those")
    slots = sum(host.slots for host in state.hosts.values() if host.state == LIVE)
    if slots != state.hosts.live_slots:
        found.append(f"live slots are {slots}, counted {state.hosts.live_slots}")
    workers = Counter(host.pool for host in state.hosts.values() if host.state != GONE)
    if workers != state.hosts.by_pool:
        found.append(f"workers by pool are {dict(workers)}, counted {state.hosts.by_pool}")
    found += [problem for site in state.sites.values() for problem in site.problems()]
    if {*state.fleet.there} != {number for number, machine in state.fleet.machines.items() if machine.there}:
        found.append("the machines that are there are not those that have not ended")
    for machine in state.fleet.machines.values():
        found += _machine_problems(state, machine)
    found += [
        f"pool {pool.rules.name} has {pool.queued} pending" for pool in state.supply.pools.values() if pool.queued < 0
    ]
    return found


def _held_problems(state: State, host: Host) -> list[str]:
    """What a host holds is known to its jobs, and its memory is counted."""
    found: list[str] = []
    memory = 0
    for job, task, number in host.held:
        bag = state.bags.get(job)
        out = () if bag is None else (*bag.attempts.live.get(task, ()), *bag.attempts.given_up.get(task, ()))
        if bag is None or not any((each.number, each.host) == (number, host.number) for each in out):
            found.append(f"host {host.name} holds attempt {number} of task {job}.{task}, which nobody knows")
        else:
            memory += bag.memory_for(task, number)
    if not found and memory != host.memory_held:
        found.append(f"host {host.name} holds {memory} bytes, counted {host.memory_held}")
    return found


def over_budget(state: State) -> list[str]:
    """Tasks with more retries than their job allows: wrong while nobody has changed what it allows."""
    found: list[str] = []
    for bag in state.bags.values():
        # Each replica that was out may add one more while others still run.
        spare = bag.rules.max_replicas or state.settings.max_replicas
        for task in range(bag.total):
            rules = bag.classes[bag.class_of(task)]
            failures, losses = bag.columns.failures[task], bag.columns.losses[task]
            if failures > rules.max_failures + spare or losses > rules.max_losses + spare:
                found.append(f"job {bag.number}.{task}: more retries than allowed")
    return found


def _unit_problems(host: Host) -> list[str]:
    """A unit is given out once, or in parts that are no more than one together."""
    used: Counter[tuple[str, int]] = Counter()
    for name, index, amount in chain(*host.units.values()):
        used[name, index] += amount
    return [
        f"host {host.name}: {amount} thousandths of {name} {index} are given out"
        for (name, index), amount in used.items()
        if index >= 0 and amount > 1000
    ]


def _machine_problems(state: State, machine: MachineState) -> list[str]:
    found: list[str] = []
    host = state.hosts.get(machine.host)
    if host is not None and machine.phase == HIBERNATED and host.state not in (HIBERNATED, GONE):
        found.append(f"{machine.name} is hibernated and its host is {host.state}")
    # A worker may ask for a while after its provider has called the machine ended; it gets nothing.
    since_t = math.inf if machine.ended_t is None else machine.ended_t
    if host is not None and machine.phase == ENDED and host.state != GONE and host.times.heard_t < since_t:
        found.append(f"{machine.name} has ended and its host is {host.state}")
    if not machine.there and machine.queue:
        found.append(f"{machine.name} has ended and tasks wait for it")
    for job in [machine.fleet] if machine.fleet in state.bags else state.fleet.book.active[machine.fleet]:
        for task, number in state.bags[job].queues.reserved.items():
            times = machine.queue.count(named(machine.fleet, job, task))
            if number == machine.number and times != 1:
                found.append(f"{machine.name}: task {job}.{task} is reserved and stands in its queue {times} times")
    for name in machine.beside:
        if state.fleet.beside.get(meant(machine.fleet, name)) != machine.number or machine.queue.count(name) != 1:
            found.append(f"{machine.name}: task {name} beside a free host is not in its queue, or another machine's")
    if machine.meter.since_t is not None and machine.phase in (HIBERNATED, ENDED):
        found.append(f"{machine.name} is {machine.phase} and its meter runs")
    return found


def _bag_problems(state: State, bag: Bag) -> list[str]:
    found: list[str] = []
    name = f"job {bag.number}"
    by_state = [0] * 5
    for value in bag.columns.state:
        by_state[value] += 1
    if by_state != bag.counts:
        found.append(f"{name}: counters {bag.counts}, columns {by_state}")
    queued = [task for queue in bag.queues.by_class for task in queue]
    if len(queued) != len(set(queued)):
        found.append(f"{name}: a task is queued twice")
    if sum(queue.size for queue in bag.queues.by_class) != len(queued):
        found.append(f"{name}: queue sizes do not add up")
    waiting = {task for task, value in enumerate(bag.columns.state) if value == WAITING}
    held = {task for task in waiting if bag.shape is not None and bag.queues.parents_left[task]}
    reserved = set(bag.queues.reserved)
    if not bag.stopped and waiting - held - reserved != set(queued):
        found.append(f"{name}: waiting and queued differ by {sorted(waiting - held - reserved ^ set(queued))[:5]}")
    if reserved - waiting or len(reserved - held) != bag.queues.reserved_ready:
        found.append(f"{name}: {len(reserved)} tasks are reserved, {bag.queues.reserved_ready} counted aside")
    if len(held) != bag.queues.held:
        found.append(f"{name}: {len(held)} tasks wait for parents, counted {bag.queues.held}")
    found += _shape_problems(bag)
    levels = {task: level for level, tasks in bag.attempts.levels.saved().items() for task in tasks}
    if levels != {task: len(attempts) for task, attempts in bag.attempts.live.items()}:
        found.append(f"{name}: levels do not count the live attempts")
    if (bag.number in state.bags.tails) != bag.replicable:
        found.append(f"{name}: wrong about its tail")
    for task, attempts in bag.attempts.live.items():
        found += _attempt_problems(state, bag, task, attempts)
    for task, gang in bag.attempts.gangs.items():
        found += _gang_problems(state, bag, task, gang)
    sent = {task for task, value in enumerate(bag.columns.state) if value == HELD}
    if sent != set(bag.attempts.live):
        found.append(f"{name}: held and live differ by {sorted(sent ^ set(bag.attempts.live))[:5]}")
    if (bag.number in state.bags.ready) != bag.dispatchable:
        found.append(f"{name}: ready {bag.number in state.bags.ready}, dispatchable {bag.dispatchable}")
    if any(task not in bag.attempts.live or count < 1 for task, count in bag.queues.replicas.items()):
        found.append(f"{name}: replicas wait of tasks that do not run: {bag.queues.replicas}")
    if (bag.number in state.bags.cycled) != (bag.replicable and bag.queues_replicas):
        found.append(f"{name}: wrong about its replication cycle")
    if (bag.number in state.bags.unfinished) != (bag.finished_t is None and (bag.sealed or bag.rules.streaming)):
        found.append(f"{name}: {bag.state}, but {'' if bag.number in state.bags.unfinished else 'not '}in the queue")
    return found


def _shape_problems(bag: Bag) -> list[str]:
    """Nothing of a workflow runs or has run before all its parents were done."""
    if bag.shape is None:
        return []
    found, state = [], bag.columns.state
    for task in range(bag.total):
        parents = bag.shape.parents_of(task)
        left = sum(1 for parent in parents if parent >= bag.total or state[parent] != DONE)
        if left != bag.queues.parents_left[task]:
            found.append(f"job {bag.number}.{task}: {left} parents are left, counted {bag.queues.parents_left[task]}")
        if left and state[task] in (HELD, DONE, FAILED):
            found.append(f"job {bag.number}.{task} went before {left} of its parents")
    return found


def _gang_problems(state: State, bag: Bag, task: int, gang: Gang) -> list[str]:
    """Every host of the task that has not succeeded has its part and nothing else."""
    found = []
    name = f"job {bag.number}.{task}"
    ranks = [rank for rank in range(len(gang.hosts)) if rank not in gang.done]
    live = sorted((attempt.number, attempt.host) for attempt in bag.attempts.live.get(task, ()))
    if live != [(gang.first + rank, gang.hosts[rank]) for rank in ranks]:
        found.append(f"{name}: {live} run, and hosts {gang.hosts} without the ranks {gang.done} should")
    if len(set(gang.hosts)) != len(gang.hosts) or (gang.done and not gang.has_begun):
        found.append(f"{name}: hosts {gang.hosts}, joined {gang.joined}, done {gang.done}")
    for rank in ranks:
        host, key = state.hosts[gang.hosts[rank]], (bag.number, task, gang.first + rank)
        if host.gang != key or list(host.held) != [key]:
            found.append(f"{name}: host {host.name} has {host.gang} and holds {list(host.held)}")
        if (rank in gang.joined) == bool(host.session.to_join):
            found.append(f"{name}: host {host.name} is wrong about whether it was given its part")
    return found


def _attempt_problems(state: State, bag: Bag, task: int, attempts: tuple[Attempt, ...]) -> list[str]:
    found = []
    if not attempts:
        found.append(f"job {bag.number}.{task}: live without an attempt")
    for attempt in attempts:
        host = state.hosts.get(attempt.host)
        if host is None or host.state == GONE:
            found.append(f"job {bag.number}.{task}#{attempt.number} runs on a host that is gone")
        elif (bag.number, task, attempt.number) not in host.held:
            found.append(f"job {bag.number}.{task}#{attempt.number} is not held by {host.name}")
    return found
