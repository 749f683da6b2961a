"""What is built on runs: sweeps, paired comparisons, the tail rule's promise, logs replayed, pages, the command."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from windfall.cli.simulate.command import simulate
from windfall.drivers.log_rows import log_row
from windfall.errors import BadInput
from windfall.lab.gridbot import worlds
from windfall.sim.run import run
from windfall.sim.scenario import check, read
from windfall.sim.studies.replay import answer, fit
from windfall.sim.studies.sweep import compare, interval, measured, share, summary, sweep, values_of
from windfall.sim.world import World
from windfall.store import open_store
from windfall.store.contract import Batch

SMALL = ["bag.tasks=150", "pool.slurm.hosts=20", "pool.cluster.hosts=2"]


def test_a_sweep_gives_the_same_outcomes_here_in_threads_and_in_processes():
    scenario = read("campus", SMALL)
    here = sweep(scenario, [1, 2, 3], None)
    with ThreadPoolExecutor(2) as threads:
        assert sweep(scenario, [1, 2, 3], threads) == here
    with ProcessPoolExecutor(2) as processes:
        assert sweep(scenario, [3, 1, 2], processes) == [here[2], here[0], here[1]]


def test_the_interval_of_a_mean_holds_the_mean_in_95_of_100_samples():
    generator = np.random.default_rng(1)
    held = 0
    for _ in range(1000):
        found = interval(generator.normal(10, 3, 12).tolist())
        held += found.low <= 10 <= found.high
    assert 925 <= held <= 975


def test_a_comparison_of_a_scenario_with_itself_finds_nothing():
    outcomes = sweep(read("campus", SMALL), [1, 2, 3], None)
    found = compare(outcomes, outcomes, "turnaround_s")
    assert found.difference.mean == 0 and found.p_value == 1.0 and not found.significant


def test_pairs_find_a_small_difference_that_hides_between_the_seeds():
    """Slightly longer tasks: the spread between seeds is larger than the difference, the pairs see it all the same."""
    seeds = range(1, 11)
    a = sweep(read("campus", SMALL), seeds, None)
    longer = 'bag.run={law = "uniform", low = "630s", high = "945s"}'
    b = sweep(read("campus", [*SMALL, longer]), seeds, None)
    found = compare(a, b, "turnaround_s")
    assert found.significant and found.b_lower == 0 and 0.02 < found.relative < 0.15
    assert found.difference.high - found.difference.low < found.a.high - found.a.low


def test_a_summary_has_every_bag_and_every_pool():
    document = summary(sweep(read("campus", SMALL), [1, 2], None))
    assert set(document["pools"]) == {"cluster", "slurm"} and set(document["bags"]) == {"fit"}
    assert document["turnaround_s"].n == 2 and document["finished"] == 2


def test_our_tail_rule_saves_40_percent_of_the_turnaround_for_5_percent_of_waste():
    """A bag of about three rounds in GridBot's collaborative grids; `windfall lab gridbot tail` has 200 seeds."""
    seeds = range(1, 13)
    runs = {
        name: sweep(worlds.replication_run(name, "permissive", 0.05, 300), seeds, None) for name in ("disabled", "ours")
    }
    turnaround = {name: np.mean(values_of(outcomes, "turnaround_s")) for name, outcomes in runs.items()}
    assert turnaround["ours"] < 0.6 * turnaround["disabled"]
    assert np.mean(values_of(runs["ours"], "waste")) <= 0.05


def kept_log(path: Path, scenario, seed: int):
    """A simulated run as a live state directory."""
    records = []
    world = World(scenario, seed, records.append)
    world.run()
    store = open_store(path)
    store.append(Batch(records=[log_row(record) for record in records]))
    store.close()
    return world


def test_a_replayed_log_predicts_what_happened(tmp_path):
    document = {
        "pool": [{"name": "lab", "hosts": 6, "slots": 2, "errors": 0.03, "stay": {"law": "exponential", "mean": "3h"}}],
        "bag": [{"name": "fit", "tasks": 300, "run": {"law": "lognormal", "median": "5m", "sigma": 0.4}}],
    }
    world = kept_log(tmp_path / "state", check(document, Path("x.toml")), 1)
    actual = world.driver.state.bags[1].finished_t
    fitted = fit(tmp_path / "state")
    assert fitted.jobs[1].tasks == 300 and fitted.jobs[1].turnaround_s == actual
    assert np.median(fitted.jobs[1].runs_s) == pytest.approx(300, rel=0.1)
    assert fitted.failed / fitted.attempts == pytest.approx(0.03, abs=0.03)
    told = answer(fitted, sweep(fitted.scenario([]), [1, 2, 3], None), changed=False)
    assert abs(told["jobs"][0]["off_by"]) < 0.15
    more = answer(fitted, sweep(fitted.scenario(["pool.hosts=24"]), [1, 2, 3], None), changed=True)
    assert more["jobs"][0]["predicted_s"].mean < 0.6 * actual


def test_a_state_in_which_nothing_ran_cannot_be_replayed(tmp_path):
    open_store(tmp_path / "state").close()
    with pytest.raises(BadInput, match="no task has been done"):
        fit(tmp_path / "state")


def test_a_fitted_world_is_a_scenario_like_any_other(tmp_path):
    world = kept_log(tmp_path / "state", read("campus", SMALL), 2)
    outcome, _ = run(fit(tmp_path / "state").scenario(["server.max_replicas=1"]), 1)
    assert outcome.finished and outcome.bags[0].tasks == world.driver.state.bags[1].total


def invoke(*arguments: str):
    result = CliRunner().invoke(simulate, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def sets() -> list[str]:
    return [word for change in SMALL for word in ("--set", change)]


def test_the_command_prints_a_run_and_the_same_run_as_json():
    assert "campus, seed 4: done after" in invoke("campus", "--seed", "4", *sets())
    document = json.loads(invoke("campus", "--seed", "4", "--json", *sets()))
    assert document["seed"] == 4 and document["bags"][0]["done"] == 150


def test_the_command_lists_the_library():
    assert {"campus", "volunteers", "spot", "mixed"} <= {row["name"] for row in json.loads(invoke("--list", "--json"))}


def test_the_command_sweeps_and_compares():
    assert "95 % interval" in invoke("campus", "--seeds", "2", "--jobs", "1", *sets())
    text = invoke(
        "compare", "campus", "campus", "--seeds", "3", "--jobs", "1", "--set-b", "pool.slurm.hosts=60", *sets()
    )
    assert "paired over 3 seeds" in text
    document = json.loads(invoke("compare", "campus", "campus", "--seeds", "2", "--jobs", "1", "--json", *sets()))
    assert document["comparisons"][0]["difference"]["mean"] == 0


def test_the_page_of_a_run_holds_its_figures(tmp_path):
    page, log = tmp_path / "run.html", tmp_path / "run.ndjson.gz"
    invoke("campus", "--report", str(page), "--log", str(log), *sets())
    text = page.read_text()
    assert text.count("<svg") == 3 and "campus, seed 1" in text
    assert log.stat().st_size > 1000


def test_no_interval_of_what_cannot_be_negative_reaches_below_nothing():
    assert interval([0.0, 0.0, 90.0]).low < 0
    assert (measured([0.0, 0.0, 90.0]).low, measured([0.0, 0.0, 90.0]).mean) == (0.0, 30.0)
    assert measured([2.0]).low is None


def test_twenty_deadlines_of_twenty_do_not_promise_the_next_one():
    found = share([1.0] * 20)
    assert found.mean == found.high == 1.0 and 0.8 < found.low < 0.9
