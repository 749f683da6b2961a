"""The set of machine types that a fleet uses for the load to be expected. Pure.

SCS sends each task to the type that is cheapest per second of work, as if every machine were full. Where the load is
low the expensive types idle through paid cycles. Here the rates of the job classes predict the load, and jobs are
planned on the set of types with the lowest predicted bill, idle cycles included.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from windfall.planning.fleet.deadlines import TaskKind, fastest_s, kind_of, template, without_others
from windfall.planning.fleet.model import Work, unlimited
from windfall.planning.offers import Offer
from windfall.planning.workflow.methods.assign import assign

ALL_SUBSETS_UP_TO = 6
"""Types; above, types are dropped one by one."""
SPARE_TIME_FACTOR = 1.08
"""A smaller set must leave each task this multiple of its run time, for bursts."""
IDLE_MACHINES = 0.5
"""Of each type that is used, this part of a machine idles on average, and this times the root of the load.

It is less where jobs can wait: what arrives in the time that they have fills a cycle up.
"""
SLACK_WEIGHT = 2.0
DIGITS = 2
"""Rates are rounded to this many significant digits, so that answers come again."""


class JobKind(Struct, frozen=True):
    """A class of jobs and its rate. Bags are workflows without edges."""

    tasks: tuple[TaskKind, ...]
    edges: tuple[tuple[int, int], ...]
    span_s: float
    per_hour: float
    most_per_hour: float = 0.0
    """In the last hours or now, if that is more. It decides which types are rented: the jobs of a stream that has just
    ended keep the types that they were begun with."""


class Mix(Struct, frozen=True):
    """The offers to rent, and by offer the load to be expected, in machines."""

    allowed: frozenset[int]
    load: tuple[float, ...]
    machines: tuple[float, ...]
    """By offer, the machines that this load is expected to take."""

    def reuse(self, offer: int) -> float:
        """The part of paid time that later tasks are expected to use."""
        return self.load[offer] / self.machines[offer] if self.load[offer] > 0 else 0.0


def mix_of(work: Work) -> Mix:
    """The mix for the classes of the waiting jobs."""
    return best_or_all(kinds_of(work), work.offers)


def best_or_all(kinds: tuple[JobKind, ...], offers: tuple[Offer, ...]) -> Mix:
    """The mix for streams of jobs of these kinds; all offers if there are none."""
    if not kinds or all(offer.limit == 0 for offer in offers):
        return Mix(frozenset(range(len(offers))), *((0.0,) * len(offers),) * 2)
    return best_for(kinds, offers)


def slack_s(kind: JobKind, offers: tuple[Offer, ...]) -> float:
    """Seconds that a job of this kind can wait before machines are ordered for it; 0 if it has no time to wait."""
    found = _seconds(kind, unlimited(offers), frozenset(range(len(offers))))
    return 0.0 if found is None else found[1]


def best_for(kinds: tuple[JobKind, ...], offers: tuple[Offer, ...]) -> Mix:
    """The mix for streams of jobs of these kinds."""
    return _best(kinds, msgspec.msgpack.encode(unlimited(offers)))


def bill_of(kinds: tuple[JobKind, ...], offers: tuple[Offer, ...]) -> float:
    """Dollars that these streams cost in an hour on the best mix."""
    return _bill(kinds, unlimited(offers), best_for(kinds, offers).allowed)


def can_be_in_time(kind: JobKind, offers: tuple[Offer, ...]) -> bool:
    """Whether a job of this kind keeps its deadline on machines that are rented for it."""
    return fastest_s(kind.tasks, kind.edges, msgspec.msgpack.encode(unlimited(offers))) <= kind.span_s


def kinds_of(work: Work) -> tuple[JobKind, ...]:
    """Each class that waits, by the job of which the most is left."""
    fullest: dict[int, int] = {}
    for number, tasks in work.by_job.items():
        job = work.job(number)
        if job.per_hour and (job.kind not in fullest or len(tasks) > len(work.by_job[fullest[job.kind]])):
            fullest[job.kind] = number
    found = []
    for number in fullest.values():
        job = work.job(number)
        tasks = sorted((w for w in work.by_job[number] if min(work.run_s[w.kind]) < math.inf), key=lambda w: w.id)
        if not tasks:
            continue
        place = {wait.id: at for at, wait in enumerate(tasks)}
        edges = tuple((place[p], place[wait.id]) for wait in tasks for p in wait.parents if p in place)
        span_s = min(job.deadline_t - job.submitted_t, 1e9)
        most = _rounded(max(job.per_hour, job.usual_per_hour))
        found.append(JobKind(tuple(map(kind_of, tasks)), edges, span_s, _rounded(job.per_hour), most))
    return tuple(found)


def _rounded(rate: float) -> float:
    return round(rate, DIGITS - 1 - math.floor(math.log10(rate)))


@lru_cache(maxsize=5_000)
def _best(kinds: tuple[JobKind, ...], offers: bytes) -> Mix:
    types = msgspec.msgpack.decode(offers, type=tuple[Offer, ...])
    now = kinds
    kinds = tuple(replace(kind, per_hour=max(kind.per_hour, kind.most_per_hour)) for kind in now)
    every = frozenset(place for place, offer in enumerate(types) if offer.limit != 0)
    if len(every) <= ALL_SUBSETS_UP_TO:
        subsets = [frozenset(some) for size in range(1, len(every) + 1) for some in combinations(sorted(every), size)]
        priced = [(_bill(kinds, types, some), len(some), sorted(some)) for some in subsets]
        bill, _, chosen = min(priced)
        best = frozenset(chosen) if bill < math.inf else every
    else:
        best = _drop_one_by_one(kinds, types, every)
    load, slack_s = _load(now, types, best) or ([0.0] * len(types), [0.0] * len(types))
    return Mix(best, tuple(load), tuple(map(_machines, load, slack_s, types)))


def _drop_one_by_one(kinds: tuple[JobKind, ...], types: tuple[Offer, ...], every: frozenset[int]) -> frozenset[int]:
    chosen, bill = every, _bill(kinds, types, every)
    while len(chosen) > 1:
        smaller = min((chosen - {o} for o in sorted(chosen)), key=lambda some: _bill(kinds, types, some))
        if _bill(kinds, types, smaller) >= bill:
            break
        chosen, bill = smaller, _bill(kinds, types, smaller)
    return chosen


def _bill(kinds: tuple[JobKind, ...], types: tuple[Offer, ...], some: frozenset[int]) -> float:
    """Dollars an hour; infinite if a class cannot keep its deadline with these types."""
    found = _load(kinds, types, some)
    if found is None:
        return math.inf
    rows = zip(map(_machines, *found, types), types, strict=True)
    return math.fsum(machines * offer.price_usd * 3600 / offer.cycle_s for machines, offer in rows)


def _machines(load: float, slack_s: float, offer: Offer) -> float:
    """Machines that a load keeps rented, the idle part included."""
    if load <= 0:
        return 0.0
    gathers = offer.cycle_s / (offer.cycle_s + SLACK_WEIGHT * slack_s)
    return load + IDLE_MACHINES * (1 + math.sqrt(load)) * gathers


def _seconds(
    kind: JobKind, types: tuple[Offer, ...], some: frozenset[int]
) -> tuple[list[float], float] | None:  # fmt: skip
    """Machine-seconds of one job by offer, and the seconds that it can wait; None if it cannot be in time."""
    offers = msgspec.msgpack.encode(without_others(types, some))
    rows = template(assign, kind.tasks, kind.edges, (), offers, kind.span_s, (4,) * len(types))
    if rows is None:
        return None
    seconds, slack_s = [0.0] * len(types), math.inf
    for (run_s, name, cores, *_), (place, begin_s, due_s, latest_s, _) in zip(kind.tasks, rows, strict=True):
        offer = types[place]
        needs_s = run_s / offer.speed_for(name)
        if len(some) < len(types) and (
            due_s - begin_s < SPARE_TIME_FACTOR * needs_s or due_s > kind.span_s + 1e-6
        ):  # fmt: skip
            return None
        seconds[place] += needs_s * cores / offer.cores
        slack_s = min(slack_s, latest_s - needs_s - offer.lag_s)
    return seconds, max(0.0, slack_s)


def _load(
    kinds: tuple[JobKind, ...], types: tuple[Offer, ...], some: frozenset[int]
) -> tuple[list[float], list[float]] | None:  # fmt: skip
    """By offer, the machines that the streams keep busy, and the seconds that this work can wait on average."""
    load, waits = [0.0] * len(types), [0.0] * len(types)
    for kind in kinds:
        found = _seconds(kind, types, some)
        if found is None:
            return None
        for place, each in enumerate(found[0]):
            load[place] += each * kind.per_hour / 3600
            waits[place] += each * kind.per_hour / 3600 * found[1]
    return load, [wait / each if each else 0.0 for wait, each in zip(waits, load, strict=True)]
