"""A stream of workflows for 72 hours on rented machines: a model in which SCS, Greedy and GAIN are compared.

It has its own heap of events and calls the control loop of `planning.stream`, not the engine. Touches nothing. Run
times and boots may differ from their estimates.
"""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np
from msgspec import Struct

from windfall.planning.offers import Offer
from windfall.planning.stream.classes import JobClass
from windfall.planning.stream.control import Market, Rented, Rules, Waiting, control
from windfall.planning.stream.mix import TypeMix
from windfall.planning.stream.reserve import assign_gain, assign_greedy, reserve_gain, reserve_greedy
from windfall.planning.workflow.methods.assign import assign

METHODS = {"scs": assign, "greedy": assign_greedy, "gain": assign_gain, "windfall": assign}
RESERVE = {"greedy": reserve_greedy, "gain": reserve_gain}
PERIOD_S = 60.0
MEMORY_S = 2 * 3600.0
ARRIVED, FINISHED, BOOTED, TICK = 0, 1, 2, 3


class StreamResult(Struct, frozen=True):
    """Cost of 72 hours and the number of deadlines met."""

    cost_usd: float
    jobs: int
    met: int
    tight: int  # met with less slack than a boot 20 % longer would have cost
    utilisation: float
    machines: int
    hours: float


class Task:
    """One task of one job, from its arrival to its end."""

    __slots__ = ("begin_s", "due_s", "job", "latest_s", "machine", "number", "offer", "ready", "running")

    def __init__(self, job: Job, number: int) -> None:
        self.job, self.number = job, number
        self.offer, self.begin_s, self.due_s, self.latest_s = 0, 0.0, 0.0, 0.0
        self.ready = self.running = False
        self.machine: Machine | None = None  # reserved (Greedy, GAIN) or running on


class Job:
    __slots__ = ("done", "due_s", "running", "tasks")

    def __init__(self, n: int, due_s: float) -> None:
        self.done, self.running, self.due_s = 0, 0, due_s
        self.tasks = [Task(self, number) for number in range(n)]


class Machine:
    __slots__ = ("busy_s", "free_s", "leased_s", "number", "offer", "queue", "task", "up_s")

    def __init__(self, number: int, offer: int, leased_s: float, up_s: float) -> None:
        self.number, self.offer, self.leased_s, self.up_s = number, offer, leased_s, up_s
        self.free_s = up_s  # expected end of what it runs and of what is reserved on it
        self.busy_s = 0.0
        self.task: Task | None = None
        self.queue: list[Task] = []


