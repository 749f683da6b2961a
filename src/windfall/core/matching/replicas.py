"""Speculative replicas (GridBot, algorithm 2): at a bag's end, idle hosts run again what is slow elsewhere. Pure.

Of a bag with `replication = "idle-slots"` a replica is made for a host that asks, only when no task of the bag is
unsent, of the tasks with the fewest replicas first. A task on whose result volunteers must agree does not wait for
slowness: as many of them as must agree get it. With `"queued"` replicas wait in the queue (replica_queue.py).
Never two of a task on one host, and at most `max_replicas` at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from math import ceil, inf
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from windfall.core.decisions import TAIL_REPLICA, Assigned, Units
from windfall.core.events import Key, TaskClass
from windfall.core.jobs.quorum import lacks_voters, may_try
from windfall.core.matching.ads import Ad, bag_ad, job_ad
from windfall.core.matching.bundles import is_ahead
from windfall.core.matching.policy import BagPolicy
from windfall.core.matching.turnarounds import quantile_s
from windfall.core.matching.units import FreeUnits
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.jobs.attempts import Attempt
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import DONE
from windfall.core.state.state import State

if TYPE_CHECKING:
    from windfall.core.engine import Policies

LOOKED_AT, LOOKED_AT_IN_ALL = 32, 128
"""Tasks of a bag, and of all bags, that one asking host makes us look at: an ask must not cost the length of a bag."""
WASTE = 0.05
"""Without a policy, replicas may cost about this share of the bag."""
MIN_SAMPLES = 5
SOONEST, LATEST = 0.5, 0.95
"""The shares of results that are waited for at least and at most, before what is still out counts as slow."""
LATE_FACTOR = 1.25


class Room(Struct):
    """What a host can still take: tasks by Concurrency, slots, memory (None: it does not say), our time, units."""

    tasks: int
    slots: int
    memory_bytes: int | None
    looks: int
    units: Callable[[], FreeUnits]

    def fits(self, rules: TaskClass, need_bytes: int) -> bool:
        return rules.cpus <= self.slots and (self.memory_bytes is None or need_bytes <= self.memory_bytes)

    def take(self, rules: TaskClass, need_bytes: int) -> Units | None:
        """Make room for one task; the units that it gets, or None if there are not enough of them."""
        units: Units | None = self.units().take(rules.needs) if rules.needs else ()
        if units is not None:
            self.tasks -= 1
            self.slots -= max(1, ceil(rules.cpus))
            if self.memory_bytes is not None:
                self.memory_bytes -= need_bytes
        return units


def slow_after_s(state: State, bag: Bag) -> float | None:
    """How long an attempt may take before a bag without a policy wants a replica; None while too little is known.

    A quantile of the turnarounds of the bag's attempts, as low as the budget for waste allows: a tail is about as many
    tasks as two rounds of the slots, and the share of them that is still out by then runs twice. Attempts that are out
    count, too, because the quick ones come back first. If the quantile lies among those that are out (their hosts may
    have vanished), the turnarounds of the others and a quarter more count instead.
    """
    done = bag.counts[DONE]
    if done < MIN_SAMPLES:
        return None
    tail = max(1, min(bag.total, 2 * state.hosts.live_slots))
    share = max(SOONEST, min(LATEST, 1.0 - WASTE * bag.total / tail))
    cells = state.settings.bookkeeping.turnaround_cells
    among_done = share * (done + len(bag.attempts.live)) / done
    if among_done <= 1.0:
        return quantile_s(bag.tally.turnarounds, among_done, cells)
    return LATE_FACTOR * quantile_s(bag.tally.turnarounds, LATEST, cells)


def replicas_for(
    state: State, host: Host, bag: Bag, policy: BagPolicy, room: Room, ads: tuple[Ad, Ad, Ad], t: float,
    deadline_s: Callable[[Bag, BagPolicy, Mapping[str, Any]], float | None],
) -> list[Assigned]:  # fmt: skip
    """Replicas of this bag's running tasks for this host, as far as there is room, which they take."""
    host_, queue, pool = ads
    picked: list[Assigned] = []
    explicit = "ReplicationRequirements" in policy.expressions
    patience_s = None if explicit else slow_after_s(state, bag)
    quorum, classes = bag._terms.rules.quorum, bag._terms.classes
    votes = quorum > 1 and bool(host.owner)
    if not explicit and patience_s is None and not votes:
        return picked
    bag_, cap = bag_ad(bag, t), bag.rules.max_replicas or state.settings.max_replicas
    may_come_back = bool(state.hosts.bundled) and state.settings.spread_bundles
    for task, attempts in _candidates(bag, max(cap, quorum)):
        if room.tasks <= 0 or room.slots <= 0 or room.looks <= 0:
            break
        room.looks -= 1
        one = len(attempts) == 1
        if attempts[0].host == host.number or (not one and any(each.host == host.number for each in attempts)):
            continue
        if quorum and not may_try(state, bag, task, host):
            continue
        if may_come_back and one and _comes_back(state, bag, task, attempts[0]):
            continue
        # What several volunteers must do anyway, they do at the same time.
        is_vote = votes and lacks_voters(state, bag, task, attempts)
        if not is_vote and (len(attempts) >= cap or not (explicit or _is_slow(attempts, t, patience_s))):
            continue
        rules = classes[bag.class_of(task) if len(classes) > 1 else 0]
        if rules.container and not host.has_containers:
            continue
        number = bag.columns.attempts[task] + 1
        if not room.fits(rules, bag.memory_for(task, number)):
            continue
        job = job_ad(state, bag, task, attempts, t)
        if is_vote:
            matches = policy.match(host_, bag_, queue, pool, t, job).matches
        else:
            matches = policy.match_replica(host_, job, bag_, queue, pool, t)
        if matches:
            units = room.take(rules, bag.memory_for(task, number))
            if units is None:
                continue
            seconds = deadline_s(bag, policy, job)
            due_t = None if seconds is None else t + seconds
            picked.append(Assigned(bag.number, task, 1, number, due_t, TAIL_REPLICA, None, units))
    return picked


