"""GPUs and licences in virtual time: the engine gives units out, simulated hosts give them back."""

from __future__ import annotations

from pathlib import Path

import pytest

from windfall.core.decisions import HostAnswered
from windfall.core.engine import Engine
from windfall.core.records import Record
from windfall.core.state.state import State
from windfall.errors import BadInput
from windfall.sim.scenario import check
from windfall.sim.world import World

GRID = {
    "server": {"resources": {"licence": 3}},
    "pool": [{"name": "lab", "hosts": 4, "slots": 4, "resources": {"gpus": 2}, "errors": 0.1, "stay": "3h"}],
    "bag": [{"name": "fit", "tasks": 60, "run": "10m", "resources": {"gpus": 0.5, "licence": 1}, "max_failures": 9}],
}  # fmt: skip


def run(document) -> tuple[World, list[Record]]:
    records: list[Record] = []
    world = World(check(document, Path("test.toml")), 1, records.append)
    world.run()
    return world, records


def test_a_bag_with_gpus_and_licences_is_done_and_no_more_are_out_than_there_are():
    world, records = run(GRID)
    assert world.driver.state.bags[1].state == "done"
    engine, state, most = Engine(), State(), 0
    for record in records:
        engine.apply(state, record)
        most = max(most, state.hosts.shared()["licence"])
    assert most == 3000


def test_replicas_that_lose_give_their_units_back():
    document = {**GRID, "server": {}, "bag": [{
        "name": "fit", "tasks": 30, "run": {"law": "lognormal", "median": "10m", "sigma": 1.0},
        "resources": {"gpus": 1}, "max_failures": 9, "policy": {"ReplicationRequirements": "NumberOfReplicas < 2"},
    }]}  # fmt: skip
    world, records = run(document)
    answers = [record.decided for record in records if isinstance(record.decided, HostAnswered)]
    assert world.driver.state.bags[1].state == "done"
    assert any(answer.cancel for answer in answers), "some replica lost"


def test_machines_are_rented_that_have_the_gpus():
    offers = [
        {"name": "plain", "price_usd": 0.1, "cores": 8, "boot": "1m"},
        {"name": "gpu", "price_usd": 1.0, "cores": 8, "boot": "1m", "resources": {"gpus": 2}},
    ]
    bag = {"name": "fit", "tasks": 8, "run": "20m", "deadline": "2h", "planner": "windfall", "resources": {"gpus": 1}}
    world, _ = run({"cloud": [{"name": "cloud", "offer": offers}], "bag": [bag]})
    state = world.driver.state
    assert state.bags[1].state == "done"
    assert {machine.offer.name for machine in state.fleet.machines.values()} == {"gpu"}


@pytest.mark.parametrize("resources", [{"gpus": 0.5}, {"gpus": "two"}, {"gpu": 1}])
def test_a_host_with_impossible_resources_is_refused(resources):
    with pytest.raises(BadInput, match="resources"):
        check({**GRID, "pool": [{**GRID["pool"][0], "resources": resources}]}, Path("test.toml"))
