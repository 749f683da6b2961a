"""What is left of a job on a server, as a question for the simulator: bags, workflows, the whole once more."""

from __future__ import annotations

import pytest

from windfall.errors import BadInput
from windfall.sim.studies.forecast import bundled, earliest_s
from windfall.sim.studies.left import from_the_start, offers_in, question_left
from windfall.sim.studies.what_if import Asked, answer

OFFER = {"name": "small", "pool": "cloud", "cores": 1, "price_usd": 0.1, "cycle_s": 3600.0, "lag_s": 60.0, "limit": 4}


def workflow(open_=(True, True, True), estimate_s=600.0):
    tasks = [
        {"class": 0, "estimate_s": estimate_s, "cpus": 1.0, "memory_bytes": 0, "open": is_open} for is_open in open_
    ]
    classes = [
        {"tasks": sum(open_), "of": 3, "estimate_s": estimate_s, "run_times_s": [], "memory_bytes": 0, "cpus": 1.0,
         "resources": {}}
    ]  # fmt: skip
    return {
        "job": 7, "name": "nightly", "workflow": True, "planner": "", "confidence": 0.95, "deadline_in_s": 3600.0,
        "deadline_s": 7200.0, "budget_usd": None, "budget_left_usd": None, "machines": 1, "classes": classes,
        "offers": [OFFER], "graph": {"tasks": tasks, "edges": [[0, 1], [1, 2]]},
    }  # fmt: skip


def test_a_chain_of_tasks_is_simulated_as_a_chain():
    left = workflow()
    question = question_left(left, offers_in(left))
    assert question.edges == ((0, 1), (1, 2)) and bundled(question, 1e6) == (question, 1)
    assert earliest_s(question) == 1860  # three tasks behind each other and a boot, however many machines there are
    told = answer(Asked(question, [900.0, 7200.0], runs=1))
    impossible, possible = told["deadlines"]
    assert not impossible["possible"] and possible["met"] == possible["runs"] == 1
    assert possible["cost_usd"]["mean"] == pytest.approx(0.1) and possible["finish_s"]["low"] >= 1200


def test_what_has_ended_is_left_out_and_comes_back_with_the_whole():
    left = workflow(open_=(False, True, True))
    assert question_left(left, offers_in(left)).edges == ((0, 1),)
    assert question_left(workflow((False, False, True)), offers_in(left)).edges == ()
    ended = workflow((False, False, False))
    with pytest.raises(BadInput, match="nothing is left"):
        question_left(ended, offers_in(ended))
    again = from_the_start(ended)
    assert question_left(again, offers_in(again)).tasks == 3 and again["deadline_in_s"] == 7200.0


def test_run_times_that_nobody_knows_are_asked_for():
    left = workflow(estimate_s=None)
    with pytest.raises(BadInput, match="nothing is known of the run times"):
        question_left(left, offers_in(left))
    assert question_left(left, offers_in(left), guess_s=30.0).estimates_s == (30.0,) * 3
    with pytest.raises(BadInput, match="too many tasks"):
        question_left(left | {"graph": None}, offers_in(left))
