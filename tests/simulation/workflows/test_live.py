"""A workflow on rented machines, planned and executed by the real engine in virtual time."""

from __future__ import annotations

import math
from array import array
from typing import Any

import numpy as np
import pytest

from tests.support.engine.wishes import plans_wanted
from windfall.core.decisions import PlanTaken
from windfall.core.engine import Engine
from windfall.core.events import (
    HostAsked,
    JobRules,
    JobSealed,
    JobShaped,
    JobSubmitted,
    MachineEnded,
    MachineStarted,
    OffersConfigured,
    PlanProposed,
    Result,
    ResultsReported,
    Settings,
    TaskClass,
    TasksAdded,
    TasksEstimated,
)
from windfall.core.records import Record
from windfall.core.renting import plans, views
from windfall.core.state.invariants import problems
from windfall.core.state.renting import fleet
from windfall.drivers.simulated import Simulated
from windfall.graph import from_edges
from windfall.planning.offers import Offer
from windfall.planning.workflow.live import WorkflowPlanner

SLOW = Offer(name="slow", pool="cloud", price_usd=0.10, cores=1, cycle_s=3600.0, lag_s=60.0)
WIDE = Offer(name="wide", pool="cloud", price_usd=0.35, cores=4, cycle_s=3600.0, lag_s=60.0, speed=1.5)


class World:
    """Machines that do what they are told: boot in their lag, run each task for its time, end when they must."""

    def __init__(self, runtimes_s: list[float], edges: list[tuple[int, int]], deadline_s: float, planner: str) -> None:
        self.driver = Simulated(Engine(), Settings(lease_s=math.inf))
        self.runtimes_s, self.planner = runtimes_s, planner
        self.asked: dict[int, int] = {}
        self.running: dict[tuple[int, int, int], int] = {}
        self.started_t: dict[int, float] = {}
        self.ended_t: dict[int, float] = {}
        submit = self.driver.submit
        submit(OffersConfigured(0.0, "cloud", [SLOW, WIDE]))
        rules = JobRules("wf", rent_from=["cloud"], deadline_s=deadline_s, planner=planner)
        self.job = submit(JobSubmitted(0.0, rules, [TaskClass(name="t", estimate_is_exact=True)])).decided.job
        shape = from_edges(len(runtimes_s), edges)
        submit(JobShaped(0.0, self.job, shape.key, shape.offsets.tobytes(), shape.children.tobytes()))
        submit(TasksAdded(0.0, self.job, len(runtimes_s)))
        submit(TasksEstimated(0.0, self.job, array("f", runtimes_s).tobytes()))
        submit(JobSealed(0.0, self.job))

    @property
    def bag(self) -> Any:
        return self.driver.state.bags[self.job]

    def run(self, until: float = 10_000_000.0) -> None:
        self.look()
        self.driver.run(until, done=self.look)

    def look(self) -> bool:
        """After every event: plans that are due are made and carried out. True when the job has ended."""
        state = self.driver.state
        assert problems(state) == []
        for job in plans_wanted(state):
            plan = plans.closing(state, job)
            if plan is None:
                planner = WorkflowPlanner(self.planner, effort=20_000)
                plan = planner(views.view(state, job, self.driver.now, planner.names_up_to))
            self.carry_out(self.driver.submit(PlanProposed(self.driver.now, job, state.seq, plan)))
        machines = state.fleet.machines.values()
        return self.bag.finished_t is not None and not any(machine.there for machine in machines)

    def carry_out(self, record: Record) -> None:
        decided = record.decided
        assert isinstance(decided, PlanTaken)
        for number, _, offer in decided.started:
            self.driver.submit(MachineStarted(self.driver.now, number, f"i-{number}", self.driver.now))
            self.driver.after(offer.lag_s, self.ask, number)
        for number in decided.stopped:
            self.end(number, "released")
        for number, _ in decided.queues:
            self.driver.after(0.0, self.ask, number)

    def end(self, number: int, cause: str) -> None:
        self.running = {key: on for key, on in self.running.items() if on != number}
        self.driver.submit(MachineEnded(self.driver.now, number, self.driver.now, cause))

    def ask(self, number: int) -> None:
        machine = self.driver.state.fleet.machines[number]
        if not machine.there or self.driver.now < machine.requested_t + machine.offer.lag_s:
            return
        n = self.asked[number] = self.asked.get(number, 0) + 1
        ad = {"pool": "cloud", "machine": number}
        event = HostAsked(self.driver.now, machine.host_name, "b", n, machine.offer.cores, machine.offer.cores, ad)
        for piece in self.driver.submit(event).decided.assigned:
            for task in range(piece.first, piece.first + piece.count):
                self.running[self.job, task, piece.attempt] = number
                self.started_t[task] = self.driver.now
                seconds = self.runtimes_s[task] / machine.offer.speed_for("t")
                self.driver.after(seconds, self.finish, (self.job, task, piece.attempt), self.driver.now)

    def finish(self, key: tuple[int, int, int], began_t: float) -> None:
        number = self.running.pop(key, None)
        if number is None:
            return
        self.ended_t[key[1]] = self.driver.now
        host = self.driver.state.fleet.machines[number].host_name
        self.driver.submit(ResultsReported(self.driver.now, host, [Result(*key, 0, 0, began_t, self.driver.now)]))
        for machine in self.driver.state.fleet.machines.values():
            if machine.phase == fleet.RUNNING:
                self.driver.after(0.0, self.ask, machine.number)

    def cost_usd(self) -> float:
        machines = self.driver.state.fleet.machines.values()
        return sum(fleet.owed_microusd(machine, self.driver.now) for machine in machines) / 1e6


