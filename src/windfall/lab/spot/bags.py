"""Real bags on series of counts: tasks that lose their progress with their machine. Touches: traces."""

from __future__ import annotations

import csv
import gzip
import math
from collections import deque
from collections.abc import Callable
from functools import cache

from msgspec.structs import replace

from windfall.lab import data
from windfall.lab.spot.trace import SpotCaseResult
from windfall.lab.spot.worlds import World
from windfall.planning.spot.fleet import IDLE, ONDEMAND, FleetPlanner, FleetTerms, Pick, Seat, after_loss, move
from windfall.planning.spot.market import Market

BATCH = "batch/alibaba2017-batch-tasks.open.csv.gz"


@cache
def bag(hours: float) -> tuple[float, ...]:
    """Seconds of each task of a real bag: instances of batch tasks in their order, until they fill the hours."""
    found: list[float] = []
    total_s = 0.0
    with gzip.open(data.find(BATCH), "rt") as lines:
        for row in csv.DictReader(lines):
            seconds = float(row["duration"])
            for _ in range(int(float(row["instances_num"]))):
                if total_s + seconds > hours * 3600.0:
                    return tuple(found)
                found.append(seconds)
                total_s += seconds
    return tuple(found)


class _Floor:
    """The waiting tasks, and the task of each seat with its remaining seconds."""

    def __init__(self, tasks: tuple[float, ...], seats: int) -> None:
        self.waiting = deque(sorted(tasks, reverse=True))  # longest first: they are the hardest to fit in
        self.running: list[tuple[float, float] | None] = [None] * seats
        self.seconds = math.fsum(tasks)

    def left_s(self) -> float:
        return self.seconds

    def lose(self, place: int) -> None:
        """Return the task of a seat to the queue, from its beginning."""
        task = self.running[place]
        if task is not None:
            self.seconds += task[0] - task[1]
            self.waiting.appendleft(task[0])
            self.running[place] = None

    def work(self, place: int, seconds: float, *, begins: bool) -> None:
        """One seat works for this time, task after task, or only on its present task."""
        while seconds > 1e-9:
            task = self.running[place]
            if task is None:
                if not begins or not self.waiting:
                    return
                task = (self.waiting[0], self.waiting.popleft())
            done = min(seconds, task[1])
            seconds, self.seconds = seconds - done, self.seconds - done
            self.running[place] = (task[0], task[1] - done) if task[1] - done > 1e-9 else None


def reserve_ticks(terms: FleetTerms, tasks: tuple[float, ...]) -> int:
    """Ticks by which the planner's deadline is earlier: the longest task may be lost at the last moment."""
    return 2 * math.ceil(max(tasks) / terms.tick_s) + terms.changeover_ticks


def _goes_on(seat: Seat, pick: Pick, has_task: bool) -> Pick:
    """A machine finishes its present task, unless the deadline requires on-demand."""
    if has_task and seat.market is not Market.IDLE and pick.market is not Market.ONDEMAND:
        return Pick(seat.market, seat.zone)
    return pick


def run_bag(
    world: World,
    start: int,
    terms: FleetTerms,
    tasks: tuple[float, ...],
    make: Callable[[FleetTerms, int], FleetPlanner],
) -> SpotCaseResult:
    """Run the tasks on the machines of a fleet planner, which plans for an earlier deadline by `reserve_ticks`."""
    floor = _Floor(tasks, terms.seats)
    planned_ticks = terms.deadline_ticks - reserve_ticks(terms, tasks)
    planner = make(replace(terms, deadline_ticks=planned_ticks), len(world.counts[0]))
    seats = tuple(Seat() for _ in range(terms.seats))
    for tick in range(start):
        planner.observe(world.sight(tick), seats)
    cost, now = 0.0, 0
    while floor.waiting or any(floor.running):
        sight = world.sight(start + now)
        kept = after_loss(seats, sight)
        planner.observe(sight, kept)
        left = math.ceil(floor.left_s() / terms.tick_s - 1e-9)
        wishes = planner.choose(now, left, kept) if now < planned_ticks else (ONDEMAND,) * terms.seats
        busy = [task is not None for task in floor.running]
        free = len(floor.waiting)
        picks = []
        for place, (seat, wish) in enumerate(zip(kept, wishes, strict=True)):
            pick = _goes_on(seat, wish, busy[place] and seat.market is not Market.IDLE)
            if not busy[place]:
                pick, free = (pick, free - 1) if free > 0 else (IDLE, free)
            picks.append(pick)
        moved = [move(terms.changeover_ticks, seat, pick, now) for seat, pick in zip(kept, picks, strict=True)]
        for place, ((after, done), before) in enumerate(zip(moved, kept, strict=True)):
            if after.since != before.since or after.market is Market.IDLE:
                floor.lose(place)
            if done:
                # A machine that will be released begins no further task.
                floor.work(place, terms.tick_s, begins=picks[place] == wishes[place])
        cost += sum(sight[pick.zone].usd for pick in picks if pick.market is Market.SPOT)
        cost += terms.ondemand_usd * sum(pick.market is Market.ONDEMAND for pick in picks)
        seats, now = tuple(after for after, _ in moved), now + 1
    return SpotCaseResult(cost * terms.tick_s / 3600.0, now * terms.tick_s / 3600.0, now <= terms.deadline_ticks)
