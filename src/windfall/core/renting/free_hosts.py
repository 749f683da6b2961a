"""How much of a renting job is left to free hosts, and until when. Pure.

A planner's snapshot leaves out the tasks that run on free hosts, and as many waiting ones as free hosts will do at
their pace; the planner rents machines for the rest. The nearer the deadline, the fewer tasks are left out: from
`safe_t` on the snapshot holds all waiting tasks. A task that runs on a free host is in the snapshot from `due_t` on:
early enough for a rented machine to do it in time, and at once when it is overdue. It goes on where it runs, and the
machine that a plan assigns it to begins a second attempt. Every planner therefore shares its job with free hosts, and
its safety net holds.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heapreplace
from itertools import chain, islice

from msgspec import Struct

from windfall.core.events import JobRules, Key
from windfall.core.renting import runtimes
from windfall.core.renting.machines import pools_of
from windfall.core.renting.runtimes import Outlook, unit_of
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.jobs.attempts import Attempt
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import HELD, WAITING
from windfall.core.state.renting.fleet import MachineState, machine_of, paid_until_t, queue_of
from windfall.core.state.renting.fleets import meant
from windfall.core.state.state import State
from windfall.core.supply import modes
from windfall.planning.contract import ONDEMAND, SPOT
from windfall.planning.offers import Offer

FREE_HOST_DISCOUNT = 0.8
"""Factor on the work that free hosts would do at their present pace: they may leave, slow down or serve others."""
HEAD_START_S, HEAD_START_SHARE = 30.0, 1 / 50
"""Seconds, and the largest share of the time to its deadline, for which a new job is offered to free hosts alone."""
OVERDUE_FACTOR = 2.0
"""A task on a free host is overdue after this many times the run time of the slowest task."""
EXPECTED_FACTOR = 1.2
"""A free host that is trusted has this many times the expected run time before a machine begins its task as well."""
BAD_HOST_CHANCE = 0.05
"""Assumed chance that free hosts hang, leave or are too slow for a job, before one of them was lost or silent."""
MARGIN_S, MARGIN_SHARE = 30.0, 1 / 50
"""Seconds, and the largest share of the time to the deadline, that a second attempt has to spare where free hosts are
trusted."""
MAX_QUANTILE_RATIO = 1.5
"""Limit of a higher quantile of run times, as a multiple of the job's own: few samples say little of far quantiles."""
MIN_TASKS_TO_LEAVE_ONE = 20
"""Jobs with at least this many unfinished tasks always leave one of them unreserved."""
LEAST_REVIEW_S, LEAST_REVIEW_SHARE = 1.0, 1 / 1000
"""Seconds, and the largest share of the time to the deadline, until running tasks are reviewed again."""
REVIEWS = 8
"""Reviews of the pace of free hosts until `safe_t`."""


class Left(Struct, frozen=True):
    """Tasks that the snapshot leaves out: those that run on free hosts, and waiting ones that free hosts will do.

    `freed`: those of the waiting ones that were reserved for a machine, by the number of the machine.
    """

    running: frozenset[int] = frozenset()
    waiting: frozenset[int] = frozenset()
    freed: dict[int, frozenset[int]] = {}
    review_t: float = math.inf
    """When to compute this again."""


NOTHING = Left()


def head_start_until_t(state: State, bag: Bag, rules: JobRules) -> float:
    """Until when a new job is offered to free hosts alone; -inf if there are none."""
    deadline_s = rules.deadline_s
    if deadline_s is None or bag.shape is not None or not any_free_host(state):
        return -math.inf
    return bag.submitted_t + min(HEAD_START_S, HEAD_START_SHARE * deadline_s)


def can_help(state: State) -> bool:
    """Whether there are free hosts, or some may come."""
    return any_free_host(state) or may_come(state)


def left_of_each(state: State, bags: list[Bag], t: float) -> dict[int, Left]:
    """What of these jobs is left to free hosts at `t`, by their numbers; empty if there are no free hosts."""
    if not can_help(state):
        return {}
    return {bag.number: _left_to_free_hosts(state, bag, t) for bag in bags}


def _ran_so_far(state: State, bag: Bag, t: float) -> dict[int, float]:
    """For how long tasks have run without an end, on free hosts as well, whose speed counts as 1.

    Short tasks end first: those that ended alone would make all tasks look short.
    """
    found = runtimes.ran_so_far(state, bag, t)
    begun: dict[int, set[Key]] = {}
    for task, live in bag.attempts.live.items():
        for attempt in live:
            host = state.hosts.get(attempt.host)
            if host is None or machine_of(state, host) is not None:
                continue
            if host.number not in begun:
                # What a host holds ready beyond its slots has not begun.
                begun[host.number] = set(islice(host.held, host.slots))
            if (bag.number, task, attempt.number) in begun[host.number]:
                found[task] = max(found.get(task, 0.0), t - attempt.sent)
    return found


