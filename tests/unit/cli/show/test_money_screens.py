"""What is shown of money and rented machines: progress, summaries, exit codes, ledgers, reasons."""

from __future__ import annotations

import io
import json
import time

import pytest
from rich.console import Console

from windfall.cli.jobs import cost, explain
from windfall.cli.options import Place
from windfall.cli.run import foresee
from windfall.cli.show import money
from windfall.cli.show.progress import Progress
from windfall.cli.show.summary import document, exit_code, print_summary

NOW = time.time()


def machines(there=9, pending=1, hibernated=1, idle=0):
    offers = [
        {"offer": "spot-2", "market": "spot", "there": there - 1 if there else 0, "rented": 10},
        {"offer": "od-2", "market": "on-demand", "there": min(1, there), "rented": 1},
    ]
    return {"rented": 11, "there": there, "pending": pending, "hibernated": hibernated, "idle": idle, "offers": offers}


def status(state="running", *, budget=None, held=False, refused=(), deadline_s=NOW + 7200, finished_s=None, **fleet):
    return {
        "job": 7, "name": "fit", "state": state, "attempts": 10, "elapsed_s": 4.0, "submitted_s": NOW,
        "tasks": {"total": 100, "done": 40, "failed": 0, "cancelled": 0, "running": 5, "waiting": 55},
        "finished_s": finished_s, "mean_run_s": 0.5, "waste": 0, "stopped": "", "causes": {},
        "deadline_s": deadline_s, "slots": 2, "hosts": 1, "version": 3, "workflow": None,
        "money": {
            "spent_usd": 0.71, "budget_usd": budget, "forecast_usd": 1.19, "first_forecast_usd": 1.12,
            "held_by_budget": held, "machines": machines(**fleet),
        },
        "plan": {
            "planner": "windfall", "plans": 12, "planned_s": NOW, "look_again_s": None, "first_finish_s": NOW + 3600,
            "cost_usd": 1.19, "finish_s": NOW + 5400, "rejected": [], "because": [], "error": "",
            "refused": list(refused),
        },
    }  # fmt: skip


def drawn(made):
    screen = Console(width=160, force_terminal=True, color_system=None, record=True, file=io.StringIO())
    progress = Progress(None, screen=screen)
    progress.update(made)
    screen.print(progress.picture(made))
    return screen.export_text()


def test_one_look_says_what_it_costs_on_what_it_runs_and_whether_it_will_make_it():
    text = drawn(status())
    assert "cost $0.71 so far, $1.19 forecast" in text
    assert "9 machines (8 spot-2, 1 od-2): 7 busy, 1 boots, 1 hibernated" in text
    assert "plan: done about" in text and "(30m00s to spare)" in text


def test_a_plan_that_comes_too_late_says_so():
    assert "late)" in drawn(status(deadline_s=NOW + 3600))


def test_what_a_budget_refuses_is_seen_at_once():
    text = drawn(
        status(budget=0.72, held=True, refused=["start spot-2: the budget ..."], there=0, pending=0, hibernated=0)
    )
    assert "budget $0.72" in text
    assert "stopped by its budget: start spot-2" in text
    assert "no machine is rented now" in text


def test_a_job_that_rents_nothing_shows_no_money():
    text = drawn(status() | {"money": None, "plan": None})
    assert "cost" not in text and "machine" not in text


def test_afterwards_predicted_stands_beside_actual(capsys):
    print_summary(status("done", finished_s=NOW + 3000, budget=2.0), [], Place())
    out = capsys.readouterr().out
    assert "cost $0.71 (predicted $1.12), budget $2.00   11 machines (10 spot-2, 1 od-2)   12 plans by windfall" in out
    assert "(predicted " in out and "1h10m before the deadline" in out


def test_the_document_of_a_run_holds_predicted_against_actual():
    told = document(status("done", finished_s=NOW + 3000), [])["money"]
    assert list(told) == [
        "cost_usd", "predicted_cost_usd", "budget_usd", "held_by_budget", "finish_s", "predicted_finish_s", "planner",
        "plans", "machines",
    ]  # fmt: skip
    assert told["machines"] == [
        {"offer": "spot-2", "market": "spot", "rented": 10}, {"offer": "od-2", "market": "on-demand", "rented": 1},
    ]  # fmt: skip
    assert document(status() | {"money": None, "plan": None}, [])["money"] is None


@pytest.mark.parametrize(("state", "held", "code"), [("paused", True, 4), ("paused", False, 130), ("failed", True, 1)])
def test_a_run_that_its_budget_stopped_exits_with_4(state, held, code):
    assert exit_code(status(state, held=held)) == code


@pytest.mark.parametrize(("budget", "code"), [(0.70, 4), (0.71, 0), (None, 0)])
def test_a_run_that_cost_more_than_its_budget_says_so_and_exits_with_4(capsys, budget, code):
    ended = status("done", finished_s=NOW + 3000, budget=budget)
    assert exit_code(ended) == code
    print_summary(ended, [], Place())
    assert ("$0.01 over its budget" in capsys.readouterr().out) == (code == 4)


def test_a_job_that_has_failed_is_not_called_done(capsys):
    print_summary(status("failed", finished_s=NOW + 3000), [], Place())
    out = capsys.readouterr().out
    assert "  ended at " in out and "  done at " not in out


