"""`windfall bench scale`: very many hosts and tasks in virtual time, with the real engine.

Two worlds: workers, which run tasks of an hour and give a sign of life every 20 s, and volunteers, which ask once an
hour. Each size is simulated in a process of its own, and its snapshot is read by another one: what that takes is what a
server takes that starts with this state. Touches processes, a temporary file, and the picture that it is to write.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import click

from windfall.bench.harness import apart, report, show
from windfall.cli.show.output import plot_file

SHARES = (0.04, 0.2, 1.0)
"""Of hosts and of tasks, in turn."""
BEAT_S, HOUR_S = 20.0, 3600.0
MOST_HOSTS, MOST_TASKS = 10_000_000, 1_000_000_000
BEATS = 6
"""Signs of life of each worker that are measured."""


class Case(NamedTuple):
    """A world: how many hosts, how many tasks, and how often each host asks."""

    kind: str
    hosts: int
    tasks: int
    every_s: float


@click.command()
@click.option("--hosts", default=25_000, show_default=True, type=click.IntRange(25, MOST_HOSTS), help="Workers.")
@click.option(
    "--volunteers", default=100_000, show_default=True, type=click.IntRange(25, MOST_HOSTS), help="Volunteers."
)
@click.option(
    "--tasks", default=10_000_000, show_default=True, type=click.IntRange(100, MOST_TASKS), help="Tasks of a range."
)
@click.option(
    "--out", callback=plot_file, type=click.Path(path_type=Path), help="Draw it here: FILE.svg, FILE.png or FILE.pdf."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(hosts: int, volunteers: int, tasks: int, out: Path | None, as_json: bool) -> None:
    """Simulate workers and volunteers with the engine of the server, and tell what they take of one server.

    100 million tasks take 9 GB of memory while their snapshot is made.

    \b
    Example:
      windfall bench scale --hosts 2500 --volunteers 10000 --tasks 1000000
      windfall bench scale --hosts 250000 --volunteers 1000000 --tasks 100000000 --out scale.svg
    """
    cases = [Case("workers", _share(hosts, part), _share(tasks, part), BEAT_S) for part in SHARES]
    cases += [Case("volunteers", _share(volunteers, part), _share(tasks, part / 10), HOUR_S) for part in SHARES]
    found = []
    for case in cases:
        show(f"{case.hosts:,} {case.kind}, {case.tasks:,} tasks")
        found.append(measured(case))
    show("")
    document: dict[str, Any] = {"bench": "scale", "runs": found}
    if out is not None:
        document["picture"] = str(_draw(found, out))
    if as_json:
        report(document, as_json)
        return
    click.echo(table(found))
    if out is not None:
        click.echo(f"drawn in {out}")


def _share(count: int, part: float) -> int:
    return max(1, round(count * part))


def table(runs: list[dict[str, Any]]) -> str:
    lines = [
        "hosts                      tasks  exchanges/s  us each  of a core  memory MB  snapshot MB  pause ms  start s"
    ]
    lines += [
        f"{run['hosts']:9,} {run['kind']:10} {run['tasks']:11,} {run['exchanges_per_s']:12,.0f} "
        f"{run['us_per_exchange']:8.1f} {run['core']:10.3f} {run['state_mb']:10,.0f} {run['snapshot_mb']:12,.0f} "
        f"{run['pause_ms']:9.1f} {run['start_s']:8.2f}"
        for run in runs
    ]
    return "\n".join(lines)


def measured(case: Case) -> dict[str, Any]:
    """What a world of this size costs the engine, and what its state takes."""
    with TemporaryDirectory(prefix="windfall-bench-") as folder:
        path = str(Path(folder) / "snapshot")
        return apart(simulate, case, path) | apart(start, path)


def simulate(case: Case, path: str) -> dict[str, Any]:
    """Let all hosts join and then ask several times; write the snapshot of what the server knows then to `path`."""
    from windfall.drivers.copying import Forked
    from windfall.sim.run import seldom_collected
    from windfall.sim.scenario import check
    from windfall.sim.world import World

    with seldom_collected():
        world = World(check(_document(case), Path("scale")), 1)
        driver, books = world.driver, world.grounds[0].books
        driver.run(case.every_s)
        asked, began_s = books.exchanges, time.process_time()
        turns = BEATS if case.every_s < HOUR_S else 2
        driver.run((1 + turns) * case.every_s)
        cpu_s, asked = time.process_time() - began_s, books.exchanges - asked
        began_s = time.process_time()
        forked = Forked(driver.state)
        pause_s = time.process_time() - began_s
        data = forked.data()
        Path(path).write_bytes(data)
    rate = asked / (turns * case.every_s)
    us = 1e6 * cpu_s / asked
    return {
        "kind": case.kind, "hosts": len(driver.state.hosts), "tasks": case.tasks, "exchanges": asked,
        "exchanges_per_s": rate, "us_per_exchange": us, "core": rate * us / 1e6, "snapshot_mb": len(data) / 1e6,
        "pause_ms": 1000 * pause_s,
    }  # fmt: skip


def _document(case: Case) -> dict[str, Any]:
    beats = case.every_s < HOUR_S
    return {
        "server": {"lease": "60s" if beats else "never"},
        "pool": [
            {
                "name": case.kind, "hosts": case.hosts, "heartbeat": f"{case.every_s:g}s" if beats else "never",
                "arrive": {"law": "uniform", "low": "0s", "high": f"{case.every_s:g}s"},
            }
        ],
        "bag": [{"name": "range", "tasks": case.tasks, "run": {"law": "uniform", "low": "55m", "high": "60m"}}],
    }  # fmt: skip


def start(path: str) -> dict[str, Any]:
    """Read a state as a server does that starts: the seconds that it takes, and the memory of the state."""
    from windfall.core.state.snapshot import load

    before = _resident_bytes()
    data = Path(path).read_bytes()
    began_s = time.process_time()
    state = load(data)
    took_s = time.process_time() - began_s
    del data
    return {"start_s": took_s, "state_mb": (_resident_bytes() - before) / 1e6, "jobs": len(state.bags)}


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _draw(runs: list[dict[str, Any]], out: Path) -> Path:
    from windfall.figures.sheet import Line, Panel, sheet, write

    kinds = list(dict.fromkeys(run["kind"] for run in runs))

    def panel(title: str, key: str, unit: str) -> Panel:
        lines = []
        for hue, kind in enumerate(kinds):
            mine = [run for run in runs if run["kind"] == kind]
            x, y = [float(run["hosts"]) for run in mine], [float(run[key]) for run in mine]
            lines.append(Line(x=x, y=y, name=kind, hue=hue, dots=True))
        return Panel(title=title, lines=lines, x_name="hosts", y_name=unit, x_log=True, y_log=True)

    panels = [
        panel("memory of the state", "state_mb", "MB"),
        panel("one exchange in the engine", "us_per_exchange", "us"),
        panel("pause for a snapshot", "pause_ms", "ms"),
    ]
    return write(out, sheet(panels, "Memory, time of an exchange and pause for a snapshot by the number of hosts."))
