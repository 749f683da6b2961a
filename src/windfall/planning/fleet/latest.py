"""The latest moment at which each waiting task must begin on an on-demand machine. Pure.

Tasks are laid out backwards in time, the latest end first, on the on-demand machines that are there and those that may
still be rented. A task that begins before its moment leaves this layout possible for all others. So it is the safety
net of a fleet: until then a task may wait for paid capacity, or run on a spot machine that may vanish. No estimate of
interruptions or arrivals enters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from heapq import heappush

from windfall.planning.fleet.deadlines import Wish
from windfall.planning.fleet.model import Slots, Waiting, Work, first_free
from windfall.planning.room import Room

Heap = list[tuple[float, float, int, Slots]]


def latest_starts(
    work: Work, waiting: list[Waiting], wishes: Mapping[int, Wish], ends_t: Mapping[int, float], room: Room
) -> dict[int, float]:
    """By task when it must begin at the latest if all of them shall end by `ends_t`; -inf if it is too late already.

    `room`: the machines that may be rented for them. Empty if every task can have a machine of its own: then each
    depends on its own end alone.
    """
    tasks = [wait for wait in waiting if wait.id in wishes]
    # Every task could have a machine of its own of every offer.
    if all(offer.most is None or room.of(offer) >= len(tasks) for offer in work.offers):
        return {}
    return _laid_out(_Columns(work, tasks, room=room.copy()), tasks, wishes, ends_t)


def shared_starts(
    work: Work, waiting: list[Waiting], wishes: Mapping[int, Wish], ends_t: Mapping[int, float], machines: Sequence[int]
) -> dict[int, float]:
    """By task when it must begin at the latest to share machines with the others, one after the other.

    `machines`: by offer how many there are for all of them. Tasks for which these are too few are left out.
    """
    tasks = [wait for wait in waiting if wait.id in wishes]
    more = list(machines)
    for each in work.slots():
        more[each.offer] -= 1
    found = _laid_out(_Columns(work, tasks, more=more), tasks, wishes, ends_t)
    return {name: begin_t for name, begin_t in found.items() if begin_t > -math.inf}


def _laid_out(
    columns: _Columns, tasks: list[Waiting], wishes: Mapping[int, Wish], ends_t: Mapping[int, float]
) -> dict[int, float]:
    children_begin_t: dict[int, float] = {}
    found: dict[int, float] = {}
    for wait in sorted(tasks, key=lambda wait: (-ends_t[wait.id], -wait.id)):
        end_t = min(ends_t[wait.id], children_begin_t.get(wait.id, math.inf))
        start_t = found[wait.id] = columns.put(wait, wishes[wait.id].offer, end_t)
        for parent in wait.parents if start_t > -math.inf else ():
            children_begin_t[parent] = min(children_begin_t.get(parent, math.inf), start_t)
    return found


class _Columns:
    """Machines in reversed time: `Slots` whose cores are free from the negative of the moment they are used at.

    If every task is narrow, that is takes one core, each core is a column of its own. Machines are added as there is
    room, and a task may take any type; or, by offer, `more` of them, and each task has the type that it should have.
    """

    def __init__(
        self, work: Work, tasks: list[Waiting], room: Room | None = None, more: list[int] | None = None
    ) -> None:
        self._work, self._room, self._more = work, room, more
        self._is_narrow = all(wait.task.cores == 1 for wait in tasks)
        self._heaps: dict[int, Heap] = {}
        self._up_t: dict[str, float] = {}
        """By column: before this moment it has other work, or its machine is not up."""
        for each in work.slots():
            self._add(each.offer, each.free_t)

    def put(self, wait: Waiting, wanted: int, end_t: float) -> float:
        """Reserve the latest time before `end_t` on the wanted type, else on the type where it begins last."""
        best = self._latest(wait, wanted, end_t)
        if best is None and self._more is None:
            found = (self._latest(wait, place, end_t) for place in range(len(self._work.offers)))
            best = max((each for each in found if each is not None), key=lambda each: each[0], default=None)
        if best is None:
            return -math.inf
        start_t, column, place = best
        if column is None:
            column = self._open(place)
        column.put(wait.id, wait.task.cores, -end_t, -start_t)
        return start_t

    def _latest(self, wait: Waiting, place: int, end_t: float) -> tuple[float, Slots | None, int] | None:
        """The latest start on this type, and its column; without one, on a new machine. None: nothing is in time."""
        work, run_s, cores = self._work, self._work.run_s[wait.kind][place], wait.task.cores
        offer = work.offers[place]
        if math.isinf(run_s) or cores > offer.cores:
            return None
        there = self._last_free(place, cores, end_t, run_s)
        if there is not None and there[0] >= end_t - run_s - 1e-9:
            return (*there, place)
        if self._can_open(place) and end_t - run_s >= work.t + offer.lag_s:
            return end_t - run_s, None, place
        return None if there is None else (*there, place)

    def _last_free(self, place: int, cores: int, end_t: float, run_s: float) -> tuple[float, Slots] | None:
        """The column that can begin the task last, and when."""
        heap = self._heaps.get(place, [])
        first = first_free(heap, cores, -end_t)
        if first is None:
            return None
        start_t = -first.starts_t(cores, -end_t) - run_s
        if start_t >= self._up_t[first.label]:
            return start_t, first
        able = (
            (-entry[3].starts_t(cores, -end_t) - run_s, entry[3]) for entry in heap if len(entry[3].free_t) >= cores
        )
        in_time = (each for each in able if each[0] >= self._up_t[each[1].label])
        return max(in_time, key=lambda each: each[0], default=None)

    def _can_open(self, place: int) -> bool:
        if self._room is None:
            return self._more is not None and self._more[place] > 0
        offer = self._work.offers[place]
        return offer.most is None or self._room.of(offer) > 0

    def _open(self, place: int) -> Slots:
        """Columns of one more machine; returns the first."""
        offer = self._work.offers[place]
        if self._room is not None:
            self._room.take(offer)
        elif self._more is not None:
            self._more[place] -= 1
        return self._add(place, [self._work.t + offer.lag_s] * offer.cores)

    def _add(self, place: int, free_t: list[float]) -> Slots:
        groups = [[free] for free in free_t] if self._is_narrow else [free_t]
        found = []
        for group in groups:
            column = Slots(str(len(self._up_t)), place, len(group), -math.inf)
            self._up_t[column.label] = max(group)
            heappush(self._heaps.setdefault(place, []), (-math.inf, 0.0, len(self._up_t), column))
            found.append(column)
        return found[0]