def diamond(width: int, rng: np.random.Generator) -> tuple[list[float], list[tuple[int, int]]]:
    """One task, many side by side, one at the end."""
    runtimes = [120.0, *(float(value) for value in rng.integers(100, 900, width)), 200.0]
    edges = [(0, k) for k in range(1, width + 1)] + [(k, width + 1) for k in range(1, width + 1)]
    return runtimes, edges


@pytest.mark.parametrize("planner", ["windfall", "greedy", "scs", "prolis"])
@pytest.mark.parametrize("deadline_s", [2400.0, 7200.0])
def test_without_noise_the_execution_costs_what_the_plan_says_and_ends_when_it_says(
    planner: str, deadline_s: float
) -> None:
    runtimes, edges = diamond(9, np.random.default_rng(3))
    world = World(runtimes, edges, deadline_s, planner)
    world.run()
    planned = world.driver.state.fleet.plans[world.job]
    assert world.bag.state == "done"
    assert world.cost_usd() == pytest.approx(planned.first_cost_usd)
    assert world.bag.finished_t <= deadline_s
    assert world.bag.finished_t == pytest.approx(planned.first_finish_t, abs=1e-3)


def test_no_task_begins_before_its_parents_have_ended() -> None:
    runtimes, edges = diamond(9, np.random.default_rng(4))
    world = World(runtimes, edges, 3600.0, "windfall")
    world.run()
    assert all(world.started_t[child] >= world.ended_t[parent] for parent, child in edges)


@pytest.mark.parametrize("seed", range(8))
def test_a_machine_that_is_reclaimed_midway_costs_money_and_not_the_deadline(seed: int) -> None:
    rng = np.random.default_rng(seed)
    runtimes, edges = diamond(8, rng)
    world = World(runtimes, edges, 7200.0, "windfall")
    world.driver.at(float(rng.uniform(100, 900)), lambda: world.end(1, "taken"))
    world.run()
    assert world.bag.state == "done"
    assert world.bag.finished_t <= 7200.0
    assert sorted(world.ended_t) == list(range(len(runtimes)))
