"""Which runs `windfall lab hads` makes."""

from __future__ import annotations

from windfall.lab.hads.command import all_cases
from windfall.lab.hads.world import DEADLINE_S, JOBS, SCENARIOS, supplies
from windfall.planning.contract import SPOT

SEEDS = range(500_000, 500_003)


def test_every_planner_meets_the_same_worlds_where_machines_hibernate_while_they_boot():
    cases = [case for case in all_cases(SEEDS, ("windfall", "hads"), in_boot=True) if case["k_h"]]
    worlds: dict[tuple[str, str], set] = {}
    for case in cases:
        worlds.setdefault((case["planner"], case["market"]), set()).add(
            (case["job"], case["k_h"], case["k_r"], case["seed"])
        )
    assert set(worlds) == {("windfall", "in boot"), ("hads", "in boot"), ("windfall", "in boot, known")}
    assert len({frozenset(found) for found in worlds.values()}) == 1
    assert len(cases) == 3 * len(JOBS) * len(SCENARIOS) * len(SEEDS)


def test_the_usual_runs_begin_at_the_first_seed_too():
    seeds = {case["seed"] for case in all_cases(SEEDS, ("windfall", "hads-as-printed")) if case["k_h"]}
    assert seeds == set(SEEDS)


def test_rates_that_are_told_are_those_of_the_market_while_machines_boot():
    spot = [each for each in supplies(5.0, 2.5, in_boot=True, known=True) if each.offer.market == SPOT]
    assert spot and all(each.interruptions_per_h == each.offer.interruptions_per_h for each in spot)
    assert spot[0].interruptions_per_h == 3600.0 * 5.0 / DEADLINE_S
