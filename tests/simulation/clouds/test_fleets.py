"""Bags and workflows that share a fleet in virtual time: deadlines, money by job, and what sharing saves."""

from __future__ import annotations

from pathlib import Path

import pytest

from windfall.core.renting import backlog
from windfall.core.renting.shares import FLEET, charged
from windfall.core.state.invariants import problems
from windfall.core.state.renting.fleet import after_stop_microusd, owed_microusd
from windfall.planning.registry import FLEET_PLANNERS
from windfall.sim.run import RunOutcome, run
from windfall.sim.scenario import check
from windfall.sim.world import World

RUN = {"law": "uniform", "low": "2m", "high": "8m"}
SMALL = {"name": "small", "price_usd": 0.10, "cycle": "1h", "boot": "6m", "limit": 40}
LARGE = {"name": "large", "price_usd": 0.35, "cycle": "1h", "boot": "6m", "cores": 4, "speed": 1.2, "limit": 10}
FLOW = {
    "name": "flow", "tasks": 10, "shape": "hybrid", "run": RUN, "copies": 5, "deadline": "2h",
    "every": {"law": "exponential", "mean": "10m"},
}  # fmt: skip
BAG = {"name": "bag", "tasks": 12, "run": RUN, "told": "each", "copies": 5, "deadline": "90m", "every": "12m"}


def stream(planner: str, seed: int = 1, **more: object) -> tuple[RunOutcome, World]:
    """Ten jobs in an hour: in a fleet under this planner, or each with machines of its own."""
    each = {"planner": "windfall"} if planner == "own" else {"fleet": "shared"}
    document: dict[str, object] = {
        "cloud": [{"name": "cloud", "offer": [SMALL, LARGE]}],
        "bag": [FLOW | each, BAG | each],
    }
    if planner != "own":
        document["fleet"] = [{"name": "shared", "planner": planner}]
    return run(check(document | more, Path("test.toml")), seed)


@pytest.mark.parametrize("planner", FLEET_PLANNERS)
def test_every_planner_of_fleets_keeps_the_deadlines_of_a_mixed_stream(planner):
    outcome, world = stream(planner)
    assert outcome.finished and [bag.name for bag in outcome.bags if not bag.met] == []
    assert [bag.trouble for bag in outcome.bags if bag.trouble] == []
    assert problems(world.driver.state) == []


@pytest.mark.parametrize("planner", FLEET_PLANNERS)
def test_the_shares_of_the_jobs_and_of_the_fleet_add_up_to_the_bill(planner):
    outcome, world = stream(planner, seed=2)
    state, now = world.driver.state, world.driver.now
    (number,) = state.fleet.book.by_number
    shares = charged(state, number, now)
    bill = sum(owed_microusd(machine, now) for machine in state.fleet.machines.values())
    assert sum(shares.values()) == bill == round(1e6 * outcome.cost_usd)
    assert set(shares) - {FLEET} == set(state.bags)
    assert sum(round(1e6 * bag.cost_usd) for bag in outcome.bags) == bill - shares.get(FLEET, 0)


def test_jobs_of_a_fleet_whose_planner_fails_say_so(monkeypatch):
    def fails(snapshot):
        raise ValueError("no idea")

    fails.names_up_to = 1e9
    monkeypatch.setitem(FLEET_PLANNERS, "scs", fails)
    outcome, _ = stream("scs")
    assert all("no idea" in bag.trouble for bag in outcome.bags)
    assert outcome.finished


def test_sharing_machines_costs_less_than_machines_of_ones_own():
    shared, _ = stream("scs")
    own, _ = stream("own")
    assert shared.met and own.met
    assert shared.cost_usd < own.cost_usd


def test_a_fleet_goes_on_where_it_was_when_its_server_comes_back():
    outcome, world = stream("scs", restart=[{"at": "20m", "lasts": "30s"}, {"at": "50m", "lasts": "2m"}])
    assert outcome.finished and outcome.met
    assert len(world.driver.state.fleet.book.by_name) == 1


