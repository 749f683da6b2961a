"""A short stream of workflows: money adds up, deadlines hold without noise, and a broken-off lab run goes on."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from windfall.lab.scs.command import all_cases, command, one_case
from windfall.lab.scs.load import APPLICATIONS, HOURS, PATTERNS, arrivals_s, rate, world_of_times
from windfall.lab.scs.world import METHODS, World
from windfall.planning.stream.classes import JobClass
from windfall.planning.stream.mix import TypeMix


def run(planner, application="hybrid", deadline_h=1.0, hours=6.0, **errors):
    workflow, offers = world_of_times(application, 0)
    shape = JobClass(workflow, offers, deadline_h * 3600, METHODS[planner], steps=24)
    mix = TypeMix(workflow, offers, deadline_h * 3600, steps=24) if planner == "windfall" else None
    arrivals = arrivals_s("stable", 0, hours=hours)
    world = World(shape, planner, arrivals, np.random.default_rng(1), mix=mix, **errors)
    return world, world.run()


@pytest.mark.parametrize("planner", METHODS)
def test_every_job_ends_and_every_machine_is_given_back(planner):
    world, outcome = run(planner)
    assert world.machines == []
    assert not world.waiting
    assert outcome.jobs > 40
    assert 0 < outcome.utilisation <= 1


@pytest.mark.parametrize("planner", METHODS)
def test_nearly_all_deadlines_hold_when_estimates_are_exact(planner):
    _, outcome = run(planner)
    assert outcome.met >= 0.97 * outcome.jobs


@pytest.mark.parametrize("planner", METHODS)
def test_the_same_seed_gives_the_same_run(planner):
    assert run(planner, run_error=0.2)[1] == run(planner, run_error=0.2)[1]


@pytest.mark.parametrize("planner", ["scs", "windfall"])
@pytest.mark.parametrize("application", ["pipeline", "hybrid"])
def test_the_loops_that_are_left_out_would_have_decided_nothing(monkeypatch, planner, application):
    some = run(planner, application, hours=12.0, boot_error=0.2)[1]
    monkeypatch.setattr(World, "_changed", lambda *_: True)
    assert run(planner, application, hours=12.0, boot_error=0.2)[1] == some


def test_the_bill_is_whole_hours_of_the_four_prices():
    world, outcome = run("scs", "pipeline")
    assert outcome.hours == pytest.approx(round(outcome.hours))
    assert outcome.cost_usd == pytest.approx(round(outcome.cost_usd / 0.005) * 0.005)
    assert world.worked_s <= outcome.hours * 3600


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_brings_the_same_average_load(pattern):
    hours = np.linspace(0, HOURS, 72_001)
    assert np.mean([rate(pattern, hour) for hour in hours]) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("application", APPLICATIONS)
def test_every_set_of_times_leaves_the_shortest_deadline_possible(application):
    for number in range(20):
        workflow, offers = world_of_times(application, number)
        shape = JobClass(workflow, offers, 1800.0)
        fastest = (shape.duration_s.min(axis=1) * 1e6).astype(int).tolist()
        assert max(workflow.graph.earliest_finish(fastest)) / 1e6 + offers[0].lag_s < 1800.0


def test_a_run_broken_off_goes_on_where_it_stopped(tmp_path):
    arguments = ["--sets", "1", "--hours", "0.5", "--out", str(tmp_path), "--json", "--jobs", "1"]
    first = CliRunner().invoke(command, arguments)
    assert first.exit_code == 0, first.output
    store = tmp_path / "scs" / "cases.ndjson"
    lines = store.read_text().splitlines()
    store.write_text("\n".join(lines[:50]) + '\n{"case": {"tor')
    second = CliRunner().invoke(command, arguments)
    cells = [json.loads(result.stdout)["cells"] for result in (first, second)]
    assert cells[0] == cells[1]
    assert (tmp_path / "scs" / "figure8.png").exists()


def test_a_case_is_a_pure_function_of_its_description():
    case = next(iter(all_cases(1, 1.0)))
    assert one_case(case) == one_case(case)


def test_at_low_volume_fewer_types_are_worth_having_than_at_high_volume():
    workflow, offers = world_of_times("pipeline", 0)
    mix = TypeMix(workflow, offers, 7200.0)
    every = frozenset(range(len(offers)))
    low, high = (set(mix.best(rate).assigned(0, 7200.0).offer.tolist()) for rate in (0.2, 2_000.0))
    assert len(low) < len(high)
    assert mix.bill(every, 0.2) > min(mix.bill(frozenset([o]), 0.2) for o in every)
