"""`windfall bench fleet`: one planning round of a shared fleet with up to 100,000 waiting jobs, through the engine.

A round is what the server does for one plan: the view is made, the planner plans, the engine decides on the plan and
applies it. Beside it, in the same run, a floor: one sort of all deadlines. Touches the clock of the processor, because
the machine may be shared.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import click

from windfall.bench.harness import report, show
from windfall.core.engine import Engine
from windfall.core.events import (
    FleetCreated,
    HostAsked,
    JobRules,
    JobSealed,
    JobSubmitted,
    MachineStarted,
    OffersConfigured,
    PlanProposed,
    ServerStarted,
    Settings,
    TaskClass,
    TasksAdded,
)
from windfall.core.renting import views
from windfall.core.state.renting.fleets import FleetRules
from windfall.core.state.state import State
from windfall.planning.contract import Plan, Start
from windfall.planning.offers import Offer
from windfall.planning.registry import FLEET_PLANNERS

OFFERS = [
    Offer(name="small", pool="cloud", price_usd=0.10, cores=1, cycle_s=3600.0, lag_s=300.0),
    Offer(name="large", pool="cloud", price_usd=0.36, cores=4, speed=1.1, cycle_s=3600.0, lag_s=300.0),
]
TASKS = 2
"""Of each job."""


@click.command("fleet")
@click.option("--jobs", default=100_000, show_default=True, type=click.IntRange(16), help="Waiting jobs.")
@click.option("--classes", default=100, show_default=True, type=click.IntRange(1), help="Classes of jobs.")
@click.option("--machines", default=1_000, show_default=True, type=click.IntRange(1), help="Machines that are rented.")
@click.option("--planner", default="windfall", show_default=True, type=click.Choice(list(FLEET_PLANNERS)))
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="The median of them is told.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(jobs: int, classes: int, machines: int, planner: str, rounds: int, as_json: bool) -> None:
    """Plan a fleet on which up to JOBS jobs wait, and take one more job, in seconds of the processor.

    \b
    Examples:
      windfall bench fleet
      windfall bench fleet --jobs 10000 --machines 100 --planner scs
    """
    document: dict[str, Any] = {"bench": "fleet", "classes": classes, "machines": machines, "planner": planner}
    for size in (jobs // 16, jobs // 4, jobs):
        show(f"{size:,} waiting jobs")
        for name, value in measured(size, classes, machines, planner, rounds).items():
            document.setdefault(name, {})[size] = round(value, 3)
    show("")
    document["goals"] = "100,000 jobs of 100 classes on 1,000 machines: a round in 1 s and linear, an arrival in 5 ms"
    report(document, as_json)


def measured(jobs: int, classes: int, machines: int, planner: str, rounds: int) -> dict[str, float]:
    """Seconds of the processor by part of a round, and milliseconds of an arrival."""
    world = Waiting(jobs, classes, machines)
    rows = [world.round(planner, 400.0 + 60.0 * number) for number in range(rounds + 1)][1:]
    found = {name: median(row[name] for row in rows) for name in rows[0]}
    arrivals = [world.arrival(500.0 + number) for number in range(20)]
    return {**found, "arrival_ms": 1000 * median(arrivals), "floor_s": world.floor()}


class Waiting:
    """A fleet whose machines are there, and jobs that wait for them."""

    def __init__(self, jobs: int, classes: int, machines: int) -> None:
        self.engine, self.state, self.classes = Engine(), State(), classes
        self._step(ServerStarted(0.0, Settings()))
        self._step(OffersConfigured(0.0, "cloud", OFFERS))
        decided: Any = self._step(FleetCreated(0.0, FleetRules("shared", ["cloud"])))
        self.fleet = decided.number
        for number in range(jobs):
            self.submit(number, 1.0 + 300.0 * number / jobs)
        starts = [Start(f"new-{number}", OFFERS[number % 2]) for number in range(machines)]
        taken: Any = self._step(PlanProposed(301.0, self.fleet, self.state.seq, Plan(start=starts, only_reserved=True)))
        for number, _, _ in taken.started:
            self._step(MachineStarted(302.0, number, f"i-{number}", 302.0))
            machine = self.state.fleet.machines[number]
            cores, about = machine.offer.cores, {"pool": "cloud", "machine": number}
            self._step(HostAsked(303.0, machine.host_name, "b", 1, cores, cores, about))

    def _step(self, event: Any) -> Any:
        return self.engine.step(self.state, event).decided

    def submit(self, number: int, t: float) -> None:
        """A bag: its class says how long its tasks take and when it is due."""
        kind = number % self.classes
        rules = JobRules(f"job-{number}", fleet="shared", deadline_s=3600.0 * (2 + kind % 11))
        job = self.state.bags.next
        self._step(JobSubmitted(t, rules, [TaskClass(name=f"class-{kind}", estimate_s=60.0 + 5.0 * kind)]))
        self._step(TasksAdded(t, job, TASKS))
        self._step(JobSealed(t, job))

    def round(self, planner: str, t: float) -> dict[str, float]:
        """Seconds of the processor: the view, the plan, its application, and all of them."""
        asked = FLEET_PLANNERS[planner]
        began = time.process_time()
        shown = views.view(self.state, self.fleet, t, asked.names_up_to)
        viewed = time.process_time()
        made = asked(shown)
        planned = time.process_time()
        self._step(PlanProposed(t, self.fleet, self.state.seq, made))
        ended = time.process_time()
        parts = {"view_s": viewed - began, "plan_s": planned - viewed, "apply_s": ended - planned}
        return {**parts, "round_s": ended - began}

    def arrival(self, t: float) -> float:
        """Seconds of the processor for one more job."""
        began = time.process_time()
        self.submit(len(self.state.bags), t)
        return time.process_time() - began

    def floor(self) -> float:
        """Seconds of the processor to sort all jobs by deadline."""
        jobs = [self.state.bags[number] for number in self.state.fleet.book.active[self.fleet]]
        began = time.process_time()
        sorted(jobs, key=lambda bag: bag.submitted_t + (bag.rules.deadline_s or 0.0))
        return time.process_time() - began
