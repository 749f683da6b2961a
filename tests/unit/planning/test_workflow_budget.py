"""Workflows with a budget: enough, too little, or instead of a deadline; and what the command says then."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from windfall.cli.plan.command import plan as command
from windfall.errors import BadInput, Missed
from windfall.graph import from_edges
from windfall.planning.offers import Offer
from windfall.planning.workflow.budget import soonest_within
from windfall.planning.workflow.model import US, Workflow, make_problem
from windfall.planning.workflow.planners import plan

ROOT = Path(__file__).resolve().parents[3]
FIT = ["--workflow", str(ROOT / "examples/workflows/fit.toml"), "--offers", str(ROOT / "examples/offers.toml")]
SLOW = Offer(name="slow", price_usd=1.0, cycle_s=60.0)
FAST = Offer(name="fast", speed=2.0, price_usd=3.0, cycle_s=60.0)


def call(*arguments):
    return CliRunner().invoke(command, [*FIT, *arguments])


def found(budget_usd):
    names = ["a", "b", "c", "d"]
    flow = Workflow("fan", names, names, [600.0] * 4, [1] * 4, [0] * 4, from_edges(4, [(0, 1), (0, 2), (0, 3)]))
    return soonest_within(
        budget_usd,
        lambda deadline_s: make_problem(flow, (SLOW, FAST), deadline_s),
        lambda problem: plan(problem, "windfall", np.random.default_rng(0), looks=5_000),
    )


def test_more_money_never_means_a_later_end():
    ends = []
    for budget_usd in (40.0, 45.0, 60.0, 1000.0):
        problem, made = found(budget_usd)
        assert made.cost_usd(problem) <= budget_usd
        ends.append(made.makespan / US)
    assert ends == sorted(ends, reverse=True)
    assert ends[0] <= 1300
    assert ends[-1] <= 600 * 1.05


def test_too_little_money_gives_the_cheapest_plan():
    problem, made = found(1.0)
    assert made.cost_usd(problem) == pytest.approx(40.0)


def test_a_budget_that_is_enough_is_said_to_be():
    document = json.loads(call("--deadline", "2h", "--budget", "1", "--planner", "prolis", "--json").stdout)
    assert document["within_budget"] is True
    assert document["bound_usd"] <= document["cost_usd"] <= document["budget_usd"] == 1.0


def test_a_budget_that_is_not_enough_names_the_least_cost_and_the_deadline_it_would_do_for():
    result = call("--deadline", "20m", "--budget", "0.4", "--planner", "prolis")
    assert isinstance(result.exception, Missed)
    assert result.exception.exit_code == 4
    assert "least cost found" in result.exception.message
    assert 1200 < int(result.exception.hint.rsplit("--deadline ", 1)[1].rstrip("s")) < 7200


def test_a_budget_below_every_bound_says_that_nothing_helps():
    result = call("--deadline", "2h", "--budget", "0.01", "--planner", "prolis")
    assert isinstance(result.exception, Missed)
    assert "no plan whatever" in result.exception.hint


def test_a_budget_alone_asks_for_the_earliest_finish_it_pays():
    ends = [json.loads(call("--budget", budget, "--json").stdout)["makespan_s"] for budget in ("0.20", "2")]
    assert ends[1] < ends[0]


def test_failures_go_with_workflows_only_and_appear_in_the_risk():
    document = json.loads(call("--deadline", "2h", "--failures", "0.01", "--planner", "prolis", "--json").stdout)
    assert document["risk"]["losses_expected"] == pytest.approx(0.14)
    result = CliRunner().invoke(command, ["job.toml", "--deadline", "2h", "--failures", "0.01"])
    assert isinstance(result.exception, BadInput)
