"""`windfall bench start`: how soon commands answer, beside `python -c pass`. Touches processes and a directory."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from windfall.bench.harness import PYTHON, live, report, show

GOALS_S = {"help": 0.15, "status": 0.15, "run": 0.5, "plan_first": 3.0}
"""Seconds on a quiet machine, where `python -c pass` takes about 13 ms; on a busy one look at the ratios."""
_JOB = '[job]\ncommand = "./fit {}"\nrange = "1-200"\nestimate = "5m"\ndeadline = "2h"\n'
_OFFERS = """
[[offer]]
name = "spot"
market = "spot"
cores = 2
price_usd = 0.03
cycle_s = 3600
lag_s = 120
interruptions_per_h = 0.3
resumes_per_h = 2
[[offer]]
name = "steady"
cores = 2
price_usd = 0.085
cycle_s = 3600
lag_s = 120
"""


def took_s(arguments: list[str], directory: Path) -> float:
    # Byte code is kept, as an installed program has it.
    outside = ("WINDFALL_", "PYTHONDONTWRITEBYTECODE")
    env = {name: value for name, value in os.environ.items() if not name.startswith(outside)}
    began = time.perf_counter()
    subprocess.run(arguments, cwd=directory, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
    return time.perf_counter() - began


@click.command()
@click.option("--rounds", default=10, show_default=True, help="Rounds, alternating with the floor; the best counts.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(rounds: int, as_json: bool) -> None:
    """Time `windfall --help`, `status`, `run` of one trivial task and the first answer of `plan`.

    Others may use the machine: of each command, and of `python -c pass` beside it, the best round counts.

    \b
    Examples:
      windfall bench start
      windfall bench start --rounds 3 --json
    """
    windfall, bare = [PYTHON, "-m", "windfall"], [PYTHON, "-c", "pass"]
    found: dict[str, Any] = {"bench": "start", "unit": "s", "peer_is": "python -c pass"}
    with live() as running, tempfile.TemporaryDirectory(prefix="windfall-bench-") as made:
        directory = Path(made)
        (directory / "job.toml").write_text(_JOB)
        (directory / "offers.toml").write_text(_OFFERS)
        commands = {
            "python": bare,
            "help": [*windfall, "--help"],
            "status": [*windfall, "status", "--state", str(running.state)],
            "run": [*windfall, "run", "--range", "1-1", "--", "true"],
            "status_without_server": [*windfall, "status"],
            "plan_first": [*windfall, "plan", "job.toml", "--offers", "offers.toml", "--seeds", "1", "--json"],
        }
        best_s = dict.fromkeys(commands, float("inf"))
        for number in range(rounds + 1):  # the first round warms up
            show(f"round {number} of {rounds}")
            for name, arguments in commands.items():
                seconds = took_s(arguments, directory)
                best_s[name] = min(best_s[name], seconds) if number else best_s[name]
        show("")
    for name, seconds in best_s.items():
        found[f"{name}_s"] = seconds
        if name != "python":
            found[f"{name}_ratio"] = seconds / best_s["python"]
        if name in GOALS_S:
            found[f"{name}_goal_s"] = GOALS_S[name]
    report(found, as_json)
