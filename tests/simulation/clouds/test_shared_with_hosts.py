"""One bag by one deadline on free hosts and on a cloud: they share it, and the deadline holds when either leaves."""

from __future__ import annotations

import pytest

from windfall.sim.run import run
from windfall.sim.scenario import read

WORLD = """
[[pool]]
name = "cluster"
hosts = 6
slots = 4

[[cloud]]
name = "cloud"

[[cloud.offer]]
name = "spot"
market = "spot"
price_usd = 0.07
cores = 2
limit = 80
boot = "2m"
interruptions_per_h = 0.3
when_taken = "hibernate"
hibernated = { law = "exponential", mean = "20m" }

[[cloud.offer]]
name = "on-demand"
price_usd = 0.24
cores = 2
limit = 80
boot = "2m"

[[bag]]
name = "rush"
submit = "10m"
tasks = 200
run = { law = "lognormal", median = "8m", sigma = 0.3 }
deadline = "2h"
planner = "windfall"
"""


@pytest.fixture
def world(tmp_path):
    def made(*changes: str):
        path = tmp_path / "world.toml"
        path.write_text(WORLD)
        return read(str(path), list(changes))

    return made


@pytest.mark.parametrize("planner", ["windfall", "hads", "greedy"])
def test_free_hosts_take_a_share_under_every_planner_and_the_job_costs_less(world, planner):
    chosen = f"bag.rush.planner={planner}"
    shared, _ = run(world(chosen), 1)
    alone, _ = run(world(chosen, "pool.cluster.hosts=1", "pool.cluster.slots=1"), 1)
    assert shared.met and alone.met
    assert shared.pools["cluster"].done >= 30
    assert shared.cost_usd < alone.cost_usd


@pytest.mark.parametrize("seed", range(1, 5))
def test_the_deadline_holds_although_all_free_hosts_leave_in_the_middle(world, seed):
    found, _ = run(world("pool.cluster.stay.law=exponential", "pool.cluster.stay.mean=30m"), seed)
    assert found.met, found
    assert found.bags[0].done == 200


@pytest.mark.parametrize("seed", range(1, 4))
def test_the_deadline_holds_though_they_are_a_hundred_times_too_slow(world, seed):
    found, _ = run(world("pool.cluster.speed=0.01"), seed)
    assert found.met, found
    assert found.bags[0].done == 200
