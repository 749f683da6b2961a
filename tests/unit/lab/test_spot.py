"""`windfall lab spot` on one machine: its starts, its figure with an error, its report."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from windfall.lab.spot.command import command, ratio_of_sums, starts_of
from windfall.lab.spot.trace import Series

HUNDRED_HOURS = Series("drawn", 3600.0, [True] * 100)


def test_starts_lie_in_the_middle_of_equal_parts_and_leave_room_for_the_deadline():
    assert starts_of(HUNDRED_HOURS, 60.0, 4) == [5, 15, 25, 35]
    assert starts_of(HUNDRED_HOURS, 101.0, 4) == []


def test_random_starts_lie_anywhere_in_the_same_parts():
    drawn = [starts_of(HUNDRED_HOURS, 60.0, 4, np.random.default_rng(seed)) for seed in range(20)]
    assert all([start // 10 for start in starts] == [0, 1, 2, 3] for starts in drawn)
    assert len({tuple(starts) for starts in drawn}) > 10


def test_the_error_of_a_ratio_is_what_drawing_the_runs_anew_would_move_it_by():
    rng = np.random.default_rng(1)
    bounds = rng.uniform(50.0, 150.0, 200)
    costs = bounds * rng.uniform(1.0, 1.3, 200)
    ratio, error = ratio_of_sums(costs.tolist(), bounds.tolist())
    again = [rng.integers(0, 200, 200) for _ in range(2000)]
    assert ratio == pytest.approx(costs.sum() / bounds.sum())
    assert error == pytest.approx(np.std([costs[some].sum() / bounds[some].sum() for some in again]), rel=0.1)


def test_the_report_says_how_the_starts_were_chosen_and_how_sure_each_figure_is(tmp_path):
    rng = np.random.default_rng(2)
    for name in ("a", "b"):
        series = {"metadata": {"gap_seconds": 1800}, "data": (rng.random(200) < 0.7).astype(int).tolist()}
        (tmp_path / name).mkdir()
        (tmp_path / name / "series.json").write_text(json.dumps(series))
    options = ["--data", str(tmp_path), "--out", str(tmp_path / "out"), "--starts", "2", "--jobs", "1"]
    result = CliRunner().invoke(command, [*options, "--seed", "3", "--work-h", "6", "--deadline-h", "9"])
    assert result.exit_code == 0, result.output
    assert "2 random (seed 3) starts a series" in result.output
    summary = json.loads((tmp_path / "out" / "spot.json").read_text())
    assert summary["missed"]["9"]["windfall"] == 0
    ratio, error = summary["ratio"]["9"]["all"]["windfall"], summary["error"]["9"]["all"]["windfall"]
    assert ratio >= 1.0
    assert f"{ratio:.3f} ± {error:.3f}" in result.output
