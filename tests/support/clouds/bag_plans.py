"""A small world that carries the plans of a bag or a workflow out, step by step, and checks each against the rules."""

from __future__ import annotations

import math

from windfall.planning.contract import Group, Machine, Phase, Plan, Planner, Running, Snapshot, Task
from windfall.planning.offers import Offer

EPSILON = 1e-6


class Rented:
    """One machine of the world."""

    def __init__(self, name: str, offer: Offer, t: float) -> None:
        self.name, self.offer, self.ready_t, self.since_t = name, offer, t + offer.lag_s, t
        self.held_s, self.asleep_t, self.idle_cycles = 0.0, None, 0
        self.running: dict[int, float] = {}
        self.waiting: list[int] = []

    def paid_until_t(self, t: float) -> float:
        if self.asleep_t is not None:
            return math.inf
        cycle_s = self.offer.cycle_s
        return t + max(1, math.floor(self.held_s / cycle_s + 1e-9) + 1) * cycle_s - self.held_s

    def view(self, t: float) -> Machine:
        phase = (
            Phase.PENDING if t < self.ready_t - EPSILON else Phase.BUSY if self.running or self.waiting else Phase.IDLE
        )
        return Machine(
            id=self.name,
            offer=self.offer,
            phase=Phase.HIBERNATED if self.asleep_t is not None else phase,
            ready_t=self.ready_t,
            running=tuple(Running(task, left_s) for task, left_s in self.running.items()),
            waiting=tuple(self.waiting),
            paid_until_t=self.paid_until_t(t),
            hibernated_since_t=self.asleep_t,
            up_since_t=self.since_t if self.asleep_t is None else None,
        )


