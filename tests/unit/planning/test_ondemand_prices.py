"""What tasks cost on on-demand machines, by the time that is left."""

from __future__ import annotations

import math

import numpy as np
import pytest

from windfall.planning.bags.ondemand_prices import ondemand_usd
from windfall.planning.contract import ONDEMAND
from windfall.planning.offers import Offer

LARGE = Offer(name="large", price_usd=0.199, cores=4, cycle_s=900.0, lag_s=180.0, market=ONDEMAND)
SMALL = Offer(name="small", price_usd=0.1, cores=2, cycle_s=900.0, lag_s=180.0, market=ONDEMAND)


def whole_usd(count: float, left_s: float, run_s: float = 200.0, *offers: Offer) -> float:
    offers = offers or (LARGE, SMALL)
    per_task = ondemand_usd(offers, count, {o.key: run_s for o in offers}, 1.0, np.array([left_s]))
    return count * float(per_task[0])


def test_what_large_machines_do_not_hold_goes_to_a_small_one():
    # A large machine of one cycle holds 13 tasks, a small one six.
    assert whole_usd(19, 900.0) == pytest.approx(0.199 + 0.1)
    assert whole_usd(20, 900.0) == pytest.approx(2 * 0.199)


def test_leases_of_different_lengths_are_mixed():
    # Two cycles of a large machine hold 32 tasks, one cycle of a small one six.
    assert whole_usd(38, 1830.0) == pytest.approx(2 * 0.199 + 0.1)


def test_the_price_rises_as_the_deadline_comes_nearer_and_ends_where_no_task_is_in_time():
    prices = [whole_usd(12, left_s) for left_s in range(2000, 370, -10)]
    assert prices == sorted(prices) and prices[0] < prices[-1] < math.inf
    assert whole_usd(12, 379.0) == math.inf


def test_many_tasks_pay_for_no_machine_that_is_partly_filled():
    assert whole_usd(61, 900.0) == pytest.approx(61 * 0.199 / (4 * 0.97 * 3.6))
    assert whole_usd(1e6, 900.0) == pytest.approx(1e6 * 0.199 / (4 * 0.97 * 3.6))


def test_a_lease_billed_by_the_minute_is_as_long_as_its_tasks():
    minutes = Offer(name="m", price_usd=0.01, cores=1, cycle_s=60.0, lag_s=60.0, market=ONDEMAND, bills_boot=False)
    assert whole_usd(1, 7200.0, 1000.0, minutes) == pytest.approx(17 * 0.01)
    assert whole_usd(2, 7200.0, 1000.0, minutes) == pytest.approx(34 * 0.01)


def test_without_on_demand_offers_nothing_is_in_time():
    assert ondemand_usd([], 3, {}, 1.0, np.array([900.0])).tolist() == [math.inf]
