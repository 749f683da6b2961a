"""`windfall bench start`: how soon commands answer, beside `python -c pass`. Touches processes and a directory."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import click

from windfall.bench.harness import PYTHON, interleaved, live, report

GOALS = {"help": 6.0, "status": 6.0, "run": 20.0}
"""Times `python -c pass`, which takes about 25 ms: 0.15 s and half a second."""


def took_s(arguments: list[str], directory: Path) -> float:
    env = {name: value for name, value in os.environ.items() if not name.startswith("WINDFALL_")}
    began = time.perf_counter()
    subprocess.run(arguments, cwd=directory, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
    return time.perf_counter() - began


@click.command()
@click.option("--rounds", default=7, show_default=True, help="Rounds, alternating with the floor.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(rounds: int, as_json: bool) -> None:
    """Time `windfall --help`, `windfall status` (a server runs) and `windfall run` of one trivial task.

    \b
    Examples:
      windfall bench start
      windfall bench start --rounds 3 --json
    """
    windfall, bare = [PYTHON, "-m", "windfall"], [PYTHON, "-c", "pass"]
    found: dict[str, Any] = {"bench": "start", "unit": "s", "peer_is": "python -c pass"}
    with live() as running, tempfile.TemporaryDirectory(prefix="windfall-bench-") as made:
        directory = Path(made)
        asked = {
            "help": [*windfall, "--help"],
            "status": [*windfall, "status", "--state", str(running.state)],
            "run": [*windfall, "run", "--range", "1-1", "--", "true"],
        }
        for name, arguments in asked.items():
            ours, floor = interleaved(rounds, partial(took_s, arguments, directory), partial(took_s, bare, directory))
            found[f"{name}_s"] = statistics.median(ours)
            found[f"{name}_ratio"] = statistics.median(a / b for a, b in zip(ours, floor, strict=True))
            found[f"{name}_goal"] = GOALS[name]
            found["python_s"] = statistics.median(floor)
    report(found, as_json)
