"""What an asking host is answered: tasks of its machine or of all bags, or none, and what follows from that. Pure."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from windfall.bounds import MAX_HELD
from windfall.core.decisions import LOST_FOR_GOOD, TEST, Assigned, HostAnswered
from windfall.core.events import HostAsked, Key
from windfall.core.jobs import stops
from windfall.core.liveness import leases, lessons, reliability
from windfall.core.matching import gangs
from windfall.core.matching.matcher import Matcher
from windfall.core.matching.tail import tail_changes
from windfall.core.renting.checkpoints import set_intervals
from windfall.core.renting.free_hosts import may_help
from windfall.core.renting.machines import deadline_first, free_slots, reserved_for, width_of
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.hosts.pools import ENDING, Breaker, PoolState
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import DONE
from windfall.core.state.renting.fleet import MachineState, machine_of
from windfall.core.state.state import State
from windfall.core.supply import modes, overlay

if TYPE_CHECKING:
    from windfall.core.engine import Policies

DRAINED, NOW, SAVE = "drained", "now", "save"
"""What a worker is told: end when nothing is left to do, hand back what runs and end, or let it save and then end."""
IDLE = "idle"
"""What a worker says that leaves for want of work."""


def on_host_asked(state: State, event: HostAsked, policies: Policies) -> HostAnswered:
    host = state.hosts.by_name.get(event.host)
    if host is None:
        fresh = Host.new(state.hosts.next, event.host, event.t)
        fresh.describe(event.ad, event.slots, event.t)
        answer = HostAnswered(fresh.number)
        if event.n > 1:
            answer.tell = True  # it was forgotten while it was away: what it is and holds is not known
        elif modes.gives_nothing(state, fresh.pool):
            _send_away(state, fresh, event, answer)
        else:
            _answer(state, fresh, event, policies, answer)
        return complete(state, fresh, event, answer)
    session, number = host.session, host.number
    if (
        event.n == session.n + 1 and event.boot == session.boot and event.slots == host.slots and event.ad is None
        and event.holds is None and not event.leaving and not event.secret and number not in state.hosts.to_tell
        and host.gang is None and not host.access.draining and not state.supply.modes and not state.fleet.machines
    ):  # fmt: skip
        # Nearly always: it only asks for more, and nothing but that is to be looked at.
        answer = _answer(state, host, event, policies, HostAnswered(number))
        return complete(state, host, event, answer) if answer.test or state.supply.pools else answer
    new_boot = event.boot != session.boot
    if not new_boot and event.n <= session.n:
        if event.n < session.n:
            return HostAnswered(number, refused="another worker uses this id")
        if session.assigned or session.cancelled or session.handed_back or session.begun:
            return HostAnswered(number, repeat=True)
    if new_boot or event.leaving:
        lost = leases.losses_of(state, [host])
    else:
        lost = [] if event.holds is None else leases.losses_of(state, [host], host.holding(event.holds))
    view = host
    if event.ad is not None or event.slots != host.slots:
        view = copy(host)
        view.times = copy(host.times)
        view.describe(event.ad, event.slots, event.t)
    if new_boot and host.units:
        view = copy(host) if view is host else view
        view.units = {}  # no process of the old boot is left to have them
    has_news = number in state.hosts.to_tell and not event.leaving
    cancel = list(session.to_cancel) if has_news else []
    answer = HostAnswered(number, False, lost, [], cancel)
    if event.secret and host.access.secret:
        answer.is_another = event.secret != host.access.secret
    if has_news and session.to_hand_back:
        answer.hand_back = tuple(key for key in session.to_hand_back if key in host.held)
    if event.holds and not event.leaving and (stale := _stale(state, host, event.holds)):
        # It was forgotten while these ran, or their handing out is not in the log. It gets nothing before they have
        # ended: what they use is not known.
        answer.cancel += [key for key in stale if key not in cancel]
        answer.tell = True
    if not new_boot and event.n > session.n + 1:
        # Numbers have no gaps: one means that our log was cut off behind an answer that the worker has seen.
        answer.tell = True
    if host.gang is not None and not new_boot and not event.leaving and not answer.tell and not lost:
        gangs.deliver(state, host, answer)
    if state.supply.modes and modes.gives_nothing(state, view.pool):
        _send_away(state, view, event, answer, new_boot)
    elif state.fleet.machines and (machine := _recalled(state, host)) is not None:
        answer.stop, answer.tell = SAVE, False
        if not machine.stopping and (new_boot or event.leaving or not _still_held(host, event)):
            answer.given_back = machine.number
    elif host.access.draining and not new_boot:
        answer.stop, answer.tell = "" if _still_held(host, event) else DRAINED, False
    elif not answer.tell:
        _answer(state, view, event, policies, answer)
    if answer.lost or answer.test or state.supply.pools:
        return complete(state, view, event, answer)
    return answer


def _send_away(state: State, host: Host, event: HostAsked, answer: HostAnswered, new_boot: bool = True) -> None:
    """The host's pool is drained or ended: it goes when it holds nothing more, or at once; its machine goes with it."""
    answer.tell = False
    if modes.mode_of(state, host.pool) == ENDING:
        answer.stop = NOW
    elif new_boot or event.leaving or not _still_held(host, event):
        answer.stop = DRAINED
        machine = machine_of(state, host)
        answer.given_back = machine.number if machine is not None and machine.there and not machine.stopping else 0


