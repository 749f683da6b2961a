"""A short stream of workflows in a fleet, through the engine: bills, deadlines, the bound, a lab run broken off."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from windfall.lab.scs.cell import one_case, scenario_of
from windfall.lab.scs.command import all_cases, command, figures_of
from windfall.lab.scs.load import APPLICATIONS, HOURS, PATTERNS, rate, world_of_times
from windfall.lab.scs.report import PLAIN, PLANNERS, draw, markdown, summarise
from windfall.planning.fleet.bound import least_usd
from windfall.planning.workflow.methods.assign import share_cost
from windfall.planning.workflow.model import make_problem


def case(planner, application="hybrid", deadline_h=1.0, hours=2.0, **more):
    one = {"application": application, "pattern": "stable", "deadline_h": deadline_h, "set": 0, "hours": hours}
    return PLAIN | one | {"planner": planner} | more


@pytest.mark.parametrize("planner", PLANNERS)
def test_every_deadline_holds_when_estimates_are_exact(planner):
    outcome = one_case(case(planner))
    assert not set(outcome) & set(case(planner))  # the report joins both
    assert outcome["jobs"] > 10
    assert outcome["met"] == outcome["jobs"]
    assert 0 < outcome["utilisation"] <= 1
    assert outcome["bound_usd"] < outcome["cost_usd"]
    paid, worked = (sum(row[at] for row in outcome["types"].values()) for at in (0, 1))
    assert paid == pytest.approx(outcome["cost_usd"]) and 0 < worked < paid


@pytest.mark.slow
def test_scs_and_windfall_cost_less_than_greedy_and_gain_and_windfall_keeps_what_scs_keeps():
    for application, deadline_h in (("pipeline", 0.5), ("hybrid", 1.0)):
        found = {planner: one_case(case(planner, application, deadline_h, hours=3.0)) for planner in PLANNERS}
        assert set(found["windfall"]["late"]) <= set(found["scs"]["late"])
        usd = {planner: outcome["cost_usd"] for planner, outcome in found.items()}
        assert max(usd["scs"], usd["windfall"]) < min(usd["greedy"], usd["gain"])


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


def test_the_report_shows_every_cell_and_each_statement_of_the_paper(tmp_path):
    rows = []
    for number, one in enumerate(all_cases([0], 12.0)):
        cost = 10.0 + number % 7 + {"scs": 0, "greedy": 3, "gain": 5, "windfall": -2}[one["planner"]]
        late = [3] if one["planner"] == "windfall" and number == 3 else []
        result = {"cost_usd": cost, "bound_usd": 5.0, "jobs": 9, "met": 9 - len(late), "late": late, "tight": 1}
        rows.append(one | result | {"utilisation": 0.5})
    overhead = [{"jobs": jobs, "loop_s": jobs / 1e6} for jobs in (10, 100)]
    summary = summarise(rows, overhead)
    assert len(summary["cells"]) == 48 and summary["lost"] == 1
    text = markdown(summary)
    assert "How the worlds were chosen" in text and "not the cheapest of the three" in text
    assert text.count("| hybrid |") == 16
    draw(summary, tmp_path)
    assert {path.stem for path in tmp_path.glob("*.svg")} == {f"figure{number}" for number in range(8, 15)}


def test_the_report_shows_what_scs_pays_for_idle_types_where_a_rival_is_cheaper():
    usd = {"scs": 9.0, "greedy": 8.0, "gain": 10.0, "windfall": 7.0}
    types = {"scs": {"micro": [1.0, 0.75], "high-cpu": [8.0, 2.0]}, "greedy": {"micro": [8.0, 5.0]}}
    result = {"bound_usd": 5.0, "jobs": 9, "met": 9, "late": [], "tight": 1, "utilisation": 0.5}
    rows = [
        one | result | {"cost_usd": usd[one["planner"]], "types": types.get(one["planner"], {})}
        for one in list(all_cases([0], 12.0))[:4]
    ]
    text = markdown(summarise(rows, []))
    assert "| 2.75 | 6.25 (high-cpu 6.00, micro 0.25) | greedy | 5.00 | 3.00 (micro 3.00) |" in text


def test_a_report_of_some_runs_leaves_out_what_is_missing_and_says_so(tmp_path):
    wanted = list(all_cases([0], 12.0))
    result = {"cost_usd": 10.0, "bound_usd": 5.0, "jobs": 9, "met": 9, "late": [], "tight": 1, "utilisation": 0.5}
    summary = summarise([one | result for one in wanted[:6]], [], len(wanted))
    assert len(summary["cells"]) == 1  # of the second cell two planners are there
    text = markdown(summary)
    assert "Not all runs are there: 6 of 272" in text
    assert "| overhead linear up to 100,000 jobs | not run | not run |" in text and "nan" not in text
    draw(summary, tmp_path)
    assert "Not all runs" in markdown(summarise([], [], len(wanted)))


def test_a_figure_needs_the_runs_that_it_draws():
    counts = {n: sum(n in figures_of(one) for one in all_cases([0], 12.0)) for n in range(8, 14)}
    assert counts == {8: 64, 9: 64, 10: 64, 11: 48, 12: 32, 13: 48}
    high = [one for one in all_cases([0], 12.0) if one["volume"] == 10.0]
    assert len(high) == 16 and {one["hours"] for one in high} == {2.0}


def test_a_run_without_jobs_costs_nothing_and_is_reported():
    rows = [
        one | {"cost_usd": 0.0, "bound_usd": 0.0, "jobs": 0, "met": 0, "late": [], "tight": 0, "utilisation": 0.0}
        for one in all_cases([0], 0.1)
    ]
    assert "| pipeline |" in markdown(summarise(rows, [{"jobs": 10, "loop_s": 0.1}]))


def test_the_command_names_its_options():
    shown = CliRunner().invoke(command, ["--help"])
    assert shown.exit_code == 0 and "--first-set" in shown.output
