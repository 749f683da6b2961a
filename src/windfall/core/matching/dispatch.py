"""Which tasks an asking host gets (GridBot, algorithm 1): bags by rank, as many as host and bag agree on. Pure.

Matching costs O(bags): the tasks of a bag look alike to a policy unless they have running replicas (GridBot 6.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from math import ceil
from typing import TYPE_CHECKING, Any

from windfall.bounds import MAX_HELD
from windfall.core.decisions import AGAIN, FRESH, LOST_FOR_GOOD, TEST, Assigned, HostAnswered
from windfall.core.events import HostAsked, TaskClass
from windfall.core.jobs import quorum, stops
from windfall.core.liveness import leases, lessons, reliability, timeouts
from windfall.core.matching import bundles, lifetimes, replicas
from windfall.core.matching.ads import Ad, bag_ad, class_ad, host_ad, pool_ad, queue_ad
from windfall.core.matching.policy import BagPolicy, Seen
from windfall.core.matching.ranking import UNLIMITED, Known, Wants
from windfall.core.matching.tail import tail_changes
from windfall.core.matching.units import FreeUnits
from windfall.core.renting.checkpoints import set_intervals
from windfall.core.renting.free_hosts import may_help
from windfall.core.renting.machines import deadline_first, free_slots, reserved_for, width_of
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.hosts.pools import ENDING, Breaker, PoolState
from windfall.core.state.jobs.bags import Bag, TaskQueue
from windfall.core.state.jobs.columns import DONE
from windfall.core.state.renting.fleet import MachineState, machine_of
from windfall.core.state.state import State
from windfall.core.supply import modes, overlay

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


DRAINED, NOW = "drained", "now"
"""What a worker is told: end when nothing is left to do, or hand back what runs and end."""
IDLE = "idle"
"""What a worker says that leaves for want of work."""
NO_ADS: tuple[Ad, Ad, Ad] = ({}, {}, {})


def on_host_asked(state: State, event: HostAsked, policies: Policies) -> HostAnswered:
    host = state.hosts.by_name.get(event.host)
    if host is None:
        fresh = Host.new(state.hosts.next, event.host, event.t)
        fresh.describe(event.ad, event.slots, event.t)
        answer = HostAnswered(fresh.number)
        if modes.gives_nothing(state, fresh.pool):
            _send_away(state, fresh, event, answer)
        else:
            _answer(state, fresh, event, policies, answer)
        return complete(state, fresh, event, answer)
    session = host.session
    new_boot = event.boot != session.boot
    if not new_boot and event.n <= session.n:
        if event.n < session.n:
            return HostAnswered(host.number, refused="another worker uses this id")
        if session.assigned or session.cancelled or session.handed_back:
            return HostAnswered(host.number, repeat=True)
    if new_boot or event.leaving:
        lost = leases.losses_of(state, [host])
    else:
        lost = [] if event.holds is None else leases.losses_of(state, [host], frozenset(event.holds))
    view = host
    if event.ad is not None or event.slots != host.slots:
        view = copy(host)
        view.times = copy(host.times)
        view.describe(event.ad, event.slots, event.t)
    if new_boot and host.units:
        view = copy(host) if view is host else view
        view.units = {}  # no process of the old boot is left to have them
    cancel = list(session.to_cancel) if session.to_cancel and not event.leaving else []
    answer = HostAnswered(host.number, False, lost, [], cancel)
    if session.to_hand_back and not event.leaving:
        answer.hand_back = [key for key in session.to_hand_back if key in host.held]
    if not new_boot and event.n > session.n + 1:
        # Numbers have no gaps: one means that our log was cut off behind an answer that the worker has seen.
        answer.tell = True
    if state.supply.modes and modes.gives_nothing(state, view.pool):
        _send_away(state, view, event, answer, new_boot)
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


def _still_held(host: Host, event: HostAsked) -> bool:
    """Whether the host holds attempts after it has said what it has."""
    if event.holds is None:
        return bool(host.held)
    return any(key in host.held for key in event.holds)


def _answer(state: State, host: Host, event: HostAsked, policies: Policies, answer: HostAnswered) -> HostAnswered:
    """Fill in what the host gets, and what follows from it."""
    want, room = event.want, event.room
    if event.leaving or want + room <= 0 or (host.access.blocked and is_blocked(host, event.t)):
        return answer
    machine = machine_of(state, host) if state.fleet.machines else None
    if machine is None and not state.bags.ready and not state.bags.tails and not (want and state.hosts.bundled):
        return answer
    if answer.lost and any(verdict == LOST_FOR_GOOD for *_, verdict in answer.lost):
        # Losses of this host may stop the job whose tasks would be handed out here: the next exchange decides.
        return answer
    if want + room + len(host.held) > MAX_HELD:
        want = max(0, min(want, MAX_HELD - len(host.held)))
        room = max(0, MAX_HELD - len(host.held) - want)
    record = host.record
    if record.probation_until is None:
        reason = "" if reliability.is_spotless(record) else _excluded_because(state, host)
        if reason:
            answer.probation = (event.t + reliability.probation_s(record.probations), reason)
            return answer
    elif event.t < record.probation_until or not want:
        return answer
    else:
        # The wait is over: one task as a test, and only if no other test is out.
        want, room, answer.test = (0 if host.held else 1), 0, True
    if machine is None:
        matcher = Matcher(state, host, event.t, policies)
        answer.assigned = matcher.choose(want, room)
        if state.hosts.bundled and matcher.held < host.slots and not answer.test and state.settings.spread_bundles:
            answer.taken_back = matcher.take_back(want - sum(piece.count for piece in answer.assigned))
    else:
        answer.assigned = _for_machine(state, machine, host, event.t, policies, want)
    if answer.test:
        for piece in answer.assigned:
            piece.why = TEST
    assigned, bags = answer.assigned, state.bags
    for piece in assigned:
        if bags[piece.job].classes[0].checkpoint_auto:
            set_intervals(state, host, machine, assigned, event.t)
            break
    if assigned or bags.tails:
        answer.tails = tail_changes(state, host, assigned)
    return answer


def complete(state: State, host: Host, event: HostAsked, answer: HostAnswered) -> HostAnswered:
    """Add what follows from the losses and from the assigned tasks; `host` is as it describes itself now."""
    if answer.lost:
        answer.stopped = stops.after_losses(state, answer.lost)
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


def is_blocked(host: Host, t: float) -> bool:
    return bool(host.access.blocked) and (host.access.blocked_until is None or t < host.access.blocked_until)


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
    for task in bag.attempts.levels.get(1, ()):
        attempt = bag.attempts.live[task][0]
        if attempt.sent > since or found >= needed:
            break
        found += attempt.host != host.number
    return found


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
    return sorted(group, key=_served) if len(group) > 1 else group


def _has_unsent(bag: Bag) -> bool:
    """Whether tasks of it wait in the queue, or replicas of tasks."""
    return bool(bag.waiting or (bag.queues.replicas and bag.queues_replicas))


def _queue_length(entry: Wants) -> int:
    return entry[0].waiting


def _served(entry: Wants) -> int:
    return len(entry[0].attempts.live)


class Matcher:
    """One asking host against all bags."""

    # What most matchers never change is the class's: one is made for every exchange.
    looks = replicas.LOOKED_AT_IN_ALL
    _ads: tuple[Ad, Ad, Ad] | None = None
    _known: Known | None = None
    _seen: Seen | None = None
    _units: FreeUnits | None = None
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
        if room and not bundles.gets_ahead(self.host, self.t):
            room = 0
        picked: list[Assigned] = []
        if want <= 0 and room <= 0:
            return picked
        cap, tails, is_volunteer = UNLIMITED, self.state.bags.tails, bool(self.host.owner)
        for group in self.by_rank():
            ending: list[Wants] = []
            if is_volunteer:
                group = [entry for entry in group if quorum.admits(entry[0], self.host)]
            if tails:
                ending = [entry for entry in group if not entry[0].waiting and not entry[0].queues_replicas]
                group = [entry for entry in group if _has_unsent(entry[0])]
            others = len(group)
            if others > 1:
                group = _in_turn(group, want)
            for bag, policy, concurrency, classes in group:
                others -= 1
                # The highest-ranked bag's Concurrency caps every lower-ranked one.
                ahead = self._ahead(bag, policy, concurrency, classes, want, room) if room else 0
                most = concurrency if concurrency < UNLIMITED else self.jobs + want + ahead
                cap = most if most < cap else cap
                if want <= 0 and cap <= self.jobs:
                    return picked
                space = want
                if others:
                    space = min(want, max(ceil(want / (others + 1)), narrowest(bag, classes)))
                space += ahead
                if space > self.host.slots - self.held:
                    space = self._fair_share(bag, space, concurrency < UNLIMITED and ahead > 0)
                take = self._take_queued if bag.queues.replicas else self._take_bag
                taken, used = take(bag, policy, classes, space, cap - self.jobs)
                picked = picked + taken if picked else taken
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
        self._known = ranking.known(self.host)
        if self._known is not None:
            return self._known.groups
        if self._seen is None:
            self._seen = {}
        groups = ranking.by_rank(self.ads if ranking.needs_ads else NO_ADS, self.t, self._seen)
        self._known = ranking.remember(self.host, groups)
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
        slots = self.host.slots
        free = slots - self.held
        if want <= free or (by_policy and not self.state.settings.spread_bundles):
            return want
        live = max(self.state.hosts.live_slots, slots, 1)
        share = bag.waiting * slots / live if by_policy else bag.waiting * slots / (2 * live)
        return want if want <= share else min(want, max(free, int(share) if by_policy else ceil(share)))

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
        host, every, queues, used = self.host, bag.classes, bag.queues.by_class, 0
        slots, ends = host.slots, "lifetime_s" in host.ad
        for index in range(len(every)) if classes is None else classes:
            queue, rules = queues[index], every[index]
            width = ceil(rules.cpus) if rules.cpus > 1.0 else 1
            space = room - used
            if queue.size and width <= slots and space >= width and (not ends or self._finishes(bag, rules)):
                left = space if width == 1 else space // width
                left = left if left < most else most
                if rules.container and not self.host.has_containers:
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
                        if self.held + used > slots:
                            piece.deadline += self._queue_s(bag, policy, used)
                picked += taken
        self.held += used
        return picked, used

    def _queue_s(self, bag: Bag, policy: BagPolicy, used: int) -> float:
        """Seconds that the last of these tasks may wait for a slot of this host; a policy's Deadline covers them."""
        behind, slots = self.held + used - self.host.slots, max(1, self.host.slots)
        if "Deadline" in policy.expressions or not bag.counts[DONE]:
            return 0.0
        return timeouts.RUN_FACTOR * bag.tally.run_s / bag.counts[DONE] * ceil(behind / slots)

    def _finishes(self, bag: Bag, rules: TaskClass) -> bool:
        """Whether a task ends before its host does; asked only of hosts that end at a known time."""
        if self.host.ad.get("lifetime_s") is None:
            return True
        return lifetimes.finishes(self.state, bag, rules, self.host, self.t)

    def _class_deadline_s(self, bag: Bag, policy: BagPolicy, index: int) -> float | None:
        """Of tasks that have no replicas; what a policy says of it is asked once where it stays the same."""
        if "Deadline" not in policy.expressions:
            return timeouts.deadline_s(self.state, bag, self.host, self.t, index)
        known = self._known
        if known is None:
            return self.deadline_s(bag, policy, class_ad(bag.classes[index]))
        key = (bag.number, index)
        if key not in known.deadlines_s:
            known.deadlines_s[key] = self.deadline_s(bag, policy, class_ad(bag.classes[index]))
        return known.deadlines_s[key]

    def deadline_s(self, bag: Bag, policy: BagPolicy, job: Mapping[str, Any]) -> float | None:
        if "Deadline" not in policy.expressions:
            return timeouts.deadline_s(self.state, bag, self.host, self.t)
        host, queue, pool = self.ads
        return policy.deadline_s(host, job, bag_ad(bag, self.t), pool, self.t, queue)

    def _take(self, bag: Bag, rules: TaskClass, queue: TaskQueue, left: int) -> list[Assigned]:
        """Up to `left` tasks of one class for this host, those that came back first."""
        picked: list[Assigned] = []
        for task in self._returned(bag, queue, left) if queue.again else ():
            number = bag.columns.attempts[task] + 1
            need = bag.memory_for(task, number)
            if need and self.host.memory_bytes:
                if need > self.memory_free and not self._runs_at_once(need):
                    continue
                self.memory_free -= need
                self._largest = max(self._largest, need)
            picked.append(Assigned(bag.number, task, 1, number, None, AGAIN))
            left -= 1
        need = rules.memory_bytes and rules.memory_for(1)
        if need and self.host.memory_bytes and left > self.memory_free // need and not self._runs_at_once(need):
            left = self.memory_free // need
        for start, end in queue.fresh:
            if left <= 0:
                break
            count = end - start if end - start < left else left
            picked.append(Assigned(bag.number, start, count, 1, None, FRESH))
            left -= count
            if need:
                self.memory_free -= need * count
                self._largest = max(self._largest, need)
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
        ahead = VOTED_LOOKAHEAD if voted else OTHER_HOST_LOOKAHEAD
        for position, task in enumerate(queue.again):
            if len(picked) >= most or position >= most + ahead:
                break
            if self.avoids(bag, task) or (voted and not quorum.may_try(self.state, bag, task, self.host)):
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
        """Algorithm 2's speculative part, on slots that are free; and the slots that it takes."""
        free = min(want, self.host.slots - self.held)
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
