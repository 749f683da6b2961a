"""Which of the hosts that wait for work shall ask again now, and when to look next. Pure.

A worker without work leaves its request open. Only what a host asks for is ever given to it, so a driver must know when
to have a waiting host ask: when tasks or queued replicas wait, and when an attempt in a tail has become so slow that a
replica of it may run. A driver says who begins to wait and what is recorded, and wakes whom `look` names. Nothing here
is part of the state: a host that is woken in vain gets nothing, and one that is not woken asks again by itself.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from windfall.core.decisions import HostAnswered
from windfall.core.events import HostAsked, Key
from windfall.core.matching.dispatch import on_host_asked
from windfall.core.matching.matcher import AVOID_S
from windfall.core.matching.replicas import to_come
from windfall.core.records import Record
from windfall.core.state.hosts.hosts import LIVE
from windfall.core.state.state import State
from windfall.core.wishes import makes_work

if TYPE_CHECKING:
    from windfall.core.engine import Policies

HOSTS_LOOKED_AT = 32
"""Waiting hosts that are tried for replicas at one look: each costs as much as an exchange that gives nothing."""
ASKING_S = 0.5
"""Hosts that are woken have asked within this time; sooner none is woken for the tasks that they will take."""
MOST_REMEMBERED = 10_000
FEW_TAILS, PAUSE_S = 32, 5e-5
"""A look for replicas asks every job in its tail, 0.3 to 0.8 us each. Where there are more than a few, the next look
follows after a pause for each of them, so that looking takes two percent of a driver's time at most."""


class IdleHosts:
    """The hosts that wait, the longest waiting first."""

    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self.since: dict[str, int] = {}
        """By name: the record that gave the host nothing. Drivers ask nothing while it is empty."""
        self._again: dict[str, float] = {}
        """When each host began to wait, the earliest first, until it has asked a second time: a task that failed on it
        goes to others first."""
        self._asks_again: set[str] = set()
        self._work_seq = 0
        """The last record after which a host could get something that got nothing before."""
        self._offered: set[Key] = set()
        """Newest attempts of tasks for whose replicas waiting hosts have been tried."""
        self._turn = 0
        self._replicas_t = -inf
        """The earliest next look for replicas."""

    def has_missed(self, seq: int) -> bool:
        """Whether there may be something for a host that got nothing by record `seq`."""
        return self._work_seq >= seq

    def begin(self, host: str, seq: int, t: float) -> None:
        """A host begins to wait: record `seq` at `t` gave it less than it wants."""
        self.end(host)
        self.since[host] = seq
        if host in self._asks_again:
            self._asks_again.discard(host)
        else:
            self._again[host] = t

    def end(self, host: str) -> None:
        """It asks by itself, or is gone."""
        self.since.pop(host, None)
        self._again.pop(host, None)

    def heed(self, state: State, record: Record) -> None:
        """Take note of what may give waiting hosts work."""
        decided = record.decided
        if makes_work(state, record) or (type(decided) is HostAnswered and decided.tails):
            self._work_seq = record.seq
            self._offered.clear()

    def look(self, state: State, t: float) -> tuple[list[str], float]:
        """The hosts that shall ask now, and when to look next if nothing else is recorded."""
        found: list[str] = []
        at = inf
        may_ask = self._again or (self.since and self._has_waited(next(iter(self.since))))
        if may_ask and (tasks := _open(state)):
            found = self._for_tasks(tasks, t)
            if self._again:
                at = max(next(iter(self._again.values())) + AVOID_S, t + ASKING_S)
        if self.since and state.bags.tails:
            copies, look_t = self._for_replicas(state, t)
            found += copies
            at = min(at, look_t)
        return found, at

    def _has_waited(self, host: str) -> bool:
        return self.since[host] < self._work_seq

    def _for_tasks(self, tasks: int, t: float) -> list[str]:
        """No more hosts than there are tasks: first those that wait since before the tasks did."""
        found: list[str] = []
        for host in self.since:
            # Later hosts have asked after it, too.
            if not self._has_waited(host) or len(found) >= tasks:
                break
            found.append(host)
        for host in found:
            self.end(host)
        while self._again and len(found) < tasks:
            host, began_t = next(iter(self._again.items()))
            if began_t + AVOID_S > t:
                break
            found.append(host)
            self.end(host)
            self._asks_again.add(host)
        if len(self._asks_again) > MOST_REMEMBERED:
            self._asks_again.clear()  # hosts that never came back
        return found

    def _for_replicas(self, state: State, t: float) -> tuple[list[str], float]:
        if t < self._replicas_t:
            return [], self._replicas_t
        tails = len(state.bags.tails)
        self._replicas_t = t + PAUSE_S * tails if tails > FEW_TAILS else t
        due, at = [], inf
        for due_t, key in to_come(state, self._policies):
            if key not in self._offered:
                if due_t <= t:
                    due.append(key)
                elif due_t < at:
                    at = due_t
        found: list[str] = []
        left = len(due)
        for name in self._in_turn() if due else ():
            given = self._would_get(state, name, t)
            if given:
                found.append(name)
                self.end(name)
            left -= given
            if left <= 0:
                break
        if len(self._offered) > MOST_REMEMBERED:
            self._offered.clear()
        self._offered.update(due)
        return found, at

    def _in_turn(self) -> list[str]:
        """Some of the hosts that wait, others every time: where none of these may run a replica, others may."""
        names = list(self.since)
        first = self._turn % len(names)
        self._turn += HOSTS_LOOKED_AT
        return (names[first:] + names[:first])[:HOSTS_LOOKED_AT]

    def _would_get(self, state: State, name: str, t: float) -> int:
        """How many attempts a host would be given if it asked now. To decide changes nothing."""
        host = state.hosts.by_name.get(name)
        if host is None or host.state != LIVE:
            return 0
        free = max(1, host.slots - len(host.held))
        asked = HostAsked(t, name, host.session.boot, host.session.n + 1, free, host.slots)
        return sum(piece.count for piece in on_host_asked(state, asked, self._policies).assigned)


def _open(state: State) -> int:
    """Tasks and queued replicas that any host could be given."""
    bags = state.bags
    tasks = sum(bag.waiting for bag in bags.ready.values())
    return tasks + sum(bag.queues.queued_replicas for bag in bags.cycled.values())
