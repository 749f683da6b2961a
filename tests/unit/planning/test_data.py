"""Moving data: its time and price by region, and plans that prefer the region where the data lies."""

from __future__ import annotations

import pytest

from windfall.planning.contract import Group, Snapshot, Task
from windfall.planning.data import moved, spread, with_data, with_task_data
from windfall.planning.offers import Offer
from windfall.planning.registry import PLANNERS

FAR = Offer(
    name="far", pool="c", price_usd=0.08, region="us", lag_s=60.0, data_usd_per_gb={"default": 0.09},
    data_mb_per_s=100.0,
)  # fmt: skip
NEAR = Offer(name="near", pool="c", price_usd=0.10, region="eu", lag_s=60.0, data_usd_per_gb=0.09, data_mb_per_s=1000.0)


def test_data_of_the_same_region_is_free_and_takes_its_time():
    assert moved(NEAR, {"eu": 50.0}) == (50.0, 0.0)
    assert moved(FAR, {"eu": 50.0}) == (500.0, pytest.approx(4.5))
    assert moved(FAR, {"": 10.0}) == (100.0, pytest.approx(0.9)), "an unknown region counts as another"


def test_a_table_may_price_the_own_region_and_an_offer_without_a_rate_counts_no_time():
    dear = Offer(name="dear", price_usd=1.0, region="eu", data_usd_per_gb={"eu": 0.01})
    assert moved(dear, {"eu": 100.0, "us": 100.0}) == (0.0, pytest.approx(1.0))


def test_a_machine_is_ready_when_it_has_its_data_and_costs_it_once():
    offer = with_data(FAR, {"eu": 50.0})
    assert (offer.lag_s, offer.start_usd) == (560.0, pytest.approx(4.5))
    assert with_data(FAR, {}) is FAR and with_data(NEAR, {"eu": 0.0}) is NEAR


def snapshot(data_gb: dict[str, float]) -> Snapshot:
    offers = tuple(with_data(offer, data_gb) for offer in (FAR, NEAR))
    group = Group(Task(-1, 600.0), 24)
    return Snapshot(t=0.0, deadline_t=2 * 3600.0, tasks={}, machines=(), offers=offers, groups=(group,))


def started(name: str, data_gb: dict[str, float]) -> set[str]:
    return {start.offer.name for start in PLANNERS[name](snapshot(data_gb)).start}


@pytest.mark.parametrize("name", ["windfall", "greedy", "on-demand"])
def test_a_plan_prefers_the_region_where_the_data_lies(name):
    assert started(name, {}) == {"far"}, "without data the cheaper machines"
    assert started(name, {"eu": 50.0}) == {"near"}


def test_the_predicted_cost_has_the_price_of_data_in_it_and_fewer_machines_fetch_it():
    groups = (Group(Task(-1, 600.0), 10),)
    free, paid = (
        PLANNERS["on-demand"](
            Snapshot(t=0.0, deadline_t=7200.0, tasks={}, machines=(), offers=(with_data(FAR, gb),), groups=groups)
        )
        for gb in ({}, {"eu": 1.0})
    )
    assert (len(free.start), free.predicted_cost_usd) == (2, pytest.approx(2 * 0.08))
    assert (len(paid.start), paid.predicted_cost_usd) == (1, pytest.approx(2 * 0.08 + 0.09))


def test_planners_of_cycles_see_the_price_of_data_spread_over_an_hour():
    (far, near) = spread(snapshot({"eu": 50.0})).offers
    assert far.price_usd == pytest.approx(0.08 + 4.5) and near.price_usd == 0.10 and far.start_usd == 0.0


def test_what_each_task_fetches_makes_a_far_offer_slower_and_dearer_by_the_task():
    offer = with_task_data(FAR, {"eu": 10.0}, 600.0, 1)
    assert offer.speed == pytest.approx(600 / 700) and offer.lag_s == FAR.lag_s
    assert offer.price_usd == pytest.approx(0.08 + 0.9 * 3600 / 700), (
        "as many tasks as an hour holds, 0.90 dollars each"
    )
    assert with_task_data(NEAR, {"eu": 10.0}, 600.0, 1).price_usd == NEAR.price_usd


def test_a_plan_for_tasks_with_inputs_of_their_own_prefers_the_region_of_the_data():
    def chosen(gb: float) -> set[str]:
        offers = tuple(with_task_data(offer, {"eu": gb}, 600.0, 1) for offer in (FAR, NEAR))
        group = Group(Task(-1, 600.0), 24)
        seen = Snapshot(t=0.0, deadline_t=2 * 3600.0, tasks={}, machines=(), offers=offers, groups=(group,))
        return {start.offer.name for start in PLANNERS["windfall"](seen).start}

    assert chosen(0.0) == {"far"} and chosen(1.0) == {"near"}
