"""`lab spot --experiment engine`: one planner in the laboratory and through the engine, on series that a test draws."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from windfall.lab.spot.command import command


@pytest.fixture
def series(tmp_path: Path) -> Path:
    folder = tmp_path / "series"
    folder.mkdir()
    for name, spells in {"calm": [60], "gaps": [9, 3, 14, 6, 20, 8]}.items():
        ticks = [1 - place % 2 for place, count in enumerate(spells) for _ in range(count)]
        (folder / f"{name}.json").write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": ticks}))
    return folder


def lab(folder: Path, out: Path, *more: str):
    words = ["--experiment", "engine", "--data", str(folder), "--starts", "1", "--work-h", "4", "--jobs", "1"]
    return CliRunner().invoke(command, [*words, "--out", str(out), *more])


def test_the_engine_stands_beside_the_laboratory_and_both_keep_the_deadline(series: Path, tmp_path: Path) -> None:
    result = lab(series, tmp_path, "--deadline-h", "6", "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["6"]
    assert {way: row["missed"] for way, row in rows.items()} == dict.fromkeys(rows, 0)
    assert rows["omniscient"]["ratio"] == 1.0
    assert rows["engine"]["ratio"] == pytest.approx(rows["laboratory, asks"]["ratio"], rel=0.03)
    assert {path.name for path in tmp_path.iterdir()} == {"series", "spot-engine.md", "spot-engine.json"}


def test_series_that_are_too_short_are_named(series: Path, tmp_path: Path) -> None:
    result = lab(series, tmp_path, "--deadline-h", "60")
    assert "lasts 60 h" in str(result.exception)
