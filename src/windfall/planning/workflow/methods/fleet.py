"""Building blocks of the constructive planners: rent a machine, place a task, compare options. Pure."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from windfall.planning.workflow.methods.timeline import Timeline, added_cost
from windfall.planning.workflow.model import NEVER, Problem

MAX_MACHINES_TRIED = 128  # in a larger fleet, only machines whose last task ends near the moment are tried
NEIGHBOURS_TRIED = 12


def _ends(machine: Timeline) -> int:
    return machine.last


class Option(NamedTuple):
    """One way to run a task: on `machine`, or on a new one (None) of `offer`."""

    cost: float  # dollars that it adds
    end: int
    start: int
    offer: int
    machine: Timeline | None
    opens: int = 0  # a new machine is requested no sooner


class Fleet:
    """Machines rented so far and where the tasks placed so far run.

    A limit counts every machine ever rented, but those that have given up their place to another (`_instead`).
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.machines: list[Timeline] = []
        self.rented = [0] * len(problem.offers)
        self.rented_of_pool = [0] * len(problem.pool_limit)
        self._by_end: list[list[Timeline]] = [[] for _ in problem.offers]
        self.start = [-1] * problem.n
        self.end = [-1] * problem.n
        self.where: list[Timeline | None] = [None] * problem.n
        self._parents = problem.workflow.graph.parent_rows()
        self._due = problem.exposure.due
        self._loss_usd = problem.exposure.loss_usd
        # The cheapest first, so that the first option found is the cheapest.
        self.by_price = sorted(range(len(problem.offers)), key=lambda o: (problem.rate(o), o))

    def ready(self, task: int) -> int:
        """When its parents, which must all be placed, have ended."""
        return max((self.end[p] for p in self._parents[task]), default=0)

    def can_rent(self, offer: int) -> bool:
        return self.rented[offer] < self.problem.limit[offer] and not self._is_full(self.problem.pool[offer])

    def _is_full(self, pool: int) -> bool:
        return self.rented_of_pool[pool] >= self.problem.pool_limit[pool]

    def on_machine(self, machine: Timeline, task: int, ready: int, due: int) -> Option | None:
        problem = self.problem
        duration = problem.duration[machine.offer][task]
        ready = max(ready, machine.opens + problem.lag[machine.offer])
        due = min(due, self._due[machine.offer][task], machine.closes)
        if ready + duration > due:
            return None
        workflow = problem.workflow
        start = machine.earliest(ready, due, duration, workflow.cores[task], workflow.memory_bytes[task])
        if start is None:
            return None
        end = start + duration
        cost = added_cost(problem, machine, start, end) + self._loss_usd[machine.offer][task]
        return Option(cost, end, start, machine.offer, machine)

    def on_new(self, offer: int, task: int, ready: int, due: int) -> Option | None:
        problem = self.problem
        duration, lag = problem.duration[offer][task], problem.lag[offer]
        start = max(ready, lag)
        due = min(due, self._due[offer][task])
        if duration >= NEVER or start + duration > due or not self.can_rent(offer):
            return None
        cost = problem.cost(offer, duration + lag) + self._loss_usd[offer][task]
        return Option(cost, start + duration, start, offer, None)

    def near(self, ready: int) -> list[Timeline]:
        """The machines to try for a task that is ready then: all, or in a large fleet those that end nearest to it."""
        if len(self.machines) <= MAX_MACHINES_TRIED:
            return self.machines
        found: list[Timeline] = []
        for row in self._by_end:
            at = bisect_right(row, ready, key=_ends)
            found += row[max(0, at - NEIGHBOURS_TRIED) : at + NEIGHBOURS_TRIED]
        return found

    def options(self, task: int, ready: int, due: int) -> Iterator[Option]:
        for machine in self.near(ready):
            option = self.on_machine(machine, task, ready, due)
            if option is not None:
                yield option
        for offer in self.by_price:
            option = self.on_new(offer, task, ready, due)
            if option is not None:
                yield option

    def soonest(self, task: int, ready: int) -> Option:
        """The option that ends first, whatever its cost: for tasks whose deadline cannot be kept."""
        options = list(self.options(task, ready, NEVER))
        if not options:  # only spot can hold it, and it is too late for a second run
            self._due = [[NEVER] * self.problem.n] * len(self.problem.offers)
            options = list(self.options(task, ready, NEVER))
            self._due = self.problem.exposure.due
        if not options:  # no machine that is rented can hold it, and its pools are full
            return self._instead(task, ready)
        return min(options, key=lambda option: (option.end, option.cost))

    def _instead(self, task: int, ready: int) -> Option:
        """A new machine in the place of another of a full pool, which takes nothing after its last task."""
        problem = self.problem
        best: tuple[Option, Timeline] | None = None
        for machine in self.machines:
            for offer in range(len(problem.offers)):
                if not problem.fits(task, offer) or machine.closes < NEVER or not self._frees(machine, offer):
                    continue
                start = max(ready, machine.last + problem.lag[offer])
                end = start + problem.duration[offer][task]
                cost = problem.cost(offer, end - start + problem.lag[offer])
                if best is None or (end, cost) < (best[0].end, best[0].cost):
                    best = Option(cost, end, start, offer, None, machine.last), machine
        assert best is not None, "a pool that is full has machines"
        option, machine = best
        machine.closes = machine.last
        self._count(machine.offer, -1)
        return option

    def _frees(self, machine: Timeline, offer: int) -> bool:
        """Whether the end of a machine makes room for one of this offer."""
        if machine.offer == offer:
            return True
        problem = self.problem
        is_same_pool = problem.pool[machine.offer] == problem.pool[offer]
        return is_same_pool and self.rented[offer] < problem.limit[offer]

    def _count(self, offer: int, change: int) -> None:
        self.rented[offer] += change
        self.rented_of_pool[self.problem.pool[offer]] += change

    def take(self, task: int, option: Option) -> Timeline:
        machine = option.machine
        if machine is None:
            machine = Timeline(self.problem, option.offer, option.opens)
            self.machines.append(machine)
            self._count(option.offer, 1)
        else:
            row = self._by_end[option.offer]
            at = bisect_left(row, machine.last, key=_ends)
            del row[next(k for k in range(at, len(row)) if row[k] is machine)]
        workflow = self.problem.workflow
        machine.add(task, option.start, option.end, workflow.cores[task], workflow.memory_bytes[task])
        insort_right(self._by_end[option.offer], machine, key=_ends)
        self.start[task], self.end[task], self.where[task] = option.start, option.end, machine
        return machine