def queued_for(
    state: State, host: Host, bag: Bag, policy: BagPolicy, room: Room, ads: tuple[Ad, Ad, Ad], t: float,
    deadline_s: Callable[[Bag, BagPolicy, Mapping[str, Any]], float | None],
) -> list[Assigned]:  # fmt: skip
    """Replicas of this bag that wait in the queue, the first that entered first. JobRequirements alone decides."""
    host_, queue, pool = ads
    picked: list[Assigned] = []
    bag_ = bag_ad(bag, t)
    for task in islice(bag.queues.replicas, LOOKED_AT):
        if room.tasks <= 0 or room.slots <= 0 or room.looks <= 0:
            break
        room.looks -= 1
        attempts = bag.attempts.live[task]
        if bag.rules.quorum and not may_try(state, bag, task, host):
            continue
        rules = bag.classes[bag.class_of(task)]
        if rules.container and not host.has_containers:
            continue
        number = bag.columns.attempts[task] + 1
        if any(attempt.host == host.number for attempt in attempts) or not room.fits(
            rules, bag.memory_for(task, number)
        ):
            continue
        job = job_ad(state, bag, task, attempts, t)
        if policy.match(host_, bag_, queue, pool, t, job).matches:
            units = room.take(rules, bag.memory_for(task, number))
            if units is None:
                continue
            seconds = deadline_s(bag, policy, job)
            due_t = None if seconds is None else t + seconds
            picked.append(Assigned(bag.number, task, 1, number, due_t, TAIL_REPLICA, None, units))
    return picked


def to_come(state: State, policies: Policies) -> Iterator[tuple[float, Key]]:
    """When the tasks of bags in their tails may get one more replica by being slow, each with its newest attempt.

    A policy that says when is not foreseen: its tasks may get one at any time, as far as is known here.
    """
    looks = LOOKED_AT_IN_ALL
    for bag in state.bags.replicable():
        policy = policies.of(bag.rules.policies)
        if bag.queues_replicas or not policy.may_replicate:
            continue
        explicit = "ReplicationRequirements" in policy.expressions
        patience_s = None if explicit else slow_after_s(state, bag)
        if patience_s is None and not explicit:
            continue
        for task, attempts in _candidates(bag, bag.rules.max_replicas or state.settings.max_replicas):
            looks -= 1
            if looks < 0:
                return
            yield -inf if patience_s is None else _slow_t(attempts, patience_s), (bag.number, task, attempts[-1].number)


def _is_slow(attempts: tuple[Attempt, ...], t: float, patience_s: float | None) -> bool:
    """The newest attempt counts: a replica gets as long as the first had before there is another."""
    return patience_s is not None and _slow_t(attempts, patience_s) <= t


def _slow_t(attempts: tuple[Attempt, ...], patience_s: float) -> float:
    return attempts[-1].sent + patience_s


def _comes_back(state: State, bag: Bag, task: int, attempt: Attempt) -> bool:
    """Whether the task has not begun and will be asked back, so that no replica of its only attempt is needed."""
    number = attempt.host
    if number not in state.hosts.bundled:
        return False
    key, holder = (bag.number, task, attempt.number), state.hosts[number]
    return key not in holder.session.asked_back and is_ahead(holder, key)


def _candidates(bag: Bag, cap: int) -> Iterator[tuple[int, tuple[Attempt, ...]]]:
    """Running tasks with the fewest replicas first, the longest running first among equals."""
    looked = 0
    levels = bag.attempts.levels.by_number()
    for level in sorted(levels):
        if level >= cap:
            return
        for task in levels[level]:
            looked += 1
            if looked > LOOKED_AT:
                return
            yield task, bag.attempts.live[task]
