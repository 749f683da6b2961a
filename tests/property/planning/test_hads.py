"""HADS carried out in a small world: no hibernation makes it miss a deadline that on-demand could still meet."""

from __future__ import annotations

import math

from hypothesis import example, given, settings
from hypothesis import strategies as st

from windfall.planning.contract import Machine, Phase, Running, Snapshot, Task
from windfall.planning.hads.dynamic import Settings, replan
from windfall.planning.hads.primary import first_plan, least_deadline_s
from windfall.planning.offers import Offer

LAG_S, CYCLE_S = 60.0, 600.0
OFFERS = tuple(
    Offer(name=name, cores=cores, price_usd=price, cycle_s=CYCLE_S, lag_s=LAG_S, market=market, limit=None)
    for name, cores, market, price in (
        ("small", 1, "spot", 1.0),
        ("large", 2, "spot", 2.0),
        ("small", 1, "on-demand", 3.0),
        ("large", 2, "on-demand", 6.0),
    )
)


class Rented:
    """One machine of the world."""

    def __init__(self, name: str, offer: Offer, t: float) -> None:
        self.name, self.offer, self.ready_t, self.paid_until_t = name, offer, t + offer.lag_s, t + offer.cycle_s
        self.hibernated, self.running, self.waiting = False, {}, []

    def view(self, t: float) -> Machine:
        phase = Phase.PENDING if t < self.ready_t else Phase.BUSY if self.running or self.waiting else Phase.IDLE
        running = tuple(Running(task, left_s) for task, left_s in self.running.items())
        return Machine(
            id=self.name,
            offer=self.offer,
            phase=Phase.HIBERNATED if self.hibernated else phase,
            ready_t=self.ready_t,
            running=running,
            waiting=tuple(self.waiting),
            paid_until_t=self.paid_until_t,
        )


class World:
    """Carries plans out; `naps` are (seconds, which machine, seconds hibernated)."""

    def __init__(self, tasks: list[Task], deadline_t: float, naps: list[tuple[float, int, float]]) -> None:
        self.t, self.deadline_t, self.tasks = 0.0, deadline_t, {task.id: task for task in tasks}
        self.machines: dict[str, Rented] = {}
        self.notices = sorted((at, which, length) for at, which, length in naps)
        self.wakes: list[tuple[float, str]] = []
        self.born, self.replan_t, self.done = 0, 0.0, []

    def run(self) -> float:
        for _ in range(2_000):
            if not self.tasks:
                return self.t
            self.apply(replan(self.snapshot(), Settings(margin_s=1.0)))
            self.fill()
            self.advance()
        raise AssertionError("the world does not come to an end")

    def snapshot(self) -> Snapshot:
        views = tuple(machine.view(self.t) for machine in self.machines.values())
        return Snapshot(t=self.t, deadline_t=self.deadline_t, tasks=dict(self.tasks), machines=views, offers=OFFERS)

    def apply(self, plan) -> None:
        names = {}
        for start in plan.start:
            names[start.label] = f"m{self.born}"
            self.machines[names[start.label]] = Rented(names[start.label], start.offer, self.t)
            self.born += 1
        for name, queue in plan.assign.items():
            machine = self.machines[names.get(name, name)]
            machine.waiting = list(queue)
            if machine.hibernated:
                machine.running = {}
        for name in plan.stop:
            assert not self.machines[name].running
            del self.machines[name]
        self.replan_t = plan.replan_t
        homes = [task for machine in self.machines.values() for task in (*machine.running, *machine.waiting)]
        assert sorted(homes) == sorted(self.tasks), "every task has exactly one home"

    def fill(self) -> None:
        for machine in self.machines.values():
            while not machine.hibernated and self.t >= machine.ready_t and machine.waiting:
                if len(machine.running) == machine.offer.cores:
                    break
                task = machine.waiting.pop(0)
                machine.running[task] = self.tasks[task].seconds_on(machine.offer)

    def advance(self) -> None:
        awake = [machine for machine in self.machines.values() if not machine.hibernated]
        moments = [self.replan_t, *(at for at, _, _ in self.notices), *(at for at, _ in self.wakes)]
        moments += [machine.ready_t for machine in awake]
        moments += [self.t + left_s for machine in awake for left_s in machine.running.values()]
        to_t = min(moment for moment in moments if moment > self.t + 1e-9)
        assert math.isfinite(to_t)
        for machine in awake:
            machine.running = {task: left_s - (to_t - self.t) for task, left_s in machine.running.items()}
            for task in [task for task, left_s in machine.running.items() if left_s <= 1e-9]:
                del machine.running[task], self.tasks[task]
            while machine.paid_until_t <= to_t:
                machine.paid_until_t += machine.offer.cycle_s
        self.t = to_t
        self.doze()

    def doze(self) -> None:
        for at, which, length in [notice for notice in self.notices if notice[0] <= self.t]:
            self.notices.remove((at, which, length))
            spot = [m for m in self.machines.values() if m.offer.market == "spot" and not m.hibernated]
            if spot:
                victim = spot[which % len(spot)]
                victim.hibernated = True
                self.wakes.append((self.t + length, victim.name))
        for wake in [wake for wake in self.wakes if wake[0] <= self.t]:
            self.wakes.remove(wake)
            if wake[1] in self.machines:
                self.machines[wake[1]].hibernated = False


naps = st.lists(st.tuples(st.floats(0.5, 4_000), st.integers(0, 9), st.sampled_from([30.0, 400.0, 1e9])), max_size=8)


# It hibernates again just after it has resumed, when a rescue would be late.
@example(times=[20, 265, 153, 95], spare=1.375, naps=[(325.0, 0, 400.0), (727.0, 0, 30.0)])
@settings(max_examples=150, deadline=None)
@given(times=st.lists(st.integers(20, 600), min_size=1, max_size=14), spare=st.floats(1.15, 2.5), naps=naps)
def test_no_hibernation_makes_it_miss_the_deadline(times, spare, naps):
    tasks = [Task(place, float(seconds)) for place, seconds in enumerate(times)]
    # Room for the boot and the margin of a rescue, which D_spot as printed does not count in.
    deadline_t = least_deadline_s(tasks, OFFERS) * spare + LAG_S + 10.0
    world = World(tasks, deadline_t, naps)
    assert world.run() <= deadline_t + 1e-6


@given(times=st.lists(st.integers(1, 600), min_size=1, max_size=30))
def test_the_least_deadline_is_the_least(times):
    tasks = [Task(place, float(seconds)) for place, seconds in enumerate(times)]
    least_s = least_deadline_s(tasks, OFFERS)
    assert first_plan(tasks, OFFERS, 0.0, least_s).predicted_finish_t <= least_s
