"""Which plan a run of a workflow begins with, and what played runs say of it."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from windfall.graph import from_edges
from windfall.planning.offers import Offer
from windfall.planning.workflow import choice
from windfall.planning.workflow.live import first_plan, reviewed
from windfall.planning.workflow.model import Workflow, make_problem
from windfall.planning.workflow.rollouts import Bills, bills
from windfall.planning.workflow.seats import in_best_order

SURE = Offer(name="sure", price_usd=0.1, cores=1, cycle_s=60.0, lag_s=60.0)
SPOT = replace(SURE, name="spot", market="spot", price_usd=0.02, interruptions_per_h=1.0)


def problem_of(rate: float, deadline_s: float = 9000.0, tasks: int = 3):
    """A chain of tasks of ten minutes."""
    flow = Workflow(
        name="chain", ids=[str(task) for task in range(tasks)], classes=[""] * tasks, runtime_s=[600.0] * tasks,
        cores=[1] * tasks, memory_bytes=[0] * tasks, graph=from_edges(tasks, [(k, k + 1) for k in range(tasks - 1)]),
    )  # fmt: skip
    return make_problem(flow, (SURE, replace(SPOT, interruptions_per_h=rate)), deadline_s)


def played(problem, runs: int = 200):
    made, _ = first_plan(problem, "windfall", np.random.default_rng(0), 3000)
    snapshot = choice._snapshot(problem)
    seats = choice.seats_of(problem, made, problem.offers, range(problem.n), 0.0)
    rng = np.random.default_rng(1)
    found = bills(snapshot, in_best_order(snapshot, seats), lambda now: reviewed(now)[0], runs, rng)
    return made.cost_usd(problem), found


def test_played_runs_without_losses_cost_what_the_plan_says():
    plan_usd, found = played(problem_of(rate=0.0), runs=2)
    assert (found.late, found.usd) == (0, pytest.approx(plan_usd))


def test_played_runs_count_every_loss_and_are_in_time():
    problem = problem_of(rate=1.0)
    plan_usd, found = played(problem)
    # A half hour of work at one loss an hour: 0.5 losses, each of which repeats some minutes and another boot.
    assert found.late == 0 and 1.1 * plan_usd < found.usd < 2.0 * plan_usd


def test_the_last_cycle_of_a_lost_machine_is_free_in_played_runs_as_on_the_bill():
    # Lost in their first hour, machines cost nothing; what runs again is billed by the hour, on spot or on demand.
    problem = problem_of(rate=0.5, deadline_s=20_000.0)
    hourly = tuple(replace(offer, cycle_s=3600.0) for offer in problem.offers)
    billed = tuple(replace(offer, free_if_taken=False) for offer in hourly)
    free_usd, all_usd = (played(make_problem(problem.workflow, offers, 20_000.0))[1].usd for offers in (hourly, billed))
    assert free_usd < all_usd


def test_the_plan_whose_played_runs_cost_least_is_chosen_and_says_so(monkeypatch):
    problem = problem_of(rate=1.0)

    def judged(problem, made, reviewed, runs, rng):
        on_spot = any(problem.offers[lease.offer].market == "spot" for lease in made.leases)
        return Bills(0.0, 9.0 if on_spot else 4.0, runs)

    monkeypatch.setattr(choice, "_played", judged)
    made, why = first_plan(problem, "windfall", np.random.default_rng(0), 3000)
    assert {problem.offers[lease.offer].name for lease in made.leases} == {"sure"}
    assert why == "with losses it costs $4.0000 on average in played runs, another plan $9.0000"


def test_a_plan_that_is_never_late_goes_before_a_cheaper_one():
    assert Bills(0.0, 2.0, 6) < Bills(0.1, 1.0, 6) < Bills(0.1, 1.5, 6)


def test_more_runs_count_by_their_number():
    both = Bills(0.5, 1.0, 2) + Bills(0.0, 4.0, 4)
    assert (both.late, both.usd, both.runs) == (pytest.approx(1 / 6), pytest.approx(3.0), 6)


def test_where_nothing_can_be_lost_there_is_nothing_to_play(monkeypatch):
    monkeypatch.setattr(choice, "_played", None)
    assert first_plan(problem_of(rate=0.0), "windfall", np.random.default_rng(0), 3000)[1] == ""