def test_alike_refusals_are_counted_and_their_consequences_left_out():
    texts = ["start a: no", "start a: no", "assign to new-0: there is no such machine", "stop m3: tasks wait for it"]
    assert money.refusals(texts) == ["2 x start a: no", "stop m3: tasks wait for it"]


def test_reasons_of_planners_name_machines_and_times_as_people_do():
    said = money.reason_words(
        "3 is hibernated with 2 tasks; they may wait there until 6353", lambda t: f"for <{t:.0f}>"
    )
    assert said == "m3 is hibernated with 2 tasks; they may wait there for <6353>"
    safe = "safe until 0: if all spot machines vanish before then, on-demand still finishes in time"
    assert money.reason_words(safe).startswith("safe until 1970-01-01 ")
    assert money.reason_words("rent 3 'spot' machines") == "rent 3 'spot' machines"


# --- the ledger and the reasons -------------------------------------------------------------------------------------


ROW = {
    "machine": 3, "pool": "cloud", "offer": "spot-2", "market": "spot", "phase": "ended", "cause": "taken", "cores": 2,
    "requested_s": NOW, "ready_s": NOW + 2, "ended_s": NOW + 100, "billed_s": 80.0, "slept_s": 20.0, "cycle_s": 60.0,
    "cycles": 1, "price_usd": 0.03, "cost_microusd": 30_000, "cost_usd": 0.03,
}  # fmt: skip


def ledger(**changes):
    sums = {"pool": "cloud", "machines": 1, "cycles": 1, "billed_s": 80.0, "cost_usd": 0.03}
    return {
        "job": 7, "name": "fit", "state": "running", "spent_usd": 0.03, "budget_usd": None, "forecast_usd": 0.05,
        "to_come_usd": 0.02, "first_forecast_usd": 0.04, "held_by_budget": False, "run_s": 60.0, "paid_core_s": 120.0,
        "machines": [ROW], "offers": [{"offer": "spot-2", "market": "spot", **sums}], "pools": [sums], "strangers": [],
    } | changes  # fmt: skip


def test_the_headline_of_a_bill_says_spent_to_come_and_predicted():
    assert cost.headline(ledger()) == (
        "job 7 'fit' (running): $0.03 for 1 machine; about $0.02 to come, $0.05 in all   (first predicted: $0.04)"
    )
    assert "of a budget of $0.04, which allows no further one" in cost.headline(
        ledger(budget_usd=0.04, held_by_budget=True)
    )
    assert (
        cost.headline(ledger(machines=[], forecast_usd=None))
        == "job 7 'fit' has rented no machines: it has cost nothing"
    )


def test_a_plan_tells_what_it_did_why_and_what_else_would_cost():
    told = {
        "t": NOW, "started": [{"machine": 1, "offer": "spot-2", "price_usd": 0.03}] * 2, "stopped": [5], "moved": [3],
        "because": ["the job has ended", "rent 2 'spot-2' machines: the cheapest way to run 8 tasks"],
        "refused": ["start od-2: all 4 are rented"], "error": "", "cost_usd": 1.19,
        "finish_s": NOW + 60, "rejected": [{"what": "all on-demand", "cost_usd": 1.48}],
    }  # fmt: skip
    lines = "\n".join(explain.plan_lines(told))
    assert "started 2 spot-2, gave back m5, moved 1 task from hibernated machines; expected $1.19 in all" in lines
    assert "because the job has ended" in lines and "because rent" not in lines and "rent 2 'spot-2'" in lines
    assert "for comparison, all on-demand: $1.48" in lines
    assert "refused: start od-2: all 4 are rented" in lines
    json.dumps(told)


# --- foresight ------------------------------------------------------------------------------------------------------


def test_what_was_simulated_at_the_start_is_told_in_a_line():
    told = {"runs": 20, "possible": True, "cost_usd": {"low": 1.12, "high": 1.31}, "met": {"runs": 19}}
    said = "simulated at the start: $1.12 to $1.31, in time in 19 of 20 runs"
    assert foresee.words_of(json.dumps(told).encode()) == said
    late = told | {"surer": {"confidence": 0.999, "cost_usd": {"mean": 0.5}}, "nearest": {"deadline_s": 4000.0}}
    ways = "(often enough: --confidence 0.999 for about $0.50, or a deadline 1h07m after its start)"
    assert foresee.words_of(json.dumps(late).encode()) == f"{said} {ways}"
    assert foresee.words_of(b"") == ""
    late = {"possible": False, "cost_usd": None, "met": None, "runs": 0}
    assert "impossible" in foresee.words_of(json.dumps(late).encode())


def test_nothing_is_simulated_beside_a_job_without_a_plan_or_one_that_is_half_done(monkeypatch):
    started = []

    class Process:
        def __init__(self, command, **rest):
            started.append(command)

        def poll(self):
            return 0

    monkeypatch.setattr(foresee.subprocess, "Popen", Process)
    for made in (status() | {"plan": None}, status(), status(deadline_s=None)):
        foresee.Foresight("http://x", "t", 7).look(made)
    assert started == []
    fresh = status()
    fresh["tasks"] = fresh["tasks"] | {"done": 0}
    foresight = foresee.Foresight("http://x", "t", 7)
    foresight.look(fresh)
    foresight.close()
    assert len(started) == 1 and {"plan", "7", "--json"} <= set(started[0])
