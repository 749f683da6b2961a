"""Which tasks an asking host gets (GridBot, algorithm 1): bags by rank, as many as host and bag agree on. Pure.

Matching costs O(bags): the tasks of a bag look alike to a policy unless they have running replicas (GridBot 6.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import TYPE_CHECKING, Any

from windfall.core.decisions import AGAIN, FRESH, Assigned, GangFormed
from windfall.core.events import TaskClass
from windfall.core.jobs import quorum
from windfall.core.liveness import timeouts
from windfall.core.matching import bundles, gangs, lifetimes, replicas
from windfall.core.matching.ads import Ad, bag_ad, class_ad, host_ad, pool_ad, queue_ad
from windfall.core.matching.policy import BagPolicy, Seen
from windfall.core.matching.ranking import UNLIMITED, Known, Wants
from windfall.core.matching.units import FreeUnits
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.jobs.bags import CROWD, Bag
from windfall.core.state.jobs.columns import DONE, WAITING
from windfall.core.state.jobs.queues import TaskQueue
from windfall.core.state.state import State

if TYPE_CHECKING:
    from windfall.core.engine import Policies

OTHER_HOST_LOOKAHEAD = 8
"""How far down the returned tasks to look for one that did not just fail on the asking host."""
VOTED_LOOKAHEAD = 1000
"""How far to look where volunteers have voted: no owner gets a task twice."""
AVOID_S = 5.0
"""Seconds that a failed task waits for another host than the one where it failed."""
FAILOVER_FAILURES, FAILOVER_LOSSES = 2, 3
"""A task that failed or was lost this many times goes to the fail-over pool, if there is one."""
NO_ADS: tuple[Ad, Ad, Ad] = ({}, {}, {})
NOT_ASKED = -1.0
"""Stands for a deadline that no policy has been asked for."""


def narrowest(bag: Bag, classes: tuple[int, ...] | None) -> int:
    """The fewest slots that a waiting task of these classes takes: with less than that a bag is not served at all."""
    every, queues = bag.classes, bag.queues.by_class
    if len(every) == 1:
        # Nearly every bag; asked for each bag of a rank that several share.
        return max(1, ceil(every[0].cpus)) if queues[0].size else 1
    indices = range(len(every)) if classes is None else classes
    return min((max(1, ceil(every[index].cpus)) for index in indices if queues[index].size), default=1)


def _in_turn(group: list[Wants], want: int) -> list[Wants]:
    """Bags of equal rank in the order in which they are served: the least served first."""
    if 1 < len(group) <= want and sum(narrowest(entry[0], entry[3]) for entry in group) <= want:
        # All can have some: the shortest queue first, so that what it leaves of its share goes to the others.
        return sorted(group, key=_queue_length)
    return _least_served_first(group) if len(group) > 1 else group


def _split(group: list[Wants]) -> tuple[list[Wants], list[Wants]]:
    """Bags with unsent tasks or queued replicas; and bags whose tasks all run, which can only get replicas."""
    unsent: list[Wants] = []
    ending: list[Wants] = []
    for entry in group:
        bag = entry[0]
        queues = bag.queues
        # `bag.waiting` without its call: there may be thousands of bags, and each asking host looks at all of them.
        if bag.counts[WAITING] != queues.held + queues.reserved_ready:
            unsent.append(entry)
        elif not bag.queues_replicas:
            ending.append(entry)
        elif queues.replicas:
            unsent.append(entry)
    return unsent, ending


def _queue_length(entry: Wants) -> int:
    return entry[0].waiting


def _least_served_first(group: list[Wants]) -> list[Wants]:
    served = [len(entry[0].attempts.live) for entry in group]
    return [group[place] for place in sorted(range(len(group)), key=served.__getitem__)]


class Matcher:
    """One asking host against all bags."""

    # What most matchers never change is the class's: one is made for every exchange.
    looks = replicas.LOOKED_AT_IN_ALL
    _ads: tuple[Ad, Ad, Ad] | None = None
    _known: Known | None = None
    _seen: Seen | None = None
    _units: FreeUnits | None = None
    gang: GangFormed | None = None
    """A task that starts with this host as one of its whole hosts."""
    waits_for_hosts = False
    """A task of this rank needs the whole host, with others that are busy: it gets nothing of a lower rank."""
    _largest, _looked_at_held = 0, False
    """Bytes of the largest request among the chosen attempts and, once looked at, those that the host holds."""

    def __init__(self, state: State, host: Host, t: float, policies: Policies) -> None:
        self.state, self.host, self.t, self.policies = state, host, t, policies
        self.held = self.jobs = len(host.held)
        """Slots that are taken, and attempts on the host: one may take several slots."""
        self.memory_free = host.memory_bytes - host.memory_held

    @property
    def ads(self) -> tuple[Ad, Ad, Ad]:
        """Host, queue and pool; made only if some bag has a policy that could look at them."""
        if self._ads is None:
            self._ads = (host_ad(self.host, self.t), queue_ad(self.state), pool_ad(self.state, self.host.pool))
        return self._ads

    @property
    def units(self) -> FreeUnits:
        """Units of resources that are free; looked at only for tasks that need some."""
        if self._units is None:
            self._units = FreeUnits(self.state, self.host)
        return self._units

    def choose(self, want: int, room: int = 0) -> list[Assigned]:
        """Algorithm 1: walk the bags by rank until the host has what it wants, and what it may hold ahead (`room`)."""
        host = self.host
        if room and not bundles.gets_ahead(host, self.t):
            room = 0
        if want <= 0 and room <= 0:
            return []
        tails, is_volunteer, groups = self.state.bags.tails, "owner" in host.ad and bool(host.owner), self.by_rank()
        if not (room or tails or is_volunteer) and type(groups) is list and len(groups) == 1 == len(groups[0]):
            return self._choose_from_one(groups[0][0], want)
        picked: list[Assigned] = []
        cap, slots = UNLIMITED, host.slots
        kept: list[tuple[Wants, int]] = []
        for group in groups:
            ending: list[Wants] = []
            in_turn: Iterable[Wants]
            crowd = None
            if is_volunteer:
                group = [entry for entry in group if quorum.admits(entry[0], self.host)]
            elif len(group) > CROWD:
                crowd = self.policies.ranking(self.state).least_served(group, self.state.bags, want)
            if crowd is not None:
                others, in_turn, ending = len(crowd.unsent), crowd.in_turn(self.state.bags), crowd.ending
            else:
                if tails:
                    group, ending = _split(group)
                others = len(group)
                in_turn = _in_turn(group, want) if others > 1 else group
            for entry in in_turn:
                bag, policy, concurrency, classes = entry
                others -= 1
                # The highest-ranked bag's Concurrency caps every lower-ranked one.
                ahead = self._ahead(bag, policy, concurrency, classes, want, room) if room else 0
                if kept and ahead and (bag.waiting or bag.queues.replicas):
                    taken, used = self._take_kept(kept, room)
                    picked, room, kept = picked + taken, room - used, []
                    ahead = min(ahead, room)
                most = concurrency if concurrency < UNLIMITED else self.jobs + want + ahead
                cap = most if most < cap else cap
                if want <= 0 and cap <= self.jobs:
                    return picked
                space = want
                if others:
                    space = min(want, max(ceil(want / (others + 1)), narrowest(bag, classes)))
                space += ahead
                if space > slots - self.held:
                    space = self._fair_share(bag, space, concurrency < UNLIMITED and ahead > 0)
                if bag.queues.replicas:
                    taken, used = self._take_queued(bag, policy, classes, space, cap - self.jobs)
                else:
                    taken, used = self._take_bag(bag, policy, classes, space, cap - self.jobs)
                picked = picked + taken if picked else taken
                if self.gang is not None or self.waits_for_hosts:
                    return picked
                if not space and ahead:
                    kept.append((entry, cap))
                if used > want:
                    room, want = max(0, room - (used - want)), 0
                else:
                    want -= used
                if want <= 0 and (room <= 0 or cap <= self.jobs):
                    return picked
            if want <= 0:
                continue
            # What is unsent goes before what runs elsewhere, but only among equals.
            for bag, policy, concurrency, _ in ending:
                copies, used = self._replicate(bag, policy, want, min(cap, concurrency) - self.jobs)
                if copies:
                    picked += copies
                    want -= used
                    cap = min(cap, concurrency)
                if want <= 0:
                    return picked
        return picked

    def _choose_from_one(self, entry: Wants, want: int) -> list[Assigned]:
        """The same where one bag wants this host: no share, no replicas, nothing ahead. Nearly every exchange."""
        bag, policy, concurrency, classes = entry
        most = concurrency - self.jobs if concurrency < UNLIMITED else want
        if want > self.host.slots - self.held:
            want = self._fair_share(bag, want)
        if bag.queues.replicas:
            return self._take_queued(bag, policy, classes, want, most)[0]
        return self._take_bag(bag, policy, classes, want, most)[0]

    def _take_kept(self, kept: list[tuple[Wants, int]], room: int) -> tuple[list[Assigned], int]:
        """What bags keep for free slots, held ahead after all, and the slots that it takes.

        A bag that follows would fill the host with tasks ahead: no slot would become free before that bag is done.
        """
        picked: list[Assigned] = []
        left = room
        for (bag, policy, _, classes), cap in kept:
            taken, used = self._take_queued(bag, policy, classes, left, cap - self.jobs)
            picked, left = picked + taken, left - used
        return picked, room - left

    def _take_queued(
        self, bag: Bag, policy: BagPolicy, classes: tuple[int, ...] | None, space: int, most: int
    ) -> tuple[list[Assigned], int]:
        """What the host gets of a bag's queue: unsent tasks, then replicas that wait; and the slots that it takes."""
        before = self.jobs
        taken, used = self._take_bag(bag, policy, classes, space, most)
        if bag.queues_replicas:
            copies, more = self._replicate(bag, policy, space - used, most - self.jobs + before, queued=True)
            return taken + copies, used + more
        return taken, used

    def choose_from(self, bag: Bag, want: int) -> list[Assigned]:
        """Tasks of this bag alone, if it wants this host."""
        for group in self.by_rank():
            for mine, policy, concurrency, classes in group:
                if mine is bag:
                    return self._take_bag(bag, policy, classes, want, concurrency - self.jobs)[0]
        return []

    def by_rank(self) -> Iterable[list[Wants]]:
        """The bags that want this host in groups of equal rank, the highest first."""
        ranking = self.policies.ranking(self.state)
        if ranking.for_all is not None:
            return ranking.for_all
        host = self.host
        known = ranking.known.get(host.number)
        # The very same ad, not the same number of it: a decision that was never applied leaves no trace in the host.
        if known is not None and known.ad is host.ad and known.slots == host.slots:
            self._known = known
            return known.groups
        if self._seen is None:
            self._seen = {}
        groups = ranking.by_rank(self.ads if ranking.needs_ads else NO_ADS, self.t, self._seen)
        self._known = ranking.remember(host, groups)
        return groups

    def _ahead(
        self, bag: Bag, policy: BagPolicy, concurrency: int, classes: tuple[int, ...] | None, want: int, room: int
    ) -> int:
        """Slots' worth of tasks of this bag that the host may hold beyond what it asks for, at most `room`."""
        index = 0 if classes is None else classes[0]
        rules = bag.classes[index]
        if concurrency < UNLIMITED:
            most = bundles.finishing(bag, rules, self.host, self.t)
            return room if most is None else max(0, min(room, most - self.jobs - want))
        if not self.host.ad.get("round_trip_s"):
            return 0
        deadline_s = self._class_deadline_s(bag, policy, index)
        ahead = bundles.ahead(self.state, bag, rules, self.host, self.t, deadline_s)
        return max(0, min(room, self.host.slots + ahead - self.held - want))

    def _fair_share(self, bag: Bag, want: int, by_policy: bool = False) -> int:
        """How many a host may hold ready of what is left, so that the last tasks spread over all hosts.

        A bag that says how many keeps that until less is left than an equal share.
        """
        slots, state = self.host.slots, self.state
        free = slots - self.held
        if want <= free or (by_policy and not state.settings.spread_bundles):
            return want
        live = state.hosts.live_slots
        if live < slots or live < 1:
            live = max(slots, 1)
        queues = bag.queues
        waiting = bag.counts[WAITING] - queues.held - queues.reserved_ready  # `bag.waiting` without its call
        share = waiting * slots / live if by_policy else waiting * slots / (2 * live)
        if want <= share:
            return want
        least = bundles.not_worth_spreading(bag, slots)
        return min(want, max(free, int(share) if by_policy else max(ceil(share), least)))

    def take_back(self, want: int) -> list[tuple[int, int, int, int]]:
        """What this host, which is idle, would begin sooner than those that hold it."""
        known: dict[tuple[int, int], bool] = {}

        def suits(bag: Bag, task: int) -> bool:
            key = (bag.number, bag.class_of(task))
            if key not in known:
                known[key] = self._suits(bag, key[1])
            return known[key]

        free = min(want, self.host.slots - self.held)
        return bundles.to_take_back(self.state, self.host, free, self.t, suits) if free > 0 else []

    def _suits(self, bag: Bag, index: int) -> bool:
        """Whether this host may run a task of a class, and could begin it now."""
        rules, policy = bag.classes[index], self.policies.of(bag.rules.policies)
        if not quorum.admits(bag, self.host):
            return False
        if bag.stopped or bag.rules.paused or max(1, ceil(rules.cpus)) > self.host.slots - self.held:
            return False
        if rules.container and not self.host.has_containers:
            return False
        if rules.needs or not self._finishes(bag, rules):
            return False  # units are nobody's before their task begins, so there is nothing to take back
        if self.host.memory_bytes and rules.memory_for(1) > self.memory_free:
            return False
        if not policy.expressions:
            return True
        host, queue, pool = self.ads
        verdict = policy.match(host, bag_ad(bag, self.t), queue, pool, self.t, class_ad(rules))
        return verdict.matches and ("Concurrency" not in policy.expressions or verdict.concurrency > self.jobs)

    def _take_bag(
        self, bag: Bag, policy: BagPolicy, classes: tuple[int, ...] | None, room: int, most: int
    ) -> tuple[list[Assigned], int]:
        """Tasks of a bag for `room` slots, at most `most`; and the slots that they take. They count as held here."""
        picked: list[Assigned] = []
        host, every, queues, used = self.host, bag._terms.classes, bag.queues.by_class, 0
        slots, ends = host.slots, "lifetime_s" in host.ad
        for index in range(len(every)) if classes is None else classes:
            queue, rules = queues[index], every[index]
            if not queue.size:
                continue
            if rules.nodes:
                if most > 0 and not picked:
                    self.gang, self.waits_for_hosts = self._gather(bag, policy, index)
                    if self.gang is not None or self.waits_for_hosts:
                        break
                continue
            width = ceil(rules.cpus) if rules.cpus > 1.0 else 1
            space = room - used
            if width > slots or space < width or (ends and not self._finishes(bag, rules)):
                continue
            left = space if width == 1 else space // width
            if left > most:
                left = most
            if ends and left > 1:
                left = min(left, self._in_time(bag, rules, self.held + used) // width)
            if rules.container and not host.has_containers:
                continue
            if rules.needs:
                # None ahead: units would be kept from others before the task begins.
                left = min(left, (slots - self.held - used) // width)
                taken = self._take_with_units(bag, rules, queue, left)
            else:
                taken = self._take(bag, rules, queue, left)
            if not taken:
                continue
            seconds = self._class_deadline_s(bag, policy, index)
            for piece in taken:
                count = piece.count
                used += width * count
                most -= count
                self.jobs += count
                if seconds is not None:
                    piece.deadline = self.t + seconds
                    is_late = bag.progress.interrupted_s or self.held + used > slots
                    if is_late and "Deadline" not in policy.expressions:
                        self._set_deadline(bag, piece, seconds, used)
            picked = picked + taken if picked else taken
        self.held += used
        return picked, used

    def _set_deadline(self, bag: Bag, piece: Assigned, seconds: float, used: int) -> None:
        """A deadline that was learned gives more time to a task that was interrupted, and to those behind others."""
        deadline = self.t + timeouts.given_interruption_s(bag, piece.first, seconds)
        if self.held + used > self.host.slots:
            deadline += self._queue_s(bag, used)
        piece.deadline = deadline

    def _gather(self, bag: Bag, policy: BagPolicy, index: int) -> tuple[GangFormed | None, bool]:
        """A task that takes whole hosts and starts with this one, or whether this one is kept for it."""
        formed, waits = gangs.gather(self.state, bag, index, policy, self.host, self.t)
        # Tasks of a higher rank that the host gets with this answer go first.
        return (None, True) if formed is not None and self.jobs else (formed, waits)

    def _queue_s(self, bag: Bag, used: int) -> float:
        """Seconds that the last of these tasks may wait for a slot of this host; a policy's Deadline covers them."""
        behind, slots = self.held + used - self.host.slots, max(1, self.host.slots)
        if not bag.counts[DONE]:
            return 0.0
        return timeouts.RUN_FACTOR * bag.tally.run_s / bag.counts[DONE] * ceil(behind / slots)

    def _finishes(self, bag: Bag, rules: TaskClass) -> bool:
        """Whether a task ends before its host does; asked only of hosts that end at a known time."""
        if self.host.ad.get("lifetime_s") is None:
            return True
        return lifetimes.finishes(self.state, bag, rules, self.host, self.t)

    def _in_time(self, bag: Bag, rules: TaskClass, held: int) -> int:
        """Slots' worth of tasks that a host takes beyond `held`, so that the last of them ends before the host does."""
        most, free = bundles.finishing(bag, rules, self.host, self.t), self.host.slots - held
        return UNLIMITED if most is None else max(free, most - held)

    def _class_deadline_s(self, bag: Bag, policy: BagPolicy, index: int) -> float | None:
        """Of tasks that have no replicas; what a policy says of it is asked once where it stays the same."""
        if "Deadline" not in policy.expressions:
            return timeouts.deadline_s(self.state, bag, self.host, self.t, index)
        known = self._known
        if known is None:
            return self.deadline_s(bag, policy, class_ad(bag.classes[index]))
        key = (bag.number, index)
        found = known.deadlines_s.get(key, NOT_ASKED)
        if found == NOT_ASKED:
            found = self.deadline_s(bag, policy, class_ad(bag.classes[index]))
            self.policies.ranking(self.state).remember_deadline(known, key, found)
        return found

    def deadline_s(self, bag: Bag, policy: BagPolicy, job: Mapping[str, Any]) -> float | None:
        if "Deadline" not in policy.expressions:
            return timeouts.deadline_s(self.state, bag, self.host, self.t)
        host, queue, pool = self.ads
        return policy.deadline_s(host, job, bag_ad(bag, self.t), pool, self.t, queue)

    def _take(self, bag: Bag, rules: TaskClass, queue: TaskQueue, left: int) -> list[Assigned]:
        """Up to `left` tasks of one class for this host, those that came back first."""
        picked: list[Assigned] = []
        host = self.host
        for task in self._returned(bag, queue, left) if queue.again else ():
            number = bag.columns.attempts[task] + 1
            need = bag.memory_for(task, number) if rules.memory_bytes or bag.progress.memory else 0
            if need and host.memory_bytes:
                if need > self.memory_free and not self._runs_at_once(need):
                    continue
                self.memory_free -= need
                self._largest = max(self._largest, need)
            picked.append(Assigned(bag.number, task, 1, number, None, AGAIN))
            left -= 1
        need = rules.memory_bytes and rules.memory_for(1)
        if need and host.memory_bytes and left > self.memory_free // need and not self._runs_at_once(need):
            left = self.memory_free // need
        if left <= 0:
            return picked
        for start, end in queue.fresh:
            count = end - start if end - start < left else left
            picked.append(Assigned(bag.number, start, count, 1, None, FRESH))
            left -= count
            if need:
                self.memory_free -= need * count
                self._largest = max(self._largest, need)
            if left <= 0:
                break
        return picked

    def _take_with_units(self, bag: Bag, rules: TaskClass, queue: TaskQueue, left: int) -> list[Assigned]:
        """As `_take`, each task with units of its own, as far as they go."""
        picked: list[Assigned] = []
        for piece in self._take(bag, rules, queue, left):
            for task in range(piece.first, piece.first + piece.count):
                units = self.units.take(rules.needs)
                if units is None:
                    return picked
                picked.append(Assigned(bag.number, task, 1, piece.attempt, None, piece.why, None, units))
        return picked

    def _runs_at_once(self, need: int) -> bool:
        """Whether the host has memory for tasks of this size, and of those that it holds, on all slots at once."""
        if self.host.slots * need > self.host.memory_bytes:
            return False
        if not self._looked_at_held:
            bags, self._looked_at_held = self.state.bags, True
            for job, task, number in self.host.held:
                self._largest = max(self._largest, bags[job].memory_for(task, number))
        return self.host.slots * self._largest <= self.host.memory_bytes

    def _returned(self, bag: Bag, queue: TaskQueue, most: int) -> list[int]:
        """Tasks that came back, and that this host should have."""
        failover = self.state.settings.failover_pool
        picked: list[int] = []
        voted = bool(bag.progress.votes and self.host.owner)
        ahead, blame = VOTED_LOOKAHEAD if voted else OTHER_HOST_LOOKAHEAD, bag.tally.blame
        for position, task in enumerate(queue.again):
            if len(picked) >= most or position >= most + ahead:
                break
            if task in blame and self.avoids(bag, task):
                continue
            if voted and not quorum.may_try(self.state, bag, task, self.host):
                continue
            if failover and self.host.pool != failover and needs_failover(bag, task):
                continue
            picked.append(task)
        return picked

    def avoids(self, bag: Bag, task: int) -> bool:
        """Whether to leave the task to another host: it has just failed here, and there is a host where it has not."""
        tried = bag.tally.blame.get(task, ())
        if self.host.number not in tried or self.t - bag.columns.end[task] >= AVOID_S:
            return False
        hosts = self.state.hosts
        return len(hosts.live) > len(tried) and hosts.others_there(self.host, self.t, self.state.settings.lease_s)

    def _replicate(
        self, bag: Bag, policy: BagPolicy, want: int, most: int, queued: bool = False
    ) -> tuple[list[Assigned], int]:
        """Algorithm 2's speculative part, and the slots that it takes: free ones, for replicas that are not queued."""
        free = want if queued else min(want, self.host.slots - self.held)
        if free <= 0 or most <= 0 or not any(self._finishes(bag, rules) for rules in bag.classes):
            return [], 0
        memory_free = self.memory_free if self.host.memory_bytes else None
        room = replicas.Room(most, free, memory_free, self.looks, lambda: self.units)
        choose = replicas.queued_for if queued else replicas.replicas_for
        picked = choose(self.state, self.host, bag, policy, room, self.ads, self.t, self.deadline_s)
        used = free - room.slots
        self.held += used
        self.jobs += len(picked)
        self.looks = room.looks
        if room.memory_bytes is not None:
            self.memory_free = room.memory_bytes
            for piece in picked:
                self._largest = max(self._largest, bag.memory_for(piece.first, piece.attempt))
        return picked, used


def needs_failover(bag: Bag, task: int) -> bool:
    columns = bag.columns
    return bool(columns.failures[task] >= FAILOVER_FAILURES or columns.losses[task] >= FAILOVER_LOSSES)