def test_two_fleets_on_one_pool_keep_its_limit_and_their_machines_apart():
    few = {"name": "cloud", "offer": [SMALL | {"limit": 6}]}
    bags = [FLOW | {"fleet": "one", "deadline": "4h"}, BAG | {"fleet": "two", "deadline": "4h"}]
    fleets = [{"name": "one", "planner": "scs"}, {"name": "two", "planner": "scs"}]
    most = 0

    def look(world: World) -> None:
        nonlocal most
        most = max(most, len(world.driver.state.fleet.there))

    document = {"cloud": [few], "bag": bags, "fleet": fleets}
    world = World(check(document, Path("test.toml")), 1)
    world.run(look, every=1)
    state = world.driver.state
    assert all(bag.finished_t is not None for bag in state.bags.values())
    assert 0 < most <= 6
    for machine in state.fleet.machines.values():
        assert {use.job for use in machine.uses} <= {
            job for job, fleet in state.fleet.book.of_job.items() if fleet == machine.fleet
        }


@pytest.mark.parametrize("planner", ["scs", "windfall"])
def test_a_fleet_that_is_shown_only_its_most_urgent_jobs_keeps_all_deadlines(planner, monkeypatch):
    monkeypatch.setattr(backlog, "LEAST_SHOWN", 3)
    monkeypatch.setattr(backlog, "MOST_SHOWN", 3)
    more = {"bag": [BAG | {"fleet": "shared", "copies": 30, "every": "1m", "deadline": "3h"}]}
    outcome, world = stream(planner, **more)
    assert outcome.finished and [bag.name for bag in outcome.bags if not bag.met] == []
    assert problems(world.driver.state) == []


@pytest.mark.parametrize(("planner", "seed"), [("scs", 1), ("windfall", 2)])
def test_no_cycle_that_a_fleet_chose_to_begin_exceeds_the_budget_of_its_hour(planner, seed):
    budget_usd, hour_s = 0.55, 3600.0
    document = {
        "cloud": [{"name": "cloud", "offer": [SMALL | {"cycle": "15m"}, LARGE | {"cycle": "20m"}]}],
        "bag": [FLOW | {"fleet": "shared"}, BAG | {"fleet": "shared", "copies": 8}],
        "fleet": [{"name": "shared", "planner": planner, "budget_usd": budget_usd}],
        "restart": [{"at": "70m", "lasts": "10s"}],
    }
    spent: dict[int, float] = {}

    def look(world: World) -> None:
        state, now = world.driver.state, world.driver.now
        usd = sum(owed_microusd(machine, now) for machine in state.fleet.machines.values()) / 1e6
        spent[int(now // hour_s)] = usd
        before = spent.get(int(now // hour_s) - 1, 0.0)
        assert usd - before <= budget_usd + 1e-9, (now, usd, before)

    world = World(check(document, Path("test.toml")), seed)
    world.run(look, every=1)
    assert len(spent) > 1, "the budget held work back for more than an hour"
    assert not any(after_stop_microusd(each, world.driver.now) for each in world.driver.state.fleet.machines.values())


@pytest.mark.parametrize("copies", [1, 3])
def test_slack_does_not_wait_for_machines_that_a_limit_does_not_allow(copies):
    """36 tasks of ten minutes on two machines take three hours: they cannot begin together at the last moment."""
    run_s = {"law": "uniform", "low": "9m", "high": "10m"}
    bag = {"name": "bag", "tasks": 36 // copies, "run": run_s, "told": "each", "copies": copies, "deadline": "4h"}
    outcome, _ = stream(
        "windfall",
        cloud=[{"name": "cloud", "offer": [SMALL | {"limit": 2}]}],
        bag=[bag | {"every": "5m", "fleet": "shared"}],
    )
    assert [bag.name for bag in outcome.bags if not bag.met] == []


def test_no_task_is_left_to_free_hosts_that_the_policy_of_its_job_excludes():
    """One of many tasks is left to free hosts at first; it is rented for before the others have ended."""
    bag = BAG | {
        "tasks": 30, "copies": 1, "run": {"law": "uniform", "low": "55m", "high": "60m"}, "deadline": "4h",
        "policy": {"JobRequirements": 'Host.Pool =!= "here"'}, "fleet": "shared",
    }  # fmt: skip
    outcome, world = stream("greedy", bag=[bag], pool=[{"name": "here", "hosts": 2}])
    assert outcome.met
    begun_t = [
        use.from_s + machine.requested_t
        for machine in world.driver.state.fleet.machines.values()
        for use in machine.uses
    ]
    assert max(begun_t) <= 40 * 60.0, sorted(begun_t)
