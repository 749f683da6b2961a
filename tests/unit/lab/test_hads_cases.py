"""Which runs `windfall lab hads` makes."""

from __future__ import annotations

from windfall.lab.hads.command import all_cases
from windfall.lab.hads.report import summarise
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


def test_jobs_after_earlier_ones_are_rows_of_their_own_in_every_world():
    cases = [case for case in all_cases(SEEDS, ("windfall",), after=(1, 3)) if "after" in case]
    assert {(case["market"], case["after"]) for case in cases} == {(m, n) for m in ("", "in boot") for n in (1, 3)}
    assert len(cases) == 4 * len(JOBS) * len(SCENARIOS) * len(SEEDS)
    assert {case["market"] for case in all_cases(SEEDS, ("windfall",), True, (1,)) if "after" in case} == {"in boot"}


def test_a_summary_keeps_jobs_after_earlier_ones_apart_from_those_that_began_without():
    plain = {"job": "J553", "k_h": 1.0, "k_r": 0.0, "market": "", "planner": "windfall", "seed": 1}
    ran = {
        "finish_s": 1.0, "met": True, "hibernations": 0, "spot": 0, "on_demand": 0, "asleep_s": 0.0, "woken": 0,
        "to_idle": 0, "to_busy": 0, "to_new": 0, "stolen": 0,
    }  # fmt: skip
    quiet = [
        case | ran | {"cost_usd": 1.0} for case in all_cases(SEEDS, ("windfall",)) if not case["k_h"]
    ]  # what table 10 needs
    rows = [plain | ran | {"cost_usd": 1.0}, plain | ran | {"cost_usd": 3.0, "after": 2}]
    summary = summarise([*quiet, *rows])
    costs = {row["planner"]: row["cost_usd"] for row in summary["table_11"]}
    assert costs == {"windfall": 1.0, "windfall (after 2 earlier jobs)": 3.0}
    assert [row["cost_usd"] for row in summary["figure_6"]] == [1.0]
