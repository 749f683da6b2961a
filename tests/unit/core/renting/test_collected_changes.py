"""In a large fleet, changes that the safety net covers are planned together; others are planned at once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.support.clouds.rented_cloud import SPOT, SURE, Cloud
from windfall.core.events import MachineNoticed, MachineRefused, OffersConfigured, PlanProposed, TimerFired
from windfall.core.renting.plans import FEW_MACHINES, PAUSE_S
from windfall.core.state.snapshot import load, save
from windfall.core.wishes import machines_to_wake, plan_wish
from windfall.planning.contract import Plan, Start

MANY = 150
WAITS_UNTIL_T = 1036.0
"""A hundredth of the hour to the deadline."""


def fleet_of(count: int, **plan) -> Cloud:
    """A job with this many spot machines and one on demand, all of them up and with a task to do."""
    cloud = Cloud()
    cloud.step(OffersConfigured(cloud.t, "cloud", [replace(SPOT, limit=400), replace(SURE, limit=400)]))
    bag = cloud.rent(2 * count + 2)
    starts = [*[replace(SPOT, limit=400)] * count, replace(SURE, limit=400)]
    cloud.plan(bag, start=starts)
    cloud.begun = {number: cloud.boot(number) for number in range(1, count + 2)}
    cloud.plan(bag, **plan)
    assert not cloud.state.fleet.plans_due
    return cloud


def planned_t(cloud: Cloud) -> float:
    assert list(cloud.state.fleet.plans_due) == [1]
    return plan_wish(cloud.state, 1).at_t


def test_a_small_fleet_is_planned_after_every_change():
    cloud = fleet_of(FEW_MACHINES - 1)
    cloud.sleep(1)
    assert planned_t(cloud) == pytest.approx(1000.0 + PAUSE_S)


def test_in_a_large_fleet_interruptions_of_spot_machines_are_planned_together():
    cloud = fleet_of(MANY)
    for number in (1, 2, 3):
        cloud.sleep(number)
        cloud.end(10 + number)
        assert planned_t(cloud) == pytest.approx(1000.0 + 20.2), "0.2 s for each of 101 machines beyond the first 50"


def test_changes_wait_for_a_hundredth_of_the_time_to_the_deadline_at_most():
    cloud = fleet_of(350)
    cloud.sleep(1)
    assert planned_t(cloud) == pytest.approx(WAITS_UNTIL_T)


def test_an_on_demand_machine_that_is_lost_is_planned_for_at_once():
    cloud = fleet_of(MANY)
    cloud.sleep(1)
    cloud.end(MANY + 1)
    assert planned_t(cloud) == pytest.approx(1000.0 + PAUSE_S)


def test_a_refused_order_is_planned_for_at_once():
    cloud = fleet_of(MANY)
    order = Plan(start=[Start("new-0", replace(SURE, limit=400))])
    (number, _, _), *_ = cloud.step(PlanProposed(cloud.t, 1, cloud.state.seq, order)).decided.started
    cloud.sleep(1)
    cloud.step(MachineRefused(cloud.t, number, "no capacity"))
    assert planned_t(cloud) == pytest.approx(1000.0 + PAUSE_S)


def test_the_time_at_which_a_plan_asks_to_be_made_again_does_not_wait():
    cloud = fleet_of(MANY, replan_t=1004.0)
    cloud.sleep(1)
    cloud.t = 1004.0
    cloud.step(TimerFired(cloud.t))
    assert planned_t(cloud) <= 1004.0


def test_an_idle_machine_is_planned_for_before_its_next_billing_cycle():
    cloud = fleet_of(MANY)
    cloud.t = 1890.0
    cloud.plan(cloud.state.bags[1])
    cloud.report(cloud.state.fleet.machines[1].host_name, *cloud.begun[1])
    cloud.boot(1)
    assert planned_t(cloud) == pytest.approx(1000.0 + SPOT.cycle_s - 5.0)


def test_a_machine_under_notice_is_planned_for_before_half_of_the_notice_is_over():
    cloud = fleet_of(350)
    cloud.step(MachineNoticed(cloud.t, 1, cloud.t + 30.0))
    assert planned_t(cloud) == pytest.approx(1010.0)


def test_a_saved_state_knows_until_when_changes_wait():
    cloud = fleet_of(MANY)
    cloud.sleep(1)
    assert plan_wish(load(save(cloud.state)), 1) == plan_wish(cloud.state, 1)


def woken(cloud: Cloud) -> list[int]:
    return [machine.number for machine in machines_to_wake(cloud.state, cloud.log[-1])]


def test_idle_machines_are_not_woken_by_news_that_gives_them_no_task():
    cloud = fleet_of(3)
    assert woken(cloud) == [], "a plan that changes nothing"
    cloud.sleep(1)
    assert woken(cloud) == []
    cloud.step(MachineNoticed(cloud.t, 2, cloud.t + 30.0))
    assert woken(cloud) == []


def test_idle_machines_are_woken_when_tasks_wait_again_or_a_plan_reserves_some():
    cloud = fleet_of(3)
    cloud.end(1)
    assert 4 in woken(cloud), "its machine was lost with two tasks"
    cloud.plan(cloud.state.bags[1])
    assert 4 in woken(cloud), "tasks wait that a new plan may let it begin"
    waiting = [task for _, task, _ in cloud.begun[1]]
    cloud.plan(cloud.state.bags[1], assign={"4": waiting})
    assert 4 in woken(cloud)
