"""What is left of a job on a server, as a question for the simulator: bags, workflows, the whole once more."""

from __future__ import annotations

import pytest

from windfall.errors import BadInput
from windfall.planning.offers import PriceLaw
from windfall.sim.studies.forecast import earliest_s, forecast
from windfall.sim.studies.left import from_the_start, offers_in, question_left
from windfall.sim.studies.smaller import bundled
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


def test_a_job_whose_budget_is_used_up_rents_nothing_more():
    left = workflow() | {"budget_usd": 1.0, "budget_left_usd": 0.0}
    question = question_left(left, offers_in(left))
    [told] = answer(Asked(question, [7200.0], runs=1))["deadlines"]
    assert told["met"] == 0 and told["cost_usd"]["mean"] == 0.0


def test_what_has_ended_is_left_out_and_comes_back_with_the_whole():
    left = workflow(open_=(False, True, True))
    assert question_left(left, offers_in(left)).edges == ((0, 1),)
    assert question_left(workflow((False, False, True)), offers_in(left)).edges == ()
    ended = workflow((False, False, False))
    with pytest.raises(BadInput, match="nothing is left"):
        question_left(ended, offers_in(ended))
    again = from_the_start(ended)
    assert question_left(again, offers_in(again)).tasks == 3 and again["deadline_in_s"] == 7200.0


def test_prices_that_move_are_simulated_as_they_move():
    moves = {"changes_per_h": 6.0, "step": 0.2, "spread": 0.3}
    spot = OFFER | {"market": "spot", "interruptions_per_h": 0.0, "resumes_per_h": 0.0, "price_moves": moves}
    left = workflow() | {"offers": [OFFER, spot]}
    assert [supply.offer.price_moves for supply in offers_in(left)] == [None, PriceLaw(**moves)]
    told = answer(Asked(question_left(left, offers_in(left)), [7200.0], runs=1))
    assert told["deadlines"][0]["met"] == 1


def test_run_times_that_nobody_knows_are_asked_for():
    left = workflow(estimate_s=None)
    with pytest.raises(BadInput, match="nothing is known of the run times"):
        question_left(left, offers_in(left))
    assert question_left(left, offers_in(left), guess_s=30.0).estimates_s == (30.0,) * 3
    with pytest.raises(BadInput, match="too many tasks"):
        question_left(left | {"graph": None}, offers_in(left))


def test_free_hosts_do_what_they_can_and_machines_are_rented_for_the_rest():
    each = {"tasks": 24, "of": 24, "estimate_s": 600.0, "run_times_s": [], "memory_bytes": 0, "cpus": 1.0,
            "resources": {}}  # fmt: skip
    left = workflow() | {"workflow": False, "classes": [each], "graph": None}

    def cost_usd(free_slots: list[int]) -> float:
        question = question_left(left | {"free_slots": free_slots}, offers_in(left), spread=0.1)
        [made] = forecast(question, [7200.0], [1, 2], None)
        assert made.met == 2
        return made.cost_usd.mean

    alone_usd, helped_usd, free_usd = cost_usd([]), cost_usd([1, 1]), cost_usd([4] * 6)
    assert free_usd == 0.0 < helped_usd < alone_usd


def bag(tasks: int, of_server: dict[str, float]):
    each = {"tasks": tasks, "of": tasks, "estimate_s": 600.0, "run_times_s": [], "memory_bytes": 0, "cpus": 1.0,
            "resources": {}, "of_server": of_server}  # fmt: skip
    return workflow() | {"workflow": False, "classes": [each], "graph": None, "of_server": {"licence": 2.0}}


def test_no_more_machines_than_licences_let_work_are_simulated():
    def most_machines(of_server: dict[str, float]) -> int:
        left = bag(8, of_server)
        question = question_left(left, offers_in(left), spread=0.1)
        [made] = forecast(question, [4200.0], [1], None)
        assert made.met == 1
        return made.most_at_once()

    assert most_machines({"licence": 1.0}) == 2 < most_machines({})


def test_licences_put_the_earliest_deadline_off():
    free, licensed, all_of_them = (
        question_left(left, offers_in(left))
        for left in (bag(8, {}), bag(8, {"licence": 1.0}), bag(8, {"licence": 2.0}))
    )
    assert (free.of_server, licensed.of_server) == ({}, {"licence": 2.0})
    assert earliest_s(free) < earliest_s(licensed) == 60 + 8 * 600 / 2 < earliest_s(all_of_them) == 60 + 8 * 600


def test_licences_that_only_some_tasks_need_are_not_counted():
    left = bag(8, {"licence": 1.0})
    left["classes"].append(left["classes"][0] | {"of_server": {}})
    assert question_left(left, offers_in(left)).of_server == {}


def test_the_spread_that_a_job_was_told_is_known_to_its_forecast():
    left = workflow()
    question = question_left(left, offers_in(left))
    assert (question.spread, question.spread_is_guessed, question.told_spread) == (0.15, True, None)
    left["classes"][0]["spread"] = 0.4
    question = question_left(left, offers_in(left))
    assert (question.spread, question.spread_is_guessed, question.told_spread) == (0.4, False, 0.4)
    # What is only assumed in a question is not known to the planner of the job.
    assumed = question_left(left, offers_in(left), spread=0.1)
    assert (assumed.spread, assumed.told_spread) == (0.1, 0.4)
