"""Long tasks that checkpoint, planned one by one: which bags these are, and what a plan does with their machines."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from windfall.planning.bags.serial import plan_serial
from windfall.planning.bags.windfall import Windfall
from windfall.planning.contract import Machine, Market, Phase, Running, Snapshot, Task
from windfall.planning.counts import SpellCounts
from windfall.planning.offers import Offer
from windfall.planning.spot.law import LEARNING, PRIOR
from windfall.planning.spot.market import Terms, begin
from windfall.planning.spot.sight import Watcher
from windfall.planning.spot.windfall import grid_of, plan_at

HOUR_S = 3600.0
SPOT = Offer(name="spot", pool="cloud", market="spot", price_usd=1 / 60, cycle_s=60.0, lag_s=300.0, limit=8)
SURE = Offer(name="sure", pool="cloud", price_usd=3 / 60, cycle_s=60.0, lag_s=300.0, limit=8)
TASK = Task(0, 10 * HOUR_S, checkpoint_mb=10.0, save_every_s=HOUR_S)


def snapshot(count: int = 1, **rest: Any) -> Snapshot:
    given: dict[str, Any] = {"t": 0.0, "deadline_t": 14 * HOUR_S, "machines": (), "offers": (SPOT, SURE)} | rest
    given.setdefault("tasks", {number: replace(TASK, id=number) for number in range(count)})
    return Snapshot(**given, total=count)


def machine(number: int, offer: Offer, task: int | None = 0, **rest: Any) -> Machine:
    running = () if task is None else (Running(task, 8 * HOUR_S),)
    return Machine(id=str(number), offer=offer, phase=Phase.BUSY, running=running, up_since_t=0.0, **rest)


def gone(t: float) -> dict[str, Market]:
    """Spot that was refused now."""
    return {SPOT.key: Market(refused_t=t, counts=SpellCounts(away_t=t, seen_t=t))}


def test_a_long_task_that_checkpoints_begins_on_spot_and_is_looked_at_every_tick() -> None:
    plan = Windfall()(snapshot())
    assert [start.offer.name for start in plan.start] == ["spot"]
    assert plan.assign == {"new-0": [0]}
    assert 0.0 < plan.replan_t < HOUR_S


def test_the_predicted_cost_lies_between_spot_and_on_demand_and_falls_with_a_later_deadline() -> None:
    tight, loose = (Windfall()(snapshot(deadline_t=hours * HOUR_S, spent_usd=1.0)) for hours in (11.0, 18.0))
    assert tight.predicted_cost_usd is not None and loose.predicted_cost_usd is not None
    assert 1.0 + 10.0 * 1.0 < loose.predicted_cost_usd < tight.predicted_cost_usd < 1.0 + 11.0 * 3.0


@pytest.mark.parametrize(
    "rest",
    [
        {"tasks": {0: replace(TASK, checkpoint_mb=None)}},
        {"tasks": {0: replace(TASK, runtime_s=6 * HOUR_S)}},
        {"offers": (SPOT, replace(SURE, cycle_s=HOUR_S))},
        {"offers": (replace(SPOT, when_taken="hibernate"), SURE)},
        {"offers": (SPOT,)},
        {"offers": (SURE,)},
        {"offers": (SPOT, replace(SURE, speed=2.0))},
        {"deadline_t": float("inf")},
    ],
)
def test_other_bags_are_left_to_the_planner_of_bags(rest: dict[str, Any]) -> None:
    assert plan_serial(snapshot(**rest), 5.0) is None


def test_machines_that_hold_two_such_tasks_are_left_to_the_planner_of_bags() -> None:
    offers = (replace(SPOT, cores=2), replace(SURE, cores=2))
    assert plan_serial(snapshot(2, offers=offers), 5.0) is None
    assert plan_serial(snapshot(1, offers=offers), 5.0) is not None


def test_every_task_gets_a_machine_of_its_own() -> None:
    plan = Windfall()(snapshot(3))
    assert [start.offer.name for start in plan.start] == ["spot"] * 3
    assert sorted(plan.assign.values()) == [[0], [1], [2]]


def test_without_spot_and_without_slack_the_task_goes_on_demand() -> None:
    shut = replace(SPOT, limit=0)
    plan = Windfall()(snapshot(deadline_t=10.5 * HOUR_S, offers=(shut, SURE), markets=gone(0.0)))
    assert [start.offer.name for start in plan.start] == ["sure"]


def test_without_spot_and_with_slack_it_waits() -> None:
    shut = replace(SPOT, limit=0)
    plan = Windfall()(snapshot(deadline_t=19.0 * HOUR_S, offers=(shut, SURE), markets=gone(0.0)))
    assert plan.start == []
    assert plan.replan_t < HOUR_S


def test_a_machine_is_left_only_when_the_provider_has_taken_the_order_of_the_next_one() -> None:
    ordered = Machine(id="2", offer=SPOT, phase=Phase.PENDING, ready_t=300.0, is_taken=False)
    waits = Windfall()(snapshot(machines=(machine(1, SURE), ordered)))
    assert (waits.recall, waits.stop, waits.start) == ([], [], [])
    assert waits.replan_t < 60.0
    goes = Windfall()(snapshot(machines=(machine(1, SURE), replace(ordered, is_taken=True))))
    assert (goes.recall, goes.stop) == (["1"], [])


def test_a_task_that_was_saved_goes_to_the_machine_that_waits_for_it() -> None:
    saved = {0: replace(TASK, saved_s=HOUR_S)}
    ready = Machine(id="2", offer=SPOT, phase=Phase.IDLE, up_since_t=0.0)
    plan = Windfall()(snapshot(tasks=saved, machines=(ready,)))
    assert plan.assign == {"2": [0]}


def test_a_recalled_machine_without_a_task_is_given_back() -> None:
    recalled = machine(1, SURE, None, is_recalled=True)
    assert "1" in Windfall()(snapshot(machines=(recalled, machine(2, SPOT)))).stop


def test_a_task_on_spot_without_slack_for_another_boot_goes_on_demand() -> None:
    tight = snapshot(deadline_t=8.1 * HOUR_S, t=0.0, machines=(machine(1, SPOT),))
    assert [start.offer.name for start in Windfall()(tight).start] == ["sure"]


def test_the_tables_of_a_job_of_minutes_reach_no_further_than_its_deadline() -> None:
    terms = Terms(
        work_ticks=17, deadline_ticks=20, changeover_ticks=2, tick_s=7.0, spot_usd=1.0, ondemand_usd=3.0
    )  # fmt: skip
    plan = plan_at(terms, grid_of(terms), Watcher(7.0, PRIOR, LEARNING).sight(), begin(terms), 0.0)
    assert plan.programme.steps <= 20
    assert plan.tables.nbytes < 1_000_000
