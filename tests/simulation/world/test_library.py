"""The ready scenarios, made small: they end; those that rent machines in time, with the planner that they name."""

from __future__ import annotations

import pytest

from windfall.lab.data import root
from windfall.sim.run import run
from windfall.sim.scenario import load_document, read

SMALL = {
    "spot": ["bag.tasks=25", "bag.deadline=4h"],
    "spot-law": ["bag.tasks=25", "bag.deadline=4h"],
    "mixed": ["bag.tasks=200", "bag.deadline=90m", "pool.*.hosts=2"],
    "workflows": ["bag.*.copies=1"],
}


@pytest.mark.parametrize("name", SMALL)
def test_a_ready_scenario_that_rents_machines_ends_in_time_and_its_bill_is_the_sum_of_its_offers(name):
    if "data:" in str(load_document(name)[0]) and root() is None:
        pytest.skip("its trace is not here: set WINDFALL_DATA")
    outcome, _ = run(read(name, SMALL[name], root()), 1)
    assert outcome.finished and outcome.met
    assert outcome.cost_usd > 0
    assert outcome.cost_usd == pytest.approx(sum(offer.cost_usd for offer in outcome.offers))
    assert outcome.cost_usd == pytest.approx(sum(bag.cost_usd for bag in outcome.bags))


@pytest.mark.parametrize(
    ("name", "changes"),
    [("demand", ["bag.tasks=100", "pool.hosts=20"]), ("owners", ["bag.tasks=60", "site.hosts=6", "site.every=30m"])],
)
def test_a_ready_scenario_that_asks_for_workers_ends_with_every_task_done(name, changes):
    outcome, _ = run(read(name, changes), 1)
    assert outcome.finished and outcome.bags[0].done == outcome.bags[0].tasks


def test_clients_of_gridbots_world_hold_no_connection_while_they_wait():
    assert [pool.name for pool in read("volunteers").pools if pool.long_poll] == []
