"""`windfall bench peers`: calls and processes of Windfall and of the peers that are installed, by turns."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from windfall.bench.harness import PYTHON, show
from windfall.bench.peers.systems import SYSTEMS
from windfall.cli.show.output import print_json
from windfall.errors import BadInput, WindfallError

LONGEST_S = 600.0
KINDS = ("calls_per_s", "processes_per_s")


@click.command()
@click.option("--only", metavar="NAMES", help=f"Peers, separated by commas: {','.join(list(SYSTEMS)[1:])}.")
@click.option("--n", default=2000, show_default=True, type=click.IntRange(1, 10**6), help="Tasks of a kind in a round.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 1000), help="Rounds, each through all.")
@click.option("--slots", default=os.cpu_count() or 2, show_default=True, type=click.IntRange(1), help="Tasks at once.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(only: str | None, n: int, rounds: int, slots: int, as_json: bool) -> None:
    """Measure Windfall beside Ray, Dask, Parsl, HyperQueue, GNU parallel and a process pool, by turns in one run.

    Two kinds of task: a Python call that does nothing, and a process of `true`; from the first submission to the last
    result, after a warm-up, each system with the settings of its own quick start. Peers that are not installed are
    left out, and it is said how to get them.
    """
    names = _asked(only)
    here = [name for name in names if SYSTEMS[name].is_here()]
    rows: dict[str, dict[str, list[float]]] = {name: {kind: [] for kind in KINDS} for name in here}
    failed: dict[str, str] = {}
    for number in range(rounds):
        for name in [name for name in here if name not in failed]:
            show(f"round {number + 1} of {rounds}: {SYSTEMS[name].name}")
            try:
                measured = _measure(name, n, slots)
            except WindfallError as error:
                failed[name] = str(error)
                continue
            for kind in KINDS:
                if measured[kind] is not None:
                    rows[name][kind].append(measured[kind])
    show("")
    absent = {name: SYSTEMS[name].install for name in names if name not in here}
    document = {
        "bench": "peers",
        "slots": slots,
        "tasks": n,
        "systems": [_row(name, rows[name], rows["windfall"]) for name in here if name not in failed],
        "absent": absent,
        "failed": failed,
    }
    if as_json:
        print_json(document)
    else:
        _print(document)


def _asked(only: str | None) -> list[str]:
    if only is None:
        return list(SYSTEMS)
    asked = [word.strip() for word in only.split(",") if word.strip()]
    unknown = [word for word in asked if word not in SYSTEMS]
    if unknown or not asked:
        raise BadInput(
            f"--only {only}: {unknown[0] if unknown else 'nothing'} is no peer", hint=f"give {', '.join(SYSTEMS)}"
        )
    return ["windfall", *(name for name in dict.fromkeys(asked) if name != "windfall")]


def _measure(name: str, n: int, slots: int) -> dict[str, Any]:
    """What a process of its own has measured."""
    command = [PYTHON, "-m", "windfall.bench.peers.measure", name, str(n), str(n), str(slots)]
    # Parsl and HyperQueue look for programs and for Python on the path, which need not be those of this environment.
    env = os.environ | {"PATH": f"{Path(PYTHON).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    # A session of its own: some systems leave processes behind, which end with it.
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env, start_new_session=True)
    try:
        said, errors = process.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        raise WindfallError(f"took more than {LONGEST_S:.0f} s") from None
    finally:
        _end(process)
    if process.returncode:
        last = errors.strip().splitlines()[-1:] or [f"ended with exit code {process.returncode}"]
        raise WindfallError(last[0][:300])
    found: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    return found


def _end(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGTERM if process.poll() is None else signal.SIGKILL)
    except ProcessLookupError:
        return
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _row(name: str, own: dict[str, list[float]], ours: dict[str, list[float]]) -> dict[str, Any]:
    row: dict[str, Any] = {"name": SYSTEMS[name].name, "version": _version(name)}
    for kind in KINDS:
        row[kind] = statistics.median(own[kind]) if own[kind] else None
        pairs = zip(ours[kind], own[kind], strict=False)
        row[f"windfall_over_it_{kind.partition('_')[0]}"] = (
            statistics.median(mine / theirs for mine, theirs in pairs) if own[kind] else None
        )
    return row


def _version(name: str) -> str:
    if name == "pool":
        return ".".join(str(part) for part in sys.version_info[:3])
    if name == "parallel":
        said = subprocess.run(["parallel", "--version"], capture_output=True, text=True, check=False).stdout
        return said.split("\n")[0].rpartition(" ")[2]
    return importlib.metadata.version(SYSTEMS[name].module)


def _print(document: dict[str, Any]) -> None:
    click.echo(f"{'system':<22}{'version':<12}{'calls/s':>9}  {'windfall':>9}{'processes/s':>14}  {'windfall':>9}")
    for row in document["systems"]:
        click.echo(
            f"{row['name']:<22}{row['version']:<12}{_number(row['calls_per_s']):>9}"
            f"  {_times(row['windfall_over_it_calls']):>9}{_number(row['processes_per_s']):>14}"
            f"  {_times(row['windfall_over_it_processes']):>9}"
        )
    for name, why in document["failed"].items():
        click.echo(f"{SYSTEMS[name].name:<22}failed: {why}")
    for name, how in document["absent"].items():
        click.echo(f"{SYSTEMS[name].name:<22}not here: {how}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} x"
