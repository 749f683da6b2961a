"""Which tasks an asking host gets (GridBot, algorithm 1): bags by rank, as many as host and bag agree on. Pure.

Matching costs O(bags): the tasks of a bag look alike to a policy unless they have running replicas (GridBot 6.4).
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from windfall.core import attempts, silence
from windfall.core.events import AGAIN, FRESH, Assigned, HostAnswered, HostAsked
from windfall.core.state import GONE, LIVE, UNKNOWN, Bag, Host, State, TaskQueue

if TYPE_CHECKING:
    from windfall.core.engine import Policies

OTHER_HOST_LOOKAHEAD = 8
"""How far down the returned tasks to look for one that did not just fail on the asking host."""


def on_host_asked(state: State, event: HostAsked, policies: Policies) -> HostAnswered:
    host = state.host(event.host)
    if host is None:
        fresh = Host(state.next_host, event.host, event.t)
        _describe(fresh, event)
        assigned = [] if event.leaving else _choose(state, fresh, event, policies)
        return HostAnswered(fresh.number, assigned=assigned)
    if event.boot == host.boot and event.n < host.n:
        return HostAnswered(host.number, refused="another worker uses this id")
    promised = bool(host.assigned or host.cancelled)
    if event.boot == host.boot and event.n == host.n and promised:
        return HostAnswered(host.number, repeat=True)
    lost = silence.losses_of(state, [host]) if event.boot != host.boot or event.leaving else []
    if event.leaving:
        return HostAnswered(host.number, lost=lost)
    view = host
    if event.ad is not None or event.slots != host.slots:
        view = Host(host.number, host.name, event.t)
        view.__dict__.update(host.__dict__)
        _describe(view, event)
    assigned = _choose(state, view, event, policies)
    return HostAnswered(host.number, lost=lost, assigned=assigned, cancel=list(host.to_cancel))


def _describe(host: Host, event: HostAsked) -> None:
    if event.ad is not None:
        host.ad = event.ad
        host.ad_version += 1
        host.memory_bytes = int(event.ad.get("memory_mb") or 0) * 1024 * 1024
    host.slots = event.slots


def _choose(state: State, host: Host, event: HostAsked, policies: Policies) -> list[Assigned]:
    """Algorithm 1: walk the bags by rank until the host has what it wants."""
    want = event.want
    if want <= 0 or host.draining or _is_blocked(host, event.t) or not state.ready:
        return []
    picked: list[Assigned] = []
    for bag in _by_rank(state):
        room = min(want, _fair_share(state, host, bag))
        for index, queue in enumerate(bag.queues):
            if room <= 0:
                break
            if queue.size:
                taken = _take(state, host, bag, index, queue, room)
                picked += taken
                cost = ceil(bag.classes[index].cpus)
                used = sum(a.count for a in taken) * max(1, cost)
                room -= used
                want -= used
        if want <= 0:
            break
    return picked


def _is_blocked(host: Host, t: float) -> bool:
    return bool(host.blocked) and (host.blocked_until is None or t < host.blocked_until)


def _by_rank(state: State) -> list[Bag]:
    bags = list(state.ready.values())
    if len(bags) > 1:
        bags.sort(key=lambda bag: (-bag.rules.priority, bag.number))
    return bags


def _fair_share(state: State, host: Host, bag: Bag) -> int:
    """How many a host may hold ready of what is left, so that the last tasks spread over all hosts."""
    free = host.slots - len(host.held)
    share = ceil(bag.waiting * host.slots / (2 * max(state.live_slots, host.slots)))
    return max(free, share)


def _take(state: State, host: Host, bag: Bag, index: int, queue: TaskQueue, room: int) -> list[Assigned]:
    """Up to `room` tasks' worth of one class for this host, those that came back first."""
    rules = bag.classes[index]
    width = max(1, ceil(rules.cpus))
    if width > host.slots:
        return []
    left = room // width
    memory_free = host.memory_bytes - host.memory_held
    picked: list[Assigned] = []
    for task in _returned(state, host, bag, queue, left):
        number = bag.columns.attempts[task] + 1
        need = rules.memory_for(number)
        if need and host.memory_bytes and need > memory_free:
            continue
        picked.append(Assigned(bag.number, task, 1, number, None, AGAIN))
        memory_free -= need
        left -= 1
    need = rules.memory_for(1)
    if need and host.memory_bytes:
        left = min(left, memory_free // need)
    for start, end in queue.fresh:
        if left <= 0:
            break
        count = min(left, end - start)
        picked.append(Assigned(bag.number, start, count, 1, None, FRESH))
        left -= count
    return picked


def _returned(state: State, host: Host, bag: Bag, queue: TaskQueue, most: int) -> list[int]:
    """Tasks that came back, but rather not to the host where they just failed while there are others."""
    alone = len(state.live_hosts) <= 1
    picked: list[int] = []
    for position, task in enumerate(queue.again):
        if len(picked) >= most or position >= most + OTHER_HOST_LOOKAHEAD:
            break
        if alone or host.number not in bag.blame.get(task, ()):
            picked.append(task)
    return picked


def apply_host_answered(state: State, event: HostAsked, decided: HostAnswered) -> None:
    host = state.host(event.host)
    if host is None:
        host = Host(decided.host, event.host, event.t)
        state.hosts[host.number] = host
        state.names[host.name] = host.number
        state.next_host = host.number + 1
        host.state = GONE
    if decided.refused:
        return
    _come_alive(state, host, event)
    if decided.repeat:
        return
    silence.apply_losses(state, decided.lost, event.t)
    if event.boot != host.boot or event.leaving:
        _forget_held(state, host)
    host.boot, host.n = event.boot, event.n
    host.assigned, host.cancelled = decided.assigned, decided.cancel
    host.to_cancel = []
    state.hosts_to_tell.pop(host.number, None)
    for assigned in decided.assigned:
        attempts.hand_out(state, host, assigned, event.t)
    if event.leaving:
        silence.leave(state, host, event.leaving)


def _come_alive(state: State, host: Host, event: HostAsked) -> None:
    if host.state == LIVE:
        state.live_slots -= host.slots
        state.live_hosts.move_to_end(host.number)
    else:
        if host.state == UNKNOWN:
            del state.unknown_hosts[host.number]
        state.live_hosts[host.number] = None
        host.state = LIVE
    _describe(host, event)
    host.left = ""
    host.seen_t = event.t
    state.live_slots += host.slots


def _forget_held(state: State, host: Host) -> None:
    """A new process on the host knows nothing of what the old one held."""
    for job, task, number in list(host.held):
        attempts.release(state, state.bags[job], task, number)
    host.to_cancel = []
    state.hosts_to_tell.pop(host.number, None)
