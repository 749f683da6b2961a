"""Cases of a laboratory: each is computed once for each version of the code, and no table mixes versions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from windfall.lab import cases, version


def square(case):
    with open(case["seen"], "a") as seen:
        seen.write(f"{case['n']}\n")
    return {"square": case["n"] ** 2}


@pytest.fixture
def squares(tmp_path):
    """Computes squares in this process' children; returns the results and which were computed anew."""

    def compute(*numbers):
        seen = tmp_path / "seen"
        seen.write_text("")
        wanted = [{"n": n, "seen": str(seen)} for n in numbers]
        results = cases.run("squares", wanted, square, tmp_path / "kept.ndjson", jobs=1)
        return [result["square"] for result in results], sorted(map(int, seen.read_text().split()))

    return compute


def test_a_stored_result_is_not_computed_again(squares):
    assert squares(1, 2) == ([1, 4], [1, 2])
    assert squares(1, 2, 3) == ([1, 4, 9], [3])


def test_a_result_of_another_version_of_the_code_is_computed_again(squares, tmp_path, monkeypatch, capsys):
    squares(1, 2)
    monkeypatch.setattr(cases, "code_version", lambda module: "changed")
    assert squares(1, 2) == ([1, 4], [1, 2])
    assert "2 stored results are of other versions of the code" in capsys.readouterr().err
    kept = [json.loads(line) for line in (tmp_path / "kept.ndjson").read_text().splitlines()]
    assert [row["code"] == "changed" for row in kept] == [False, False, True, True]
    assert squares(1, 2) == ([1, 4], [])


def test_a_result_without_a_version_is_computed_again(squares, tmp_path):
    case = {"n": 3, "seen": str(tmp_path / "seen")}
    (tmp_path / "kept.ndjson").write_text(json.dumps({"case": case, "result": {"square": -1}}) + "\n")
    assert squares(3) == ([9], [3])


@pytest.fixture
def source(tmp_path):
    root = tmp_path / "windfall"
    for name in (
        "core/engine.py",
        "cli/run.py",
        "lab/data.py",
        "lab/hads/world.py",
        "lab/scs/cell.py",
        "sim/library.toml",
        "worker/pace.py",
        "worker/agent.py",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        ("core/engine.py", True),
        ("sim/library.toml", True),
        ("lab/hads/world.py", True),
        ("lab/data.py", True),
        ("lab/scs/cell.py", False),
        ("cli/run.py", False),
        ("worker/pace.py", True),
        ("worker/agent.py", False),
    ],
)
def test_the_version_changes_with_the_source_that_a_laboratory_depends_on(source: Path, changed: str, counts: bool):
    version.code_version.cache_clear()
    before = version.code_version("windfall.lab.hads.world", source)
    (source / changed).write_text("another")
    version.code_version.cache_clear()
    assert (version.code_version("windfall.lab.hads.world", source) != before) is counts


@pytest.mark.parametrize("module", ["hads.world", "scs.cell", "opie.pods", "gridbot.worlds"])
def test_every_module_that_a_model_of_a_laboratory_loads_counts(module: str):
    show = f"import sys, windfall.lab.{module}; print(*(name for name in sys.modules if name.startswith('windfall.')))"
    loaded = subprocess.run([sys.executable, "-c", show], check=True, capture_output=True, text=True).stdout.split()
    files = ["/".join(name.split(".")[1:]) + ".py" for name in loaded]
    unseen = [file for file in files if file.split("/")[0] in version.UNRELATED and file not in version.RELATED]
    assert [file for file in unseen if not file.startswith("lab/") and (version.ROOT / file).is_file()] == []
