"""The best interval between two checkpoints, against formulas, numbers and simulated lives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.planning.bags.prices import Prices
from windfall.planning.checkpoints import best_interval_s, constant, daly_s, save_s, share_left, young_s
from windfall.planning.contract import Snapshot, Task
from windfall.planning.offers import Offer
from windfall.planning.spot.live import learned_rates

SPOT = Offer(name="spot", price_usd=0.3, market="spot", pool="cloud", interruptions_per_h=1.0)
SURE = Offer(name="sure", price_usd=1.0, pool="cloud")


def expected_s(work_s: float, every_s: float, cost_s: float, between_s: float) -> float:
    """Expected time of some work with checkpoints: each stretch is repeated until it and its save are not cut."""
    stretches = work_s / every_s
    return float(stretches * between_s * np.expm1((every_s + cost_s) / between_s))


@given(cost_s=st.floats(1.0, 300.0), ratio=st.floats(3.0, 1e4))
def test_dalys_interval_is_nearly_the_best_one_of_a_constant_rate(cost_s, ratio):
    between_s = ratio * cost_s
    found = expected_s(1e6, daly_s(cost_s, between_s), cost_s, between_s)
    best = min(expected_s(1e6, every_s, cost_s, between_s) for every_s in np.geomspace(cost_s / 10, between_s * 5, 400))
    assert found <= best * 1.002
    assert young_s(cost_s, between_s) == pytest.approx((2 * cost_s * between_s) ** 0.5)


def test_the_interval_grows_with_the_cost_of_saving_and_shrinks_with_the_rate():
    day = 86400.0
    by_cost = [best_interval_s(save_s(mb), day, constant(1.0)) for mb in (0.0, 100.0, 1000.0)]
    by_rate = [best_interval_s(save_s(0.0), day, constant(rate)) for rate in (0.1, 1.0, 10.0)]
    assert by_cost == sorted(by_cost) and by_rate == sorted(by_rate, reverse=True)
    assert best_interval_s(13.0, 60.0, constant(0.01)) == 60.0, "of a short task nothing is saved"
    assert best_interval_s(500.0, 60.0, constant(100.0)) == 500.0


def test_a_young_spell_saves_more_often_than_an_old_one():
    offer = Offer(name="spot", price_usd=0.3, market="spot", pool="cloud")
    rates = learned_rates(offer, {})
    young, old = (
        best_interval_s(13.0, 1800.0, lambda ahead, age=age: rates.ahead(ahead + age)) for age in (-rates.age_s, 1e5)
    )
    assert young < old


def test_a_task_that_checkpoints_has_less_to_run_again():
    assert share_left(10.0, 100.0, 1000.0) == pytest.approx(0.56)
    assert share_left(900.0, 100.0, 1000.0) == 1.0


def test_spot_is_cheaper_for_tasks_that_checkpoint():
    def waiting_usd(checkpoint_mb):
        tasks = {n: Task(n, 3000.0, 0.0, "", checkpoint_mb) for n in range(8)}
        snapshot = Snapshot(t=0.0, deadline_t=20000.0, tasks=tasks, machines=(), offers=(SPOT, SURE), total=8)
        return float(Prices(snapshot, 3000.0, 8, 60.0).waiting_usd[0])

    assert waiting_usd(10.0) < 0.95 * waiting_usd(None)
