"""`windfall plan`: the published shape, exit codes, and errors that say what to do next."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from windfall.cli.plan.command import plan
from windfall.errors import BadInput, Missed

ROOT = Path(__file__).resolve().parents[4]
FIT = str(ROOT / "examples/workflows/fit.toml")
OFFERS = str(ROOT / "examples/offers.toml")


def call(*arguments):
    return CliRunner().invoke(plan, list(arguments))


def test_the_json_has_exactly_the_published_fields():
    result = call("--workflow", FIT, "--offers", OFFERS, "--deadline", "2h", "--planner", "prolis", "--json")
    document = json.loads(result.stdout)
    assert list(document) == ["cost_usd", "makespan_s", "met", "machines", "tasks", "forecast", "risk"]
    assert list(document["machines"][0]) == ["id", "offer", "start_s", "end_s", "cost_usd"]
    assert list(document["tasks"][0]) == ["id", "machine", "start_s", "end_s"]
    assert document["met"] is True
    assert len(document["tasks"]) == 14


def test_the_screen_answers_cost_time_and_slack():
    shown = call("--workflow", FIT, "--offers", OFFERS, "--deadline", "2h", "--planner", "greedy").stdout
    assert "cost $0.17" in shown
    assert "to spare" in shown


def test_an_impossible_deadline_names_the_earliest_one():
    result = call("--workflow", FIT, "--offers", OFFERS, "--deadline", "10m", "--json")
    assert isinstance(result.exception, Missed)
    assert result.exception.exit_code == 4
    assert "impossible" in result.exception.message
    assert "14m12s" in result.exception.message
    assert json.loads(result.stdout)["met"] is False


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--offers", OFFERS, "--deadline", "2h"], "workflow"),
        (["--workflow", FIT, "--deadline", "2h"], "--offers"),
        (["--workflow", FIT, "--offers", OFFERS], "deadline"),
        (["--workflow", FIT, "--offers", OFFERS, "--deadline", "soon"], "soon"),
        (["--workflow", "nowhere.json", "--offers", OFFERS, "--deadline", "2h"], "nowhere.json"),
        (["--workflow", FIT, "--offers", OFFERS, "--deadline", "2h", "--market", "spot"], "spot"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(arguments, word):
    result = call(*arguments)
    assert isinstance(result.exception, BadInput)
    assert word in result.exception.message
    assert result.exception.hint


def test_the_plan_can_be_drawn(tmp_path):
    picture = tmp_path / "gantt.png"
    call("--workflow", FIT, "--offers", OFFERS, "--deadline", "2h", "--planner", "greedy", "--plot", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_figure_that_cannot_be_written_is_refused_before_anything_is_planned(tmp_path):
    unplanned = call(
        "--workflow", "nothing.toml", "--offers", OFFERS, "--deadline", "2h", "--plot", str(tmp_path / "p.xyz")
    )
    assert isinstance(unplanned.exception, BadInput) and "no figure is drawn as .xyz" in unplanned.exception.message
    assert ".png" in unplanned.exception.hint and not list(tmp_path.iterdir())


def test_a_figure_is_announced_and_missing_directories_are_made_also_for_a_page(tmp_path, capsys):
    from windfall.cli.show import page
    from windfall.cli.show.output import wrote
    from windfall.figures.saved import save
    from windfall.figures.sheet import Panel, sheet

    wrote(save(sheet([Panel()], "nothing"), tmp_path / "a" / "front.png"))
    page.write(tmp_path / "b" / "report.html", "job 1", [], [])
    assert capsys.readouterr().err == f"wrote {tmp_path / 'a' / 'front.png'}\n"
    assert (tmp_path / "a" / "front.png").exists() and (tmp_path / "b" / "report.html").exists()