def _stale(state: State, host: Host, holds: list[Key]) -> list[Key]:
    """Attempts that the host has, is not known to have, and whose results would not count."""
    return [key for key in holds if key not in host.held and not _may_count(state, host.number, key)]


def _may_count(state: State, host: int, key: Key) -> bool:
    """Whether a late result of an attempt of this host could still be accepted."""
    job, task, number = key
    bag = state.bags.get(job)
    if bag is None:
        return False
    out = (*bag.attempts.live.get(task, ()), *bag.attempts.given_up.get(task, ()))
    known = any((attempt.number, attempt.host) == (number, host) for attempt in out)
    return known or bag.attempts.released.get(task, {}).get(number) == host


def _recalled(state: State, host: Host) -> MachineState | None:
    """The machine of this host, if a plan has recalled it."""
    machine = machine_of(state, host)
    return machine if machine is not None and machine.there and machine.recalled_t is not None else None


def _still_held(host: Host, event: HostAsked) -> bool:
    """Whether the host holds attempts after it has said what it has."""
    if event.holds is None:
        return bool(host.held)
    return any(key in host.held for key in event.holds)


def _answer(state: State, host: Host, event: HostAsked, policies: Policies, answer: HostAnswered) -> HostAnswered:
    """Fill in what the host gets, and what follows from it."""
    want, room = event.want, event.room
    if event.leaving or want + room <= 0 or (host.access.blocked and host.access.is_blocked(event.t)):
        return answer
    if host.gang is not None:
        return answer  # a task has the whole host; if it is lost with this exchange, the next one gives something
    bags, hosts = state.bags, state.hosts
    machine = machine_of(state, host) if state.fleet.machines else None
    if machine is None and not bags._ready and not bags.tails and not (want and hosts.bundled):
        return answer
    if answer.lost and any(verdict == LOST_FOR_GOOD for *_, verdict in answer.lost):
        # Losses of this host may stop the job whose tasks would be handed out here: the next exchange decides.
        return answer
    if want + room + len(host.held) > MAX_HELD:
        want = max(0, min(want, MAX_HELD - len(host.held)))
        room = max(0, MAX_HELD - len(host.held) - want)
    record = host.record
    if record.probation_until is None:
        # Nearly every record rules a suspicion out: see `reliability.suspicion`.
        spotless = not record.error_weight and record.failures_in_a_row < reliability.SUSPECT_IN_A_ROW
        if not spotless and (reason := _excluded_because(state, host)):
            answer.probation = (event.t + reliability.probation_s(record.probations), reason)
            return answer
    elif event.t < record.probation_until or not want:
        return answer
    else:
        # The wait is over: one task as a test, and only if no other test is out.
        want, room, answer.test = (0 if host.held else 1), 0, True
    if machine is None:
        matcher = Matcher(state, host, event.t, policies)
        answer.assigned = assigned = matcher.choose(want, room)
        if matcher.gang is not None:
            gangs.lead(answer, matcher.gang)
            return answer
        if hosts.bundled and matcher.held < host.slots and not answer.test and state.settings.spread_bundles:
            answer.taken_back = tuple(matcher.take_back(want - sum(piece.count for piece in assigned)))
    else:
        formed, waits = gangs.for_machine(state, machine, host, event.t, policies) if want else (None, False)
        if formed is not None:
            gangs.lead(answer, formed)
            return answer
        if waits:
            return answer
        answer.assigned = assigned = _for_machine(state, machine, host, event.t, policies, want)
    if answer.test:
        for piece in assigned:
            piece.why = TEST
    for piece in assigned:
        if bags[piece.job]._terms.classes[0].checkpoint_auto:
            set_intervals(state, host, machine, assigned, event.t)
            break
    if (assigned or bags.tails) and (tails := tail_changes(state, host, assigned)):
        answer.tails = tuple(tails)
    return answer


