"""A short stream of workflows in a fleet, through the engine: bills, deadlines, the bound, a lab run broken off."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from windfall.lab.scs.cell import one_case, scenario_of
from windfall.lab.scs.command import all_cases, command
from windfall.lab.scs.load import APPLICATIONS, HOURS, PATTERNS, rate, world_of_times
from windfall.lab.scs.report import PLAIN, PLANNERS
from windfall.planning.fleet.bound import least_usd
from windfall.planning.workflow.methods.assign import share_cost
from windfall.planning.workflow.model import make_problem


def case(planner, application="hybrid", deadline_h=1.0, hours=2.0, **more):
    one = {"application": application, "pattern": "stable", "deadline_h": deadline_h, "set": 0, "hours": hours}
    return PLAIN | one | {"planner": planner} | more


@pytest.mark.parametrize("planner", PLANNERS)
def test_every_deadline_holds_when_estimates_are_exact(planner):
    outcome = one_case(case(planner))
    assert outcome["jobs"] > 10
    assert outcome["met"] == outcome["jobs"]
    assert 0 < outcome["utilisation"] <= 1
    assert outcome["bound_usd"] < outcome["cost_usd"]


@pytest.mark.slow
def test_windfall_costs_less_than_scs_and_keeps_what_it_keeps():
    sums = {"scs": 0.0, "windfall": 0.0}
    for application, deadline_h in (("pipeline", 0.5), ("hybrid", 1.0)):
        found = {planner: one_case(case(planner, application, deadline_h, hours=3.0)) for planner in sums}
        assert set(found["windfall"]["late"]) <= set(found["scs"]["late"])
        for planner, outcome in found.items():
            sums[planner] += outcome["cost_usd"]
    assert sums["windfall"] < 0.9 * sums["scs"]


def test_a_case_is_a_pure_function_of_its_description():
    described = case("windfall", hours=1.0, run_error=0.2, boot_error=0.2)
    assert one_case(described) == one_case(described)


def test_planners_are_told_the_usual_boot_when_boots_take_longer():
    (cloud,) = scenario_of(case("scs", boot_bias=0.2)).clouds
    assert {supply.offer.lag_s for supply in cloud.supplies} == {390.0}
    assert {supply.boot.quantile()(0.5) for supply in cloud.supplies} == {468.0}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_brings_the_same_average_load(pattern):
    hours = np.linspace(0, HOURS, 72_001)
    assert np.mean([rate(pattern, hour) for hour in hours]) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("application", APPLICATIONS)
def test_every_set_of_times_leaves_the_shortest_deadline_possible(application):
    for number in range(20):
        workflow, offers = world_of_times(application, number)
        problem = make_problem(workflow, offers, 1800.0)
        fastest = [min(row[task] for row in problem.duration) for task in range(problem.n)]
        assert max(workflow.graph.earliest_finish(fastest)) / 1e6 + offers[0].lag_s < 1800.0


@pytest.mark.parametrize("application", APPLICATIONS)
def test_the_bound_falls_with_the_deadline_to_the_cheapest_types(application):
    workflow, offers = world_of_times(application, 3)
    bounds = [least_usd(make_problem(workflow, offers, hours * 3600)) for hours in (0.3, 0.5, 1.0, 2.0, 100.0)]
    assert bounds == sorted(bounds, reverse=True)
    problem = make_problem(workflow, offers, 100 * 3600.0)
    cheapest = sum(min(share_cost(problem, task, o) for o in range(len(offers))) for task in range(problem.n))
    assert bounds[-1] == pytest.approx(cheapest)


@pytest.mark.slow
def test_a_run_broken_off_goes_on_where_it_stopped(tmp_path):
    arguments = ["--sets", "1", "--hours", "0.2", "--out", str(tmp_path), "--json", "--jobs", "1"]
    first = CliRunner().invoke(command, arguments)
    assert first.exit_code == 0, first.output
    store = tmp_path / "scs" / "cases.ndjson"
    lines = store.read_text().splitlines()
    assert len(lines) == len(list(all_cases([0], 0.2)))
    store.write_text("\n".join(lines[:-20]) + '\n{"case": {"tor')
    second = CliRunner().invoke(command, arguments)
    cells = [json.loads(result.stdout)["cells"] for result in (first, second)]
    assert cells[0] == cells[1]
    assert (tmp_path / "scs" / "figure8.png").exists()
    assert "How the worlds were chosen" in (tmp_path / "scs" / "scs.md").read_text()
