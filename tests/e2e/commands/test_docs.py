"""The pages that people type along with: every command on them works and says what the page says it says."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [*sorted((ROOT / "docs" / "tutorial").glob("*.md")), *sorted(ROOT.glob("README.md"))]
PYTHON_PAGES = [ROOT / "docs" / "howto" / "python.md"]
# What sets up or tests the project itself is not run inside of its tests.
NOT_RUN = re.compile(r"(make|git|pip|sudo) ")
TIMES = re.compile(r"\d+(\.\d+)?( s\b|/s|/min)|\b\d+:\d\d(:\d\d)?\b|\b\d+[mhd]\d\d[smh]\b")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(block: str) -> list[tuple[str, list[str]]]:
    """Commands behind `$ ` (going on behind `> `), each with the lines that it should print."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.startswith("> ") and found and not found[-1][1]:
            found[-1] = (f"{found[-1][0]}\n{line[2:]}", [])
        elif found:
            found[-1][1].append(line)
    return found


def plain(line: str) -> str:
    """A line without what differs from run to run: times, and how many blanks stand in a table."""
    return " ".join(TIMES.sub("T", line).split())


def says(expected: list[str], got: str) -> bool:
    """Line by line, `...` standing for anything: within a line, or for any number of lines."""
    pattern = "\n".join("*" if line.strip() == "..." else plain(line).replace("[", "[[]") for line in expected)
    text = "\n".join(plain(line) for line in got.splitlines())
    return fnmatch.fnmatchcase(text, re.sub(r"(?<=\S )?\.\.\.", "*", pattern).replace("\n*", "*"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_can_be_typed_along(page, tmp_path):
    env = {name: value for name, value in os.environ.items() if not name.startswith("WINDFALL_")}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    env["TERM"] = "dumb"
    code = 0
    for block in blocks(page, "console"):
        for command, expected in commands(block):
            if NOT_RUN.match(command):
                continue
            ended = subprocess.run(
                ["bash", "-c", f"(exit {code})\n{command}"], cwd=tmp_path, env=env, capture_output=True, text=True,
                stdin=subprocess.DEVNULL, timeout=120,
            )  # fmt: skip
            code = ended.returncode
            got = ended.stdout + (ended.stderr if code >= 2 else "")
            good = says(expected, got) if expected else code == 0
            assert good, f"{page.name}: $ {command}\n{got}\n{ended.stderr}"


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=lambda page: page.name)
def test_the_programs_of_a_page_run(page, tmp_path):
    programs = blocks(page, "python")
    assert programs
    for program in programs:
        (tmp_path / "program.py").write_text(program)
        ended = subprocess.run(
            [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )  # fmt: skip
        assert ended.returncode == 0, f"{program}\n{ended.stderr}"
        assert ended.stdout


def test_the_example_of_the_workflow_reference_runs(tmp_path):
    example = blocks(ROOT / "docs" / "reference" / "workflow-toml.md", "toml")[0]
    (tmp_path / "workflow.toml").write_text(example)
    ended = subprocess.run(
        [sys.executable, "-m", "windfall", "run", "--workflow", "workflow.toml"], cwd=tmp_path, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "7 tasks: 7 done" in ended.stdout


def test_a_page_that_says_something_else_is_found_out():
    assert says(["a ... c", "...", "took 1.5 s"], "a b c\nx\ny\ntook 22 s\n")
    assert says(["only"], "only\n")
    assert not says(["only"], "only\nmore\n")
    assert not says(["2 done"], "3 done\n")
    assert not says(["x"], "")
