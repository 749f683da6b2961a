"""The worlds of `windfall lab scs`: what planners are told of a stream."""

from __future__ import annotations

import pytest

from windfall.lab.scs.cell import scenario_of
from windfall.lab.scs.report import PLAIN
from windfall.sim.work import submissions


@pytest.mark.parametrize("run_error", [0.0, 0.2])
def test_tasks_keep_the_classes_by_which_types_are_fast_or_slow_also_where_estimates_are_wrong(run_error):
    case = {"hours": 1.0, "set": 0, "application": "pipeline", "pattern": "stable", "deadline_h": 0.5}
    scenario = scenario_of(PLAIN | case | {"planner": "scs", "run_error": run_error})
    classes, parts = submissions(scenario.bags, 0)[0].classes()
    names = [classes[number].name for count, number in parts for _ in range(count)]
    assert names == ["s0", "s1", "s2", "s3", "s4"]
    (offer, *_) = scenario.clouds[0].supplies
    assert {offer.offer.speed_for(name) for name in names} == set(offer.offer.speed.values())
