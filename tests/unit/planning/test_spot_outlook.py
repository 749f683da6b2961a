"""What is promised of spot: where the answer is known, and what must hold of any promise."""

from __future__ import annotations

import numpy as np
import pytest

from windfall.planning.spot.law import Learning, Prior, Watcher
from windfall.planning.spot.outlook import outlook, spot_or_not
from windfall.planning.spot.windfall import LEARNING, PRIOR

# One rate for all ages and regimes: spot ends twice an hour and comes back once an hour.
FLAT = Prior((2.0,) * 11, (1.0,) * 11)
PLAIN = Learning(
    level_weight=1e9, age_weight=1e9, day_weight=1e9, day_spread_h=2.0, regime_factor=1.0, regime_h=24.0
)  # fmt: skip


def watched(text: str, prior: Prior = FLAT, learning: Learning = PLAIN) -> Watcher:
    watcher = Watcher(600.0, prior, learning)
    for mark in text:
        watcher.observe(mark == "#")
    return watcher


def test_a_memoryless_law_promises_what_the_textbook_says():
    found = outlook(watched("#"), 20.0)
    assert found.chance(1.0) == pytest.approx(np.exp(-2.0), rel=0.01)
    assert found.uninterrupted_h(20.0) == pytest.approx(0.5, rel=0.12)  # in steps of 0.1 h
    assert found.available[-1] == pytest.approx(1 / 3, rel=0.05)
    assert found.available[0] == 1.0


def test_where_there_is_no_spot_it_is_expected_later_and_less_of_it():
    here, away = outlook(watched("#"), 5.0), outlook(watched("."), 5.0)
    assert away.available[0] == 0.0
    assert 0.0 < away.hours_of_spot(5.0) < here.hours_of_spot(5.0)


def test_spot_that_has_lasted_is_expected_to_last():
    young, old = (outlook(watched("." + "#" * ticks, PRIOR, LEARNING), 6.0) for ticks in (1, 60))
    assert old.chance(4.0) > young.chance(4.0)


def test_the_chances_of_all_kinds_of_spell_stay_chances():
    found = outlook(watched("##.#" * 30, PRIOR, LEARNING), 48.0)
    assert ((found.available >= 0) & (found.available <= 1 + 1e-9)).all()
    assert (np.diff(found.survives) <= 1e-12).all()


def test_trying_spot_pays_for_a_short_task_and_not_for_one_that_spot_hardly_ever_outlasts():
    found = outlook(watched("#"), 20.0)
    assert spot_or_not(found, 0.2, 1.0, 3.0) > 0
    assert spot_or_not(found, 5.0, 1.0, 3.0) < 0
