"""What silence means: a host unheard of is unknown, then lost; an attempt past its deadline is given up. Pure.

Silence is not death: nothing is torn down because of it, and a result that comes late is still welcome.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from math import inf
from typing import Any

from windfall.core.events import LOST_FOR_GOOD, OTHERS_RUN, RETURNED, Key, TimeJudged, TimerFired
from windfall.core.jobs import attempts
from windfall.core.jobs.results import judge_loss
from windfall.core.liveness import timeouts
from windfall.core.renting import runtimes
from windfall.core.state.bags import Bag
from windfall.core.state.columns import FAILED
from windfall.core.state.hosts import GONE, HIBERNATED, LIVE, UNKNOWN, Host
from windfall.core.state.state import State
from windfall.wire.messages import CAUSES, LOST

LOST_CODE = CAUSES.index(LOST)
Loss = tuple[int, int, int, int]
"""(job, task, attempt, verdict)."""


def next_look(state: State) -> float | None:
    """When silence or a deadline will next have a meaning; early is harmless."""
    at, deadlines = state.fleet.replan_t, state.bags.deadlines.front
    if deadlines and deadlines[0][0] < at:
        at = deadlines[0][0]
    lease_s = state.settings.lease_s
    if lease_s < inf:
        for number in state.hosts.live:
            at = min(at, state.hosts[number].times.seen_t + lease_s)
            break
        for number in state.hosts.unknown:
            at = min(at, state.hosts[number].times.seen_t + 2 * lease_s)
            break
    return at if at < inf else None


def on_timer_fired(state: State, event: TimerFired, policies: Any) -> TimeJudged:
    lease_s = state.settings.lease_s
    judged = TimeJudged()
    judged.unknown = _silent(state, state.hosts.live, lease_s, event.t)
    lost = _silent(state, chain(state.hosts.unknown, judged.unknown), 2 * lease_s, event.t)
    gone: set[Key] = set()
    if lost:
        judged.lost_hosts = lost
        judged.unknown = [number for number in judged.unknown if number not in lost]
        judged.lost = losses_of(state, [state.hosts[number] for number in lost])
        gone.update(entry[:3] for entry in judged.lost)
    for deadline, job, task, number in state.bags.deadlines.due(event.t):
        bag = state.bags.get(job)
        key = (job, task, number)
        if bag is None or key in gone or not attempts.live_until(bag, task, number, deadline):
            continue
        if state.fleet.machines and _is_asleep(state, bag, task, number):
            # How long it may sleep is its plan's business.
            continue
        gone.add(key)
        remaining = [a for a in bag.attempts.live[task] if (job, task, a.number) not in gone]
        judged.expired.append((*key, judge_loss(bag, task, others=bool(remaining))))
    return judged


def _is_asleep(state: State, bag: Bag, task: int, number: int) -> bool:
    attempt = next(a for a in bag.attempts.live[task] if a.number == number)
    host = state.hosts.get(attempt.host)
    return host is not None and host.state == HIBERNATED


def _silent(state: State, numbers: Iterable[int], allowed_s: float, t: float) -> list[int]:
    """Those that were silent for too long, the longest silent first. Adds up as `next_look` does: a sum that rounds
    another way would wake us for ever at a time that is never late enough."""
    found = []
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
            if (job, task, number) not in gone or not any(a.number == number for a in bag.attempts.live.get(task, ())):
                continue
            if (job, task) in last:
                # Two of its replicas go at once: only the last one puts the task back into the queue.
                found[last[job, task]] = (*found[last[job, task]][:3], OTHERS_RUN)
            others = any((job, task, a.number) not in gone for a in bag.attempts.live[task])
            last[job, task] = len(found)
            found.append((job, task, number, judge_loss(bag, task, others)))
    return found


def apply_time_judged(state: State, event: TimerFired, decided: TimeJudged) -> None:
    for number in decided.unknown:
        _fall_silent(state, state.hosts[number], UNKNOWN)
    for number in decided.lost_hosts:
        _fall_silent(state, state.hosts[number], GONE)
    for losses in (decided.lost, decided.expired):
        if losses:
            apply_losses(state, losses, event.t)
    while state.bags.deadlines and state.bags.deadlines.front[0][0] <= event.t:
        state.bags.deadlines.pop()
    attempts.forget_ended(state)
    _make_due(state, event.t)


def _make_due(state: State, t: float) -> None:
    """Plans that asked to look again now."""
    if state.fleet.replan_t > t:
        return
    for plan in state.fleet.plans.values():
        if plan.replan_t <= t:
            plan.replan_t = inf
            state.touch(plan.job)
    state.fleet.schedule()


def _fall_silent(state: State, host: Host, to: str) -> None:
    if host.state == LIVE:
        del state.hosts.live[host.number]
        state.hosts.live_slots -= host.slots
    elif host.state == UNKNOWN:
        del state.hosts.unknown[host.number]
    host.state = to
    if to == UNKNOWN:
        state.hosts.unknown[host.number] = None
    elif to == GONE:
        host.left = host.left or "silent"
        state.hosts.count_in_pool(host.pool, -1)


def fall_asleep(state: State, host: Host) -> None:
    """Its machine is hibernated: from now on its silence means nothing."""
    _fall_silent(state, host, HIBERNATED)


def wake_up(state: State, host: Host, t: float) -> None:
    """Its machine is awake again: it has a whole lease to say so."""
    host.state, host.times.seen_t = LIVE, t
    state.hosts.live[host.number] = None
    state.hosts.live_slots += host.slots


def leave(state: State, host: Host, reason: str) -> None:
    """The host said goodbye."""
    host.left = reason
    _fall_silent(state, host, GONE)


def apply_losses(state: State, losses: list[Loss], t: float) -> None:
    """Give attempts up, charge the losses, and put tasks back into the queue as their verdicts say."""
    touched: dict[int, Bag] = {}
    for job, task, number, verdict in losses:
        bag = state.bags[job]
        attempt = attempts.give_up(bag, task, number)
        if attempt is None:
            continue
        touched[job] = bag
        if job in state.fleet.plans:
            runtimes.note_cut_short(state, bag, task, attempt, t)
        if verdict == RETURNED:
            attempts.requeue(state, bag, task)
            continue
        bag.columns.losses[task] += 1
        host = state.hosts.get(attempt.host)
        if host is not None:
            host.record.fade(t)
            host.record.lost_task()
            timeouts.learn_silence(state, host, bag, t - attempt.sent)
        if verdict == OTHERS_RUN:
            continue
        if verdict == LOST_FOR_GOOD:
            fail_as_lost(bag, task, number, attempt.host, attempt.sent, t)
        else:
            attempts.requeue(state, bag, task)
    for bag in touched.values():
        attempts.settle(state, bag, t)


def fail_as_lost(bag: Bag, task: int, number: int, host: int, sent: float, t: float) -> None:
    columns = bag.columns
    bag.move(task, FAILED)
    columns.attempt[task], columns.host[task] = number, host
    columns.start[task], columns.end[task] = sent, t
    columns.cause[task] = LOST_CODE
    bag.tally.causes[LOST_CODE] = bag.tally.causes.get(LOST_CODE, 0) + 1
    bag.tally.last_result_t = t
    bag.tally.blame.pop(task, None)
