"""Rented machines under random plans and events, in any order and twice: promises hold, and the money is recounted."""

from __future__ import annotations

import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from tests.support.engine.engine_machine import EngineMachine, FakeHost
from windfall.core.events import (
    HostAsked,
    JobRules,
    JobSealed,
    JobSubmitted,
    MachineEnded,
    MachineHibernated,
    MachineNoticed,
    MachineRefused,
    MachineResumed,
    MachineStarted,
    OffersConfigured,
    PlanProposed,
    TaskClass,
    TasksAdded,
)
from windfall.core.renting import views
from windfall.core.state.renting import fleet
from windfall.planning.contract import Plan, Start
from windfall.planning.offers import Offer

OFFERS = [
    Offer(name="spot", pool="cloud", price_usd=0.1, cores=2, cycle_s=10.0, lag_s=1.0, market="spot", limit=3),
    Offer(name="sure", pool="cloud", price_usd=0.7, cores=1, cycle_s=10.0, free_if_taken=False, bills_boot=False),
]
NUMBERS = st.integers(1, 6)


class Bill:
    """What a machine costs, by a second pair of eyes: seconds held, one after the other."""

    def __init__(self, offer: Offer) -> None:
        self.offer, self.held_s, self.since, self.over = offer, 0.0, None, False
        self.taken = False

    def pause(self, t: float) -> None:
        if self.since is not None:
            self.held_s, self.since = self.held_s + t - self.since, None

    def usd(self, t: float) -> float:
        held_s = self.held_s + (t - self.since if self.since is not None else 0.0)
        cycles = held_s / self.offer.cycle_s
        free = self.taken and self.offer.free_if_taken
        return self.offer.price_usd * (math.floor(cycles + 1e-7) if free else max(1, math.ceil(cycles - 1e-7)))


class CloudMachine(EngineMachine):
    @initialize()
    def start(self) -> None:
        super().start()
        self.bills: dict[int, Bill] = {}
        self.workers: dict[int, FakeHost] = {}
        self.step(OffersConfigured(0.0, "cloud", OFFERS))

    @rule(count=st.integers(1, 8), budget=st.sampled_from([None, 1_000_000]))
    def submit_to_the_cloud(self, count, budget):
        rules = JobRules("c", rent_from=["cloud"], deadline_s=100.0, budget_microusd=budget)
        job = self.step(JobSubmitted(self.t, rules, [TaskClass(max_failures=2), TaskClass(2.0)])).decided.job
        self.step(TasksAdded(self.t, job, count, 0))
        self.step(TasksAdded(self.t, job, 1, 1))
        self.step(JobSealed(self.t, job))

    @rule(data=st.data())
    def propose(self, data):
        """Any plan at all, sensible or not."""
        jobs = sorted(self.state.fleet.plans)
        if not jobs:
            return
        job = data.draw(st.sampled_from(jobs))
        starts = data.draw(st.lists(st.sampled_from(OFFERS), max_size=2))
        labels = [f"new-{place}" for place in range(len(starts))] + [str(n) for n in range(1, 7)]
        tasks = st.lists(st.integers(0, 9), max_size=6)
        plan = Plan(
            start=[Start(f"new-{place}", offer) for place, offer in enumerate(starts)],
            stop=data.draw(st.lists(st.sampled_from(labels), max_size=2)),
            assign=data.draw(st.dictionaries(st.sampled_from(labels), tasks, max_size=3)),
            replan_t=data.draw(st.sampled_from([math.inf, self.t + 5.0])),
        )
        taken = self.step(PlanProposed(self.t, job, self.state.seq, plan)).decided
        for number, _, offer in taken.started:
            self.bills[number] = Bill(offer)

    @rule(number=NUMBERS)
    def started(self, number):
        machine = self.state.fleet.machines.get(number)
        self.step(MachineStarted(self.t, number, f"i-{number}", self.t))
        if machine is not None and machine.there and machine.offer.bills_boot and self.bills[number].since is None:
            hibernated = machine.phase == fleet.HIBERNATED
            if not hibernated and machine.id == f"i-{number}" and not self.bills[number].held_s:
                self.bills[number].since = self.t

    @rule(number=NUMBERS, want=st.integers(0, 3))
    def machine_asks(self, number, want):
        machine = self.state.fleet.machines.get(number)
        if machine is None or not machine.there or not machine.id:
            return
        if number not in self.workers:
            worker = self.workers[number] = FakeHost(machine.host_name, machine.offer.cores)
            worker.ad = {"pool": "cloud", "machine": number}
            self.hosts.append(worker)
        worker, bill = self.workers[number], self.bills[number]
        worker.n += 1
        answer = self.step(HostAsked(self.t, worker.name, "1", worker.n, want, worker.slots, worker.ad)).decided
        if bill.since is None:
            bill.since = self.t
        for piece in answer.assigned:
            assert piece.job == machine.fleet
            worker.held += [(piece.job, task, piece.attempt) for task in range(piece.first, piece.first + piece.count)]
        assert len(self.state.host(worker.name).held) <= machine.offer.cores
        worker.held = [key for key in worker.held if key not in answer.cancel]

    @rule(number=NUMBERS)
    def refuse(self, number):
        machine = self.state.fleet.machines.get(number)
        ends = machine is not None and machine.there and not machine.id
        self.step(MachineRefused(self.t, number, "none left"))
        if ends:
            self.bills[number].over = True

    @rule(number=NUMBERS)
    def hibernate(self, number):
        machine = self.state.fleet.machines.get(number)
        if machine is None or not machine.id:
            return
        self.step(MachineHibernated(self.t, number, self.t))
        self.bills[number].pause(self.t)

    @rule(number=NUMBERS)
    def resume(self, number):
        machine = self.state.fleet.machines.get(number)
        wakes = machine is not None and machine.phase == fleet.HIBERNATED
        self.step(MachineResumed(self.t, number, self.t))
        if wakes:
            self.bills[number].since = self.t

    @rule(number=NUMBERS, cause=st.sampled_from(["taken", "released", "failed"]))
    def end(self, number, cause):
        machine = self.state.fleet.machines.get(number)
        if machine is None or not machine.id:
            return
        ends = machine.there
        self.step(MachineEnded(self.t, number, self.t, cause))
        if ends:
            self.bills[number].pause(self.t)
            self.bills[number].taken = cause == "taken"
            worker = self.workers.get(number)
            if worker is not None:
                worker.held.clear()

    @rule(number=NUMBERS)
    def notice(self, number):
        self.step(MachineNoticed(self.t, number, self.t + 3.0))

    @invariant()
    def money_is_as_recounted(self):
        for number, machine in self.state.fleet.machines.items() if hasattr(self, "bills") else ():
            bill = self.bills[number]
            owed = 0.0 if bill.over else bill.usd(self.t)
            assert abs(fleet.owed_microusd(machine, self.t) / 1e6 - owed) < 1e-6, f"m{number}"

    @invariant()
    def planners_can_look_at_every_state(self):
        for job in list(self.state.fleet.plans)[:2] if hasattr(self, "bills") else ():
            snapshot = views.view(self.state, job, self.t, 1e9)
            named = [task for machine in snapshot.machines for task in machine.tasks()]
            assert len(named) == len(set(named)) or self.state.bags[job].attempts.levels.saved().keys() - {1}
            assert set(named) <= set(snapshot.tasks) or self.state.bags[job].finished_t is not None


CloudMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestMachines = CloudMachine.TestCase
