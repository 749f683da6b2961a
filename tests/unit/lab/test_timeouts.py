"""`windfall lab timeouts`: the published figures come out of the formulas and the estimator, not of a table."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from windfall.cli.timeout.files import Columns, read_latencies
from windfall.errors import BadInput
from windfall.lab.data import root
from windfall.lab.timeouts import egee
from windfall.lab.timeouts.command import classical_figures, command, grid_logs, learning, table_2
from windfall.lab.timeouts.development import LAWS, pools
from windfall.lab.timeouts.first_fifty import NO_FITTED_LAW, SEEN_BY_NO_SETTING, first_fifty
from windfall.lab.timeouts.learning import Pool, best_fixed
from windfall.timeouts.best import best_timeout
from windfall.timeouts.laws.numeric import EGEE_LIKE, ScipyLaw
from windfall.timeouts.process import Process

GRID = root() / "grid" if root() is not None else None
needs_logs = pytest.mark.skipif(GRID is None or not GRID.is_dir(), reason="the grid logs are not here (WINDFALL_DATA)")


def test_a_sample_with_egees_moments_gives_its_optimum_within_a_few_per_cent():
    _, _, _, rows = egee.reproduce(samples=8)
    for row in rows:
        assert row.sample == pytest.approx(row.paper, rel=0.06), row.what
        assert row.random_mean == pytest.approx(row.paper, rel=0.1), row.what


def test_the_built_in_blend_is_what_the_calibration_finds():
    found, kept = egee.calibrate(), EGEE_LIKE
    for rho in (0.0, egee.RHO):
        ours, theirs = best_timeout(Process(kept, rho)), best_timeout(Process(found, rho))
        assert ours.timeout_s == pytest.approx(theirs.timeout_s, rel=0.01)
        assert ours.expected_s == pytest.approx(theirs.expected_s, rel=0.01)


def test_the_moments_alone_leave_the_optimum_open():
    timeouts = [row["timeout_s"] for row in egee.same_moments()]
    assert max(timeouts) > 3 * min(timeouts)


def test_the_learner_is_chosen_on_74_pools_of_families_that_are_not_held_back():
    assert len(pools()) == 74
    held_back = {pool.process.law.dist for pool in (NO_FITTED_LAW | SEEN_BY_NO_SETTING).values()}
    assert not held_back & {law.dist for law in LAWS.values() if isinstance(law, ScipyLaw)}


@pytest.mark.parametrize("name", ["log-t", "hyperexponential"])
def test_laws_of_the_pools_have_the_survival_and_the_quantiles_of_one_law(name):
    law = LAWS[name]
    share = np.array([0.05, 0.3, 0.5, 0.9])
    assert law.cdf(law.ppf(share)) == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize("name", ["log-hyperbolic-secant", "two log-normals"])
def test_laws_of_the_pools_have_a_density_and_a_best_timeout(name):
    law = LAWS[name]
    at_s = law.ppf(np.array([0.2, 0.6]))
    slope = (law.cdf(at_s * 1.0001) - law.cdf(at_s)) / (0.0001 * at_s)
    assert law.pdf(at_s) == pytest.approx(slope, rel=1e-3)
    assert 0 < best_fixed(Pool(Process(law, 0.05, submit_cost_s=10.0))) < np.inf


def test_table_2_is_computed():
    found, text = table_2()
    assert [row["without"]["kind"] for row in found[:4]] == ["none", "none", "any", "finite"]
    assert "| Exponential (1/100) | any | any | 0 | zero |" in text


def test_the_figures_are_drawn(tmp_path):
    names, _ = classical_figures(tmp_path)
    assert len(names) == 6
    assert all((tmp_path / name).stat().st_size > 5000 for name in names)


def test_the_learning_experiment_reports_its_error():
    found, text = learning(seeds=2, jobs=50)
    assert len(found) == 10
    assert all(row["learned_s"] > 0.98 * row["best_expected_s"] for row in found)
    assert "ten times" in text


def test_the_first_fifty_attempts_are_told_pool_by_pool_and_over_all_pools_that_have_no_fitted_shape(monkeypatch):
    monkeypatch.setattr("windfall.lab.timeouts.known_law.PARAMETERS", 64)
    found, text = first_fifty(seeds=2, first_seed=5)
    assert len(found["pools"]) == 11
    counted = [row for row in found["pools"] if not row["fitted"]]
    assert len(counted) == 10 and not any(row["pool"].startswith("Fréchet") for row in counted)
    assert found["mean_loss"] == pytest.approx(np.mean([row["loss"] for row in counted]))
    assert found["mean_loss_error"] == pytest.approx(
        np.sqrt(np.sum(np.square([row["loss_error"] for row in counted]))) / 10
    )
    assert all(row["loss_median"] <= row["loss_90"] for row in found["pools"])
    assert "median loss" in text and "| mean of the 10 pools whose law has none of the fitted shapes |" in text


def test_pools_of_the_first_fifty_attempts_share_no_draws(monkeypatch):
    seeds = []

    def noted(pool, attempts, seed):
        return seeds.append(seed) or 50.0

    monkeypatch.setattr("windfall.lab.timeouts.first_fifty.learned_wait", noted)
    monkeypatch.setattr("windfall.lab.timeouts.known_law.PARAMETERS", 8)
    first_fifty(seeds=2, first_seed=7)
    assert seeds == list(range(7, 7 + 22))


def test_one_part_of_the_report_is_made_alone(tmp_path):
    ran = CliRunner().invoke(command, ["--only", "table-2", "--out", str(tmp_path), "--json"])
    assert ran.exit_code == 0, ran.output
    assert list(json.loads(ran.stdout)) == ["table_2"]


@needs_logs
def test_a_log_without_waits_is_refused_and_one_with_waits_is_warned_about():
    with pytest.raises(BadInput, match="none of its"):
        read_latencies(str(next(GRID.glob("LCG*"))), Columns())
    found, _ = grid_logs("KTH*")
    kth = next(row for row in found if row["log"].startswith("KTH") and row["submit_cost_s"] == 0)
    assert kth["formula"]["kind"] == "zero"
    assert kth["best"]["speedup"] < 3
    assert "mass-at-zero" in kth["warnings"]
    assert "dependent" in kth["warnings"]
