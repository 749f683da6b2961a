"""The search for plans of workflows: what it keeps, what it tells, and how far seeds differ."""

from __future__ import annotations

import numpy as np
import pytest

from windfall.graph import from_edges
from windfall.planning.contract import Snapshot, Task
from windfall.planning.offers import Offer
from windfall.planning.workflow.live import FIRST_PLAN_LOOKS, WorkflowPlanner
from windfall.planning.workflow.methods import search, searches, windfall
from windfall.planning.workflow.methods.rivals import greedy
from windfall.planning.workflow.model import US, Effort, Problem, Workflow, earliest_finish, make_problem
from windfall.planning.workflow.planners import plan, publish

OFFERS = (
    Offer(name="small", cores=1, price_usd=0.050, lag_s=60.0),
    Offer(name="double", cores=2, price_usd=0.096, lag_s=60.0),
    Offer(name="wide", cores=4, speed=1.3, price_usd=0.250, lag_s=60.0),
    Offer(name="fast", cores=1, speed=2.0, price_usd=0.130, lag_s=60.0),
)


def tight(tasks: int = 40, seed: int = 5, factor: float = 1.3, reach: int = 12) -> Problem:
    """A random workflow billed by the hour, with little more time than its longest path takes."""
    chance = np.random.default_rng(seed)
    edges = sorted({(int(chance.integers(max(0, t - reach), t)), t) for t in range(1, tasks) for _ in range(2)})
    run_s = chance.lognormal(6.8, 0.8, tasks).tolist()
    flow = Workflow(
        "w", [f"t{i}" for i in range(tasks)], ["c"] * tasks, run_s, [1] * tasks, [0] * tasks, from_edges(tasks, edges)
    )
    path_s = max(flow.graph.earliest_finish([round(s / 2.0) for s in run_s]))
    return make_problem(flow, OFFERS, 60.0 + factor * path_s)


def test_a_search_keeps_the_cheapest_plan_that_it_has_met(monkeypatch):
    monkeypatch.setattr(search, "LENGTH_WEIGHT", 2.0)  # lengths mislead it: what is of least value is not cheapest
    problem = tight()
    made = search.Search(problem, greedy(problem), np.random.default_rng(1))
    met = [made.best_usd]
    remember = made._remember

    def watched():
        met.append(made._usd())
        remember()

    monkeypatch.setattr(made, "_remember", watched)
    made.run(20_000, 0.0)
    assert made.best_usd == pytest.approx(made.best.expected_usd(problem)) == pytest.approx(min(met))


def test_the_effort_says_how_much_was_tried_and_when_the_cost_fell():
    problem = tight()
    made = plan(problem, "windfall", np.random.default_rng(0), 60_000)
    effort = made.effort
    assert effort is not None and effort.allowed == 60_000 and effort.tried >= 60_000
    tried, usd = zip(*effort.better, strict=True)
    assert tried[0] == 0 and list(tried) == sorted(tried) and tried[-1] <= effort.tried
    assert list(usd) == sorted(usd, reverse=True) and usd[-1] == pytest.approx(made.expected_usd(problem))
    told = publish(problem, made)["search"]
    assert told["tried"] == effort.tried and told["better"][-1]["expected_usd"] == usd[-1]
    assert "search" not in publish(problem, greedy(problem))


def test_much_effort_is_spent_on_several_searches(monkeypatch):
    monkeypatch.setattr(searches, "LOOKS_OF_A_SEARCH", 10_000)
    problem = tight(tasks=12)
    starts = [greedy(problem)]
    counts = [
        searches.search_from(problem, starts, np.random.default_rng(0), looks)[1].searches for looks in (5_000, 30_000)
    ]
    assert counts == [2, 6]


@pytest.mark.parametrize("tasks", [2, 5, 7])
def test_a_very_small_workflow_takes_a_small_part_of_the_effort_and_gets_the_same_plan(tasks, monkeypatch):
    """Five tasks had taken 350,000 machines and seconds, although nothing cheaper was found after the first few."""
    problem = tight(tasks, seed=3, factor=1.8)
    quick = plan(problem, "windfall", np.random.default_rng(0), FIRST_PLAN_LOOKS)
    monkeypatch.setattr(searches, "FEW_TASKS", 0)
    monkeypatch.setattr(windfall, "FEW_TASKS", 0)
    thorough = plan(problem, "windfall", np.random.default_rng(0), FIRST_PLAN_LOOKS)
    assert quick.effort is not None and thorough.effort is not None
    assert quick.effort.allowed == 4_000 * tasks**2 < thorough.effort.allowed
    assert quick.expected_usd(problem) <= thorough.expected_usd(problem) + 1e-9


@pytest.mark.slow
def test_plans_of_nine_seeds_cost_two_percent_more_than_the_cheapest_of_them_at_most_on_average():
    """At the effort of a first plan. One long search a seed, which closed machines less often, left 2.7 % here."""
    loose = tight(tasks=80, seed=12, reach=30)
    problem = make_problem(loose.workflow, OFFERS, 1.2 * earliest_finish(loose) / US)
    usd = [plan(problem, "windfall", np.random.default_rng(n), FIRST_PLAN_LOOKS).cost_usd(problem) for n in range(9)]
    assert np.mean(usd) <= 1.02 * min(usd)


def test_an_effort_is_said_in_one_sentence():
    fell = Effort(tried=1200, allowed=1000, searches=2, better=((0, 2.0), (800, 1.5)))
    assert fell.said() == "tried 1,200 machines in 2 searches, the cost fell from $2.0000 to $1.5000, last after 800"
    stayed = Effort(tried=1200, allowed=1000, searches=1, better=((0, 2.0),))
    assert stayed.said() == "tried 1,200 machines in 1 search, found nothing cheaper than $2.0000"


def test_a_live_plan_says_what_its_search_took():
    tasks = {number: Task(number, 600.0, 0.1) for number in range(6)}
    snapshot = Snapshot(t=0.0, deadline_t=7200.0, tasks=tasks, machines=[], offers=OFFERS, after={5: (0, 1)})
    made = WorkflowPlanner("windfall", effort=20_000)(snapshot)
    assert any(line.startswith("the search tried ") for line in made.because)