def _left_to_free_hosts(state: State, bag: Bag, t: float) -> Left:
    """Nothing of a workflow: its plan holds all of its tasks."""
    if bag.finished_t is not None or bag.shape is not None or bag.rules.deadline_s is None:
        return NOTHING
    if not _offers(state, bag):
        return NOTHING
    outlooks, limits = _outlooks(state, bag, t), limits_of(state, bag, t)
    running, pace, due_t = _running(state, bag, t, outlooks, limits)
    # What is expected grows with the time that tasks run: the next look at them is not a moment later.
    due_t = max(due_t, t + min(LEAST_REVIEW_S, LEAST_REVIEW_SHARE * bag.rules.deadline_s))
    if t >= min(limits.safe_t, limits.last_t) or any(rules.nodes for rules in bag.classes):
        # Tasks of several hosts are counted on no free host before they run there: enough must be idle at once.
        return Left(running=running, review_t=due_t)
    # At most as many as rented machines could do in time if all free hosts left now.
    if_they_leave = (limits.last_t - t) / limits.run_s * _steady_cores(state, bag)
    count = math.floor(min(FREE_HOST_DISCOUNT * pace * (limits.safe_t - t), if_they_leave))
    # Always leave one task unreserved: pools are asked for a host only while one waits, and a free host that joins
    # takes it, which triggers a replan.
    at_least = min(1, (bag.counts[WAITING] + bag.counts[HELD]) // MIN_TASKS_TO_LEAVE_ONE)
    if pace == 0.0 and _is_shunned(state, bag, t):
        at_least = 0
    waiting = frozenset(islice(chain.from_iterable(bag.queues.by_class), max(at_least, count)))
    freed = _freed(state, bag, max(at_least, count) - len(waiting))
    review_t = t + max((limits.safe_t - t) / REVIEWS, bag.rules.deadline_s / 100)
    return Left(running, waiting.union(*freed.values()), freed, min(review_t, limits.safe_t, due_t))


def _is_shunned(state: State, bag: Bag, t: float) -> bool:
    """Whether free hosts had time to take a task of a job in a named fleet and took none: its policy may exclude them.

    Machines of a named fleet begin only what is reserved, so an unreserved task would wait until `safe_t`.
    """
    in_shared = state.fleet.serving(bag.number) != bag.number
    return in_shared and t >= bag.submitted_t + (bag.rules.deadline_s or 0.0) / REVIEWS


class TaskTimes(Struct, frozen=True):
    """Run times of the tasks of one class: when one is overdue on a free host, what is expected there, and what it
    takes on the quickest machine: at a high quantile, and as much as must be left if free hosts can be trusted."""

    overdue_s: float
    expected_s: float
    rented_high_s: float
    rented_likely_s: float


class Limits(Struct, frozen=True):
    """Until when tasks are left to free hosts: waiting ones until `safe_t`, running ones until their `due_t`.

    `last_t`: the last moment at which machines could do every task in time. `ready_t`: the deadline less the boot of a
    machine. `run_s`: the run time of the slowest task on a machine.
    """

    safe_t: float
    last_t: float
    ready_t: float
    margin_s: float
    times: list[TaskTimes]
    """By class."""
    run_s: float
    trusted: bool
    """No free host of the job was lost so far, and none is silent."""

    def last_t_of(self, bag: Bag, task: int) -> float:
        """The last moment at which a machine would be in time with this task, at a high quantile of its run time."""
        return self.ready_t - self.times[bag.class_of(task)].rented_high_s * unit_of(bag, task)

    def due_t(self, bag: Bag, task: int, sent_t: float) -> float:
        """When a machine begins a task as well that was sent to a free host at `sent_t`: before it may be too late.

        If that comes before the host can be expected to be done, a trusted host gets the time for it, as long as a
        machine is likely to be in time.
        """
        times, unit = self.times[bag.class_of(task)], unit_of(bag, task)
        last_t = self.last_t_of(bag, task)
        if self.trusted:
            expected_t = sent_t + EXPECTED_FACTOR * times.expected_s * unit
            last_t = max(last_t, min(expected_t, self.ready_t - self.margin_s - times.rented_likely_s * unit))
        return min(sent_t + times.overdue_s * unit, last_t)


def limits_of(state: State, bag: Bag, t: float) -> Limits:
    outlooks = _outlooks(state, bag, t)
    run_s, lag_s, quickest = _rented_s(state, bag, outlooks)
    # For all running tasks to be in time with the job's confidence, each single one needs a higher quantile.
    high = _outlooks(state, bag, t, 1 + bag.counts[HELD])
    deadline_s = math.inf if bag.rules.deadline_s is None else bag.rules.deadline_s
    ready_t = bag.submitted_t + deadline_s - lag_s
    last_t, trusted = ready_t - _rented_s(state, bag, high)[0], not _has_lost(state, bag)
    likely = so_far = outlooks
    if trusted and last_t <= t:
        # Before `last_t` nothing is due for want of time, whatever these say.
        chance = 1.0 - (1.0 - bag.rules.confidence) / BAD_HOST_CHANCE
        if chance > 0.0:
            likely = _outlooks(state, bag, t, 1 + bag.counts[HELD], chance)
        # What runs on a bad host says nothing of a machine's time, but of the time until a good host is done it does.
        so_far = _outlooks(state, bag, t, ran=_ran_so_far(state, bag, t))
    times = []
    for usual, far, enough, there in zip(outlooks, high, likely, so_far, strict=True):
        speed = 1.0 if quickest is None else quickest.speed_for(usual.rules.name)
        overdue_s = OVERDUE_FACTOR * min(far.runtime_s, MAX_QUANTILE_RATIO * usual.runtime_s)
        likely_s = usual.mean_s if enough is usual else min(far.runtime_s, max(usual.mean_s, enough.runtime_s))
        times.append(TaskTimes(overdue_s, there.mean_s, far.runtime_s / speed, likely_s / speed))
    margin_s = min(MARGIN_S, MARGIN_SHARE * deadline_s)
    return Limits(ready_t - 2 * run_s, last_t, ready_t, margin_s, times, run_s, trusted)


def _has_lost(state: State, bag: Bag) -> bool:
    """Whether an attempt of the job was lost with a free host, or is on one that is silent."""
    rented = pools_of(state, bag)
    if any(count and pool not in rented for pool, count in bag.tally.lost_by_pool.items()):
        return True
    silent = (state.hosts[number] for number in state.hosts.unknown)
    return any(
        job == bag.number and bag.attempts.find(task, number) is not None
        for host in silent
        if host.held and not host.owner and machine_of(state, host) is None
        for job, task, number in host.held
    )


def silent_t(state: State, host: Host | None) -> float:
    """When a host is due to have been silent for a lease, unless it is heard of before."""
    if host is None:
        return -math.inf
    return math.inf if host.owner else host.times.seen_t + state.settings.lease_s


def due_t(state: State, bag: Bag, task: int, attempt: Attempt, limits: Limits, t: float) -> float:
    """When a machine begins a task as well that runs on a free host: by its run time, and at once if the host is silent
    while machines may already be too late."""
    found = limits.due_t(bag, task, attempt.sent)
    if found <= t or limits.last_t_of(bag, task) > t:
        return found
    return min(found, silent_t(state, state.hosts.get(attempt.host)))


def may_help(state: State, bag: Bag, machine: MachineState, t: float) -> bool:
    """Whether a rented machine may begin an unassigned task.

    If the plan names tasks and there are free hosts: only one that ends within the time that is already paid.
    """
    followed = state.fleet.plan_of(bag.number)
    planned = None if followed is None else followed.plan
    if planned is not None and (planned.only_reserved or (machine.offer.market == SPOT and t > planned.spot_until_t)):
        return False
    if planned is None or not planned.assign or not (any_free_host(state) or may_come(state)):
        return True
    return t + _run_s(bag, machine.offer, _outlooks(state, bag, t)) <= paid_until_t(machine, t)


def any_free_host(state: State) -> bool:
    """Whether there are free hosts."""
    return any(machine_of(state, state.hosts[number]) is None for number in state.hosts.live)


def may_come(state: State) -> bool:
    """Whether a pool could still give free hosts if it is asked: it is open, and has fewer workers than its limit."""
    return any(
        not pool.rules.joins_itself
        and pool.rules.limit > state.hosts.by_pool.get(name, 0)
        and not modes.starts_nothing(state, name)
        for name, pool in state.supply.pools.items()
    )


def _outlooks(
    state: State,
    bag: Bag,
    t: float,
    together: int = 1,
    confidence: float | None = None,
    ran: dict[int, float] | None = None,
) -> list[Outlook]:
    """By class: run times that `together` tasks all keep with the job's confidence, or with this one.

    An estimate is taken for the median: free hosts cost nothing, and records of the first format were made so.
    """
    chance = bag.rules.confidence if confidence is None else confidence
    return [
        Outlook(state, bag, index, chance, t, ran, together, guess_is_mean=False) for index in range(len(bag.classes))
    ]


def _rented_s(state: State, bag: Bag, outlooks: list[Outlook]) -> tuple[float, float, Offer | None]:
    """Run time and boot of the slowest task on the quickest machine that does not vanish, or on any if all may; and
    that offer."""
    offers = _offers(state, bag)
    if not offers:
        return 0.0, 0.0, None
    steady = [offer for offer in offers if offer.market == ONDEMAND] or offers
    quickest = min(steady, key=lambda offer: offer.lag_s + _run_s(bag, offer, outlooks))
    return _run_s(bag, quickest, outlooks), quickest.lag_s, quickest


def _run_s(bag: Bag, offer: Offer, outlooks: list[Outlook]) -> float:
    """Seconds of the slowest task of the job on a machine of this offer."""
    unit_s = max(bag.progress.estimates) if bag.progress.estimates else 1.0
    return max(outlook.runtime_s * unit_s / offer.speed_for(outlook.rules.name) for outlook in outlooks)


def _steady_cores(state: State, bag: Bag) -> float:
    """On-demand cores that could do what free hosts leave undone: half of the limit, infinite without a limit."""
    cores = 0.0
    for offer in _offers(state, bag):
        if offer.market == ONDEMAND:
            cores += math.inf if offer.most is None else offer.most * offer.cores / 2
    return cores or 1.0


def _offers(state: State, bag: Bag) -> list[Offer]:
    pools = [pool for pool in pools_of(state, bag) if not modes.starts_nothing(state, pool)]
    return [offer for pool in pools for offer in state.fleet.offers.get(pool, ())]


def _running(
    state: State, bag: Bag, t: float, outlooks: list[Outlook], limits: Limits
) -> tuple[frozenset[int], float, float]:
    """Tasks that run on free hosts alone and are not due on machines; the pace of these hosts, in tasks per second;
    and when the first of these tasks is due.

    A task for which a machine has a second attempt stays due until it is done. A slot is assumed to need the mean run
    time per task, or the time that its present task has run if that is longer. Tasks that a host holds ready beyond its
    slots do not count.
    """
    tasks: list[int] = []
    first_t, beside = math.inf, state.fleet.beside
    at_work: dict[int, list[float]] = {}
    first, is_rented = 0, False
    for task, live in bag.attempts.live.items():
        if live[0].host != first:
            # Tasks that were handed out together stand together.
            first = live[0].host
            known = state.hosts.get(first)
            is_rented = known is not None and machine_of(state, known) is not None
        if is_rented:
            continue
        hosts = [host for attempt in live if (host := state.hosts.get(attempt.host)) is not None]
        if any(machine_of(state, host) is not None for host in hosts):
            continue
        task_due_t = max([due_t(state, bag, task, attempt, limits, t) for attempt in live])
        if task_due_t > t and (not beside or (bag.number, task) not in beside):
            tasks.append(task)
            first_t = min(first_t, task_due_t)
        mean_s = outlooks[bag.class_of(task)].mean_s * unit_of(bag, task)
        for attempt in live:
            at_work.setdefault(attempt.host, []).append(max(mean_s, t - attempt.sent, 1e-3))
    pace = 0.0
    for number, seconds in at_work.items():
        slots = state.hosts[number].slots if number in state.hosts else 0
        pace += math.fsum(1.0 / each for each in seconds[:slots])
    return frozenset(tasks), pace, first_t


def _queues(state: State, bag: Bag) -> dict[int, list[int]]:
    """The tasks of a job that wait for each machine of its fleet."""
    fleet, found = state.fleet.serving(bag.number), {}
    for machine in state.fleet.there_of.get(fleet, {}).values():
        tasks = (meant(fleet, name) for name in queue_of(state, machine))
        found[machine.number] = [task for job, task in tasks if job == bag.number]
    return found


def _freed(state: State, bag: Bag, count: int) -> dict[int, frozenset[int]]:
    """`count` tasks that are reserved for machines and have not begun, from the ends of the longest queues."""
    if count <= 0:
        return {}
    queues = _queues(state, bag)
    longest = [(-len(queue), number) for number, queue in queues.items() if queue]
    heapify(longest)
    freed: dict[int, set[int]] = {}
    for _ in range(count if longest else 0):
        length, number = longest[0]
        freed.setdefault(number, set()).add(queues[number].pop())
        if length < -1:
            heapreplace(longest, (length + 1, number))
        elif heappop(longest) and not longest:
            break
    return {number: frozenset(tasks) for number, tasks in freed.items()}
