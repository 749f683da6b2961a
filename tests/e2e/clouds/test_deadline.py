"""What a person types for a deadline and sees of its money, on real machines of the emulated cloud."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.support.clouds.cloud_server import pool, served, submit, until
from tests.support.clouds.providers import sweep
from tests.support.commands.command import windfall
from tests.support.server.cluster import WINDFALL

pytestmark = pytest.mark.slow


@pytest.fixture
def typed(monkeypatch, capsys):
    def call(*words):
        return windfall(monkeypatch, capsys, *words)

    return call


@pytest.fixture
def run(tmp_path):
    """`windfall run` with a cloud, in a process of its own; afterwards no machine is left."""
    (tmp_path / "pools.toml").write_text(pool())

    def call(*words):
        command = [*WINDFALL, "run", "--pools", "pools.toml", *words]
        env = os.environ | {"TMPDIR": str(tmp_path)}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)

    yield call
    sweep(tmp_path / ".windfall")


TASKS = ["--range", "1-4", "--pool", "cloud", "--deadline", "2m", "--estimate", "1s"]
COMMAND = ["--", "sh", "-c", "sleep 1; echo $1", "sh", "{}"]


def test_a_budget_that_is_too_small_stops_the_run_loudly_and_a_larger_one_goes_on_with_it(
    tmp_path, run, typed, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    ended = run(*TASKS, "--budget", "0.01", *COMMAND)
    assert ended.returncode == 4 and "above the budget of $0.01; nothing was started" in ended.stderr
    assert "--yes" in ended.stderr and not (tmp_path / ".windfall").exists()

    ended = run(*TASKS, "--budget", "0.01", "--yes", "--json", *COMMAND)
    told = json.loads(ended.stdout)
    assert ended.returncode == 4
    assert told["money"]["held_by_budget"] and told["money"]["cost_usd"] == 0 and told["tasks"]["done"] == 0
    assert "stopped by the budget" in ended.stderr and "windfall change 1 --budget" in ended.stderr
    assert "the budget of $0.01 does not allow it" in typed("explain", "last").out

    assert typed("change", "last", "--budget", "5").code == 0
    ended = run("--resume", "last", "--json")
    told = json.loads(ended.stdout)
    assert (ended.returncode, told["state"], told["tasks"]["done"]) == (0, "done", 4)
    assert 0 < told["money"]["cost_usd"] <= 5
    bill = json.loads(typed("cost", "last", "--json").out)
    assert bill["spent_usd"] == told["money"]["cost_usd"]


def test_a_ledger_adds_up_and_says_what_is_to_come(tmp_path, typed, monkeypatch):
    with served(tmp_path, pool()) as made:
        monkeypatch.setenv("WINDFALL_STATE", str(made.state))
        job = submit(made, 8, 2.0, budget=3)
        until(lambda: job.status()["tasks"]["running"])
        status = json.loads(typed("status", "last", "--json").out)
        assert status["money"]["machines"]["there"] >= 1
        assert status["money"]["forecast_usd"] >= status["money"]["spent_usd"] > 0
        assert status["plan"]["plans"] >= 1 and status["plan"]["because"]

        what_if = typed("plan", "last", "--what-if", "deadline=1m,4m", "--seeds", "1", "--json")
        rows = [row["deadline_s"] for row in json.loads(what_if.out)["what_if"]]
        assert (rows[0], rows[2]) == (60.0, 240.0) and 60.0 < rows[1] < 120.0, "one's own is always there"

        job.wait(60)
        until(lambda: not job.status()["money"]["machines"]["there"])
        bill = json.loads(typed("cost", "last", "--json").out)
        assert list(bill) == [
            "job", "name", "state", "fleet", "spent_usd", "budget_usd", "forecast_usd", "to_come_usd",
            "first_forecast_usd", "held_by_budget", "after_stop_usd", "run_s", "paid_core_s", "machines",
            "offers", "pools", "strangers",
        ]  # fmt: skip
        cents = sum(row["cost_microusd"] for row in bill["machines"])
        by_hand = sum(row["cycles"] * round(row["price_usd"] * 1e6) for row in bill["machines"])
        assert cents == by_hand == round(bill["spent_usd"] * 1e6)
        assert cents == round(sum(row["cost_usd"] for row in bill["offers"]) * 1e6)
        assert cents == round(sum(row["cost_usd"] for row in bill["pools"]) * 1e6)
        assert (bill["budget_usd"], bill["to_come_usd"]) == (3.0, 0.0)
        shown = typed("cost", "last").out
        assert "of a budget of $3.00" in shown and "released" in shown
        told = json.loads(typed("explain", "last", "--json").out)
        assert any(plan["started"] and plan["because"] for plan in told["last_plans"])
        assert "for comparison, all on-demand" in typed("explain", "last").out


def test_a_task_that_is_reserved_says_for_which_machine(tmp_path, typed, monkeypatch):
    with served(tmp_path, pool(scale=12)) as made:
        monkeypatch.setenv("WINDFALL_STATE", str(made.state))
        job = submit(made, 3, 1.0)
        until(lambda: job.status()["money"]["machines"]["there"])
        # At this scale a machine takes five seconds to boot.
        assert "its plan has reserved it for a machine: m1 (" in typed("explain", "last", "2").out
        job.cancel()


def test_progress_is_quiet_in_a_pipe_and_the_summary_holds_predicted_against_actual(run):
    ended = run(*TASKS, *COMMAND)
    assert ended.returncode == 0, ended
    # On a slow machine a line says now and then how far it is; nothing is drawn.
    assert "\x1b" not in ended.stderr and all(" job 1 " in line for line in ended.stderr.splitlines())
    first, cost, done = ended.stdout.splitlines()
    assert first.startswith("job 1 'sh'  4 tasks: 4 done")
    assert "(predicted $" in cost and "by windfall" in cost
    assert "(predicted " in done and "before the deadline" in done
