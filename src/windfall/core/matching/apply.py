"""A host and what it is handed out, as the answer to its asking says. Decides nothing."""

from __future__ import annotations

from msgspec.structs import replace

from windfall.core.decisions import MEMBER, HostAnswered
from windfall.core.events import HostAsked, Key
from windfall.core.jobs import attempts, parts
from windfall.core.liveness.apply import apply_losses, leave
from windfall.core.renting.apply import give_back, joined, note_idle, note_taken
from windfall.core.state.hosts.hosts import GONE, LIVE, UNKNOWN, Host
from windfall.core.state.state import State
from windfall.core.supply import apply as supply


def apply_host_answered(state: State, event: HostAsked, decided: HostAnswered) -> None:
    hosts, boot, t = state.hosts, event.boot, event.t
    host = hosts.by_name.get(event.host)
    if host is None:
        host = Host.new(decided.host, event.host, t)
        hosts.add(host)
        host.state = GONE
    if decided.refused:
        return
    if event.secret:
        host.access = replace(host.access, secret=event.secret)
    _come_alive(state, host, event)
    if decided.repeat:
        return
    if decided.lost:
        apply_losses(state, decided.lost, decided.lessons, event.t)
        attempts.stop_jobs(state, decided.stopped, event.t)
    if decided.is_another:
        attempts.disown(state, host.number)
    session, handed_out = host.session, decided.assigned
    if boot != session.boot:
        _forget_held(state, host)
        # A drained worker has ended; one that is started again should work.
        if host.access.draining:
            host.access = replace(host.access, draining=False)
        session.boot = boot
    elif event.leaving:
        _forget_held(state, host)
    elif event.holds is not None:
        _forget_held(state, host, host.holding(event.holds))
    session.n, session.assigned = event.n, handed_out
    if session.cancelled or decided.cancel or session.handed_back or decided.hand_back:
        session.cancelled, session.handed_back = tuple(decided.cancel), decided.hand_back
    if session.begun or decided.begin:
        session.begun = decided.begin
    if hosts.to_tell and host.number in hosts.to_tell and session.has_news:
        session.to_cancel, session.to_hand_back, session.to_recall = [], [], False
        session.to_join = () if decided.assigned else session.to_join
        session.to_begin = () if decided.begin else session.to_begin
        if not session.has_news:
            hosts.to_tell.pop(host.number, None)
    if decided.probation is not None or decided.test:
        _apply_standing(state, host, decided, t)
    if decided.gang is not None:
        parts.form(state, decided.gang, t)
    for assigned in handed_out:
        if assigned.why == MEMBER:
            parts.join(state, assigned, decided.all_joined)
        else:
            attempts.hand_out(state, host, assigned, t)
    if len(host.held) > host.slots:
        if host.number not in hosts.bundled:
            hosts.note_held(host)
    elif hosts.bundled:
        hosts.bundled.pop(host.number, None)
    if decided.taken_back or decided.tails:
        _ask_back(state, decided, t)
        _change_tails(state, decided)
    if decided.breaker is not None:
        state.supply.pools[host.pool].note(decided.breaker)
    if state.fleet.machines:
        joined(state, host, event.t)
        note_idle(state, host)
        note_taken(state, host, decided.assigned)
        if decided.given_back:
            give_back(state, state.fleet.machines[decided.given_back], event.t)
    if event.leaving:
        leave(state, host, event.leaving)


def _ask_back(state: State, decided: HostAnswered, t: float) -> None:
    """Other hosts shall return what they have not begun."""
    for number, job, task, attempt in decided.taken_back:
        host, key = state.hosts[number], (job, task, attempt)
        session = host.session
        session.to_hand_back.append(key)
        session.asked_back[key] = None
        session.asked_back_t = t
        state.hosts.note_held(host)
        state.hosts.to_tell[host.number] = None


def _change_tails(state: State, decided: HostAnswered) -> None:
    for job, tail in decided.tails:
        bag = state.bags[job]
        bag.terms = replace(bag.terms, tail=tail)
        state.bags.refresh(bag)


def _apply_standing(state: State, host: Host, decided: HostAnswered, t: float) -> None:
    record = host.record
    if decided.probation is not None:
        record.probation_until, record.suspicion = decided.probation
    elif decided.test and decided.assigned:
        # A success clears the record; a failure doubles the wait for the next test.
        record.fade(t, state.settings.bookkeeping.host_half_life_s)
        record.probations += 1
        record.probation_until = decided.tested_until


def _come_alive(state: State, host: Host, event: HostAsked) -> None:
    times = host.times
    times.seen_t = times.heard_t = event.t
    was, pool = host.state, host.pool
    if was == LIVE:
        state.hosts.live.move_to_end(host.number)
        if event.ad is None and event.slots == host.slots and not host.left:
            # Nearly always: it only says that it is still there.
            return
        state.hosts.live_slots -= host.slots
    else:
        if was == UNKNOWN:
            del state.hosts.unknown[host.number]
        state.hosts.live[host.number] = None
        host.state = LIVE
    host.describe(event.ad, event.slots, event.t)
    state.hosts.note_held(host)
    if was == GONE:
        state.hosts.count_in_pool(host.pool, 1)
        if host.pool in state.supply.pools:
            supply.joined(state.supply.pools[host.pool], event.t)
    elif host.pool != pool:
        state.hosts.count_in_pool(pool, -1)
        state.hosts.count_in_pool(host.pool, 1)
    host.left = ""
    state.hosts.live_slots += host.slots


def _forget_held(state: State, host: Host, except_: frozenset[Key] = frozenset()) -> None:
    """The host has none of what we believe it has, except these: a new process knows nothing of the old one's."""
    attempts.let_go(state, host, except_)
    state.hosts.free_all_units(host, except_)
    host.session.to_cancel, host.session.to_hand_back, host.session.to_recall = [], [], False
    if not host.session.has_news:
        state.hosts.to_tell.pop(host.number, None)
