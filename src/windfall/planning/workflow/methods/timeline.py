"""The schedule of one machine by cores and memory, and plans made from such schedules. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from windfall.planning.offers import GIB
from windfall.planning.workflow.model import NEVER, Lease, Plan, Problem


class Timeline:
    """The tasks of one machine, sorted by start, and how full it is over time.

    Between `times[i]` and `times[i + 1]` its tasks have `used[i]` cores and `held[i]` bytes; the last entry is empty.
    `add` does not check capacity: `earliest` and `latest` find a start that fits. A machine that has the place of
    another in a full pool may not be requested before `opens`; one that gives up its place ends at `closes`.
    """

    __slots__ = (
        "closes", "cores", "ends", "first", "held", "last", "memory", "offer", "opens", "starts", "tasks", "times",
        "used", "worth",
    )  # fmt: skip

    def __init__(self, problem: Problem, offer: int, opens: int = 0) -> None:
        self.offer = offer
        self.opens, self.closes = opens, NEVER
        self.cores = problem.offers[offer].cores
        self.memory = problem.offers[offer].memory_gb * GIB
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.tasks: list[int] = []
        self.times: list[int] = []
        self.used: list[int] = []
        self.held: list[int] = []
        self.first = self.last = 0
        self.worth = 0.0  # what a search counts for its lease

    def add(self, task: int, start: int, end: int, width: int, memory: int) -> None:
        at = bisect_left(self.starts, start)
        self.starts.insert(at, start)
        self.ends.insert(at, end)
        self.tasks.insert(at, task)
        self._fill(start, end, width, memory)
        self.first, self.last = self.times[0], self.times[-1]

    def remove(self, task: int, width: int, memory: int) -> None:
        at = self.tasks.index(task)
        start, end = self.starts.pop(at), self.ends.pop(at)
        del self.tasks[at]
        self._fill(start, end, -width, -memory)
        self._join(end)
        self._join(start)
        if self.times:
            self.first, self.last = self.times[0], self.times[-1]

    def _fill(self, start: int, end: int, width: int, memory: int) -> None:
        begin, stop = self._cut(start), self._cut(end)
        used, held = self.used, self.held
        for k in range(begin, stop):
            used[k] += width
            held[k] += memory

    def _cut(self, moment: int) -> int:
        """The entry that begins at this moment, made if it is missing."""
        at = bisect_left(self.times, moment)
        if at == len(self.times) or self.times[at] != moment:
            self.times.insert(at, moment)
            self.used.insert(at, self.used[at - 1] if at else 0)
            self.held.insert(at, self.held[at - 1] if at else 0)
        return at

    def _join(self, moment: int) -> None:
        """Drop the entry at this moment if nothing changes there."""
        at = bisect_left(self.times, moment)
        before = (self.used[at - 1], self.held[at - 1]) if at else (0, 0)
        # Equal loads may belong to different tasks, one ending as the other starts: the entry is not needed either.
        if before == (self.used[at], self.held[at]):
            del self.times[at], self.used[at], self.held[at]

    def copy(self) -> Timeline:
        twin = object.__new__(Timeline)
        twin.offer, twin.cores, twin.memory = self.offer, self.cores, self.memory
        twin.opens, twin.closes = self.opens, self.closes
        twin.starts, twin.ends, twin.tasks = self.starts[:], self.ends[:], self.tasks[:]
        twin.times, twin.used, twin.held = self.times[:], self.used[:], self.held[:]
        twin.first, twin.last, twin.worth = self.first, self.last, self.worth
        return twin

    def become(self, twin: Timeline) -> None:
        """Take over the content of a copy; the object's identity stays."""
        self.starts, self.ends, self.tasks = twin.starts, twin.ends, twin.tasks
        self.times, self.used, self.held = twin.times, twin.used, twin.held
        self.first, self.last, self.worth = twin.first, twin.last, twin.worth

    def earliest(self, ready: int, due: int, duration: int, width: int, memory: int) -> int | None:
        """The first start from `ready` on that ends by `due`, or None."""
        times, used, held = self.times, self.used, self.held
        cores, room = self.cores - width, self.memory - memory
        start, latest = ready, due - duration
        at = bisect_right(times, ready) - 1
        if at < 0:
            at = 0
        for k in range(at, len(times)):
            if start > latest:
                return None
            if times[k] >= start + duration:
                return start
            if used[k] > cores or held[k] > room:
                start = times[k + 1]  # the last entry is empty, so there is a next one
        return start if start <= latest else None

    def latest(self, ready: int, due: int, duration: int, width: int, memory: int) -> int | None:
        """The last start from `ready` on that ends by `due`, or None."""
        times, used, held = self.times, self.used, self.held
        cores, room = self.cores - width, self.memory - memory
        start = due - duration
        for k in range(bisect_left(times, due) - 1, -1, -1):
            if start < ready:
                return None
            if k + 1 < len(times) and times[k + 1] <= start:
                return start
            if used[k] > cores or held[k] > room:
                start = times[k] - duration
        return start if start >= ready else None


def added_cost(problem: Problem, machine: Timeline, start: int, end: int) -> float:
    """Dollars to extend a machine's lease over [start, end)."""
    offer = machine.offer
    lag = problem.lag[offer]
    if not machine.starts:
        return problem.cost(offer, end - start + lag)
    first = start if start < machine.first else machine.first
    last = end if end > machine.last else machine.last
    return problem.cost(offer, last - first + lag) - problem.cost(offer, machine.last - machine.first + lag)


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
