"""`windfall plan --workflow` where machines may vanish: chance and cost come from runs of the live planner."""

from __future__ import annotations

import json

import pytest

from tests.support.commands.command import windfall

FLOW = """
name = "pairs"
[[task]]
name = "first"
command = ["true"]
runtime_s = 600
{later}
"""
LATER = """
[[task]]
name = "t{n}"
command = ["true"]
runtime_s = 600
after = ["first"]
"""
OFFERS = """
[[offer]]
name = "sure"
price_usd = 0.01
cycle_s = 60
lag_s = 60
limit = {limit}
[[offer]]
name = "spot"
market = "spot"
price_usd = 0.001
cycle_s = 60
lag_s = 60
interruptions_per_h = {rate}
when_taken = "terminate"
"""


def plan(monkeypatch, capsys, folder, *words, limit=20, rate=0.5, tasks=4):
    (folder / "flow.toml").write_text(FLOW.format(later="".join(LATER.format(n=n) for n in range(tasks))))
    (folder / "offers.toml").write_text(OFFERS.format(limit=limit, rate=rate))
    where = ("--workflow", str(folder / "flow.toml"), "--offers", str(folder / "offers.toml"))
    return windfall(monkeypatch, capsys, "plan", *where, *words, "--json")


def test_a_plan_on_spot_tells_how_many_simulated_runs_were_in_time_and_what_they_cost(tmp_path, monkeypatch, capsys):
    ended = plan(monkeypatch, capsys, tmp_path, "--deadline", "3h", "--seeds", "4")
    told = json.loads(ended.out)
    assert ended.code == 0, ended
    assert {machine["offer"] for machine in told["machines"]} == {"spot"}
    assert (told["forecast"]["runs"], told["forecast"]["met"], told["risk"]["chance_late"]) == (4, 4, 0.0)
    assert told["risk"]["expected_usd"] == told["forecast"]["cost_usd"]["mean"] > 0


def test_the_chance_knows_that_machines_on_demand_are_limited(tmp_path, monkeypatch, capsys):
    # All eight run on spot, which rarely lasts; one machine on demand cannot make good what they lose.
    words = ("--deadline", "45m", "--seeds", "6")
    told = json.loads(plan(monkeypatch, capsys, tmp_path, *words, limit=1, rate=12.0, tasks=8).out)
    assert told["risk"]["chance_late"] > 0.3


def test_a_plan_on_demand_is_not_simulated_unless_asked(tmp_path, monkeypatch, capsys):
    words = ("--deadline", "3h", "--market", "on-demand")
    assert "forecast" not in json.loads(plan(monkeypatch, capsys, tmp_path, *words).out)
    asked = json.loads(plan(monkeypatch, capsys, tmp_path, *words, "--seeds", "2", "--spread", "0").out)
    assert asked["forecast"]["cost_usd"]["mean"] == pytest.approx(asked["cost_usd"], rel=0.2)
