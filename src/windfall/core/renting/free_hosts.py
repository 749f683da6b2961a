"""How much of a renting job is left to free hosts, and until when. Pure.

A planner plans only with what is not left to them. What runs on them, and as much of what waits as they will do at
their pace, it is not shown: it rents for the rest. The nearer the deadline, the less is left to them: from `safe_t` on
everything that waits is shown, and from `last_t` on what still runs on them as well, early enough for machines that are
rented to do it in time. What runs there for much longer than it should is shown at once. So every planner shares with
them, and the net of each holds.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heapreplace
from itertools import chain, islice

from msgspec import Struct

from windfall.core.events import JobRules
from windfall.core.renting.machines import machines_of
from windfall.core.renting.runtimes import Outlook, unit_of
from windfall.core.state.bags import Bag
from windfall.core.state.columns import HELD, WAITING
from windfall.core.state.fleet import MachineState, machine_of, paid_until_t, queue_of
from windfall.core.state.state import State
from windfall.planning.contract import ONDEMAND, SPOT
from windfall.planning.offers import Offer

TRUST = 0.8
"""Of what they would do at their pace: they may leave, slow down or serve others."""
CHANCE_S, CHANCE_SHARE = 30.0, 1 / 50
"""Seconds, and the largest share of its time, for which a new job is offered to free hosts alone."""
SLOW = 2.0
"""A task that runs this many times as long as the slowest one should may begin again on a machine."""
SURELY = 1.5
"""Limit of a higher quantile, as a multiple of that which the job asks for: the extremes of guesses say little."""
MANY = 20
LOOKS = 8
"""Times at which their pace is looked at again, until everything must be safe."""


class Left(Struct, frozen=True):
    """What a planner is not shown: tasks that run on free hosts, and waiting ones that free hosts will do.

    `freed` are those of the waiting ones that were reserved for a machine so far, by its number.
    """

    running: frozenset[int] = frozenset()
    waiting: frozenset[int] = frozenset()
    freed: dict[int, frozenset[int]] = {}
    look_t: float = math.inf
    """When to look again."""


NOTHING = Left()


def chance_t(state: State, bag: Bag, rules: JobRules) -> float:
    """Until when free hosts may take what they can of a new job; now, where there are none."""
    deadline_s = rules.deadline_s
    if deadline_s is None or bag.shape is not None or not are_there(state):
        return -math.inf
    return bag.submitted_t + min(CHANCE_S, CHANCE_SHARE * deadline_s)


def left_to_them(state: State, bag: Bag, t: float) -> Left:
    """What is left to them at this moment. A workflow's plan holds every task of it."""
    if bag.finished_t is not None or bag.shape is not None or bag.rules.deadline_s is None:
        return NOTHING
    if not _offers(state, bag) or not are_there(state):
        return NOTHING
    looks, limits = _looks(state, bag, t), patience(state, bag, t)
    if t >= limits.last_t:
        return NOTHING
    running, pace = _running(state, bag, t, looks, limits)
    if t >= limits.safe_t:
        return Left(running=running, look_t=limits.last_t)
    # As many as they will do, and no more than rented machines could do in time if they all left now.
    if_they_leave = (limits.last_t - t) / limits.run_s * _steady_cores(state, bag)
    count = math.floor(min(TRUST * pace * (limits.safe_t - t), if_they_leave))
    # Of many, one is always left to them: whoever comes later and takes it shows that there is somebody.
    lure = min(1, (bag.counts[WAITING] + bag.counts[HELD]) // MANY)
    waiting = frozenset(islice(chain.from_iterable(bag.queues.by_class), max(lure, count)))
    freed = _freed(state, bag, max(lure, count) - len(waiting))
    look_t = t + max((limits.safe_t - t) / LOOKS, bag.rules.deadline_s / 100)
    return Left(running, waiting.union(*freed.values()), freed, min(look_t, limits.safe_t))


class Patience(Struct, frozen=True):
    """Until when something is left to free hosts: what waits until `safe_t`, what runs until `last_t` or
    until it has run so long. `run_s` is what a rented machine takes for a task."""

    safe_t: float
    last_t: float
    longest_s: list[float]
    run_s: float

    def has_ended(self, bag: Bag, task: int, sent_t: float, t: float) -> bool:
        return t >= self.last_t or t - sent_t > self.longest_s[bag.class_of(task)] * unit_of(bag, task)


def patience(state: State, bag: Bag, t: float) -> Patience:
    looks = _looks(state, bag, t)
    run_s, lag_s = _rented_s(state, bag, looks)
    # If the slowest of all that run now shall be as sure as the job asks for, one of them must be surer.
    share = (1.0 - bag.rules.confidence) / (1 + bag.counts[HELD])
    surely = _looks(state, bag, t, 1.0 - share)
    sure_s = min(_rented_s(state, bag, surely)[0], SURELY * run_s)
    deadline_t = bag.submitted_t + (math.inf if bag.rules.deadline_s is None else bag.rules.deadline_s)
    return Patience(deadline_t - lag_s - 2 * run_s, deadline_t - lag_s - sure_s, _longest_s(looks, surely), run_s)


def _longest_s(looks: list[Outlook], surely: list[Outlook]) -> list[float]:
    pairs = zip(looks, surely, strict=True)
    return [SLOW * min(sure.runtime_s, SURELY * look.runtime_s) for look, sure in pairs]


def may_help(state: State, bag: Bag, machine: MachineState, t: float) -> bool:
    """Whether a rented machine takes unassigned tasks: all of it where a plan names no tasks, else what it will
    have done in the time that is paid anyway, so that nothing is paid for what costs nothing elsewhere."""
    planned = state.fleet.plans[bag.number].plan if bag.number in state.fleet.plans else None
    if planned is not None and machine.offer.market == SPOT and t > planned.spot_until_t:
        return False
    if planned is None or not planned.assign or not are_there(state):
        return True
    return t + _run_s(bag, machine.offer, _looks(state, bag, t)) <= paid_until_t(machine, t)


def are_there(state: State) -> bool:
    """Whether there are free hosts."""
    return any(machine_of(state, state.hosts[number]) is None for number in state.hosts.live)


def _looks(state: State, bag: Bag, t: float, confidence: float | None = None) -> list[Outlook]:
    sure = bag.rules.confidence if confidence is None else confidence
    return [Outlook(state, bag, index, sure, t) for index in range(len(bag.classes))]


def _rented_s(state: State, bag: Bag, looks: list[Outlook]) -> tuple[float, float]:
    """Run time and boot of the slowest task on the quickest machine that does not vanish, or on any if all may."""
    offers = _offers(state, bag)
    if not offers:
        return 0.0, 0.0
    steady = [offer for offer in offers if offer.market == ONDEMAND] or offers
    quickest = min(steady, key=lambda offer: offer.lag_s + _run_s(bag, offer, looks))
    return _run_s(bag, quickest, looks), quickest.lag_s


def _run_s(bag: Bag, offer: Offer, looks: list[Outlook]) -> float:
    """What the slowest of its tasks takes there."""
    unit_s = max(bag.progress.estimates) if bag.progress.estimates else 1.0
    return max(look.runtime_s * unit_s / offer.speed_for(look.rules.name) for look in looks)


def _steady_cores(state: State, bag: Bag) -> float:
    """Cores that can be had for what they leave undone: half of those that do not vanish, if there is a limit."""
    cores = 0.0
    for offer in _offers(state, bag):
        if offer.market == ONDEMAND:
            cores += math.inf if offer.limit is None else offer.limit * offer.cores / 2
    return cores or 1.0


def _offers(state: State, bag: Bag) -> list[Offer]:
    return [offer for pool in bag.rules.rent_from for offer in state.fleet.offers.get(pool, ())]


def _running(state: State, bag: Bag, t: float, looks: list[Outlook], limits: Patience) -> tuple[frozenset[int], float]:
    """Tasks that run on free hosts alone, not too long yet; and the tasks a second that these hosts do.

    A slot is thought to do a task in its mean time, or in what the one that it has now has taken, if that is longer.
    What a host holds ready beyond its slots is not at work.
    """
    tasks: list[int] = []
    at_work: dict[int, list[float]] = {}
    for task, live in bag.attempts.live.items():
        hosts = [host for attempt in live if (host := state.hosts.get(attempt.host)) is not None]
        if any(machine_of(state, host) is not None for host in hosts):
            continue
        if not all(limits.has_ended(bag, task, attempt.sent, t) for attempt in live):
            tasks.append(task)
        mean_s = looks[bag.class_of(task)].mean_s * unit_of(bag, task)
        for attempt in live:
            at_work.setdefault(attempt.host, []).append(max(mean_s, t - attempt.sent, 1e-3))
    pace = 0.0
    for number, seconds in at_work.items():
        slots = state.hosts[number].slots if number in state.hosts else 0
        pace += math.fsum(1.0 / each for each in seconds[:slots])
    return frozenset(tasks), pace


def _freed(state: State, bag: Bag, count: int) -> dict[int, frozenset[int]]:
    """`count` tasks that are reserved for machines and have not begun, from the ends of the longest queues."""
    queues = {machine.number: queue_of(state, machine) for machine in machines_of(state, bag.number) if machine.there}
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
