"""What one machine runs and when, with room found by cores and memory; and the plan that a set of machines makes. Pure."""

from __future__ import annotations

from bisect import bisect_left

from windfall.planning.workflow.model import Lease, Plan, Problem


class Timeline:
    """The tasks of one machine, sorted by start. Whoever places a task asks `earliest` or `latest` for room first."""

    __slots__ = ("bytes", "cores", "ends", "first", "last", "longest", "memory", "offer", "starts", "tasks", "widths")

    def __init__(self, problem: Problem, offer: int) -> None:
        self.offer = offer
        self.cores = problem.offers[offer].cores
        self.memory = problem.offers[offer].memory_gb * 1e9
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.widths: list[int] = []
        self.bytes: list[int] = []
        self.tasks: list[int] = []
        self.longest = 0
        self.first = self.last = 0

    def add(self, task: int, start: int, end: int, width: int, memory: int) -> None:
        at = bisect_left(self.starts, start)
        while at < len(self.starts) and self.starts[at] == start and self.ends[at] < end:
            at += 1  # tasks of no duration stand before the one that starts with them
        self.starts.insert(at, start)
        self.ends.insert(at, end)
        self.widths.insert(at, width)
        self.bytes.insert(at, memory)
        self.tasks.insert(at, task)
        self.longest = max(self.longest, end - start)
        self.first = self.starts[0]
        self.last = end if len(self.ends) == 1 else max(self.last, end)

    def remove(self, task: int) -> None:
        at = self.tasks.index(task)
        for column in (self.starts, self.ends, self.widths, self.bytes, self.tasks):
            del column[at]
        if self.starts:
            self.first, self.last = self.starts[0], max(self.ends)

    def copy(self) -> Timeline:
        twin = object.__new__(Timeline)
        twin.offer, twin.cores, twin.memory = self.offer, self.cores, self.memory
        twin.starts, twin.ends, twin.tasks = self.starts[:], self.ends[:], self.tasks[:]
        twin.widths, twin.bytes = self.widths[:], self.bytes[:]
        twin.longest, twin.first, twin.last = self.longest, self.first, self.last
        return twin

    def earliest(self, ready: int, due: int, duration: int, width: int, memory: int) -> int | None:
        """The first start from `ready` on that ends by `due`, or None."""
        start = ready
        if self.starts and ready < self.last:
            if self.cores == 1:
                return self._earliest_on_one_core(ready, due, duration)
            while start + duration <= due:
                busy = self._in_the_way(start, start + duration, width, memory)
                if busy is None:
                    return start
                start = min(self.ends[k] for k in busy if self.ends[k] > start)
            return None
        return start if start + duration <= due else None

    def _earliest_on_one_core(self, ready: int, due: int, duration: int) -> int | None:
        at = bisect_left(self.starts, ready)
        start = max(ready, self.ends[at - 1]) if at else ready
        while at < len(self.starts) and self.starts[at] < start + duration:
            start = max(start, self.ends[at])
            at += 1
        return start if start + duration <= due else None

    def latest(self, ready: int, due: int, duration: int, width: int, memory: int) -> int | None:
        """The last start from `ready` on that ends by `due`, or None."""
        start = due - duration
        while start >= ready:
            busy = self._in_the_way(start, start + duration, width, memory)
            if busy is None:
                return start
            start = min(start - 1, max(self.starts[k] for k in busy) - duration)
        return None

    def _in_the_way(self, start: int, end: int, width: int, memory: int) -> list[int] | None:
        """The entries that overlap [start, end) when together they leave too little room; None when there is room."""
        starts, ends = self.starts, self.ends
        busy = []
        at = bisect_left(starts, start - self.longest)
        count = len(starts)
        while at < count and starts[at] < end:
            if ends[at] > start:
                busy.append(at)
            at += 1
        if not busy:
            return None
        cores, room = self.cores - width, self.memory - memory
        widths, sizes = self.widths, self.bytes
        if sum([widths[k] for k in busy]) <= cores and sum([sizes[k] for k in busy]) <= room:
            return None
        # The peak is reached where something starts: look at those moments only.
        for k in busy:
            moment = max(start, starts[k])
            now = [m for m in busy if starts[m] <= moment and (ends[m] > moment or starts[m] == moment)]
            if sum([widths[m] for m in now]) > cores or sum([sizes[m] for m in now]) > room:
                return busy
        return None


def added_cost(problem: Problem, machine: Timeline, start: int, end: int) -> float:
    """What it costs to stretch a machine's lease over [start, end)."""
    offer = machine.offer
    lag = problem.lag[offer]
    if not machine.starts:
        return problem.cost(offer, end - start + lag)
    first = start if start < machine.first else machine.first
    last = end if end > machine.last else machine.last
    return problem.cost(offer, last - first + lag) - problem.cost(offer, machine.last - machine.first + lag)


def total_cost(problem: Problem, machines: list[Timeline]) -> float:
    return sum(problem.cost(m.offer, m.last - m.first + problem.lag[m.offer]) for m in machines if m.starts)


def to_plan(problem: Problem, machines: list[Timeline], planner: str) -> Plan:
    """The plan in which every machine is requested just in time for its first task and released after its last."""
    used = sorted((m for m in machines if m.starts), key=lambda m: (m.first - problem.lag[m.offer], m.offer))
    leases = [Lease(m.offer, m.first - problem.lag[m.offer], m.last) for m in used]
    machine, start, end = [0] * problem.n, [0] * problem.n, [0] * problem.n
    for number, timeline in enumerate(used):
        for task, begin, finish in zip(timeline.tasks, timeline.starts, timeline.ends, strict=True):
            machine[task], start[task], end[task] = number, begin, finish
    return Plan(planner, leases, machine, start, end)


def from_plan(problem: Problem, plan: Plan) -> list[Timeline]:
    """The machines of a plan, to be worked on."""
    machines = [Timeline(problem, lease.offer) for lease in plan.leases]
    for task in range(problem.n):
        machines[plan.machine[task]].add(
            task, plan.start[task], plan.end[task], problem.workflow.cores[task], problem.workflow.memory_bytes[task]
        )
    return machines