class World:
    """One run. `run_error` and `boot_error` are standard deviations relative to the estimate, `boot_bias` its error."""

    def __init__(
        self, shape: JobClass, planner: str, arrivals_s: list[float], rng: np.random.Generator,
        run_error: float = 0.0, boot_error: float = 0.0, mix: TypeMix | None = None, boot_bias: float = 0.0,
        consolidates: bool = True,
    ) -> None:  # fmt: skip
        self.mix, self.planned = mix, shape  # `planned`: the variant that deadlines come from
        self.recent: list[float] = []  # arrivals that the rate is estimated from
        self.shape, self.planner, self.rng = shape, planner, rng
        self.run_error, self.boot_error, self.boot_bias = run_error, boot_error, boot_bias
        self.duration = shape.duration_s.tolist()
        self.price = [offer.price_usd for offer in shape.offers]
        self.lag = [offer.lag_s for offer in shape.offers]
        self.market = _market(shape.offers)
        moves = Rules().consolidations if consolidates else 0
        bins = int(shape.deadline_s // PERIOD_S) + 10
        self.rules = Rules(period_s=PERIOD_S, horizon_bins=bins, consolidations=moves)
        self.machines: list[Machine] = []
        self.arrived: list[Job] = []  # since the last loop
        self.waiting: dict[Task, None] = {}
        self.rows: dict[int, list[tuple[int, float, float, float, bool]]] = {}  # of templates, which classes keep
        self.events: list[tuple[float, int, int, Any]] = []
        self.serial = self.rented = self.jobs = self.met = self.tight = 0
        self.ticks, self.last_state = 0, (-1, -1)
        self.cost = self.paid_s = self.worked_s = 0.0
        for moment in arrivals_s:
            self._push(moment, ARRIVED, None)
        if arrivals_s:
            self._push(math.floor(arrivals_s[0] / PERIOD_S) * PERIOD_S + PERIOD_S, TICK, None)

    def _push(self, at_s: float, what: int, load: Any) -> None:
        self.serial += 1
        self.ticks += what == TICK
        heapq.heappush(self.events, (at_s, what, self.serial, load))

    def run(self) -> StreamResult:
        while self.events:
            now_s, what, _, load = heapq.heappop(self.events)
            if what == ARRIVED:
                self._arrive(now_s)
            elif what == FINISHED:
                self._finish(now_s, load)
            elif what == BOOTED:
                self._dispatch(now_s)
            else:
                self._tick(now_s)
                if self.waiting or self.machines:
                    self._push(now_s + PERIOD_S, TICK, None)
                elif self.events:  # nothing to look at until the next job
                    self._push(math.ceil(self.events[0][0] / PERIOD_S) * PERIOD_S, TICK, None)
        used = self.worked_s / self.paid_s if self.paid_s else 0.0
        return StreamResult(self.cost, self.jobs, self.met, self.tight, used, self.rented, self.paid_s / 3600)

    # -- jobs ---------------------------------------------------------------------------------------------------

    def _arrive(self, now_s: float) -> None:
        if self.mix is not None:
            self.recent = [moment for moment in self.recent if moment > now_s - MEMORY_S] + [now_s]
            self.planned = self.mix.best(round(len(self.recent) * 3600.0 / min(MEMORY_S, max(now_s, 3600.0)), 1))
        job = Job(self.shape.n, now_s + self.shape.deadline_s)
        self.jobs += 1
        self.arrived.append(job)

    def _assign(self, job: Job, now_s: float) -> None:
        """Deadlines for the remaining tasks of a job, in the loop after its arrival and whenever none of them runs."""
        template = self.planned.assigned(job.done, job.due_s - now_s, self._wait(now_s) if job.done else ())
        if id(template) not in self.rows:
            columns = (template.offer, template.begin_s, template.due_s, template.latest_s, template.ready)
            self.rows[id(template)] = list(zip(*(column.tolist() for column in columns), strict=True))
        rows = self.rows[id(template)]
        for task in job.tasks:
            if task in self.waiting and task.machine is None:
                task.offer, begin_s, due_s, latest_s, task.ready = rows[task.number]
                task.begin_s, task.due_s, task.latest_s = now_s + begin_s, now_s + due_s, now_s + latest_s

    def _wait(self, now_s: float) -> tuple[int, ...]:
        """For each type, in quarters of a boot, how long until a machine of it is free: 4 if one must be rented."""
        free_s = [now_s + lag for lag in self.lag]
        for machine in self.machines:
            at_s = machine.up_s if machine.task is None else machine.free_s
            if at_s < free_s[machine.offer]:
                free_s[machine.offer] = at_s
        return tuple(math.ceil(max(0.0, at_s - now_s) / lag * 4) for at_s, lag in zip(free_s, self.lag, strict=True))

    def _finish(self, now_s: float, machine: Machine) -> None:
        task = machine.task
        assert task is not None
        job = task.job
        machine.task = None
        job.done |= 1 << task.number
        job.running -= 1
        if job.done == self.shape.all_done:
            spare_s = job.due_s - now_s
            self.met += spare_s >= -1e-6
            self.tight += -1e-6 <= spare_s < 0.2 * max(self.lag)
        elif job.running == 0 and self.planner not in RESERVE:
            self._assign(job, now_s)
        for child in self.shape.children[task.number]:
            if all(job.done >> p & 1 for p in self.shape.parents[child]):
                job.tasks[child].ready = True
        self._dispatch(now_s)

    def _dispatch(self, now_s: float) -> None:
        """Between two loops: idle machines take ready tasks."""
        if self.planner in RESERVE:
            self._start_reserved(now_s)
        else:
            self._edf(now_s)

    # -- machines -----------------------------------------------------------------------------------------------

    def _rent(self, offer: int, now_s: float) -> Machine:
        lag = self.lag[offer] * (1 + self.boot_bias)
        if self.boot_error:
            lag = max(0.0, lag * (1 + self.boot_error * float(self.rng.standard_normal())))
        machine = Machine(self.rented, offer, now_s, now_s + lag)
        self.rented += 1
        self.machines.append(machine)
        self._push(machine.up_s, BOOTED, machine)
        return machine

    def _release(self, machine: Machine, now_s: float) -> None:
        hours = max(1, math.ceil((now_s - machine.leased_s) / 3600 - 1e-9))
        self.cost += hours * self.price[machine.offer]
        self.paid_s += hours * 3600.0
        self.worked_s += machine.busy_s
        self.machines.remove(machine)

    def _start(self, task: Task, machine: Machine, now_s: float) -> None:
        expected = self.duration[task.number][machine.offer]
        real = expected
        if self.run_error:
            real = max(0.05, 1 + self.run_error * float(self.rng.standard_normal())) * expected
        task.running, task.machine = True, machine
        task.job.running += 1
        machine.task = task
        machine.busy_s += real
        machine.free_s = max(machine.free_s, now_s + expected) if machine.queue else now_s + expected
        del self.waiting[task]
        self._push(now_s + real, FINISHED, machine)

    # -- SCS ----------------------------------------------------------------------------------------------------

    def _tick(self, now_s: float) -> None:
        for job in self.arrived:
            for task in job.tasks:
                self.waiting[task] = None
            self._assign(job, now_s)
        self.arrived.clear()
        if self.planner in RESERVE:
            self._reserve(now_s)
        else:
            self._control(now_s)

    def _control(self, now_s: float) -> None:
        tasks = list(self.waiting)
        if not self._changed(tasks, now_s) and not any(self._near_the_hour(m, now_s) for m in self.machines):
            return
        waiting = Waiting(
            kind=np.array([task.number for task in tasks], dtype=np.int64),
            offer=np.array([task.offer for task in tasks], dtype=np.int64),
            begin_s=np.array([task.begin_s for task in tasks], dtype=np.float64),
            due_s=np.array([task.due_s for task in tasks], dtype=np.float64),
            latest_s=np.array([task.latest_s for task in tasks], dtype=np.float64),
            ready=np.array([task.ready for task in tasks], dtype=bool),
        )
        decision = control(now_s, waiting, self._rented(now_s), self.shape.duration_s, self.market, self.rules)
        known = self.machines[:]
        for number, offer in decision.moves:
            task = tasks[number]
            task.offer = offer
            task.due_s = max(task.due_s, max(task.begin_s, now_s) + self.duration[task.number][offer])
        for number, machine in decision.starts:
            self._start(tasks[number], known[machine], now_s)
        for machine in decision.release:
            self._release(known[machine], now_s)
        for offer, count in enumerate(decision.acquire.tolist()):
            for _ in range(count):
                self._rent(offer, now_s)

    def _changed(self, tasks: list[Task], now_s: float) -> bool:
        """Whether a loop can decide anything new: there is or will be work, and not every task has a machine already.

        If every task within the horizon could have a machine of its type to itself, nothing would be rented or moved.
        Idle machines have taken tasks as they became ready, except those of jobs that have just arrived.
        """
        sight_s = now_s + math.ceil((max(self.lag) + PERIOD_S) / PERIOD_S) * PERIOD_S
        seen = [task for task in tasks if task.begin_s <= sight_s]
        ready = {task.offer for task in seen if task.ready}
        state = (self.serial - self.ticks, len(seen))
        known, self.last_state = state == self.last_state, state
        if not seen or (known and not ready):
            return False
        spare = [0] * len(self.lag)
        for machine in self.machines:
            if machine.task is None:
                spare[machine.offer] += 1
                if machine.offer in ready and machine.up_s <= now_s:
                    return True
        for task in seen:
            spare[task.offer] -= 1
        return min(spare) < 0

    def _rented(self, now_s: float) -> Rented:
        machines = self.machines
        # A machine that runs longer than expected is busy; one that boots is neither busy nor idle.
        free = [max(m.free_s, now_s + 1.0) if m.task is not None else now_s for m in machines]
        return Rented(
            np.array([m.offer for m in machines], dtype=np.int64),
            np.array([m.leased_s for m in machines], dtype=np.float64),
            np.array([m.up_s for m in machines], dtype=np.float64),
            np.array(free, dtype=np.float64),
        )

    def _near_the_hour(self, machine: Machine, now_s: float) -> bool:
        return machine.task is None and (now_s - machine.leased_s) % 3600.0 >= 3600.0 - PERIOD_S

    def _edf(self, now_s: float) -> None:
        """An idle machine takes the earliest deadline of its type."""
        idle: dict[int, list[Machine]] = {}
        for machine in self.machines:
            if machine.task is None and machine.up_s <= now_s:
                idle.setdefault(machine.offer, []).append(machine)
        if idle:
            ready = [task for task in self.waiting if task.ready and task.offer in idle]
            for task in sorted(ready, key=lambda task: task.due_s):
                if idle[task.offer]:
                    self._start(task, idle[task.offer].pop(), now_s)

    # -- Greedy and GAIN ----------------------------------------------------------------------------------------

    def _reserve(self, now_s: float) -> None:
        for task in list(self.waiting):
            if task.machine is None and (task.ready or task.begin_s <= now_s + self.lag[task.offer] + PERIOD_S):
                self._hold(task, now_s)
        self._start_reserved(now_s)
        self._give_back(now_s)

    def _hold(self, task: Task, now_s: float) -> None:
        begin_s = now_s if task.ready else max(task.begin_s, now_s)
        durations = self.duration[task.number]
        choose = RESERVE[self.planner]
        choice = choose(now_s, task.offer, begin_s, task.due_s, durations, self.machines, self.lag, self.price)
        machine = choice.machine or self._rent(choice.offer, now_s)
        task.machine = machine
        machine.queue.append(task)
        machine.free_s = choice.start_s + durations[machine.offer]

    def _start_reserved(self, now_s: float) -> None:
        for machine in self.machines:
            if machine.task is None and machine.queue and machine.up_s <= now_s:
                ready = next((task for task in machine.queue if task.ready), None)
                if ready is not None:
                    machine.queue.remove(ready)
                    self._start(ready, machine, now_s)

    def _give_back(self, now_s: float) -> None:
        free = [m for m in self.machines if m.task is None and not m.queue and m.up_s <= now_s]
        for machine in free:
            if self._near_the_hour(machine, now_s):
                self._release(machine, now_s)


def _market(offers: tuple[Offer, ...]) -> Market:
    return Market(
        cycle_s=np.array([offer.cycle_s for offer in offers]),
        lag_s=np.array([offer.lag_s for offer in offers]),
        price_usd=np.array([offer.price_usd for offer in offers]),
        limit=np.full(len(offers), 10**6),
    )
