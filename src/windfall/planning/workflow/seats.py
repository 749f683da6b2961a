"""Machines of a workflow with their queues: played through in time, and what is at risk. Pure.

`live` decides with it; a seat is one machine, rented or intended.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from windfall.planning.contract import ONDEMAND, SPOT, Phase, Snapshot, Task
from windfall.planning.offers import Offer

TIME_RESERVE = 0.02
"""Share of the time to the deadline that plans leave unused: for exchanges, slow disks and late boots."""
REVIEWS_PER_DEADLINE, MIN_REVIEW_S = 20, 1.0
"""Reviews without an event, because a late task causes none; and the least time between two."""


class Seat(Struct):
    """One machine, rented or intended: when its cores are free, and its queue."""

    label: str
    offer: Offer
    at_t: float
    free_t: list[float]
    tasks: list[int] = field(default_factory=list)
    is_new: bool = False
    paid_until_t: float = -math.inf
    begun: bool = True

    def start_t(self, task: Task, ready_t: float) -> float:
        """When a task could begin here behind the queue; infinite if it does not fit."""
        if not task.fits(self.offer):
            return math.inf
        return max(ready_t, sorted(self.free_t)[task.cores - 1])

    def append(self, task: Task, start_t: float) -> float:
        end_t = start_t + task.seconds_on(self.offer)
        for _ in range(task.cores):
            self.free_t.remove(min(self.free_t))
        self.free_t += [end_t] * task.cores
        self.tasks.append(task.id)
        return end_t

    def extra_usd(self, end_t: float) -> float:
        """Dollars to keep the machine until `end_t`, beyond what is paid."""
        offer = self.offer
        if not self.begun:
            billed_s = end_t - self.at_t - (0.0 if offer.bills_boot else offer.lag_s)
            return offer.cycles(max(billed_s, offer.minimum_s)) * offer.price_usd
        over_s = end_t - self.paid_until_t
        return 0.0 if over_s <= 1e-6 else math.ceil(over_s / offer.cycle_s - 1e-9) * offer.price_usd

    def book(self, end_t: float) -> None:
        """Count the machine as paid until `end_t`, in whole billing cycles."""
        if not self.begun:
            self.begun, self.paid_until_t = True, self.at_t
        over_s = end_t - self.paid_until_t
        if over_s > 1e-6:
            self.paid_until_t += math.ceil(over_s / self.offer.cycle_s - 1e-9) * self.offer.cycle_s


def cores_free(offer: Offer, at_t: float) -> list[float]:
    return [at_t + offer.lag_s] * offer.cores


def rented(snapshot: Snapshot) -> list[Seat]:
    """The machines that are rented and not hibernated, with what runs on them; their queues as their tasks."""
    seats = []
    for machine in snapshot.machines:
        if machine.phase is Phase.HIBERNATED or machine.noticed_t is not None:
            continue
        free_t = [max(snapshot.t, machine.ready_t)] * machine.offer.cores
        for entry in machine.running:
            for _ in range(snapshot.tasks[entry.task].cores):
                free_t.remove(min(free_t))
            free_t += [snapshot.t + entry.left_s] * snapshot.tasks[entry.task].cores
        paid_t = machine.paid_until_t if math.isfinite(machine.paid_until_t) else snapshot.t
        seats.append(Seat(machine.id, machine.offer, snapshot.t, free_t, list(machine.waiting), paid_until_t=paid_t))
    return seats


def intended(snapshot: Snapshot) -> list[Seat]:
    """The machines that the last plan intended to rent later and that still have tasks."""
    seats = []
    reserved = {task for machine in snapshot.machines for task in machine.tasks()}
    for entry in snapshot.last_later:
        tasks = [task for task in entry.tasks if task in snapshot.tasks and task not in reserved]
        if tasks:
            at_t = max(snapshot.t, entry.at_t)
            seats.append(Seat(entry.label, entry.offer, at_t, cores_free(entry.offer, at_t), tasks, True, begun=False))
    return seats


class Review(Struct, frozen=True, order=True):
    """What playing these queues comes to; the smaller, the better."""

    late_ms: float
    """Milliseconds after the deadline; infinite if a task never begins."""
    risky: int
    """Tasks on spot that begin soon and, if lost, could not run again in time."""
    usd: float
    """Dollars that these machines still cost."""
    finish_t: float


def review(snapshot: Snapshot, seats: Sequence[Seat], in_order: bool = False) -> Review:
    """What it comes to if these machines run their queues; infinite if a task is in no queue."""
    ends = play(snapshot, seats, in_order)
    if ends is None:
        return Review(math.inf, 0, math.inf, math.inf)
    finish_t = max(ends.values(), default=snapshot.t)
    late_ms = float(round(1e3 * max(0.0, finish_t - snapshot.deadline_t)))
    return Review(late_ms, len(at_risk(snapshot, seats, ends)), rest_usd(snapshot, seats, ends), finish_t)


class Queues(Struct, frozen=True):
    """Machines with their queues, whether each waits for the first of its queue, and what that comes to."""

    seats: Sequence[Seat]
    in_order: bool
    found: Review

    def is_as_sure_as(self, other: Queues) -> bool:
        return (self.found.late_ms, self.found.risky) <= (other.found.late_ms, other.found.risky)


def orders(snapshot: Snapshot) -> tuple[bool, ...]:
    """Whether queues may be kept in order: machines that a task takes together leave their queues for it."""
    return (False,) if any(task.nodes for task in snapshot.tasks.values()) else (False, True)


def in_best_order(snapshot: Snapshot, seats: Sequence[Seat]) -> Queues:
    """These queues, kept in order where that is better.

    A core that does not wait may begin a long task just before one with more haste is ready: then the plan's later
    tasks come later than planned, and machines are kept for another billing cycle.
    """
    options = [Queues(seats, in_order, review(snapshot, seats, in_order)) for in_order in orders(snapshot)]
    return min(options, key=lambda option: option.found)


def at_risk(snapshot: Snapshot, seats: Sequence[Seat], ends: Mapping[int, float]) -> list[int]:
    """The tasks on spot machines that, lost at their very end, leave no time to run them and what comes after them on
    demand.

    Of those that begin soon: a later one is judged again in time to rent another machine for it, and by then it is
    known how long the tasks before it took.
    """
    due_t, soon_t = due_of(snapshot), snapshot.t + pause_s(snapshot) + _boot_s(snapshot)
    return [
        task
        for seat in seats
        if seat.offer.market == SPOT
        for task in seat.tasks
        if ends[task] - snapshot.tasks[task].seconds_on(seat.offer) <= soon_t
        and ends[task] + rescue_s(snapshot, snapshot.tasks[task], seat) > due_t[task] + 1e-6
    ]


def pause_s(snapshot: Snapshot) -> float:
    """Seconds between two reviews without an event; infinite without a deadline."""
    return max(MIN_REVIEW_S, (snapshot.deadline_t - snapshot.begun_t) / REVIEWS_PER_DEADLINE)


def _boot_s(snapshot: Snapshot) -> float:
    return max((offer.lag_s for offer in snapshot.offers if offer.market == ONDEMAND), default=0.0)


def rest_usd(snapshot: Snapshot, seats: Sequence[Seat], ends: Mapping[int, float]) -> float:
    """Dollars beyond what has been spent, if these machines end with their last task."""
    running: dict[str, float] = {}
    for machine in snapshot.machines:
        running[machine.id] = max((ends.get(entry.task, snapshot.t) for entry in machine.running), default=snapshot.t)
    return math.fsum(
        replace(seat, begun=not seat.is_new).extra_usd(
            max([running.get(seat.label, snapshot.t), *(ends.get(task, snapshot.t) for task in seat.tasks)])
        )
        for seat in seats
        if seat.tasks or not seat.is_new
    )


def play(snapshot: Snapshot, seats: Sequence[Seat], in_order: bool = False) -> dict[int, float] | None:
    """When each task ends if these machines run their queues; None if a task is in no queue or never begins.

    As the engine does it: a free core takes the first task of its machine's queue that may begin and fits. `in_order`:
    it waits for the first task of the queue instead of taking a later one; two machines may so wait for each other.
    """
    running = running_until(snapshot)
    seat_of = {task: number for number, seat in enumerate(seats) for task in seat.tasks}
    if any(task not in running and task not in seat_of for task in snapshot.tasks):
        return None
    ends = _Played(snapshot, seats, running, seat_of, in_order).ends
    return ends if len(ends) >= len(snapshot.tasks) else None


class _Played:
    """Queues played through in time: `ends` is when each task ends."""

    def __init__(
        self, snapshot: Snapshot, seats: Sequence[Seat], running: dict[int, float], seat_of: dict[int, int],
        in_order: bool,
    ) -> None:  # fmt: skip
        self.tasks, self.seats, self.seat_of, self.ends = snapshot.tasks, seats, seat_of, dict(running)
        self.place = {task: place for seat in seats for place, task in enumerate(seat.tasks)}
        self.children, self.missing = _waits(snapshot)
        self.free_t = [sorted(seat.free_t) for seat in seats]
        self.ready: list[list[tuple[int, int]]] = [[] for _ in seats]
        self.in_order, self.begun = in_order, [0] * len(seats)
        # Ends of tasks come before looks at machines of the same time, so that what they release is seen.
        looks = [(max(snapshot.t, t), 1, seat) for seat, free_t in enumerate(self.free_t) for t in set(free_t)]
        self.events = [(end_t, 0, task) for task, end_t in running.items()] + looks
        heapq.heapify(self.events)
        for task in seat_of:
            if not self.missing.get(task) and task not in running:
                self._release(task)
        while self.events:
            t, is_look, number = heapq.heappop(self.events)
            if is_look:
                self._look(t, number)
            else:
                self._end(t, number)

    def _release(self, task: int) -> None:
        heapq.heappush(self.ready[self.seat_of[task]], (self.place[task], task))

    def _end(self, t: float, task: int) -> None:
        for child in self.children.get(task, ()):
            self.missing[child] -= 1
            if not self.missing[child] and child in self.seat_of:
                self._release(child)
                heapq.heappush(self.events, (t, 1, self.seat_of[child]))

    def _look(self, t: float, number: int) -> None:
        """Begin what may begin on this machine, in the order of its queue; what is too wide for now waits.

        With all behind it where the order is kept.
        """
        free_t, ready, offer = self.free_t[number], self.ready[number], self.seats[number].offer
        free = sum(core_t <= t for core_t in free_t)
        too_wide: list[tuple[int, int]] = []
        while free and ready and not (self.in_order and (too_wide or ready[0][0] > self.begun[number])):
            entry = heapq.heappop(ready)
            need = self.tasks[entry[1]]
            width = min(need.cores, len(free_t))
            if width > free:
                too_wide.append(entry)
                continue
            self.begun[number] += 1
            end_t = self.ends[entry[1]] = t + need.seconds_on(offer)
            free -= width
            free_t[:width] = [end_t] * width
            free_t.sort()
            heapq.heappush(self.events, (end_t, 0, entry[1]))
            heapq.heappush(self.events, (end_t, 1, number))
        for entry in too_wide:
            heapq.heappush(ready, entry)


def running_until(snapshot: Snapshot) -> dict[int, float]:
    """When each running task ends, but for those on hibernated machines."""
    return {
        entry.task: snapshot.t + entry.left_s
        for machine in snapshot.machines
        if machine.phase is not Phase.HIBERNATED
        for entry in machine.running
    }


def _waits(snapshot: Snapshot, finished: Container[int] = ()) -> tuple[dict[int, list[int]], dict[int, int]]:
    """The children of each unfinished task, and how many parents each task waits for."""
    children: dict[int, list[int]] = {}
    missing: dict[int, int] = {}
    for child, parents in snapshot.after.items():
        open_ = [parent for parent in parents if parent not in finished]
        missing[child] = len(open_)
        for parent in open_:
            children.setdefault(parent, []).append(child)
    return children, missing


def in_order(snapshot: Snapshot, key: Callable[[int], Any], done: Iterable[int]) -> Iterator[int]:
    """Tasks behind their parents; among those that may begin, the least key first."""
    finished = set(done)
    children, missing = _waits(snapshot, finished)
    heap = [(key(task), task) for task in snapshot.tasks if task not in finished and not missing.get(task)]
    heapq.heapify(heap)
    while heap:
        _, task = heapq.heappop(heap)
        yield task
        for child in children.get(task, ()):
            missing[child] -= 1
            if not missing[child] and child not in finished:
                heapq.heappush(heap, (key(child), child))


def rescue_s(snapshot: Snapshot, task: Task, seat: Seat) -> float:
    """Seconds to run a task again on demand that spot loses at its very end, boot included; 0.0 on demand."""
    if seat.offer.market != SPOT:
        return 0.0
    sure = [offer.lag_s + task.seconds_on(offer) for offer in snapshot.offers if offer.market == ONDEMAND]
    return min(sure, default=0.0)


def new_seat(snapshot: Snapshot, offer: Offer, ready_t: float) -> Seat:
    at_t = max(snapshot.t, ready_t - offer.lag_s)
    return Seat("", offer, at_t, cores_free(offer, at_t), is_new=True, begun=False)


def due_of(snapshot: Snapshot) -> dict[int, float]:
    """When each task must end so that its descendants, on the quickest machines on demand, can still be in time."""
    offers = snapshot.offers or tuple(machine.offer for machine in snapshot.machines)
    quickest = {id_: _quickest_s(task, offers) for id_, task in snapshot.tasks.items()}
    due_t = dict.fromkeys(snapshot.tasks, snapshot.deadline_t)
    for task in reversed(list(in_order(snapshot, key=lambda task: task, done=()))):
        for parent in snapshot.after.get(task, ()):
            due_t[parent] = min(due_t[parent], due_t[task] - quickest[task])
    return due_t


def _quickest_s(task: Task, offers: Sequence[Offer]) -> float:
    able = [offer for offer in offers if task.fits(offer)] or offers
    sure = [offer for offer in able if offer.market == ONDEMAND] or able
    return min(task.seconds_on(offer) for offer in sure)
