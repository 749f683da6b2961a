"""Without noise, a workflow executed by the engine in the simulated cloud costs exactly what its first plan said."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windfall.planning.workflow.planners import NAMES
from windfall.sim.run import run
from windfall.sim.scenario import check

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
