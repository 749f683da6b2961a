"""Silent hosts: unknown after one lease, lost after two; an attempt past its deadline is given up. Pure.

A late result of an attempt that was given up is still accepted. A replication cycle (core.matching.replica_queue) ends
with the same event.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from math import inf
from typing import Any

from windfall.core.decisions import OTHERS_RUN, TimeJudged
from windfall.core.events import HostsEnded, Key, TimerFired
from windfall.core.jobs import attempts, stops
from windfall.core.jobs.results import judge_loss
from windfall.core.liveness import forgetting, lessons
from windfall.core.matching.replica_queue import cycles, next_cycle_t
from windfall.core.renting import budgets
from windfall.core.state.hosts.hosts import GONE, HIBERNATED, Host
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.causes import Loss
from windfall.core.state.state import State

VOLUNTEER_LEASE_S = 14 * 86400.0
"""Silence after which the host of a volunteer is unknown. What it holds is given up at its report deadline."""


def is_due(state: State, t: float) -> bool:
    """Whether a lease, a deadline, a plan, a budget, a replication cycle or old hosts have to be looked at by now."""
    fleet, hosts, deadlines = state.fleet, state.hosts, state.bags.deadlines.front
    if fleet.replan_t <= t or fleet.budget_t <= t or hosts.forget_t <= t or (deadlines and deadlines[0][0] <= t):
        return True
    lease_s = state.settings.lease_s
    if state.bags.cycled and next_cycle_t(state) <= t:
        return True
    silent = next(iter(hosts.live), None)
    unknown = next(iter(hosts.unknown), None)
    return (silent is not None and hosts[silent].times.seen_t + lease_s <= t) or (
        unknown is not None and hosts[unknown].times.seen_t + 2 * lease_s <= t
    )


def on_timer_fired(state: State, event: TimerFired, policies: Any) -> TimeJudged:
    lease_s = state.settings.lease_s
    judged = TimeJudged()
    gone: set[Key] = set()
    if lease_s < inf:
        _judge_silence(state, event.t, lease_s, judged)
        gone.update(entry[:3] for entry in judged.lost)
    for deadline, job, task, number in state.bags.deadlines.due(event.t):
        bag = state.bags.get(job)
        key = (job, task, number)
        if bag is None or key in gone or not attempts.live_until(bag, task, number, deadline):
            continue
        if state.fleet.machines and _is_hibernated(state, bag, task, number):
            # Its plan decides how long it may stay hibernated.
            continue
        gone.add(key)
        running = bag.attempts.live[task]
        others = len(running) > 1 and any((job, task, other.number) not in gone for other in running)
        judged.expired.append((*key, judge_loss(bag, task, others)))
    complete(state, event, judged)
    if state.fleet.budgets:
        judged.given_back = budgets.to_give_back(state, event.t)
    if state.bags.cycled:
        gone.update(entry[:3] for entry in judged.lost)
        judged.replicated = _replicated(state, event.t, policies, gone)
    if state.hosts.forget_t <= event.t:
        forgetting.look(state, event.t, judged)
    return judged


def _judge_silence(state: State, t: float, lease_s: float, judged: TimeJudged) -> None:
    """Hosts that have been silent for one lease are unknown, those that have been for two are lost."""
    judged.unknown = _silent(state, state.hosts.live, lease_s, t)
    if judged.unknown and any(state.hosts[number].owner for number in judged.unknown):
        judged.renewed = [number for number in judged.unknown if _is_patient(state.hosts[number], t)]
        renewed = set(judged.renewed)
        judged.unknown = [number for number in judged.unknown if number not in renewed]
    lost = _silent(state, chain(state.hosts.unknown, judged.unknown), 2 * lease_s, t)
    if lost:
        judged.lost_hosts = lost
        judged.unknown = [number for number in judged.unknown if number not in lost]
        judged.lost = losses_of(state, [state.hosts[number] for number in lost])


def _replicated(state: State, t: float, policies: Any, gone: set[Key]) -> list[tuple[int, list[int]]]:
    """Replicas for the queue, except of tasks that this decision gives up an attempt of: they come back anyway."""
    lost = {key[:2] for key in gone}
    return [(job, [task for task in tasks if (job, task) not in lost]) for job, tasks in cycles(state, t, policies)]


def on_hosts_ended(state: State, event: HostsEnded, policies: Any) -> TimeJudged:
    """Workers of a pool that their provider calls ended, and have not said goodbye."""
    found = (state.host(name) for name, _ in event.hosts)
    hosts = [host for host in found if host is not None and host.state != GONE and host.pool == event.pool]
    judged = TimeJudged(lost_hosts=[host.number for host in hosts], lost=losses_of(state, hosts))
    complete(state, event, judged)
    return judged


def complete(state: State, event: TimerFired | HostsEnded, judged: TimeJudged) -> None:
    """Add to the losses what else follows from them."""
    losses = judged.lost + judged.expired
    if not losses:
        return
    if stopped := stops.after_losses(state, losses):
        judged.stopped = stopped
    judged.lessons = lessons.of_losses(state, losses, event.t)


def _is_patient(host: Host, t: float) -> bool:
    """Whether silence means nothing yet: clients of volunteers say nothing while they compute, or are switched off."""
    return bool(host.owner) and host.times.heard_t + VOLUNTEER_LEASE_S > t


def _is_hibernated(state: State, bag: Bag, task: int, number: int) -> bool:
    attempt = bag.attempts.find(task, number)
    host = None if attempt is None else state.hosts.get(attempt.host)
    return host is not None and host.state == HIBERNATED


def _silent(state: State, numbers: Iterable[int], allowed_s: float, t: float) -> list[int]:
    """Hosts that were silent for too long, the longest silent first. Computes the time as `wake_at` does: with another
    rounding the wake-up could come just before the time, again and again.
    """
    found: list[int] = []
    for number in numbers:
        if state.hosts[number].times.seen_t + allowed_s > t:
            break
        found.append(number)
    return found


def losses_of(state: State, hosts: list[Host], except_: frozenset[Key] = frozenset()) -> list[Loss]:
    """The live attempts that go with these hosts, each with its verdict. A task's last live attempt decides."""
    if not any(host.held for host in hosts):
        return []
    gone: set[Key] = {key for host in hosts for key in host.held if key not in except_}
    found: list[Loss] = []
    last: dict[tuple[int, int], int] = {}
    for host in hosts:
        for job, task, number in host.held:
            bag = state.bags[job]
            if (job, task, number) not in gone or not attempts.is_live(bag, task, number):
                continue
            gang = bag.attempts.gangs.get(task)
            if gang is not None:
                if (job, task) not in last:
                    # The first host that is lost ends the attempt on all; one that has not begun costs nothing.
                    last[job, task] = len(found)
                    found.append((job, task, number, judge_loss(bag, task, False, gang.has_begun)))
                continue
            if (job, task) in last:
                # Two of its replicas go at once: only the last one puts the task back into the queue.
                found[last[job, task]] = (*found[last[job, task]][:3], OTHERS_RUN)
            others = any((job, task, a.number) not in gone for a in bag.attempts.live[task])
            last[job, task] = len(found)
            found.append((job, task, number, judge_loss(bag, task, others)))
    return found