def complete(state: State, host: Host, event: HostAsked, answer: HostAnswered) -> HostAnswered:
    """Add what follows from the losses and from the assigned tasks; `host` is as it describes itself now."""
    if answer.lost:
        answer.stopped = tuple(stops.after_losses(state, answer.lost))
        answer.lessons = lessons.of_losses(state, answer.lost, event.t)
    if answer.test and answer.assigned:
        answer.tested_until = event.t + reliability.probation_s(host.record.probations + 1)
    pool = state.supply.pools.get(host.pool) if state.supply.pools else None
    if pool is not None:
        answer.breaker = _breaker(state, pool, host, event, answer)
    return answer


def _breaker(state: State, pool: PoolState, host: Host, event: HostAsked, answer: HostAnswered) -> Breaker | None:
    """Whether asking for this worker helped. It did not if the worker leaves idle although tasks waited that it was not
    given.

    Without this a job that no worker of a pool suits would have workers come and go for ever.
    """
    if answer.assigned:
        return overlay.after_use(pool)
    record = host.record
    if event.leaving != IDLE or not state.bags.ready or answer.lost or record.done or record.failed or record.lost:
        return None
    return overlay.after_refusal(pool, "its workers leave without a task: no waiting job may run on them", event.t)


def _for_machine(
    state: State, machine: MachineState, host: Host, t: float, policies: Policies, want: int
) -> list[Assigned]:
    """What the worker of a rented machine gets: what is reserved for it, then what jobs of its fleet have unassigned.

    It gets no tasks ahead and none of other fleets: the plan counts on the whole machine.
    """
    if machine.stopping or not machine.there or machine.noticed_t is not None:
        return []
    room = min(want, free_slots(state, host))
    picked, used = reserved_for(state, machine, host, room)
    own = state.bags.get(machine.fleet)
    matcher: Matcher | None = None
    for bag in [own] if own is not None else _of_fleet(state, machine.fleet):
        if used < room and bag.number in state.bags.ready and may_help(state, bag, machine, t):
            if matcher is None:
                matcher = Matcher(state, host, t, policies)
                matcher.held, matcher.jobs = matcher.held + used, matcher.jobs + len(picked)
                for piece in picked:
                    if piece.units:
                        matcher.units.reserve(piece.units)
            chosen = matcher.choose_from(bag, room - used)
            picked += chosen
            used += sum(piece.count * width_of(bag, piece.first) for piece in chosen)
    return picked


def _of_fleet(state: State, fleet: int) -> list[Bag]:
    """The jobs of a named fleet whose unassigned tasks its machines may take, the earliest deadline first."""
    planned = state.fleet.plans[fleet].plan
    if planned is None or planned.only_reserved:
        return []
    return sorted((state.bags[job] for job in state.fleet.book.active[fleet]), key=deadline_first)


def _excluded_because(state: State, host: Host) -> str:
    """Why to starve this host, unless too many are starved already."""
    failed_in = state.bags.get(host.record.failed_job)
    reason = reliability.suspicion(host.record, _witnesses(failed_in, host) if failed_in else 0)
    if not reason:
        return ""
    starved = sum(
        other.slots
        for number in state.hosts.live
        if (other := state.hosts[number]).record.probation_until is not None and other.number != host.number
    )
    too_many = starved + host.slots > reliability.MOST_EXCLUDED * max(state.hosts.live_slots, host.slots)
    return "" if too_many else reason


def _witnesses(bag: Bag, host: Host) -> int:
    """How many tasks of the bag speak against this host, as far as that matters: done, or running elsewhere since
    before its failures began."""
    needed, since = reliability.SUSPECT_IN_A_ROW, host.record.failing_since
    found = bag.counts[DONE]
    if found >= needed or host.record.failures_in_a_row < needed:
        return found
    for task in bag.attempts.levels.alone():
        attempt = bag.attempts.live[task][0]
        if attempt.sent > since or found >= needed:
            break
        found += attempt.host != host.number
    return found