class World:
    """`strikes` are (when, which spot machine, seconds hibernated); infinite seconds or a tariff that terminates:
    reclaimed. `after`: the parents of each task of a workflow.
    """

    def __init__(
        self, planner: Planner, tasks: list[Task], offers: tuple[Offer, ...], deadline_t: float,
        strikes: list[tuple[float, int, float]], named: bool = True, after: dict[int, tuple[int, ...]] | None = None,
    ) -> None:  # fmt: skip
        self.after, self.is_workflow, self.later = after or {}, after is not None, ()
        self.planner, self.offers, self.deadline_t, self.named = planner, offers, deadline_t, named
        self.t, self.tasks, self.total = 0.0, {task.id: task for task in tasks}, len(tasks)
        self.machines: dict[str, Rented] = {}
        self.strikes, self.wakes = sorted(strikes), []
        self.born, self.replan_t, self.plans = 0, 0.0, 0
        self.cost_usd, self.spot_until_t = 0.0, math.inf

    def run(self, most: int = 3_000) -> float:
        for _ in range(most):
            if not self.tasks:
                self.cost_usd += sum(self._owed(machine) for machine in self.machines.values())
                return self.t
            if self.replan_t <= self.t + EPSILON or self.changed:
                self.changed = False
                self.apply(self.planner(self.snapshot()))
                continue
            self.fill()
            self.advance()
        raise AssertionError("the world does not come to an end")

    changed = True

    def snapshot(self) -> Snapshot:
        bound = {task for machine in self.machines.values() for task in (*machine.running, *machine.waiting)}
        shown = {number: task for number, task in self.tasks.items() if self.named or number in bound}
        alike: dict[float, list[Task]] = {}
        for number, task in self.tasks.items():
            if number not in shown:
                alike.setdefault(task.runtime_s, []).append(task)
        return Snapshot(
            t=self.t,
            deadline_t=self.deadline_t,
            tasks=shown,
            machines=tuple(machine.view(self.t) for machine in self.machines.values()),
            offers=self.offers,
            groups=tuple(Group(Task(-1, seconds), len(found)) for seconds, found in alike.items()),
            total=self.total,
            after={task: parents for task in self.tasks if (parents := self.open_parents(task))},
            is_workflow=self.is_workflow,
            last_later=self.later,
            spent_usd=self.cost_usd + sum(self._owed(machine) for machine in self.machines.values()),
        )

    def open_parents(self, task: int) -> tuple[int, ...]:
        return tuple(parent for parent in self.after.get(task, ()) if parent in self.tasks)

    def apply(self, plan: Plan) -> None:
        self.plans += 1
        names: dict[str, str] = {}
        for start in plan.start:
            names[start.label] = f"m{self.born}"
            self.machines[names[start.label]] = Rented(names[start.label], start.offer, self.t)
            self.born += 1
        self._check_limits(bool(plan.start))
        named = [task for queue in plan.assign.values() for task in queue]
        assert len(named) == len(set(named)), "a task is named twice"
        for label, queue in plan.assign.items():
            self._assign(self.machines[names.get(label, label)], queue)
        homes = [task for machine in self.machines.values() for task in (*machine.running, *machine.waiting)]
        assert len(homes) == len(set(homes)), "a task has two homes"
        for name in plan.stop:
            machine = self.machines.pop(name)
            assert not machine.running and not machine.waiting, "a machine with work was stopped"
            self.cost_usd += self._owed(machine)
            self.changed = True  # as in the engine: a machine that ends is news for the planner
        assert plan.replan_t > self.t, "a plan that is replanned at once never ends"
        self.replan_t, self.spot_until_t, self.later = plan.replan_t, plan.spot_until_t, tuple(plan.later)

    def _assign(self, machine: Rented, queue: list[int]) -> None:
        for task in queue:
            assert task in self.tasks
            assert self.tasks[task].fits(machine.offer), "a task does not fit"
            for other in self.machines.values():
                if task in other.running:
                    assert other.asleep_t is not None, "a task that runs was taken away"
                    del other.running[task]
                if other is not machine and task in other.waiting:
                    other.waiting.remove(task)
        machine.waiting = list(queue)

    def _check_limits(self, started: bool) -> None:
        awake = sum(machine.asleep_t is None for machine in self.machines.values())
        for offer in self.offers:
            if started and offer.pool_limit is not None:
                assert awake <= offer.pool_limit, "more machines than the limit of the pool"
            count = sum(machine.offer == offer for machine in self.machines.values())
            assert offer.limit is None or count <= offer.limit, "more machines than the limit"

    def _owed(self, machine: Rented) -> float:
        return machine.offer.cycles(machine.held_s) * machine.offer.price_usd

    def fill(self) -> None:
        bound = {task for machine in self.machines.values() for task in (*machine.running, *machine.waiting)}
        pot = sorted(number for number in self.tasks if number not in bound)
        for machine in self.machines.values():
            if machine.asleep_t is not None or self.t < machine.ready_t - EPSILON:
                continue
            closed = machine.offer.market == "spot" and self.t > self.spot_until_t
            for queue in (machine.waiting, [] if closed else pot):
                for task in list(queue):
                    together = [self.tasks[other] for other in (task, *machine.running)]
                    fits = sum(each.memory_gb for each in together) <= machine.offer.memory_gb + EPSILON
                    fits &= sum(each.cores for each in together) <= machine.offer.cores
                    if fits and not self.open_parents(task):
                        queue.remove(task)
                        machine.running[task] = self.tasks[task].seconds_on(machine.offer)

    def advance(self) -> None:
        awake = [machine for machine in self.machines.values() if machine.asleep_t is None]
        moments = [self.replan_t, *(at for at, _, _ in self.strikes), *(at for at, _ in self.wakes)]
        moments += [machine.ready_t for machine in awake]
        moments += [self.t + left_s for machine in awake for left_s in machine.running.values()]
        to_t = min(moment for moment in moments if moment > self.t + EPSILON / 10)
        assert math.isfinite(to_t), "nothing will ever happen again"
        for machine in awake:
            self._work(machine, to_t)
        self.t = to_t
        self._strike()

    def _work(self, machine: Rented, to_t: float) -> None:
        if not machine.running and self.t >= machine.ready_t:
            paid_until_t = machine.paid_until_t(self.t)
            machine.idle_cycles += paid_until_t < to_t - EPSILON
        machine.held_s += to_t - self.t
        was_busy, was_ready = bool(machine.running), self.t >= machine.ready_t - EPSILON
        machine.running = {task: left_s - (to_t - self.t) for task, left_s in machine.running.items()}
        for task in [task for task, left_s in machine.running.items() if left_s <= EPSILON]:
            del machine.running[task], self.tasks[task]
        idle_now = was_busy and not machine.running and not machine.waiting
        self.changed |= idle_now or (not was_ready and to_t >= machine.ready_t - EPSILON)

    def _strike(self) -> None:
        for strike in [strike for strike in self.strikes if strike[0] <= self.t]:
            self.strikes.remove(strike)
            spot = [m for m in self.machines.values() if m.offer.market == "spot" and m.asleep_t is None]
            if not spot:
                continue
            victim = spot[strike[1] % len(spot)]
            self.changed = True
            if victim.offer.when_taken == "terminate":
                self.cost_usd += self._owed(self.machines.pop(victim.name))
                continue
            victim.asleep_t = self.t
            # A boot that is broken off goes on where it stopped.
            victim.ready_t = math.inf if self.t < victim.ready_t else victim.ready_t
            self.wakes.append((self.t + strike[2], victim.name))
        for wake in [wake for wake in self.wakes if wake[0] <= self.t]:
            self.wakes.remove(wake)
            machine = self.machines.get(wake[1])
            if machine is not None:
                machine.ready_t = self.t + machine.offer.lag_s if math.isinf(machine.ready_t) else machine.ready_t
                machine.asleep_t, machine.since_t, self.changed = None, self.t, True
