"""GPU tasks in plans of HADS, workflows and fleets: a machine runs as many at once as it has GPUs, not cores."""

from __future__ import annotations

import pytest

from windfall.planning.at_once import counted
from windfall.planning.contract import BAG, FLEET, ONDEMAND, SPOT, WORKFLOW, Job, Snapshot, Task
from windfall.planning.offers import Offer
from windfall.planning.registry import planner_named

GPU = (("gpus", 1.0),)
CARDS = Offer(name="cards", pool="c", price_usd=1.0, cores=8, gpus=2, limit=10, cycle_s=60.0)


def snapshot(resources=GPU, market: str = ONDEMAND, cores: int = 1, **more) -> Snapshot:
    offers = [Offer(name="cards", pool="c", price_usd=1.0, cores=8, gpus=2, limit=10, cycle_s=60.0, market=market)]
    if market == SPOT:
        offers.append(CARDS)
    tasks = {n: Task(n, 600.0, resources=resources, cores=cores, job=1, deadline_t=3000.0) for n in range(16)}
    return Snapshot(t=0.0, deadline_t=3000.0, tasks=tasks, machines=(), offers=tuple(offers), **more)


def test_a_machine_with_two_gpus_has_two_cores_for_tasks_of_one_gpu():
    made = counted(snapshot())
    assert made.offers[0].cores == 2 and made.tasks[0].cores == 1
    assert counted(snapshot((("gpus", 0.5),))).offers[0].cores == 4
    assert counted(snapshot(())).offers[0].cores == 8


def test_wide_tasks_keep_their_cores():
    made = counted(snapshot(cores=3))
    assert made.offers[0].cores == 6 and made.tasks[0].cores == 3


def test_an_offer_without_the_resource_stays_as_it_is():
    bare = Offer(name="bare", price_usd=1.0, cores=8)
    made = counted(Snapshot(t=0.0, deadline_t=1.0, tasks={0: Task(0, 1.0, resources=GPU)}, machines=(), offers=(bare,)))
    assert made.offers == (bare,)


@pytest.mark.parametrize(
    ("name", "kind", "more"),
    [
        ("hads", BAG, {}),
        ("windfall", WORKFLOW, {"is_workflow": True}),
        ("greedy", FLEET, {"is_fleet": True, "jobs": (Job(1, 3000.0, 0.0),)}),
    ],
)
def test_plans_rent_enough_machines_for_the_gpus(name, kind, more):
    """Sixteen tasks of ten minutes within fifty: eight cores would do it with fewer machines than two GPUs."""
    plan = planner_named(name, kind)(snapshot(market=SPOT if name == "hads" else ONDEMAND, **more))
    without = planner_named(name, kind)(snapshot((), market=SPOT if name == "hads" else ONDEMAND, **more))
    assert len(plan.start) > len(without.start) >= 1
