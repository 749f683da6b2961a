"""Which hosts that have left are forgotten: by age, and beyond a number. Pure: looks and chooses.

Kept are hosts that an operator has blocked or drained, those on probation, and those that unfinished work or an open
bill names; until they are old, also those whose processes may still have a GPU or a licence, and for a day those that a
pool has started: the ticket that one of them was given enrols nobody else as long as it is known. What the forgotten
ones have done together is kept by pool (state.hosts.forgotten).
"""

from __future__ import annotations

from math import inf

from windfall.core.decisions import TimeJudged
from windfall.core.state.hosts.hosts import GONE, Host
from windfall.core.state.renting.fleet import MachineState
from windfall.core.state.state import State

EVERY_S = 3600.0
"""Between two looks at ages."""
LEFT_BETWEEN_LOOKS = 0.1
"""Hosts that leave between two looks whether too many have, as a share of all: a look goes through all of them."""
TICKET_S = 86400.0
"""Seconds after its last exchange for which a host that a pool has started is known: no ticket lives longer."""
MOST_SUMS = 1000
"""Pools, and owners, whose forgotten hosts have a sum of their own; those of others are under the empty name."""


def look(state: State, t: float, judged: TimeJudged) -> None:
    """Fill in the hosts to forget, those heard longest ago first, and when to look again."""
    settings, hosts = state.settings, state.hosts
    gone = sorted(
        (host for host in hosts.values() if host.state == GONE), key=lambda host: (host.times.heard_t, host.number)
    )
    too_many = 0 if settings.hosts_kept is None else len(gone) - settings.hosts_kept
    named, pools, owners = _named(state), set(hosts.forgotten), set(hosts.forgotten_by_owner)
    next_t = inf
    for host in gone:
        old_t = host.times.heard_t + settings.host_forget_s
        if old_t > t and len(judged.forgotten) >= too_many:
            next_t = min(next_t, old_t)
            break
        may_run = host.times.heard_t + 2 * settings.lease_s > t or (old_t > t and bool(host.units))
        if may_run or _may_have_ticket(state, host, t) or host.number in named or _is_marked(host, t):
            next_t = t  # as soon as ages are looked at again
        else:
            has_worked = bool(host.owner and (host.record.results or host.record.granted_s))
            owner = _sum_of(owners, host.owner) if has_worked else None
            judged.forgotten.append((host.number, _sum_of(pools, host.pool), owner))
    judged.forget_t = max(next_t, t + EVERY_S)
    judged.forget_beyond = len(gone) - len(judged.forgotten) + int(LEFT_BETWEEN_LOOKS * len(hosts))


def _may_have_ticket(state: State, host: Host, t: float) -> bool:
    if host.times.heard_t + TICKET_S <= t:
        return False
    pool = state.supply.pools.get(host.pool)
    return host.pool in state.fleet.offers or (pool is not None and not pool.rules.joins_itself)


def _sum_of(names: set[str], name: str) -> str:
    """The name under which a pool or an owner is counted."""
    if name not in names and len(names) >= MOST_SUMS:
        return ""
    names.add(name)
    return name


def _is_marked(host: Host, t: float) -> bool:
    """Whether an operator, or its own failures, have said something that must hold when it comes back."""
    until = host.record.probation_until
    return bool(host.held) or host.access.draining or host.access.is_blocked(t) or (until is not None and until > t)


def _named(state: State) -> set[int]:
    """Hosts that unfinished work or an open bill names."""
    found: set[int] = set()
    for job in state.bags.unfinished:
        bag = state.bags[job]
        for book in (bag.attempts.live, bag.attempts.given_up):
            found.update(attempt.host for attempts in book.values() for attempt in attempts)
        for by_number in bag.attempts.released.values():
            found.update(by_number.values())
        for gang in bag.attempts.gangs.values():
            found.update(gang.hosts)
        for votes in bag.progress.votes.values():
            found.update(vote.host for vote in votes)
    found.update(machine.host for machine in state.fleet.machines.values() if _is_open(state, machine))
    return found


def _is_open(state: State, machine: MachineState) -> bool:
    """Whether something may still be added to the bill that names the machine."""
    if machine.there:
        return True
    bag = state.bags.get(machine.fleet)
    return bool(state.fleet.book.active.get(machine.fleet)) if bag is None else bag.finished_t is None