def place_all(
    problem: Problem, due: Sequence[int], rank: Sequence[float], choose: Callable[[Fleet, int, int, int], Option | None]
) -> Fleet:
    """Place every task behind its parents, lowest rank first, where `choose` says; where it says None, `soonest`."""
    fleet = Fleet(problem)
    children = problem.workflow.graph.child_rows()
    missing = [len(parents) for parents in problem.workflow.graph.parent_rows()]
    heap = [(rank[task], task) for task in range(problem.n) if missing[task] == 0]
    heapq.heapify(heap)
    while heap:
        _, task = heapq.heappop(heap)
        ready = fleet.ready(task)
        fleet.take(task, choose(fleet, task, ready, due[task]) or fleet.soonest(task, ready))
        for child in children[task]:
            missing[child] -= 1
            if missing[child] == 0:
                heapq.heappush(heap, (rank[child], child))
    return fleet


def cheapest_option(fleet: Fleet, task: int, ready: int, due: int) -> Option | None:
    """The option that ends in time at the least added cost; at equal cost, the one that ends first."""
    return min(fleet.options(task, ready, due), key=lambda option: (option.cost, option.end), default=None)


def finish_with(problem: Problem, offer_of: Sequence[int]) -> list[int]:
    """When each task ends if it runs on its own machine of the given offer, requested in time."""
    end = [0] * problem.n
    parents = problem.workflow.graph.parent_rows()
    lag, duration = problem.lag, problem.duration
    for task in problem.workflow.graph.order().tolist():
        offer = offer_of[task]
        ready = max((end[p] for p in parents[task]), default=0)
        end[task] = max(ready, lag[offer]) + duration[offer][task]
    return end


def fastest_offers(problem: Problem) -> list[int]:
    """For each task the offer that ends it first, on a machine of its own requested at once."""
    end = [0] * problem.n
    choice = [0] * problem.n
    parents = problem.workflow.graph.parent_rows()
    offers = range(len(problem.offers))
    for task in problem.workflow.graph.order().tolist():
        ready = max((end[p] for p in parents[task]), default=0)
        end[task], _, choice[task] = min(
            (max(ready, problem.lag[o]) + problem.duration[o][task], problem.rate(o), o) for o in offers
        )
    return choice


def stretched(problem: Problem, end: Sequence[int]) -> list[int]:
    """Deadlines per task in proportion to the given finish times (Yu and Buyya): the last one is the workflow's own.

    If the finish times meet the deadline, no task gets less time than they give it.
    """
    last = max(end, default=0)
    if last == 0:
        return [problem.deadline] * len(end)
    return [finish * problem.deadline // last for finish in end]
