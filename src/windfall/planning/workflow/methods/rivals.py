"""The planners of the literature for one workflow: Greedy, GAIN, ProLiS and IC-PCP. Pure.

All four see the billing of this world: whole cycles, the boot included. Files move through shared storage within the
run times, as SCS assumes, so the transfer terms of ProLiS and IC-PCP are zero here.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from windfall.planning.workflow.methods.assign import upgrade
from windfall.planning.workflow.methods.fleet import (
    Fleet,
    Option,
    cheapest_option,
    fastest_offers,
    finish_with,
    place_all,
    stretched,
)
from windfall.planning.workflow.methods.timeline import Timeline, added_cost, to_plan
from windfall.planning.workflow.model import Plan, Problem


def greedy(problem: Problem) -> Plan:
    """Deadlines in proportion to the fastest run times; then always the cheapest machine that keeps them."""
    due = stretched(problem, finish_with(problem, fastest_offers(problem)))
    return to_plan(problem, place_all(problem, due, due, _cheapest_machine).machines, "greedy")


def _cheapest_machine(fleet: Fleet, task: int, ready: int, due: int) -> Option | None:
    """A live machine before a new one, and in each group the lowest price per hour, not the lowest cost."""
    live = [fleet.on_machine(machine, task, ready, due) for machine in fleet.near(ready)]
    new = [fleet.on_new(offer, task, ready, due) for offer in fleet.by_price]
    for group in (live, new):
        usable = [option for option in group if option is not None]
        if usable:
            return min(usable, key=lambda option: (fleet.problem.rate(option.offer), option.end))
    return None


def gain(problem: Problem) -> Plan:
    """The cheapest offer for every task, upgraded by makespan gained per dollar until the deadline holds."""
    offer_of = upgrade(problem)
    due = stretched(problem, finish_with(problem, offer_of))

    def same_type(fleet: Fleet, task: int, ready: int, due: int) -> Option | None:
        offer = offer_of[task]
        live = [fleet.on_machine(m, task, ready, due) for m in fleet.near(ready) if m.offer == offer]
        usable = [option for option in live if option is not None]
        return min(usable, key=lambda o: (o.cost, o.end)) if usable else fleet.on_new(offer, task, ready, due)

    return to_plan(problem, place_all(problem, due, due, same_type).machines, "gain")


def prolis(problem: Problem) -> Plan:
    """Upward ranks share the deadline out; each task then takes the least added cost that keeps its share."""
    graph = problem.workflow.graph
    fastest = fastest_offers(problem)
    duration = [problem.duration[offer][task] for task, offer in enumerate(fastest)]
    rank = graph.tail(duration)
    whole = max(max(rank, default=0), 1)
    boot = min(problem.lag)
    room = problem.deadline - boot
    due = [boot + room * (whole - rank[task] + duration[task]) // whole for task in range(problem.n)]
    order = [-float(value) for value in rank]
    return to_plan(problem, place_all(problem, due, order, cheapest_option).machines, "prolis")


def ic_pcp(problem: Problem) -> Plan:
    """Partial critical paths, each on one machine: the cheapest that keeps every task's latest finish.

    If a path fits nowhere the method fails (Abrishami et al. leave it there); the plan is then the quickest by list
    scheduling.
    """
    machines = _PartialPaths(problem).run()
    if machines is None:
        nothing = [0] * problem.n
        machines = place_all(problem, nothing, nothing, lambda *_: None).machines
    return to_plan(problem, machines, "ic-pcp")


def ic_pcp_within(problem: Problem, steps: float) -> Plan | None:
    """The plan of IC-PCP; None if the method fails or needs more steps.

    A step is one task looked at: to place a path, all that follows it is looked at for each machine that could take it.
    In a large workflow with long rows of followers that is the square of the number of tasks.
    """
    machines = _PartialPaths(problem, steps).run()
    return None if machines is None else to_plan(problem, machines, "ic-pcp")


class _PartialPaths:
    """The state of IC-PCP: what is placed, and the earliest and latest finish of what is not."""

    def __init__(self, problem: Problem, steps: float = math.inf) -> None:
        self.problem, self.steps = problem, steps
        self.fleet = Fleet(problem)
        graph = problem.workflow.graph
        self.order = graph.order().tolist()
        self.position = [0] * problem.n
        for position, task in enumerate(self.order):
            self.position[task] = position
        self.parents, self.children = graph.parent_rows(), graph.child_rows()
        self.fastest = [min(row) for row in zip(*problem.duration, strict=True)]
        self.choices: list[list[tuple[int, int]]] = [
            list(zip(problem.lag, row, strict=True)) for row in zip(*problem.duration, strict=True)
        ]
        self.ready = [0] * problem.n
        self.earliest = [self._earliest_finish(task) for task in range(problem.n)]  # finish
        self.latest = [problem.deadline] * problem.n  # finish
        self.placed = [False] * problem.n
        self.exits: list[tuple[int, int, int]] = []

    def run(self) -> list[Timeline] | None:
        self._update(self.order)
        # A virtual exit task: its parents are the real exits, the last to finish is the most critical.
        for task in self.order:
            self._note_exit(task)
        while self.exits:
            finish, _, task = heapq.heappop(self.exits)
            if self.placed[task] or -finish < self.earliest[task]:
                continue
            if not self._assign_from(task):
                return None
        return self.fleet.machines

    def _note_exit(self, task: int) -> None:
        """Add an exit to the heap, again whenever its earliest finish has risen."""
        if not self.children[task]:
            heapq.heappush(self.exits, (-self.earliest[task], self.position[task], task))

    def _assign_from(self, end: int) -> bool:
        """Place the path that ends in `end`, then the paths that end in parents of what was placed (a stack)."""
        stack = [end]
        while stack:
            path = self._path_to(stack.pop())
            if not path:
                continue
            if not self._place(path) or self.steps < 0:
                return False
            self._update(path)
            for task in path:
                stack += sorted((p for p in self.parents[task] if not self.placed[p]), key=self.earliest.__getitem__)
        return True

    def _path_to(self, end: int) -> list[int]:
        path: list[int] = []
        at: int | None = None if self.placed[end] else end
        while at is not None:
            path.append(at)
            at = max((p for p in self.parents[at] if not self.placed[p]), key=self.earliest.__getitem__, default=None)
        return path[::-1]

    def _place(self, path: list[int]) -> bool:
        fleet, problem = self.fleet, self.problem
        new = [Timeline(problem, offer) for offer in fleet.by_price if fleet.can_rent(offer)]
        best: tuple[float, Timeline, list[int]] | None = None
        for machine in [*fleet.near(self.ready[path[0]]), *new]:
            starts = self._starts(machine, path)
            if starts is not None:
                last = starts[-1] + problem.duration[machine.offer][path[-1]]
                cost = added_cost(problem, machine, starts[0], last)
                if best is None or cost < best[0]:
                    best = (cost, machine, starts)
        if best is None:
            return False
        _, machine, starts = best
        for task, start in zip(path, starts, strict=True):
            end = start + problem.duration[machine.offer][task]
            known = machine if machine.starts else None
            machine = fleet.take(task, Option(0.0, end, start, machine.offer, known))
            self.placed[task] = True
        return True

    def _starts(self, machine: Timeline, path: list[int]) -> list[int] | None:
        """Starts for the whole path on one machine, every latest finish kept; None if that is impossible."""
        problem, starts, free = self.problem, [], self.problem.lag[machine.offer]
        later: dict[int, int] = {}  # ready times that the path itself delays
        self.steps -= len(path)
        for task in path:
            duration = problem.duration[machine.offer][task]
            ready = max(free, later.get(task, self.ready[task]))
            width, memory = problem.workflow.cores[task], problem.workflow.memory_bytes[task]
            due = min(self.latest[task], problem.exposure.due[machine.offer][task])
            start = machine.earliest(ready, due, duration, width, memory)
            if start is None:
                return None
            starts.append(start)
            free = start + duration
            if free > self.earliest[task]:
                self._put_off(task, free, later)
        return starts

    def _put_off(self, task: int, end: int, later: dict[int, int]) -> None:
        """Note in `later` when the descendants of a task would be ready if it ended at `end`."""
        waiting = [(self.position[task], task, end)]
        while waiting and self.steps >= 0:
            _, task, end = heapq.heappop(waiting)
            self.steps -= 1 + len(self.children[task])
            for child in self.children[task]:
                if end > later.get(child, self.ready[child]):
                    later[child] = end
                    if not self.placed[child]:
                        finish = min([(lag if lag > end else end) + d for lag, d in self.choices[child]])
                        heapq.heappush(waiting, (self.position[child], child, finish))

    def _update(self, placed: Sequence[int]) -> None:
        """Update the earliest finishes behind the placed tasks (they only rise) and the latest before them (they fall).

        Both follow the edges only as far as something changes.
        """
        self._forward([(self.position[task], task) for task in placed])
        self._backward([(-self.position[task], task) for task in placed])

    def _forward(self, waiting: list[tuple[int, int]]) -> None:
        heapq.heapify(waiting)
        earliest, ready = self.earliest, self.ready
        while waiting:
            _, task = heapq.heappop(waiting)
            self.steps -= 1 + len(self.children[task])
            if self.placed[task]:
                earliest[task] = self.fleet.end[task]
            for child in self.children[task]:
                if earliest[task] > ready[child]:
                    ready[child] = earliest[task]
                    if not self.placed[child] and self._earliest_finish(child) > earliest[child]:
                        earliest[child] = self._earliest_finish(child)
                        self._note_exit(child)
                        heapq.heappush(waiting, (self.position[child], child))

    def _backward(self, waiting: list[tuple[int, int]]) -> None:
        heapq.heapify(waiting)
        latest = self.latest
        while waiting:
            _, task = heapq.heappop(waiting)
            self.steps -= 1 + len(self.parents[task])
            begin = self.fleet.start[task] if self.placed[task] else latest[task] - self.fastest[task]
            for parent in self.parents[task]:
                if begin < latest[parent]:
                    latest[parent] = begin
                    if not self.placed[parent]:
                        heapq.heappush(waiting, (-self.position[parent], parent))

    def _earliest_finish(self, task: int) -> int:
        ready = self.ready[task]
        return min([(lag if lag > ready else ready) + d for lag, d in self.choices[task]])
