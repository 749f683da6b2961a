"""A live run in the emulated cloud comes out of its replay as it was; `make replays` has more of them."""

from __future__ import annotations

import pytest

from tests.e2e.clouds.replays import WITHIN, replayed

pytestmark = pytest.mark.slow


def test_a_live_run_with_hibernations_and_moving_prices_is_replayed_within_five_percent_in_cost_and_finish(tmp_path):
    row = replayed(tmp_path, "bag", "hibernate", seed=2)
    assert any(len(life) > 2 for life in row["spot"]["lives"]), "no machine hibernated: the test shows nothing"
    assert len(row["spot"]["price_steps"]) > 1, "no price moved: the test shows nothing"
    assert row["actual_usd"] == pytest.approx(sum(machine["cost_usd"] for machine in row["machines"]))
    assert abs(row["off_by"]) < WITHIN and abs(row["cost_off_by"]) < WITHIN, row
