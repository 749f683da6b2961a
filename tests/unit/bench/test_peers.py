"""`windfall bench peers`: systems by turns, absent and failing ones told, nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from windfall.bench.peers import command as peers
from windfall.bench.peers.systems import SYSTEMS, Parallel
from windfall.cli import cli


def test_a_peer_that_nobody_knows_is_refused_with_those_that_are_known():
    ended = CliRunner().invoke(cli, ["bench", "peers", "--only", "pool,slurm"], standalone_mode=False)
    assert "slurm is no peer" in str(ended.exception)
    assert "hyperqueue" in str(getattr(ended.exception, "hint", ""))


def test_absent_and_failing_peers_are_told_and_the_others_measured(monkeypatch):
    def measured(name: str, n: int, slots: int) -> dict[str, float | None]:
        if name == "ray":
            raise peers.WindfallError("no shared memory")
        return {"calls_per_s": None if name == "parallel" else 200.0 if name == "windfall" else 100.0,
                "processes_per_s": 50.0}  # fmt: skip

    monkeypatch.setattr(peers, "_measure", measured)
    monkeypatch.setattr(peers, "_version", lambda name: "1.0")
    for name, kind in SYSTEMS.items():
        monkeypatch.setattr(kind, "is_here", classmethod(lambda cls, name=name: name != "dask"))
    ended = CliRunner().invoke(cli, ["bench", "peers", "--rounds", "2", "--json"])
    assert ended.exit_code == 0, ended.output
    document = json.loads(ended.stdout)
    rows = {row["name"]: row for row in document["systems"]}
    assert document["absent"] == {"dask": "pip install distributed"}
    assert document["failed"] == {"ray": "no shared memory"}
    assert rows["Parsl"]["windfall_over_it_calls"] == 2.0
    assert rows["GNU parallel"]["calls_per_s"] is None
    assert "Ray" not in rows
    shown = CliRunner().invoke(cli, ["bench", "peers", "--rounds", "1"]).output
    assert "not here: pip install distributed" in shown
    assert "failed: no shared memory" in shown


def test_a_program_of_the_same_name_is_not_taken_for_gnu_parallel(tmp_path, monkeypatch):
    other = tmp_path / "parallel"
    other.write_text("#!/bin/sh\necho 'parallel [OPTIONS] command -- arguments' >&2\nexit 1\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not Parallel.is_here()


@pytest.mark.parametrize("name", ["pool", "parallel"])
def test_a_system_that_is_here_does_all_calls_and_processes(name):
    if not SYSTEMS[name].is_here():
        pytest.skip(f"{SYSTEMS[name].name} is not installed")
    source = str(Path(peers.__file__).parents[3])
    env = os.environ | {"PYTHONPATH": source}
    words = [sys.executable, "-m", "windfall.bench.peers.measure", name, "20", "10", "2"]
    said = subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout
    measured = json.loads(said.strip().splitlines()[-1])
    assert measured["processes_per_s"] > 0
    assert (measured["calls_per_s"] is None) == (name == "parallel")
