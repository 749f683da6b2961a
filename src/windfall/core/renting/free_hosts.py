"""How much of a renting job is left to free hosts, and until when. Pure.

A planner's snapshot leaves out the tasks that run on free hosts, and as many waiting ones as free hosts will do at
their pace; the planner rents machines for the rest. The nearer the deadline, the fewer tasks are left out: from
`safe_t` on the snapshot holds all waiting tasks, and from `last_t` on those that run on free hosts as well, early
enough for rented machines to do them in time. A task that is overdue on a free host is in the snapshot at once. Every
planner therefore shares its job with free hosts, and its safety net holds.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heapreplace
from itertools import chain, islice

from msgspec import Struct

from windfall.core.events import JobRules
from windfall.core.renting.machines import pools_of
from windfall.core.renting.runtimes import Outlook, unit_of
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
"""A task on a free host is overdue after this many times the run time of the slowest task: a machine may rerun it."""
MAX_QUANTILE_RATIO = 1.5
"""Limit of a higher quantile of run times, as a multiple of the job's own: few samples say little of far quantiles."""
MIN_TASKS_TO_LEAVE_ONE = 20
"""Jobs with at least this many unfinished tasks always leave one of them unreserved."""
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


def _left_to_free_hosts(state: State, bag: Bag, t: float) -> Left:
    """Nothing of a workflow: its plan holds all of its tasks."""
    if bag.finished_t is not None or bag.shape is not None or bag.rules.deadline_s is None:
        return NOTHING
    if not _offers(state, bag):
        return NOTHING
    outlooks, limits = _outlooks(state, bag, t), limits_of(state, bag, t)
    if t >= limits.last_t:
        return NOTHING
    running, pace = _running(state, bag, t, outlooks, limits)
    if t >= limits.safe_t or any(rules.nodes for rules in bag.classes):
        # Tasks of several hosts are counted on no free host before they run there: enough must be idle at once.
        return Left(running=running, review_t=limits.last_t)
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
    return Left(running, waiting.union(*freed.values()), freed, min(review_t, limits.safe_t))


def _is_shunned(state: State, bag: Bag, t: float) -> bool:
    """Whether free hosts had time to take a task of a job in a named fleet and took none: its policy may exclude them.

    Machines of a named fleet begin only what is reserved, so an unreserved task would wait until `safe_t`.
    """
    in_shared = state.fleet.serving(bag.number) != bag.number
    return in_shared and t >= bag.submitted_t + (bag.rules.deadline_s or 0.0) / REVIEWS


class Limits(Struct, frozen=True):
    """Until when tasks are left to free hosts: waiting ones until `safe_t`, running ones until `last_t`.

    `longest_s`: by class, the run time after which a task is overdue. `run_s`: the run time on a rented machine.
    """

    safe_t: float
    last_t: float
    longest_s: list[float]
    run_s: float

    def has_ended(self, bag: Bag, task: int, sent_t: float, t: float) -> bool:
        return t >= self.last_t or t - sent_t > self.longest_s[bag.class_of(task)] * unit_of(bag, task)


def limits_of(state: State, bag: Bag, t: float) -> Limits:
    outlooks = _outlooks(state, bag, t)
    run_s, lag_s = _rented_s(state, bag, outlooks)
    # For all running tasks to be in time with the job's confidence, each single one needs a higher quantile.
    high = _outlooks(state, bag, t, 1 + bag.counts[HELD])
    high_s = _rented_s(state, bag, high)[0]
    deadline_t = bag.submitted_t + (math.inf if bag.rules.deadline_s is None else bag.rules.deadline_s)
    return Limits(deadline_t - lag_s - 2 * run_s, deadline_t - lag_s - high_s, _longest_s(outlooks, high), run_s)


def _longest_s(outlooks: list[Outlook], high: list[Outlook]) -> list[float]:
    pairs = zip(outlooks, high, strict=True)
    return [OVERDUE_FACTOR * min(far.runtime_s, MAX_QUANTILE_RATIO * usual.runtime_s) for usual, far in pairs]


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


def _outlooks(state: State, bag: Bag, t: float, together: int = 1) -> list[Outlook]:
    """By class: run times that `together` tasks all keep with the job's confidence.

    An estimate is taken for the median: free hosts cost nothing, and records of the first format were made so.
    """
    confidence = bag.rules.confidence
    return [
        Outlook(state, bag, index, confidence, t, together=together, guess_is_mean=False)
        for index in range(len(bag.classes))
    ]


def _rented_s(state: State, bag: Bag, outlooks: list[Outlook]) -> tuple[float, float]:
    """Run time and boot of the slowest task on the quickest machine that does not vanish, or on any if all may."""
    offers = _offers(state, bag)
    if not offers:
        return 0.0, 0.0
    steady = [offer for offer in offers if offer.market == ONDEMAND] or offers
    quickest = min(steady, key=lambda offer: offer.lag_s + _run_s(bag, offer, outlooks))
    return _run_s(bag, quickest, outlooks), quickest.lag_s


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


def _running(state: State, bag: Bag, t: float, outlooks: list[Outlook], limits: Limits) -> tuple[frozenset[int], float]:
    """Tasks that run on free hosts alone and are not overdue; and the pace of these hosts, in tasks per second.

    A slot is assumed to need the mean run time per task, or the time that its present task has run if that is longer.
    Tasks that a host holds ready beyond its slots do not count.
    """
    tasks: list[int] = []
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
        if not all(limits.has_ended(bag, task, attempt.sent, t) for attempt in live):
            tasks.append(task)
        mean_s = outlooks[bag.class_of(task)].mean_s * unit_of(bag, task)
        for attempt in live:
            at_work.setdefault(attempt.host, []).append(max(mean_s, t - attempt.sent, 1e-3))
    pace = 0.0
    for number, seconds in at_work.items():
        slots = state.hosts[number].slots if number in state.hosts else 0
        pace += math.fsum(1.0 / each for each in seconds[:slots])
    return frozenset(tasks), pace


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
