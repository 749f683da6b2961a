"""A log with rented machines, replayed: the same machines, interruptions and prices give the same finish and bill."""

from __future__ import annotations

from pathlib import Path

import pytest

from windfall.core.records import decode_record, encode_record
from windfall.errors import BadInput
from windfall.sim.run import run
from windfall.sim.scenario import check
from windfall.sim.studies.replay import answer, fit_records
from windfall.sim.world import World

SPOT = {
    "name": "spot", "market": "spot", "cores": 2, "boot": {"law": "uniform", "low": "40s", "high": "3m"},
    "interruptions_per_h": 2.0, "told": True, "limit": 20,
}  # fmt: skip
WORLDS = {
    "hibernates": {"when_taken": "hibernate", "price_usd": 0.031, "hibernated": {"law": "exponential", "mean": "10m"}},
    "is reclaimed": {"when_taken": "terminate", "price_usd": 0.031, "notice": "2m", "refusals": 0.3},
    "changes its price": {"when_taken": "terminate", "price_steps": [["0s", 0.031], ["30m", 0.05], ["50m", 0.02]]},
}


def world(how: str) -> dict:
    on_demand = {"name": "on-demand", "price_usd": 0.104, "cores": 2, "boot": "60s", "limit": 20, "cycle": "10m"}
    return {
        "name": "seen",
        "cloud": [{"name": "cloud", "offer": [SPOT | {"cycle": "10m"} | WORLDS[how], on_demand]}],
        "bag": [
            {
                "name": "fit", "tasks": 60, "run": {"law": "lognormal", "median": "6m", "sigma": 0.4},
                "deadline": "2h", "planner": "windfall",
            }
        ],
    }  # fmt: skip


def logged(document: dict, seed: int):
    records = []
    live = World(check(document, Path("seen.toml")), seed, records.append, None)
    live.run(None)
    return live, [decode_record(encode_record(record)) for record in records]


@pytest.mark.parametrize("how", WORLDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_replayed_cost_and_finish_lie_within_five_percent_of_what_happened(how, seed):
    live, records = logged(world(how), seed)
    fitted = fit_records("a log", iter(records))
    document = answer(fitted, [run(fitted.scenario([]), seed)[0] for seed in (1, 2)], changed=False)
    row = document["jobs"][0]
    spent = sum(cost for *_, cost in live.bills) / 1e6
    assert row["actual_usd"] == pytest.approx(spent)
    assert abs(row["off_by"]) < 0.05 and abs(row["cost_off_by"]) < 0.05
    assert "machines: predicted $" in document["lines"][0]


def test_machines_live_in_the_replay_as_they_did_in_the_log():
    live, records = logged(world("hibernates"), 1)
    offer = fit_records("a log", iter(records)).document()["cloud"][0]["offer"][0]
    slept = [m for m in live.driver.state.fleet.machines.values() if m.sleeps and m.offer.name == "spot"]
    assert slept and len(offer["lives"]) == sum(
        m.offer.name == "spot" for m in live.driver.state.fleet.machines.values()
    )
    assert any(len(life) > 2 for life in offer["lives"])


def test_a_change_of_the_world_is_answered_beside_the_log():
    _, records = logged(world("is reclaimed"), 1)
    fitted = fit_records("a log", iter(records))
    outcome = run(fitted.scenario(["bag.1-fit.deadline=3h"]), 1)[0]
    document = answer(fitted, [outcome], changed=True)
    assert "would cost $" in document["lines"][0] and "against the log" in document["lines"][0]


@pytest.mark.parametrize(
    "offer",
    [
        {"lives": "40s"},
        {"lives": [[]]},
        {"lives": [["40s", 10]]},
        {"lives": [["40s"]], "life": "2h"},
        {"price_steps": [["1m", 0.1]]},
        {"price_steps": [["0s", 0.1], ["0s", 0.2]]},
        {"price_steps": [["0s", "cheap"]]},
    ],
)
def test_wrong_lives_and_prices_are_refused_with_their_place(offer):
    document = world("is reclaimed")
    document["cloud"][0]["offer"][0] |= offer
    with pytest.raises(BadInput, match="offer spot"):
        check(document, Path("seen.toml"))
