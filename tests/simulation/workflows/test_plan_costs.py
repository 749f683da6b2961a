"""Without noise, a workflow executed by the engine in the simulated cloud costs exactly what its first plan said."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windfall.graph import from_edges
from windfall.planning.offers import Offer
from windfall.planning.workflow.planners import NAMES
from windfall.sim.run import run
from windfall.sim.scenario import check
from windfall.sim.studies.forecast import Question, Run, run_once, supply_of

# Prices in whole millionths of a dollar per cycle, as the engine keeps its books.
PRICES = {3600: (0.085, 0.5), 600: (0.0142, 0.09), 60: (0.0015, 0.009)}


def scenario(shape, tasks, deadline_m, planner, cycle_s, boot_s):
    small, large = PRICES[cycle_s]
    common = {"cycle": f"{cycle_s}s", "limit": 60, "boot": f"{boot_s}s"}
    offers = [
        {"name": "small", "price_usd": small} | common,
        {"name": "large", "price_usd": large, "cores": 4, "speed": 1.6} | common,
    ]
    flow = {
        "name": "flow", "shape": shape, "tasks": tasks, "run": {"law": "uniform", "low": "2m", "high": "8m"},
        "deadline": f"{deadline_m}m", "planner": planner,
    }  # fmt: skip
    return check({"cloud": [{"name": "cloud", "offer": offers}], "bag": [flow]}, Path("test.toml"))


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["pipeline", "parallel", "hybrid"]),
    st.integers(4, 10),
    st.integers(60, 240),
    st.sampled_from(NAMES),
    st.sampled_from(sorted(PRICES)),
    st.sampled_from([30, 90]),
    st.integers(0, 1000),
)
def test_execution_without_noise_costs_what_the_plan_says(shape, tasks, deadline_m, planner, cycle_s, boot_s, seed):
    outcome, _ = run(scenario(shape, tasks, deadline_m, planner, cycle_s, boot_s), seed)
    (bag,) = outcome.bags
    assert bag.done == tasks
    assert bag.met
    assert bag.cost_usd == pytest.approx(bag.planned_cost_usd, abs=1e-6)
    assert bag.turnaround_s == pytest.approx(bag.planned_finish_s, abs=0.01)


TYPES = {"small": (1, 1.0, 0.05), "wide": (4, 1.0, 0.17), "fast": (2, 1.8, 0.16)}


def tangled(tasks: int, seed: int) -> Question:
    """A workflow of random tasks, each after up to two of the fifteen before it, on three hourly types on demand."""
    chance = random.Random(seed)
    edges = {
        (chance.randrange(max(0, task - 15), task), task)
        for task in range(1, tasks)
        for _ in range(chance.randint(0, 2))
    }
    offers = [
        Offer(name=name, cores=cores, speed=speed, price_usd=usd, lag_s=60.0)
        for name, (cores, speed, usd) in TYPES.items()
    ]
    return Question(
        estimates_s=tuple(chance.lognormvariate(6.0, 0.8) for _ in range(tasks)), memory_bytes=(0,) * tasks,
        spread=0.0, told_spread=0.0,  # else the live planner would keep slack for run times that vary
        supplies=tuple(map(supply_of, offers)), planner="windfall", edges=tuple(sorted(edges)),
        classes_of=("",) * tasks, cpus_of=tuple(chance.choice((1, 1, 1, 2)) for _ in range(tasks)),
    )  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_core_begins_a_task_that_keeps_its_machine_for_another_cycle(seed):
    question = tangled(40, seed)
    path_s = from_edges(40, question.edges).tail([int(seconds) for seconds in question.estimates_s])
    deadline_s = 60.0 + 1.5 * max(path_s) / 1.8
    found = msgspec.msgpack.decode(run_once(msgspec.msgpack.encode(question), deadline_s, 1), type=Run)
    assert found.met
    assert found.cost_usd == pytest.approx(found.first.predicted_cost_usd, rel=1e-6)
