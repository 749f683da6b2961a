"""Tasks of several machines at once on rented machines in virtual time: deadlines, sets, fleets, and no starvation."""

from __future__ import annotations

from pathlib import Path

import pytest

from windfall.core.events import PlanProposed
from windfall.core.state.invariants import problems
from windfall.planning.registry import FLEET_PLANNERS, PLANNERS
from windfall.sim.scenario import check
from windfall.sim.world import World

STEADY = {"name": "steady", "price_usd": 0.40, "cycle": "1m", "cores": 4, "boot": "1m"}
WIDE = {"name": "wide", "tasks": 6, "nodes": 3, "run": "20m", "deadline": "4h", "max_losses": 90, "cpus": 2}


def spot(interruptions_per_h: float, **more: object) -> dict[str, object]:
    return STEADY | {"name": "spot", "market": "spot", "price_usd": 0.10} | more | {
        "interruptions_per_h": interruptions_per_h
    }  # fmt: skip


def simulated(seed: int = 3, offers: list[dict[str, object]] | None = None, **document: object) -> World:
    """A world that is run to its end; after every record its promises hold."""
    broken, worlds, errors = [], [], []

    def look(record):
        broken.extend(problem for world in worlds for problem in problems(world.driver.state))
        if type(record.event) is PlanProposed and record.event.error:
            errors.append(record.event.error)

    cloud = {"name": "cloud", "offer": offers or [spot(0.2), STEADY]}
    world = World(check({"cloud": [cloud]} | document, Path("test.toml")), seed, look)
    worlds.append(world)
    world.run()
    assert broken == [] and errors == []
    return world


def in_time(world: World) -> bool:
    bags = world.driver.state.bags.values()
    return all(
        bag.state == "done" and bag.finished_t - bag.submitted_t <= (bag.rules.deadline_s or 1e9) for bag in bags
    )


@pytest.mark.parametrize("planner", PLANNERS)
def test_every_planner_of_bags_rents_sets_and_keeps_the_deadline(planner):
    world = simulated(bag=[WIDE | {"planner": planner}])
    assert in_time(world)
    machines = list(world.driver.state.fleet.machines.values())
    assert all(machine.cause in ("released", "taken") for machine in machines)
    markets = {machine.offer.market for machine in machines}
    assert markets == {"on-demand"} if planner == "on-demand" else "spot" in markets


@pytest.mark.parametrize("seed", range(4))
def test_a_spot_market_that_reclaims_often_does_not_cost_the_deadline(seed):
    world = simulated(seed, [spot(1.5), STEADY], bag=[WIDE | {"planner": "windfall", "deadline": "2h"}])
    assert in_time(world)


def test_a_tight_deadline_is_kept_with_all_sets_at_once_on_demand():
    world = simulated(bag=[WIDE | {"planner": "windfall", "deadline": "50m"}])
    machines = list(world.driver.state.fleet.machines.values())
    assert in_time(world) and [machine.offer.name for machine in machines] == ["steady"] * 18


def test_sets_keep_within_the_limit_of_the_pool_and_are_rented_whole():
    world = simulated(offers=[STEADY | {"limit": 8}], bag=[WIDE | {"planner": "windfall"}])
    machines = list(world.driver.state.fleet.machines.values())
    assert in_time(world) and len(machines) in (3, 6), "8 machines are two sets of three at most"


def test_spot_machines_that_hibernate_are_no_members():
    world = simulated(offers=[spot(0.2, when_taken="hibernate"), STEADY], bag=[WIDE | {"planner": "windfall"}])
    assert in_time(world)
    assert {machine.offer.name for machine in world.driver.state.fleet.machines.values()} == {"steady"}


@pytest.mark.parametrize("planner", FLEET_PLANNERS)
def test_a_fleet_serves_small_tasks_and_tasks_of_several_machines_beside_each_other(planner):
    small = {"name": "small", "tasks": 60, "run": "5m", "told": "each", "deadline": "3h", "fleet": "shared"}
    world = simulated(bag=[small, WIDE | {"fleet": "shared"}], fleet=[{"name": "shared", "planner": planner}])
    assert in_time(world)
    assert all(not machine.there for machine in world.driver.state.fleet.machines.values())


@pytest.mark.parametrize("first", ["small", "wide"])
def test_small_tasks_of_the_same_rank_do_not_starve_a_task_of_all_hosts(first):
    """10 hours of small tasks for each slot wait; the wide job is done long before them."""
    small = {"name": "small", "tasks": 960, "run": {"law": "uniform", "low": "1m", "high": "9m"}}
    wide = {"name": "wide", "tasks": 3, "nodes": 4, "run": "10m"}
    bags = [small, wide | {"submit": "20m"}] if first == "small" else [wide, small]
    document = {"pool": [{"name": "grid", "hosts": 4, "slots": 2}], "bag": bags}
    world = World(check(document, Path("test.toml")), 1)
    world.run()
    ended = {bag.rules.name: bag.finished_t for bag in world.driver.state.bags.values()}
    assert ended["wide"] < 2.5 * 3600 < 8 * 3600 < ended["small"], ended
