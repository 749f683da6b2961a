"""Workflows of independent parts are planned part by part, and the plan of all of them is valid."""

from __future__ import annotations

import numpy as np
import pytest

from windfall.graph import from_edges
from windfall.planning.offers import Offer
from windfall.planning.workflow.check import faults
from windfall.planning.workflow.methods import parts, windfall
from windfall.planning.workflow.model import Workflow, make_problem
from windfall.planning.workflow.planners import plan, publish

SLOW = Offer(name="slow", cores=2, price_usd=0.1, cycle_s=600.0, lag_s=30.0)
FAST = Offer(name="fast", cores=4, speed=1.5, price_usd=0.4, cycle_s=600.0, lag_s=30.0)
SPOT = Offer(name="spot", cores=2, price_usd=0.03, cycle_s=600.0, lag_s=30.0, market="spot", interruptions_per_h=1.0)


def diamonds(count: int, runtimes) -> Workflow:
    """`count` workflows of four tasks side by side."""
    edges = [(4 * k + a, 4 * k + b) for k in range(count) for a, b in ((0, 1), (0, 2), (1, 3), (2, 3))]
    n = 4 * count
    names = [f"t{i}" for i in range(n)]
    return Workflow("w", names, ["c"] * n, [runtimes(i) for i in range(n)], [1] * n, [0] * n, from_edges(n, edges))


def test_parts_are_the_components_and_small_ones_share_one():
    problem = make_problem(diamonds(5, lambda i: 60.0), (SLOW,), 3600.0)
    assert parts.split(problem, 200) == [list(range(20))]
    assert parts.split(problem, 8) == [list(range(8)), list(range(8, 16)), list(range(16, 20))]
    part = parts.restricted(problem, range(8, 16))
    assert part.n == 8 and part.workflow.graph.parent_rows()[3] == [1, 2]
    assert part.exposure.chance.shape == (1, 8)


@pytest.mark.parametrize("offers", [(SLOW, FAST), (SLOW, FAST, SPOT)])
def test_a_large_workflow_of_many_parts_is_planned_part_by_part_and_valid(monkeypatch, offers):
    monkeypatch.setattr(windfall, "MAX_TASKS_ANNEALED", 50)
    monkeypatch.setattr(windfall, "MIN_PART_TASKS", 12)
    rng = np.random.default_rng(3)
    flow = diamonds(30, lambda i: float(rng.uniform(30.0, 300.0)))
    problem = make_problem(flow, offers, 2400.0)
    made = plan(problem, "windfall", np.random.default_rng(0), looks=60_000)
    assert made.kept(problem)
    assert faults(publish(problem, made), flow, offers, 2400.0) == []
    monkeypatch.setattr(windfall, "MAX_TASKS_ANNEALED", 5_000)
    together = plan(problem, "windfall", np.random.default_rng(0), looks=60_000)
    assert made.expected_usd(problem) <= 1.3 * together.expected_usd(problem)


def test_equal_parts_are_planned_once():
    problem = make_problem(diamonds(6, lambda i: 60.0 + i % 4), (SLOW,), 3600.0)
    planned = []

    def once(part, share):
        planned.append(share)
        return windfall.windfall(part, np.random.default_rng(0), 2_000)

    made = parts.planned_by_parts(problem, parts.split(problem, 4), once)
    assert made is not None and len(planned) == 1 and planned[0] == pytest.approx(1 / 6)
    assert faults(publish(problem, made), problem.workflow, (SLOW,), 3600.0) == []


def test_parts_that_need_more_machines_than_there_are_are_planned_together(monkeypatch):
    monkeypatch.setattr(windfall, "MIN_PART_TASKS", 4)
    monkeypatch.setattr(windfall, "MAX_TASKS_ANNEALED", 8)
    few = Offer(name="few", cores=2, price_usd=0.1, cycle_s=600.0, lag_s=30.0, limit=2)
    flow = diamonds(6, lambda i: 60.0)
    problem = make_problem(flow, (few,), 3600.0)
    none = parts.planned_by_parts(
        problem, parts.split(problem, 4), lambda part, share: windfall.windfall(part, np.random.default_rng(0), 2_000)
    )
    assert none is None
    made = plan(problem, "windfall", np.random.default_rng(0), looks=20_000)
    assert faults(publish(problem, made), flow, (few,), 3600.0) == [] and len(made.leases) <= 2


@pytest.mark.parametrize("most_annealed", [8, 3_000])
def test_the_whole_is_never_dearer_than_its_parts_planned_one_by_one(monkeypatch, most_annealed):
    monkeypatch.setattr(windfall, "MAX_TASKS_ANNEALED", most_annealed)
    monkeypatch.setattr(windfall, "MIN_PART_TASKS", 8)
    rng = np.random.default_rng(5)
    problem = make_problem(diamonds(4, lambda i: float(rng.uniform(60.0, 900.0))), (SLOW, FAST), 2700.0)
    by_parts = []

    def noted(*given):
        by_parts.append(parts.planned_by_parts(*given))
        return by_parts[-1]

    monkeypatch.setattr(windfall, "planned_by_parts", noted)
    made = plan(problem, "windfall", np.random.default_rng(0), looks=3_000)
    assert len(by_parts) == 1 and by_parts[0].kept(problem)
    assert made.expected_usd(problem) <= by_parts[0].expected_usd(problem) + 1e-9


@pytest.mark.parametrize(("deadline_s", "soonest"), [(20_000.0, 0), (700.0, 1)])
def test_a_very_large_workflow_is_constructed_in_few_ways_unless_none_is_in_time(monkeypatch, deadline_s, soonest):
    monkeypatch.setattr(windfall, "MAX_TASKS_ALL_PLANNERS", 8)
    asked, real = [], windfall._soonest

    def counted(problem):
        asked.append(problem.n)
        return real(problem)

    monkeypatch.setattr(windfall, "_soonest", counted)
    problem = make_problem(diamonds(1, lambda i: 300.0), (SLOW,), deadline_s)
    chain = make_problem(
        Workflow("w", [f"t{i}" for i in range(9)], ["c"] * 9, [300.0] * 9, [1] * 9, [0] * 9,
                 from_edges(9, [(i, i + 1) for i in range(8)])), (SLOW,), deadline_s,
    )  # fmt: skip
    plan(chain, "windfall", np.random.default_rng(0), looks=1_000)
    assert len(asked) == soonest, "a plan that keeps the deadline is enough"
    plan(problem, "windfall", np.random.default_rng(0), looks=1_000)
    assert len(asked) == soonest + 1, "small ones are constructed in every way"
