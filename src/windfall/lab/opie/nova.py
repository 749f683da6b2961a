"""The experiments of the paper on a real OpenStack Nova, in its own environment. Touches processes and the cache.

`integrations/nova` runs them (`windfall_nova.cloud.experiment`); this module finds the environment that `tools/nova.sh`
has made, starts them there, and makes a page of what comes back.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from windfall.errors import BadInput

ROOT = Path(__file__).parents[4]
HINT = "sh tools/nova.sh installs it, in a checkout of Windfall"
SCHEDULERS = ("default", "retry", "windfall")
SCENARIOS = ("empty, normal", "empty, preemptible", "saturated, normal")


def python_of_nova() -> Path:
    """The Python of the environment with Nova. BadInput: there is none."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = Path(os.environ.get("WINDFALL_NOVA", cache / "windfall" / "nova"))
    if not (folder / ".installed").exists():
        raise BadInput(f"OpenStack Nova is not in {folder}", hint=HINT)
    if not (ROOT / "integrations" / "nova").is_dir():
        raise BadInput("integrations/nova is not here", hint="--nova runs in a checkout of Windfall")
    return folder / "venv" / "bin" / "python"


def measured(hosts: Sequence[int], requests: int, tables: bool = True) -> dict[str, Any]:
    """The document of the experiments; minutes for 24 hosts. Progress goes to standard error."""
    python = python_of_nova()
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "integrations" / "nova")])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory(prefix="windfall-nova-") as folder:
        out = Path(folder) / "found.json"
        command = [str(python), "-m", "windfall_nova.cloud.experiment", "--out", str(out)]
        command += ["--requests", str(requests), "--hosts", *map(str, hosts), *([] if tables else ["--no-tables"])]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, cwd=folder)
        if done.returncode or not out.exists():
            raise BadInput(
                "the experiments on Nova failed", hint="what went wrong stands above; sh tools/nova.sh --check"
            )
        found: dict[str, Any] = msgspec.json.decode(out.read_bytes())
    return found


def report(document: Mapping[str, Any]) -> str:
    lines = ["# OPIE on OpenStack Nova", ""]
    if document["tables"]:
        lines += [
            "## Tables 3 to 6, as booted servers",
            "",
            "| table | the paper evicts | Nova evicts |",
            "|---|---|---|",
        ]
        for row in document["tables"]:
            paper, nova = (f"{row[who]['host']}: {', '.join(row[who]['victims'])}" for who in ("paper", "nova"))
            lines.append(f"| {row['table']} | {paper} | {nova}{'' if row['same'] else ' (differs)'} |")
        lines.append("")
    lines += [
        "## Figure 2: latency of a request",
        "",
        "Median and best in ms: until the server is active, and of one call of the scheduler, evictions included.",
        "`default` is Nova's scheduler, `retry` Nova's with a client that makes room after a failure and asks again.",
        "",
        f"| hosts | scenario | {' | '.join(f'{name}, API | {name}, call' for name in SCHEDULERS)} |",
        "|---|---|" + "---|---|" * len(SCHEDULERS),
    ]
    points = {(row["hosts"], row["scenario"], row["scheduler"]): row for row in document["figure_2"]}
    for hosts in sorted({row["hosts"] for row in document["figure_2"]}):
        for scenario in SCENARIOS:
            cells = [_cells(points.get((hosts, scenario, name))) for name in SCHEDULERS]
            lines.append(f"| {hosts:,} | {scenario} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _cells(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return " | "
    return " | ".join(f"{row[key]['median']:,.0f} ({row[key]['best']:,.0f})" for key in ("api_ms", "call_ms"))
