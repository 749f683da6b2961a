"""How often a large bag is planned in one run: a count, not a time."""

from __future__ import annotations

import msgspec
import pytest

from windfall.planning.offers import Offer
from windfall.sim.studies.forecast import Question, Run, run_once, supply_of

SPOT = Offer(
    name="spot-2", pool="cloud", market="spot", cores=2, price_usd=0.03, cycle_s=3600.0, lag_s=120.0, limit=2000,
    interruptions_per_h=0.3, resumes_per_h=2.0,
)  # fmt: skip
STEADY = Offer(name="steady-2", pool="cloud", cores=2, price_usd=0.085, cycle_s=3600.0, lag_s=120.0, limit=2000)


def run_of(tasks: int, seed: int, spread: float) -> Run:
    question = Question(
        estimates_s=(300.0,) * tasks, memory_bytes=(0,) * tasks, spread=spread,
        supplies=(supply_of(SPOT), supply_of(STEADY)), planner="windfall",
    )  # fmt: skip
    return msgspec.msgpack.decode(run_once(msgspec.msgpack.encode(question), 7200.0, seed), type=Run)


@pytest.mark.parametrize(("seed", "spread"), [(4, 1.0), (2, 0.5)])
def test_a_run_with_hundreds_of_machines_makes_fewer_plans_than_it_has_changes(seed, spread):
    run = run_of(1000, seed, spread)
    assert run.met and run.plans <= 150


def test_a_run_with_ten_machines_is_planned_after_every_change():
    run = run_of(200, 4, 1.0)
    assert run.met and len(run.machines) < 50 and run.plans > run.interrupted
