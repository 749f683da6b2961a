"""What hosts that cost nothing do of a job that rents machines: how much is left to them, and until when. Pure.

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

from windfall.core.columns import HELD, WAITING
from windfall.core.events import Assigned
from windfall.core.fleet import machine_of
from windfall.core.machines import machines_of, queue_of
from windfall.core.runtimes import Outlook, unit_of
from windfall.core.state import Bag, Host, State
from windfall.planning.contract import ONDEMAND
from windfall.planning.offers import Offer

TRUST = 0.8
"""Of what they would do at their pace: they may leave, slow down or serve others."""
CHANCE_S, CHANCE_SHARE = 30.0, 1 / 50
"""So long, and not more than this share of its time, a new job is offered to them before anything is rented for it."""
SLOW = 2.0
"""What runs so many times as long as the slowest task should may begin again on a machine."""
MANY = 20
LOOKS = 8
"""Times at which their pace is looked at again, until everything must be safe."""


class Left(Struct, frozen=True):
    """What a planner is not shown: tasks that run on hosts that cost nothing, and waiting ones that they will do.

    `freed` are those of the waiting ones that were reserved for a machine so far, by its number.
    """

    running: frozenset[int] = frozenset()
    waiting: frozenset[int] = frozenset()
    freed: dict[int, frozenset[int]] = {}
    look_t: float = math.inf
    """When to look again."""


NOTHING = Left()


def chance_t(state: State, bag: Bag) -> float:
    """Until when hosts that cost nothing may take what they can of a new job; now, where there are none."""
    deadline_s = bag.rules.deadline_s
    if deadline_s is None or bag.shape is not None or not _free_hosts(state):
        return -math.inf
    return bag.submitted_t + min(CHANCE_S, CHANCE_SHARE * deadline_s)


def left_to_them(state: State, bag: Bag, t: float) -> Left:
    """What is left to them at this moment. A workflow's plan holds every task of it."""
    if bag.finished_t is not None or bag.shape is not None or bag.rules.deadline_s is None or not _free_hosts(state):
        return NOTHING
    deadline_t = bag.submitted_t + bag.rules.deadline_s
    looks, limits = _looks(state, bag, t), patience(state, bag, t)
    run_s, last_t = _rented_s(state, bag, looks)[0], limits.last_t
    if t >= last_t:
        return NOTHING
    running, pace = _running(state, bag, t, looks, limits)
    # As many as they do until rented machines would have to begin with them, as many at once as can be had.
    count = TRUST * pace * (last_t - t) / (1.0 + TRUST * pace * run_s / _steady_cores(state, bag))
    safe_t = min(last_t - run_s, t + count / (TRUST * pace) if pace else math.inf)
    if t >= safe_t:
        return Left(running=running, look_t=last_t)
    # Of many, one is always left to them: whoever comes later and takes it shows that there is somebody.
    lure = min(1, (bag.counts[WAITING] + bag.counts[HELD]) // MANY)
    count = max(lure, math.floor(min(count, TRUST * pace * (safe_t - t))))
    look_t = t + max((safe_t - t) / LOOKS, (deadline_t - bag.submitted_t) / 100)
    waiting = frozenset(islice(chain.from_iterable(bag.queues), count))
    freed = _freed(state, bag, count - len(waiting))
    return Left(running, waiting.union(*freed.values()), freed, min(look_t, safe_t))


class Patience(Struct, frozen=True):
    """Until when what runs on hosts that cost nothing is left to them: the last moment, and by class a longest run."""

    last_t: float
    longest_s: list[float]

    def has_ended(self, bag: Bag, task: int, sent_t: float, t: float) -> bool:
        return t >= self.last_t or t - sent_t > self.longest_s[bag.class_of(task)] * unit_of(bag, task)


def patience(state: State, bag: Bag, t: float) -> Patience:
    looks = _looks(state, bag, t)
    run_s, lag_s = _rented_s(state, bag, looks)
    deadline_s = math.inf if bag.rules.deadline_s is None else bag.rules.deadline_s
    return Patience(bag.submitted_t + deadline_s - lag_s - run_s, [SLOW * look.runtime_s for look in looks])


def _free_hosts(state: State) -> bool:
    return any(machine_of(state, state.hosts[number]) is None for number in state.live_hosts)


def _looks(state: State, bag: Bag, t: float) -> list[Outlook]:
    """How long tasks take, so that the slowest of all that run now is as sure as the job asks for."""
    sure = 1.0 - (1.0 - bag.rules.confidence) / (1 + bag.counts[HELD])
    return [Outlook(state, bag, index, sure, t) for index in range(len(bag.classes))]


def _rented_s(state: State, bag: Bag, looks: list[Outlook]) -> tuple[float, float]:
    """Run time and boot of the slowest task on the quickest machine that does not vanish, or on any if all may."""
    offers = _offers(state, bag)
    if not offers:
        return 0.0, 0.0
    steady = [offer for offer in offers if offer.market == ONDEMAND] or offers
    unit_s = max(bag.estimates, default=1.0) if bag.estimates else 1.0

    def run_s(offer: Offer) -> float:
        return max(look.runtime_s * unit_s / offer.speed_for(look.rules.name) for look in looks)

    quickest = min(steady, key=lambda offer: offer.lag_s + run_s(offer))
    return run_s(quickest), quickest.lag_s


def _steady_cores(state: State, bag: Bag) -> float:
    """Cores that can be had for what they leave undone: half of those that do not vanish, if there is a limit."""
    cores = 0.0
    for offer in _offers(state, bag):
        if offer.market == ONDEMAND:
            cores += math.inf if offer.limit is None else offer.limit * offer.cores / 2
    return cores or 1.0


def _offers(state: State, bag: Bag) -> list[Offer]:
    return [offer for pool in bag.rules.rent_from for offer in state.offers.get(pool, ())]


def _running(state: State, bag: Bag, t: float, looks: list[Outlook], limits: Patience) -> tuple[frozenset[int], float]:
    """Tasks that run on hosts that cost nothing alone, not too long yet; and the tasks a second that these hosts do.

    A slot is thought to do a task in its mean time, or in what the one that it has now has taken, if that is longer.
    What a host holds ready beyond its slots is not at work.
    """
    tasks: list[int] = []
    at_work: dict[int, list[float]] = {}
    for task, live in bag.live.items():
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
    """So many tasks that are reserved for machines and have not begun, from the ends of the longest queues."""
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


def note_taken(state: State, host: Host, assigned: list[Assigned]) -> None:
    """A host that costs nothing has taken the last that was left to them: there may be more to leave to them."""
    if machine_of(state, host) is not None:
        return
    for job in {piece.job for piece in assigned if piece.job in state.plans}:
        if state.bags[job].reserved and not state.bags[job].waiting:
            state.touch(job)
