"""Markets that change only on a beat: found where there is one, and nowhere else."""

from __future__ import annotations

import math

import numpy as np
import pytest

from windfall.planning.spot_beat import Beat, find_beat
from windfall.planning.spot_law import Watcher
from windfall.planning.spot_windfall import LEARNING, PRIOR


def changes_on_a_beat(period: float, phase: float, count: int) -> list[int]:
    """The ticks that first show a change: some of the beats, each rounded up to a whole tick."""
    beats = np.cumsum(np.random.default_rng(1).geometric(0.4, count))
    return [math.ceil(phase + period * beat) for beat in beats]


@pytest.mark.parametrize("period", [2.0, 3.235, 5.5])
def test_the_beat_of_a_market_is_found_in_its_changes(period):
    beat = find_beat(changes_on_a_beat(period, 0.6, 60))
    assert beat is not None
    assert beat.period == pytest.approx(period, abs=0.02)


def test_the_next_changes_are_expected_on_the_beat_and_not_between():
    changes = changes_on_a_beat(4.0, 0.0, 60)
    beat = find_beat(changes)
    assert beat is not None
    on, *between = beat.factors(changes[-1] + np.array([8.0, 5.0, 6.0, 7.0]))
    assert on > 2.5
    assert max(between) < 0.6


def test_a_market_that_changes_at_any_tick_has_no_beat():
    spells = np.random.default_rng(2).geometric(0.2, 80)
    assert find_beat(np.cumsum(spells).tolist()) is None
    assert find_beat(np.cumsum(spells + 2).tolist()) is None


@pytest.mark.parametrize("changes", [[], [7], changes_on_a_beat(3.0, 0.0, 5)])
def test_a_few_changes_are_not_enough_to_tell(changes):
    assert find_beat(changes) is None


def test_a_beat_moves_changes_in_time_and_makes_them_no_more_frequent():
    around = Beat(3.25, 1.0, 3.0).factors(np.arange(0.0, 3.25, 0.01))
    assert around.mean() == pytest.approx(1.0, abs=0.001)


def watcher_of(changes: list[int]) -> Watcher:
    watcher, available = Watcher(195.0, PRIOR, LEARNING), True
    for tick in range(changes[-1] + 1):
        available ^= tick in changes
        watcher.observe(available)
    return watcher


def test_who_watches_a_market_knows_when_its_next_change_can_come():
    ahead = watcher_of(changes_on_a_beat(4.0, 0.0, 60)).beats(np.arange(1.0, 9.0))
    assert np.flatnonzero(ahead > 1.0).tolist() == [3, 7]


def test_zones_that_stand_in_for_each_other_are_not_expected_to_share_a_beat():
    watcher = watcher_of(changes_on_a_beat(4.0, 0.0, 59))
    for _ in range(4):
        watcher.observe(True)
    watcher.observe(True, replaced=True)
    assert watcher.beats(np.arange(1.0, 5.0)).tolist() == [1.0] * 4


def test_without_a_beat_every_tick_is_as_likely_as_the_next():
    watcher = Watcher(600.0, PRIOR, LEARNING)
    for available in np.random.default_rng(3).random(300) < 0.5:
        watcher.observe(bool(available))
    assert watcher.beats(np.arange(1.0, 5.0)).tolist() == [1.0] * 4
