"""Planners rent only machines that have what tasks need, and count how many of these run at once."""

from __future__ import annotations

import math

import msgspec
import pytest

from windfall.graph import from_edges
from windfall.planning.bags.packing import tasks_at_once, width
from windfall.planning.contract import Group, Snapshot, Task
from windfall.planning.offers import Offer
from windfall.planning.registry import FLEET_PLANNERS, PLANNERS
from windfall.planning.workflow.model import NoOffer, Workflow, make_problem

CHEAP = Offer(name="cheap", price_usd=0.1, cores=8, pool="p")
GPU = Offer(name="gpu", price_usd=1.0, cores=8, pool="p", gpus=2)
SPOT = [
    msgspec.structs.replace(o, name=f"{o.name}-spot", market="spot", price_usd=o.price_usd / 2) for o in (CHEAP, GPU)
]
NEEDS = (("gpus", 1.0),)


@pytest.mark.parametrize(
    ("need", "units", "at_once"), [(1.0, 2, 2), (0.5, 2, 4), (0.4, 2, 4), (1.5, 4, 2), (2.0, 3, 1)]
)
def test_how_many_tasks_units_serve_at_once(need, units, at_once):
    assert tasks_at_once(need, units) == at_once


def test_a_task_occupies_its_share_of_the_cores():
    task = Task(0, 60.0, resources=NEEDS)
    assert width(task, GPU) == 4 and width(task, CHEAP) > CHEAP.cores
    assert width(Task(0, 60.0), GPU) == 1


@pytest.mark.parametrize("name", sorted(PLANNERS))
def test_planners_of_bags_rent_only_machines_with_the_gpus(name):
    tasks = {number: Task(number, 600.0, resources=NEEDS) for number in range(4)}
    snapshot = Snapshot(
        t=0.0, deadline_t=3 * 3600.0, tasks=tasks, machines=(), offers=(CHEAP, GPU, *SPOT), total=4, begun_t=0.0,
    )  # fmt: skip
    plan = PLANNERS[name](snapshot)
    rented = {start.offer.name for start in plan.start} | {later.offer.name for later in plan.later}
    assert rented and rented <= {"gpu", "gpu-spot"}


def test_the_planner_of_bags_counts_what_runs_at_once():
    group = Group(Task(-1, 3000.0, resources=NEEDS), 8)
    snapshot = Snapshot(t=0.0, deadline_t=3600.0, tasks={}, machines=(), offers=(CHEAP, GPU), groups=(group,), total=8)
    plan = PLANNERS["windfall"](snapshot)
    assert [start.offer.name for start in plan.start] == ["gpu"] * 4, "two at once on each, once within the hour"


def test_a_workflow_names_what_no_offer_has():
    workflow = Workflow("w", ["a"], [""], [60.0], [1], [0], from_edges(1, []), [(("gpus", 4.0),)])
    with pytest.raises(NoOffer, match="4 gpus"):
        make_problem(workflow, (CHEAP, GPU), 3600.0)
    fits = Workflow("w", ["a"], [""], [60.0], [1], [0], from_edges(1, []), [NEEDS])
    problem = make_problem(fits, (CHEAP, GPU), 3600.0)
    assert [problem.fits(0, offer) for offer in (0, 1)] == [False, True]


@pytest.mark.parametrize("name", sorted(FLEET_PLANNERS))
def test_planners_of_fleets_rent_only_machines_with_the_gpus(name):
    from windfall.planning.contract import Job

    tasks = {number: Task(number, 600.0, job=1, deadline_t=601.0, resources=NEEDS) for number in range(3)}
    snapshot = Snapshot(
        t=0.0, deadline_t=601.0, tasks=tasks, machines=(), offers=(CHEAP, GPU), jobs=(Job(1, 601.0, total=3),),
        is_fleet=True, total=3,
    )  # fmt: skip
    plan = FLEET_PLANNERS[name](snapshot)
    assert plan.start and {start.offer.name for start in plan.start} == {"gpu"}
    assert math.isfinite(plan.predicted_finish_t or 0.0)
