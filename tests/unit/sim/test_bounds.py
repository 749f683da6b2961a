"""The lower bound on the cost of a bag: what it counts by hand, and that no simulated run is below it."""

from __future__ import annotations

from math import inf

import pytest
from msgspec.structs import replace

from windfall.planning.contract import Task
from windfall.planning.offers import Offer
from windfall.sim.clouds.market import Supply
from windfall.sim.inputs.laws import fixed
from windfall.sim.inputs.traces import Series
from windfall.sim.studies.bounds import bound_usd, can_be_in_time
from windfall.sim.studies.one_bag import run_bag, scenario_of

SURE = Offer(name="sure", price_usd=1.0, cores=2, cycle_s=600.0, limit=3)
SPOT = replace(SURE, name="spot", price_usd=0.3, market="spot")
TASKS = [Task(number, 100.0) for number in range(24)]


def bound(*supplies, deadline_s=1200.0, charged=False):
    return bound_usd(scenario_of(TASKS, supplies, deadline_s, "windfall"), 1, charged)


def test_work_is_divided_over_whole_cycles_of_the_cheapest_offer():
    assert bound(Supply(offer=SURE)) == 2.0, "2,400 seconds on two cores"
    assert bound(Supply(offer=replace(SURE, speed=2.0))) == 1.0
    assert bound(Supply(offer=SURE), Supply(offer=SPOT)) == 0.6


def test_what_does_not_fit_into_the_cheapest_offer_is_paid_where_it_fits():
    assert bound(Supply(offer=SURE), Supply(offer=replace(SPOT, limit=1)), deadline_s=600.0) == pytest.approx(0.3 + 1.0)
    assert bound(Supply(offer=replace(SURE, limit=1)), deadline_s=1000.0) == inf


def test_a_cycle_that_ends_with_a_reclaim_costs_nothing_to_who_knows_when_it_comes():
    there = Series(300.0, (3.0, 3.0, 0.0, 0.0, 0.0, 0.0))
    spot = Supply(offer=SPOT, ticks=there, begins=0.0)
    assert bound(Supply(offer=SURE), spot) == 0.0
    assert bound(Supply(offer=SURE), spot, charged=True) == 0.6
    kept = replace(spot, offer=replace(SPOT, free_if_taken=False))
    assert bound(Supply(offer=SURE), kept) == 0.6


def test_spells_that_are_shorter_than_any_task_are_worth_nothing():
    there = Series(50.0, (3.0, 0.0) * 20)
    assert bound(Supply(offer=SURE), Supply(offer=SPOT, ticks=there, begins=0.0)) == 2.0


@pytest.mark.parametrize("seed", range(3))
def test_no_run_that_is_in_time_costs_less(seed):
    spot = Supply(offer=replace(SPOT, lag_s=20.0), boot=fixed(20.0), interruptions_per_h=4.0)
    sure = Supply(offer=replace(SURE, lag_s=20.0), boot=fixed(20.0))
    made = run_bag(TASKS, [spot, sure], 1200.0, "windfall", seed)
    least = bound_usd(scenario_of(TASKS, [spot, sure], 1200.0, "windfall"), seed)
    assert made.met and made.cost_usd >= least - 1e-9


def test_no_planner_is_in_time_where_one_task_alone_takes_longer_than_the_deadline():
    def kept(longest_s: float, offer: Offer = SURE) -> bool | None:
        tasks = [*TASKS, Task(len(TASKS), longest_s)]
        return can_be_in_time(scenario_of(tasks, [Supply(offer=offer)], 1200.0, "windfall"), 1)

    assert (kept(1199.0), kept(1201.0), kept(1201.0, replace(SURE, speed=2.0))) == (True, False, True)
