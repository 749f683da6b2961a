"""Hosts that fall silent, hibernate, resume or leave, and the attempts that they lose. Decides nothing."""

from __future__ import annotations

from math import inf

from windfall.core.decisions import LOST_FOR_GOOD, OTHERS_RUN, RETURNED, Lessons, TimeJudged
from windfall.core.events import HostsEnded, TimerFired
from windfall.core.jobs import attempts, parts
from windfall.core.state.hosts.hosts import GONE, HIBERNATED, LIVE, UNKNOWN, Host
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.causes import LOST_CODE, Loss
from windfall.core.state.jobs.columns import FAILED
from windfall.core.state.renting.fleet import machine_of
from windfall.core.state.state import State
from windfall.planning.contract import SPOT


def apply_time_judged(state: State, event: TimerFired, decided: TimeJudged) -> None:
    if decided.forget_t is not None:
        state.hosts.forget_t, state.hosts.forget_beyond = decided.forget_t, decided.forget_beyond
    for number, pool, owner in decided.forgotten:
        state.hosts.forget(number, pool, owner)
    for number in decided.renewed:
        state.hosts[number].times.seen_t = event.t
        state.hosts.live.move_to_end(number)
    for number in decided.unknown:
        _fall_silent(state, state.hosts[number], UNKNOWN)
    for number in decided.lost_hosts:
        _fall_silent(state, state.hosts[number], GONE)
    if decided.lost or decided.expired:
        apply_losses(state, [*decided.lost, *decided.expired], decided.lessons, event.t)
        attempts.stop_jobs(state, decided.stopped, event.t)
    deadlines = state.bags.deadlines
    while deadlines.front and deadlines.front[0][0] <= event.t:
        deadlines.pop()
    state.bags.forget_ended()
    for job, tasks in decided.replicated:
        queues = state.bags[job].queues
        queues.replicated_t = event.t
        for task in tasks:
            queues.add_replica(task)
    _make_due(state, event.t)


def apply_hosts_ended(state: State, event: HostsEnded, decided: TimeJudged) -> None:
    if decided.lost:
        apply_losses(state, decided.lost, decided.lessons, event.t)
        attempts.stop_jobs(state, decided.stopped, event.t)
    why = dict(event.hosts)
    for number in decided.lost_hosts:
        host = state.hosts[number]
        attempts.let_go(state, host)
        leave(state, host, why[host.name] or "its pool says that it has ended")


def _make_due(state: State, t: float) -> None:
    """Mark the plans whose `replan_t` has come."""
    if state.fleet.replan_t > t:
        return
    for plan in state.fleet.plans.values():
        if plan.replan_t <= t:
            plan.replan_t = inf
            state.touch(plan.fleet)
    state.fleet.schedule()


def _fall_silent(state: State, host: Host, to: str) -> None:
    if host.state == LIVE:
        del state.hosts.live[host.number]
        state.hosts.live_slots -= host.slots
    elif host.state == UNKNOWN:
        del state.hosts.unknown[host.number]
    host.state = to
    state.hosts.bundled.pop(host.number, None)
    if to == UNKNOWN:
        state.hosts.unknown[host.number] = None
    elif to == GONE:
        host.left = host.left or "silent"
        state.hosts.count_in_pool(host.pool, -1)
        _plan_forgetting(state, host)


def _plan_forgetting(state: State, host: Host) -> None:
    """A host has left: look for hosts to forget when it is old enough, or at once if too many have left by now."""
    hosts, settings = state.hosts, state.settings
    hosts.forget_t = min(hosts.forget_t, host.times.heard_t + settings.host_forget_s)
    kept = settings.hosts_kept
    if kept is not None and hosts.away > max(kept, hosts.forget_beyond):
        # Later than the end of its second lease, which a server that starts renews: the timer that finds it lost is not
        # to fire twice.
        hosts.forget_t = min(hosts.forget_t, host.times.seen_t + 3 * settings.lease_s)


def hibernate(state: State, host: Host) -> None:
    """Its machine is hibernated: from now on its lease stands still."""
    _fall_silent(state, host, HIBERNATED)


def resume(state: State, host: Host, t: float) -> None:
    """Its machine has resumed: its lease begins anew."""
    host.state, host.times.seen_t = LIVE, t
    state.hosts.live[host.number] = None
    state.hosts.live_slots += host.slots
    state.hosts.note_held(host)


def leave(state: State, host: Host, reason: str) -> None:
    """The host said goodbye."""
    host.left = reason
    state.hosts.free_all_units(host)
    _fall_silent(state, host, GONE)


def apply_losses(state: State, losses: list[Loss], lessons: Lessons | None, t: float) -> None:
    """Give attempts up, charge the losses, and put tasks back into the queue as their verdicts say."""
    if lessons is not None:
        _learn(state, losses, lessons)
    touched: dict[int, Bag] = {}
    half_life_s = state.settings.bookkeeping.host_half_life_s
    for job, task, number, verdict in losses:
        bag = state.bags[job]
        attempt = attempts.give_up(bag, task, number)
        if attempt is None:
            continue
        touched[job] = bag
        if bag.attempts.gangs:
            parts.end(state, bag, task)
        if verdict == RETURNED:
            attempts.requeue(state, bag, task)
            continue
        bag.columns.losses[task] += 1
        host = state.hosts.get(attempt.host)
        machine = None if host is None else machine_of(state, host)
        if host is not None:
            host.record.fade(t, half_life_s)
            host.record.lost_task()
            bag.tally.lost_by_pool[host.pool] = bag.tally.lost_by_pool.get(host.pool, 0) + 1
        if verdict == OTHERS_RUN:
            continue
        if verdict == LOST_FOR_GOOD:
            fail_as_lost(bag, task, number, attempt.host, attempt.sent, t)
        else:
            # The safety net covers what is lost on spot machines.
            is_covered = machine is not None and machine.offer.market == SPOT
            attempts.requeue(state, bag, task, inf if is_covered else -inf)
    for bag in touched.values():
        attempts.settle_results(state, bag, t)


def _learn(state: State, losses: list[Loss], lessons: Lessons) -> None:
    rules = state.settings.bookkeeping.latencies
    for place, seconds in lessons.interrupted:
        job, task, _, _ = losses[place]
        known = state.bags[job].progress.interrupted_s
        known[task] = max(seconds, known.get(task, 0.0))
    for place, seconds in lessons.silences:
        job, task, number, _ = losses[place]
        bag = state.bags[job]
        attempt = bag.attempts.find(task, number)
        if attempt is not None:
            pool = state.hosts[attempt.host].pool
            state.learned.latencies.observe_censored(pool, bag.rules.name, seconds, rules=rules)
    for advice in lessons.advice:
        state.learned.take(advice)


def fail_as_lost(bag: Bag, task: int, number: int, host: int, sent: float, t: float) -> None:
    columns = bag.columns
    bag.move(task, FAILED)
    columns.attempt[task], columns.host[task] = number, host
    columns.start[task], columns.end[task] = sent, t
    columns.cause[task] = LOST_CODE
    bag.tally.causes[LOST_CODE] = bag.tally.causes.get(LOST_CODE, 0) + 1
    bag.tally.last_result_t = t
    bag.tally.blame.pop(task, None)
