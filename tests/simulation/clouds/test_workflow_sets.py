"""Workflows with tasks of several machines at once on rented machines in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from windfall.core.events import PlanProposed
from windfall.core.state.invariants import problems
from windfall.planning.workflow.planners import NAMES
from windfall.sim.scenario import check
from windfall.sim.world import World

STEADY = {"name": "steady", "price_usd": 0.40, "cycle": "1m", "cores": 2, "boot": "1m"}
SPOT = STEADY | {"name": "spot", "market": "spot", "price_usd": 0.10, "interruptions_per_h": 1.5}
FLOW = """
[[task]]
name = "prepare-{n}"
map = { n = "1-4" }
estimate = "10m"

[[task]]
name = "solve-{n}"
map = { n = "1-2" }
after = "prepare-*"
nodes = 3
cpus = 2
estimate = "20m"

[[task]]
name = "draw-{n}"
map = { n = "1-3" }
after = "solve-*"
estimate = "5m"
"""
PREPARE, SOLVE, DRAW = range(4), range(4, 6), range(6, 9)


def simulated(tmp_path: Path, seed: int = 1, planner: str = "prolis", flow: str = FLOW, offers=(STEADY,), **bag):
    """A world that is run to its end; after every record its promises hold."""
    (tmp_path / "flow.toml").write_text(flow)
    broken, worlds, errors = [], [], []

    def look(record):
        broken.extend(problem for world in worlds for problem in problems(world.driver.state))
        if type(record.event) is PlanProposed and record.event.error:
            errors.append(record.event.error)

    document = {
        "cloud": [{"name": "cloud", "offer": list(offers)}],
        "bag": [{"name": "flow", "workflow": "flow.toml", "planner": planner, "deadline": "4h"} | bag],
    }  # fmt: skip
    world = World(check(document, tmp_path / "scenario.toml"), seed, look)
    worlds.append(world)
    world.run()
    assert broken == [] and errors == []
    return world


def the_bag(world: World):
    (bag,) = world.driver.state.bags.values()
    assert bag.state == "done", bag.state
    assert bag.finished_t - bag.submitted_t <= bag.rules.deadline_s
    return bag


def machines(world: World):
    return list(world.driver.state.fleet.machines.values())


@pytest.mark.parametrize("planner", NAMES)
def test_every_planner_of_workflows_rents_sets_when_they_are_needed(planner, tmp_path):
    world = simulated(tmp_path, planner=planner)
    bag, rented = the_bag(world), machines(world)
    assert all(bag.columns.attempts[task] == 3 for task in SOLVE), "one attempt on three hosts each"
    assert all(bag.columns.attempts[task] == 1 for task in (*PREPARE, *DRAW))
    assert all(not machine.there for machine in rented)
    late = [machine for machine in rented if machine.requested_t > 300.0]
    assert len(late) >= 3, "no set is rented before its tasks can begin"


@pytest.mark.parametrize("seed", range(3))
def test_spot_serves_single_tasks_and_on_demand_sets(seed, tmp_path):
    world = simulated(tmp_path, seed, offers=(SPOT, STEADY))
    the_bag(world)
    assert {machine.offer.market for machine in machines(world)} == {"spot", "on-demand"}


@pytest.mark.parametrize("limit", [4, 7])
def test_limits_leave_a_machine_for_other_tasks_and_are_kept(limit, tmp_path):
    world = simulated(tmp_path, offers=(STEADY | {"limit": limit},))
    the_bag(world)


def test_a_workflow_of_such_tasks_alone_may_have_all_machines(tmp_path):
    first = '[[task]]\nname = "a"\nnodes = 3\nestimate = "10m"\n'
    flow = first + '[[task]]\nname = "b"\nafter = "a"\nnodes = 2\nestimate = "5m"\n'
    world = simulated(tmp_path, flow=flow, offers=(STEADY | {"limit": 3},))
    bag = the_bag(world)
    assert list(bag.columns.attempts) == [3, 2]
