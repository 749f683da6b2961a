"""`windfall plan --workflow` where machines may vanish: chance and cost come from runs of the live planner."""

from __future__ import annotations

import json
import random

import pytest

from tests.support.commands.command import windfall
from windfall.cli.plan.workflow_runs import RUNS_ON_DEMAND

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
    assert told["search"]["tried"] > 0 and told["search"]["better"][0]["tried"] == 0


def test_the_chance_knows_that_machines_on_demand_are_limited(tmp_path, monkeypatch, capsys):
    # All eight run on spot, which rarely lasts; one machine on demand cannot make good what they lose.
    words = ("--deadline", "45m", "--seeds", "6")
    told = json.loads(plan(monkeypatch, capsys, tmp_path, *words, limit=1, rate=12.0, tasks=8).out)
    assert told["risk"]["chance_late"] > 0.3


def test_a_plan_on_demand_is_simulated_too_because_run_times_vary(tmp_path, monkeypatch, capsys):
    words = ("--deadline", "3h", "--market", "on-demand")
    told = json.loads(plan(monkeypatch, capsys, tmp_path, *words).out)
    assert told["forecast"]["runs"] == RUNS_ON_DEMAND
    assert told["risk"]["expected_usd"] == told["forecast"]["cost_usd"]["mean"]
    asked = json.loads(plan(monkeypatch, capsys, tmp_path, *words, "--seeds", "2", "--spread", "0").out)
    assert asked["forecast"]["cost_usd"]["mean"] == pytest.approx(asked["cost_usd"], rel=0.2)


CARDS = """
[[offer]]
name = "plain"
price_usd = 0.01
cycle_s = 60
lag_s = 60
[[offer]]
name = "card"
price_usd = 0.1
gpus = 1
cycle_s = 60
lag_s = 60
"""


@pytest.fixture
def flow(tmp_path, monkeypatch, capsys):
    """Plan two tasks, the second after the first, each with these lines of its own."""
    (tmp_path / "offers.toml").write_text(CARDS)

    def call(first: str, second: str):
        then = LATER.format(n=1) + second
        (tmp_path / "flow.toml").write_text(FLOW.format(later=f"{first}\n{then}"))
        words = ("--workflow", str(tmp_path / "flow.toml"), "--offers", str(tmp_path / "offers.toml"))
        return windfall(monkeypatch, capsys, "plan", *words, "--deadline", "3h", "--json")

    return call


def test_simulated_runs_rent_machines_with_the_gpus_that_tasks_need(flow):
    cards, plain = (json.loads(flow(line, line).out) for line in ("gpus = 1", ""))
    assert {machine["offer"] for machine in cards["machines"]} == {"card"}
    assert cards["forecast"]["cost_usd"]["mean"] > 5 * plain["forecast"]["cost_usd"]["mean"] > 0


def test_where_only_some_tasks_need_gpus_the_plan_is_not_simulated(flow):
    told = json.loads(flow("gpus = 1", "").out)
    assert {machine["offer"] for machine in told["machines"]} == {"card", "plain"} and "forecast" not in told


def test_a_licence_that_no_offer_has_is_said_to_be_the_servers(flow):
    ended = flow("resources = { licence = 1 }", "resources = { licence = 1, gpus = 1 }")
    assert ended.code == 0, ended
    assert "licence: not counted; name the server that has it: --server or --state" in ended.err
    refused = flow("gpus = 2", "")
    assert refused.code == 2 and "2 gpus and no offer has that" in refused.err


def test_runs_that_take_longer_than_the_plan_miss_nothing_where_no_deadline_was_named(tmp_path, monkeypatch, capsys):
    ended = plan(
        monkeypatch, capsys, tmp_path, "--budget", "5", "--market", "on-demand", "--spread", "0.8", "--seeds", "6"
    )
    assert json.loads(ended.out)["forecast"]["met_high"] < 0.95
    assert ended.code == 0, ended


TASK = """
[[task]]
name = "t{n}"
command = ["true"]
runtime_s = {runtime_s}
after = {after}
"""


def tangled(tasks: int, seed: int) -> str:
    """A workflow of random tasks, each after up to two of the ten before it."""
    chance = random.Random(seed)
    rows = ['name = "tangled"']
    for n in range(tasks):
        after = sorted({chance.randrange(max(0, n - 10), n) for _ in range(chance.randrange(3))} if n else set())
        names = json.dumps([f"t{parent}" for parent in after])
        rows.append(TASK.format(n=n, runtime_s=round(chance.lognormvariate(5.0, 0.7), 1), after=names))
    return "".join(rows)


@pytest.mark.parametrize(("seed", "cycle_s"), [(1, 3600), (2, 60)])
def test_a_run_without_any_loss_costs_what_the_plan_says(seed, cycle_s, tmp_path, monkeypatch, capsys):
    (tmp_path / "flow.toml").write_text(tangled(25, seed))
    offers = OFFERS.format(limit=20, rate=0).replace("cycle_s = 60", f"cycle_s = {cycle_s}")
    (tmp_path / "offers.toml").write_text(offers)
    where = ("--workflow", str(tmp_path / "flow.toml"), "--offers", str(tmp_path / "offers.toml"))
    ended = windfall(
        monkeypatch, capsys, "plan", *where, "--deadline", "65m", "--spread", "0", "--seeds", "1", "--json"
    )
    told = json.loads(ended.out)
    assert told["met"] and told["forecast"]["met"] == 1, ended
    assert told["forecast"]["cost_usd"]["mean"] == pytest.approx(told["cost_usd"], rel=1e-6)
    assert told["forecast"]["finish_s"]["mean"] == pytest.approx(told["makespan_s"], abs=60.0)


ROW = """
name = "row"
{spread}
[[task]]
name = "prepare"
command = "true"
estimate = "5m"
[[task]]
name = "fit-{{k}}"
map = {{ k = "1-12" }}
command = "true"
after = "prepare"
estimate = "15m"
"""
BY_THE_HOUR = """
[[offer]]
name = "small"
cores = 2
price_usd = 0.085
cycle_s = 3600
lag_s = 120
"""


@pytest.mark.parametrize(("spread", "words"), [("spread = 0", ()), ("", ("--spread", "0"))])
def test_runs_of_exact_tasks_cost_what_the_plan_says_where_that_is_told(tmp_path, monkeypatch, capsys, spread, words):
    """Run times that nobody calls exact have slack: a second machine is rented, and the bill is a half higher."""
    (tmp_path / "offers.toml").write_text(BY_THE_HOUR)

    def planned(spread, *words):
        (tmp_path / "flow.toml").write_text(ROW.format(spread=spread))
        files = ("--workflow", str(tmp_path / "flow.toml"), "--offers", str(tmp_path / "offers.toml"))
        words = (*files, "--deadline", "2h", "--seeds", "2", *words)
        return json.loads(windfall(monkeypatch, capsys, "plan", *words, "--json").out)

    told = planned(spread, *words)
    assert told["forecast"]["cost_usd"]["high"] == pytest.approx(told["cost_usd"]) == 0.17
    assert planned("")["forecast"]["cost_usd"]["mean"] > 0.2
