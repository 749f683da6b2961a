"""Random worlds for calibration: what they hold, and how promises are judged."""

from __future__ import annotations

import msgspec
import pytest

from windfall.sim.studies import random_worlds
from windfall.sim.studies.forecast import Forecast, Run
from windfall.sim.studies.random_worlds import (
    BAG,
    GROUPS,
    NOT_TOLD,
    TOLD,
    WORKFLOW,
    WRONG,
    WorldResult,
    by_class,
    by_group,
    judge_worlds,
    world_of,
)  # fmt: skip


def rates(question):
    spot = question.supplies[0]
    return spot.offer.interruptions_per_h, spot.interruptions_per_h


def test_a_number_gives_one_world_and_many_numbers_give_all_kinds():
    assert world_of(7) == world_of(7)
    worlds = [world_of(number) for number in range(120)]
    assert {world.group for world in worlds} == set(GROUPS)
    assert {world.truth.supplies[0].offer.when_taken for world in worlds} == {"terminate", "stop", "hibernate"}
    assert {world.truth.spread for world in worlds} == {0.0, 0.3, 0.5, 1.0}
    assert any(world.told.budget_usd for world in worlds) and not all(world.told.budget_usd for world in worlds)
    assert {world.kind for world in worlds} == {BAG, WORKFLOW}
    assert any(world.told.free_slots for world in worlds)


@pytest.mark.parametrize(("shown", "inside"), [((50.0, None), True), ((50.0, 60.0), False)])
def test_a_job_that_never_ends_lies_inside_where_the_forecast_has_shown_such_runs(shown, inside, monkeypatch):
    monkeypatch.setattr(random_worlds, "_true_run", lambda world, encoded, seed: (1.0, None, False, []))
    runs = tuple(Run(0, 1.0, end_s, False, (), 0, 0, 1, None, "") for end_s in shown)
    assert random_worlds._judged(world_of(7), Forecast(100.0, runs), b"", 0).finish_inside is inside


def test_only_worlds_that_are_marked_differ_from_what_was_told():
    for world in map(world_of, range(60)):
        told, true = rates(world.truth)
        assert rates(world.told)[0] == told, "planners are told the same offer in forecasts and in truth"
        if world.group == TOLD:
            assert told == true
        elif world.group == NOT_TOLD:
            assert told is None
        else:
            assert true / told == pytest.approx(3.0) or true / told == pytest.approx(1 / 3)
        leaves = world.group == WRONG and bool(world.told.free_slots)
        assert (world.told.free_stay_s, world.truth.free_stay_s is not None) == (None, leaves)


def test_tasks_of_a_workflow_wait_for_two_of_the_layer_before():
    world = next(world for world in map(world_of, range(60)) if world.kind == WORKFLOW)
    tasks, edges = world.told.tasks, world.told.edges
    parents = [[parent for parent, child in edges if child == task] for task in range(tasks)]
    roots = sum(not each for each in parents)
    assert 0 < roots < tasks and tasks % roots == 0
    assert all(
        len(each) == 2 and {parent // roots for parent in each} == {task // roots - 1}
        for task, each in enumerate(parents)
        if each
    )


def result(met, named=0.9, group=WRONG, number=1):
    return WorldResult(number, group, 0.9, 1.0, named, met, True, False, 0.8, 1.0, None)


def test_as_many_must_be_in_time_as_were_named_within_two_standard_errors():
    few, most = ([result(place < met, number=place) for place in range(100)] for met in (80, 86))
    assert not by_group(few, 10)[0].is_kept and by_group(most, 10)[0].is_kept
    (row,) = by_group(most, 10)
    assert (row.met, row.named, row.cost_inside, row.finish_inside) == (86, pytest.approx(90.0), 100, 0)
    assert row.first == 1.0 and row.tenth is None
    assert (row.worlds, row.jobs, row.first_plan.near, row.tenth_plan) == (100, 100, 100, None)


def test_jobs_of_one_world_share_the_error_of_its_forecast():
    apart = [result(True, number=place) for place in range(40)]
    together = [result(True, number=place // 4) for place in range(40)]
    assert by_group(apart, 10)[0].error == pytest.approx((40 * 0.09 * 1.1) ** 0.5)
    assert by_group(together, 10)[0].error == pytest.approx((40 * 0.09 * 1.4) ** 0.5)
    assert (by_group(together, 10)[0].worlds, by_group(together, 10)[0].jobs) == (10, 40)


def test_a_world_is_a_row_of_each_of_its_classes():
    world = world_of(7)
    rows = by_class([result(True, number=7), result(False, number=7)], 10)
    assert [row.group for row in rows] == sorted(world.classes)
    assert all((row.jobs, row.met) == (2, 1) for row in rows)
    every = {name for number in range(200) for name in world_of(number).classes}
    assert {"hibernate", "stop", "terminate", "budget", "free hosts", "free hosts that leave"} <= every
    tails = ("exact", "light", "heavy")
    assert {f"run times {tail}, spread told" for tail in tails} <= every
    assert {f"spread not told, in truth {tail}" for tail in tails} | {"spread not told"} <= every


def test_worlds_are_forecast_and_run():
    found = judge_worlds([1, 2], 2, None)
    assert [each.number for each in found] == [1, 2]
    assert all(0.0 <= each.said <= 1.0 and each.named <= each.confidence for each in found)
    assert found == judge_worlds([1, 2], 2, None), "the same numbers give the same results"
    more = judge_worlds([1, 2], 2, None, true_runs=2)
    assert [each.number for each in more] == [1, 1, 2, 2]
    assert more[::2] == found, "the first true run is the same"
    assert all(each.first_in_time is not None for each in more)
    assert msgspec.to_builtins(found[0])["interval"] == pytest.approx(1 / 3)
