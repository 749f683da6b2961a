"""Spot machines in a fleet in virtual time: every promise is kept, and it costs less than on-demand alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windfall.core.explain import sharing
from windfall.core.renting.shares import charged
from windfall.core.state.invariants import problems
from windfall.core.state.renting.fleet import TAKEN, owed_microusd
from windfall.sim.run import RunOutcome, run
from windfall.sim.scenario import check
from windfall.sim.world import World

RUN = {"law": "uniform", "low": "2m", "high": "8m"}
SMALL = {"name": "small", "price_usd": 0.10, "boot": "3m", "limit": 40}
LARGE = {"name": "large", "price_usd": 0.35, "boot": "3m", "cores": 4, "speed": 1.2, "limit": 10}
SHARED = {"fleet": "shared", "run": RUN, "told": "each"}
FLOW = SHARED | {
    "name": "flow", "tasks": 10, "shape": "hybrid", "copies": 5, "deadline": "2h",
    "every": {"law": "exponential", "mean": "10m"},
}  # fmt: skip
BAG = SHARED | {"name": "bag", "tasks": 12, "copies": 5, "deadline": "90m", "every": "12m"}


def spot(offer: dict[str, Any], **law: Any) -> dict[str, Any]:
    return offer | {"name": f"spot-{offer['name']}", "market": "spot", "price_usd": 0.3 * offer["price_usd"]} | law


def stream(offers: list[dict[str, Any]], seed: int, **more: Any) -> tuple[RunOutcome, World]:
    document = {
        "cloud": [{"name": "cloud", "offer": offers}], "bag": [FLOW, BAG], "fleet": [{"name": "shared"}],
    }  # fmt: skip
    return run(check(document | more, Path("test.toml")), seed)


def late(outcome: RunOutcome) -> list[str]:
    return [bag.name for bag in outcome.bags if not bag.met]


def test_a_fleet_with_spot_keeps_every_promise_and_costs_half_of_on_demand_over_seeds():
    usd, taken = {"on-demand": 0.0, "spot": 0.0}, 0
    for seed in range(1, 4):
        for name, more in (
            ("on-demand", []),
            ("spot", [spot(each, interruptions_per_h=0.7) for each in (SMALL, LARGE)]),
        ):
            outcome, world = stream([SMALL, LARGE, *more], seed)
            assert late(outcome) == [], (name, seed)
            assert problems(world.driver.state) == []
            usd[name] += outcome.cost_usd
            taken += sum(machine.cause == TAKEN for machine in world.driver.state.fleet.machines.values())
    assert taken >= 3
    assert usd["spot"] < 0.5 * usd["on-demand"]


LAWS = [
    pytest.param({"interruptions_per_h": 6.0}, id="often"),
    pytest.param(
        {"up": {"law": "exponential", "mean": "25m"}, "down": {"law": "exponential", "mean": "15m"}}, id="all"
    ),
    pytest.param({"life": "30m", "notice": "2m"}, id="notice"),
    pytest.param(
        {"interruptions_per_h": 3.0, "when_taken": "hibernate", "hibernated": {"law": "exponential", "mean": "30m"}},
        id="hibernate",
    ),
    pytest.param({"interruptions_per_h": 3.0, "when_taken": "hibernate"}, id="for ever"),
]


@pytest.mark.parametrize("law", LAWS)
def test_no_promise_is_broken_whatever_the_provider_does(law):
    """Two limited types: what is interrupted must find room on demand beside the others."""
    offers = [SMALL | {"limit": 6}, LARGE | {"limit": 3}]
    outcome, world = stream(offers + [spot(each, **law) for each in offers], seed=3)
    assert late(outcome) == []
    assert problems(world.driver.state) == []
    rented = {machine.offer.market for machine in world.driver.state.fleet.machines.values()}
    assert "spot" in rented


def test_the_bill_of_a_fleet_with_spot_is_split_to_the_micro_dollar_through_restarts():
    restarts = [{"at": "20m", "lasts": "30s"}, {"at": "50m", "lasts": "1m"}]
    outcome, world = stream([SMALL, LARGE, spot(LARGE, interruptions_per_h=2.0)], seed=2, restart=restarts)
    assert late(outcome) == []
    state, now = world.driver.state, world.driver.now
    (number,) = state.fleet.book.by_number
    bill = sum(owed_microusd(machine, now) for machine in state.fleet.machines.values())
    assert sum(charged(state, number, now).values()) == bill == round(1e6 * outcome.cost_usd)


def test_explain_says_why_a_machine_is_spot():
    _, world = stream([SMALL, spot(SMALL, interruptions_per_h=0.5)], seed=1)
    state = world.driver.state
    told = [row for bag in state.bags.values() for row in sharing.of_job(state, bag, world.driver.now)]
    why = {row["because"][0] for row in told if row["offer"] == "spot-small"}
    assert why and all("a spot machine, because on-demand could still do its tasks in time" in line for line in why)
    assert all("cheaper with the risk counted" in line for line in why)


def test_a_fleet_rents_no_spot_that_is_hardly_cheaper_and_interrupted_before_its_tasks_end():
    """Told that a machine lasts two minutes, tasks of two to eight minutes are not tried there."""
    _, world = stream([SMALL, spot(SMALL, interruptions_per_h=30.0, told=True, price_usd=0.09)], seed=1)
    assert {machine.offer.name for machine in world.driver.state.fleet.machines.values()} == {"small"}


def test_jobs_without_time_for_a_second_attempt_run_on_demand():
    tight = [FLOW | {"deadline": "45m"}, BAG | {"deadline": "16m"}]
    outcome, world = stream([SMALL, spot(SMALL, interruptions_per_h=4.0)], seed=1, bag=tight)
    assert late(outcome) == []
    used = {
        (machine.offer.market, state_bag.total)
        for machine in world.driver.state.fleet.machines.values()
        for state_bag in (world.driver.state.bags[use.job] for use in machine.uses)
    }
    assert ("on-demand", 12) in used
