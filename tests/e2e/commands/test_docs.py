"""The pages that people type along with: every command on them works and says what the page says it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.commands.pages import blocks, commands, says
from tests.support.server.cluster import free_port

ROOT = Path(__file__).parents[3]
HOWTO = ROOT / "docs" / "howto"
TYPED = ("budgets", "placement", "policies", "timeouts", "workflows")
PAGES = [*sorted((ROOT / "docs" / "tutorial").glob("*.md")), *sorted(ROOT.glob("README.md"))]
PAGES += [HOWTO / f"{name}.md" for name in TYPED]
README = ROOT / "README.md"
PYTHON_PAGES = [ROOT / "docs" / "howto" / "python.md", README]
# What sets up or tests the project itself is not run inside of its tests.
NOT_RUN = re.compile(r"(make|git|pip|sudo) ")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_can_be_typed_along(page, tmp_path):
    env = {name: value for name, value in os.environ.items() if not name.startswith("WINDFALL_")}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    env["TERM"] = "dumb"
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    code = 0
    for block in blocks(page, "console"):
        for command, expected in commands(block):
            if NOT_RUN.match(command) or ("--bound-s" in command and find_spec("ortools") is None):
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
    (tmp_path / "fit").write_text("#!/bin/sh\n")
    (tmp_path / "fit").chmod(0o755)
    for program in programs:
        (tmp_path / "program.py").write_text(program)
        ended = subprocess.run(
            [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )  # fmt: skip
        assert ended.returncode == 0, f"{program}\n{ended.stderr}"
        assert ended.stdout


def shell_lines(page: Path, first_word_of_block: str) -> list[str]:
    """The lines of the `sh` block of a page that begins so, without their remarks."""
    (block,) = [block for block in blocks(page, "sh") if block.startswith(first_word_of_block)]
    return [line.partition("  #")[0].strip() for line in block.splitlines()]


def test_the_lines_of_the_readme_on_many_hosts_work(tmp_path):
    port = free_port()
    lines = [
        line.replace("0.0.0.0:7272", f"127.0.0.1:{port}").replace("head-node:7272", f"127.0.0.1:{port}")
        for line in shell_lines(README, "windfall token")
    ]
    token, server, fetch, worker = lines
    assert "token create" in token and "server" in server and "worker.pyz" in fetch and "worker.pyz" in worker
    env = {name: value for name, value in os.environ.items() if not name.startswith("WINDFALL_")}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"

    def typed(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", "-c", line], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)

    def soon(line: str, good: Callable[[subprocess.CompletedProcess[str]], bool]) -> None:
        end = time.monotonic() + 60.0
        while not good(ended := typed(line)):
            assert time.monotonic() < end, f"{line}\n{ended.stdout}\n{ended.stderr}"
            time.sleep(0.2)

    def left_running(line: str) -> None:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"], cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        stack.callback(process.wait)
        stack.callback(process.terminate)

    assert typed(token).returncode == 0
    with ExitStack() as stack:
        left_running(server)
        soon(fetch, lambda ended: ended.returncode == 0)
        left_running(worker)
        soon("windfall host list --json", lambda ended: "live" in ended.stdout)
        assert typed("windfall submit --range 1-3 -- echo {} && windfall wait last").returncode == 0


@pytest.mark.slow
def test_the_lines_of_the_readme_on_a_deadline_work(tmp_path):
    plan, *others = shell_lines(README, "windfall plan")
    assert plan.startswith("windfall plan") and len(others) == 3 and "1-40" in others[0]
    others[0] = others[0].replace("1-40", "1-8")  # as good a run, in a quarter of the time
    env = {**os.environ, "WINDFALL_STATE": str(tmp_path / "state")}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    for line in others:
        ended = subprocess.run(["bash", "-c", line], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
        assert ended.returncode == 0, f"{line}\n{ended.stdout}\n{ended.stderr}"


def test_the_example_of_the_workflow_reference_runs(tmp_path):
    example = blocks(ROOT / "docs" / "reference" / "workflow-toml.md", "toml")[0]
    (tmp_path / "workflow.toml").write_text(example)
    ended = subprocess.run(
        [sys.executable, "-m", "windfall", "run", "--workflow", "workflow.toml"], cwd=tmp_path, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "7 tasks: 7 done" in ended.stdout


def typed_in(folder: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """What a command line does in a folder without a job."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("WINDFALL_")}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"

    def typed(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", "-c", line], cwd=folder, env=env, capture_output=True, text=True, timeout=300)

    return typed


def test_the_lines_of_the_reference_of_placeholders_work(tmp_path):
    page = ROOT / "docs" / "reference" / "commands-templates.md"
    ((wrong, expected),) = commands(blocks(page, "console")[0])
    (longer,) = [block.strip() for block in blocks(page, "sh") if "--resume" in block]
    (tmp_path / "fit").write_text("#!/bin/sh\necho $*\n")
    (tmp_path / "fit").chmod(0o755)
    (tmp_path / "runs.csv").write_text("x,seed\n1,2\n")
    typed = typed_in(tmp_path)
    refused = typed(wrong)
    assert refused.returncode == 2 and says(expected, refused.stderr), refused.stderr
    assert typed("windfall run --csv runs.csv -- ./fit --x {x}").returncode == 0
    (tmp_path / "runs.csv").write_text("x,seed\n1,2\n3,4\n")
    ended = typed(longer)
    assert ended.returncode == 0 and "2 tasks: 2 done" in ended.stdout, ended.stdout + ended.stderr


NEAR = """
[[offer]]
name = "near"
price_usd = 0.1
region = "us-east-1"
data_mb_per_s = 1000
"""
DATA_JOB = """
[job]
command = "./fit {}"
range = "1-8"
deadline = "4h"
estimate = "10m"
data = { us-east-1 = "50G" }
"""


def test_the_plan_of_the_page_on_data_says_what_the_page_says(tmp_path):
    page = HOWTO / "data.md"
    (far,) = [block for block in blocks(page, "toml") if "[[offer]]" in block]
    ((plan, expected),) = commands(blocks(page, "console")[0])
    (tmp_path / "offers.toml").write_text(far + NEAR)
    (tmp_path / "job.toml").write_text(DATA_JOB)
    ended = typed_in(tmp_path)(f"{plan} --seeds 3")
    assert ended.returncode == 0 and says(expected, ended.stdout), ended.stdout + ended.stderr


def test_a_page_that_says_something_else_is_found_out():
    assert says(["a ... c", "...", "took 1.5 s"], "a b c\nx\ny\ntook 22 s\n")
    assert says(["only"], "only\n")
    assert not says(["only"], "only\nmore\n")
    assert not says(["2 done"], "3 done\n")
    assert not says(["x"], "")
