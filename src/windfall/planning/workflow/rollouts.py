"""What a plan of a workflow costs on machines that may vanish, by playing it with drawn losses. Pure.

A loss costs more than the task that runs again: what comes after it begins later, and has to run on demand where the
time for a second loss is gone. So the reviews of the live planner are played, too: after the first loss at every
review, and whenever a machine is lost. Run times are those of the plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from windfall.planning.contract import SPOT, Later, Machine, Phase, Running, Snapshot
from windfall.planning.offers import Offer
from windfall.planning.workflow.seats import TIME_RESERVE, Queues, Seat, pause_s, play

MOST_STEPS = 400
"""Losses and reviews of one run; where there are more, it counts as late."""


class Bills(Struct, frozen=True, order=True):
    """What several played runs came to; the smaller, the better."""

    late: float
    """Share of them that were late."""
    usd: float
    """The mean."""
    runs: int

    def __add__(self, other: Bills) -> Bills:
        runs = self.runs + other.runs
        late, usd = self.late * self.runs + other.late * other.runs, self.usd * self.runs + other.usd * other.runs
        return Bills(late / runs, usd / runs, runs)


def bills(
    snapshot: Snapshot, queues: Queues, reviewed: Callable[[Snapshot], Queues], runs: int, rng: np.random.Generator
) -> Bills:
    """Bills of `runs` runs that begin with these queues, whose machines are lost at the rates of their offers."""
    found = [_Run(snapshot, queues, reviewed, rng) for _ in range(runs)]
    return Bills(sum(run.is_late for run in found) / runs, math.fsum(run.usd for run in found) / runs, runs)


class _Run:
    """One run, from the first plan to the last task: `usd` and `is_late`."""

    def __init__(
        self, snapshot: Snapshot, queues: Queues, reviewed: Callable[[Snapshot], Queues], rng: np.random.Generator
    ) -> None:
        self.snapshot, self.rng = snapshot, rng
        self.queues = replace(queues, seats=[replace(seat) for seat in queues.seats])
        self.usd, self.is_late, self.number = 0.0, False, 0
        self.until_t: dict[str, float] = {}
        """When each machine is lost; infinite on demand."""
        self.at_t: dict[str, float] = {}
        """When each rented machine was requested."""
        self.used_t: dict[str, float] = {}
        review_t = math.inf
        # The snapshot's deadline is that of plans; runs may use the reserve of time, too.
        deadline_t = snapshot.begun_t + (snapshot.deadline_t - snapshot.begun_t) / (1.0 - TIME_RESERVE)
        for _ in range(MOST_STEPS):
            ends = play(self.snapshot, self.queues.seats, self.queues.in_order)
            if ends is None:
                break
            self._rename()
            finish_t = max(ends.values(), default=self.snapshot.t)
            lost_t = min((self._lost_t(seat, ends) for seat in self.queues.seats), default=math.inf)
            t = min(lost_t, review_t)
            if t >= finish_t:
                self._end(ends)
                self.is_late = finish_t > deadline_t
                return
            self.snapshot = self._at(t, ends)
            self.queues = reviewed(self.snapshot)
            review_t = t + pause_s(snapshot)
        self.is_late = True

    def _rename(self) -> None:
        """New machines get names of their own: the live planner uses the same ones again."""
        for seat in self.queues.seats:
            if seat.label not in self.until_t:
                seat.label, self.number = f"run-{self.number}", self.number + 1
                self.until_t[seat.label] = self._life_s(seat.offer)

    def _life_s(self, offer: Offer) -> float:
        per_s = (offer.interruptions_per_h or 0.0) / 3600.0 if offer.market == SPOT else 0.0
        return offer.lag_s + float(self.rng.exponential(1.0 / per_s)) if per_s else math.inf

    def _requested_t(self, seat: Seat) -> float:
        return self.at_t.get(seat.label, seat.at_t)

    def _lost_t(self, seat: Seat, ends: dict[int, float]) -> float:
        """When this machine is lost, if it is not done by then."""
        lost_t = self._requested_t(seat) + self.until_t[seat.label]
        return lost_t if lost_t < self._last_t(seat, ends) else math.inf

    def _last_t(self, seat: Seat, ends: dict[int, float]) -> float:
        """When its last task ends, of those that run and of those that wait."""
        running = [ends[entry.task] for entry in self._running(seat.label)]
        waiting = [ends[task] for task in seat.tasks]
        return max([*running, *waiting, self.used_t.get(seat.label, -math.inf)])

    def _running(self, label: str) -> Sequence[Running]:
        return next((machine.running for machine in self.snapshot.machines if machine.id == label), ())

    def _bill(self, seat: Seat, until_t: float) -> float:
        at_t = self._requested_t(seat)
        return replace(seat, at_t=at_t, begun=False).extra_usd(max(until_t, at_t + seat.offer.lag_s))

    def _lost_usd(self, seat: Seat, t: float) -> float:
        """The bill of a machine that is reclaimed now: often without its last cycle."""
        offer = seat.offer
        held_s = t - self._requested_t(seat) - (0.0 if offer.bills_boot else offer.lag_s)
        if held_s < offer.free_if_taken_within_s:
            return 0.0
        if not offer.free_if_taken:
            return self._bill(seat, t)
        return math.floor(max(held_s, offer.minimum_s) / offer.cycle_s + 1e-9) * offer.price_usd

    def _end(self, ends: dict[int, float]) -> None:
        for seat in self.queues.seats:
            until_t = self._last_t(seat, ends)
            if math.isfinite(until_t) or seat.label in self.at_t:
                self.usd += self._bill(seat, until_t)

    def _at(self, t: float, ends: dict[int, float]) -> Snapshot:
        """The snapshot of this moment; machines that are lost or that nobody needs any more are billed."""
        before, machines, later = self.snapshot, [], []
        tasks = {task: need for task, need in before.tasks.items() if ends[task] > t + 1e-9}
        for seat in self.queues.seats:
            label, at_t = seat.label, self._requested_t(seat)
            if seat.is_new and at_t > t:
                later.append(Later(label, seat.offer, at_t, tuple(task for task in seat.tasks if task in tasks)))
                continue
            self.at_t[label] = at_t
            begun = {task: ends[task] - before.tasks[task].seconds_on(seat.offer) for task in seat.tasks}
            held = [entry.task for entry in self._running(label)] + [task for task in seat.tasks if begun[task] <= t]
            self.used_t[label] = max([self.used_t.get(label, -math.inf), *(min(t, ends[task]) for task in held)])
            if at_t + self.until_t[label] <= t + 1e-9:
                self.usd += self._lost_usd(seat, t) if held or seat.tasks else self._bill(seat, self.used_t[label])
                continue
            running = tuple(Running(task, ends[task] - t) for task in held if task in tasks)
            waiting = tuple(task for task in seat.tasks if begun[task] > t)
            paid_t = self._paid_until_t(seat, t if running else self.used_t[label])
            if not running and not waiting and paid_t <= t + 1e-9:
                self.usd += self._bill(seat, self.used_t[label])
                continue
            ready_t = at_t + seat.offer.lag_s
            phase = Phase.PENDING if ready_t > t else Phase.BUSY if running else Phase.IDLE
            machine = Machine(
                id=label, offer=seat.offer, phase=phase, ready_t=ready_t, running=running, waiting=waiting,
                paid_until_t=paid_t,
            )  # fmt: skip
            machines.append(machine)
        after = {
            task: left
            for task, parents in before.after.items()
            if task in tasks and (left := tuple(parent for parent in parents if parent in tasks))
        }
        return replace(before, t=t, tasks=tasks, after=after, machines=tuple(machines), last_later=tuple(later))

    def _paid_until_t(self, seat: Seat, used_t: float) -> float:
        """The end of the billing cycle that has begun when it was used last."""
        fresh = replace(seat, at_t=self._requested_t(seat), begun=False, paid_until_t=-math.inf)
        fresh.book(max(used_t, fresh.at_t + seat.offer.lag_s))
        return fresh.paid_until_t
