"""`windfall bench scale`: every size is simulated with the engine, read back, and drawn."""

from __future__ import annotations

import json

from click.testing import CliRunner

from windfall.bench.in_process.scale import command


def test_every_size_is_simulated_and_its_state_read_back(tmp_path):
    picture = tmp_path / "scale.svg"
    ran = CliRunner().invoke(
        command, ["--hosts", "50", "--volunteers", "100", "--tasks", "5000", "--out", str(picture), "--json"]
    )
    assert ran.exit_code == 0, ran.output
    runs = json.loads(ran.output.strip().splitlines()[-1])["runs"]
    assert [(run["kind"], run["hosts"]) for run in runs] == [
        ("workers", 2), ("workers", 10), ("workers", 50), ("volunteers", 4), ("volunteers", 20), ("volunteers", 100),
    ]  # fmt: skip
    # A sign of life every 20 s; a report and a request every hour.
    assert [run["exchanges"] for run in runs[:3]] == [6 * run["hosts"] for run in runs[:3]]
    assert all(run["exchanges"] >= 2 * run["hosts"] for run in runs[3:])
    assert all(run["jobs"] == 1 for run in runs)
    assert picture.read_text().startswith("<svg")
