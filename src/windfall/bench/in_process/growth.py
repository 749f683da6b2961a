"""`windfall bench growth`: what a finished task costs the engine, by the number of tasks, of hosts and of jobs.

In one process and without a network. Touches the clock of the processor, because the machine may be shared, and the
picture that it is asked to write.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from windfall.bench.harness import report, show
from windfall.cli.show.output import plot_file
from windfall.core.engine import Engine
from windfall.core.events import (
    HostAsked,
    JobRules,
    JobSealed,
    JobSubmitted,
    Result,
    ResultsReported,
    ServerStarted,
    Settings,
    TaskClass,
    TasksAdded,
)
from windfall.core.state.jobs.causes import SUCCESS
from windfall.core.state.state import State

ASKING, ROUNDS = 1000, 5
"""Hosts that report a result and ask again, and how often; the cheapest round counts."""
FEW_TASKS, FEW_HOSTS = 100_000, 1000
"""Where the number of something else is varied."""


@click.command()
@click.option(
    "--tasks", default=10_000_000, show_default=True, type=click.IntRange(FEW_TASKS), help="Most queued tasks."
)
@click.option("--hosts", default=100_000, show_default=True, type=click.IntRange(FEW_HOSTS), help="Most hosts.")
@click.option("--jobs", default=1000, show_default=True, type=click.IntRange(10, FEW_TASKS // 10), help="Most jobs.")
@click.option(
    "--out", callback=plot_file, type=click.Path(path_type=Path), help="Draw it here: FILE.svg, FILE.png or FILE.pdf."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(tasks: int, hosts: int, jobs: int, out: Path | None, as_json: bool) -> None:
    """Take a result and hand out the next task, with ten times as many tasks, hosts or jobs at each step.

    \b
    Example:
      windfall bench growth --tasks 100000000 --out growth.svg
    """
    found = {
        "tasks": _grown("tasks", tens(FEW_TASKS, tasks), lambda n: cost_us(n, FEW_HOSTS, 1)),
        "hosts": _grown("hosts", tens(FEW_HOSTS, hosts), lambda n: cost_us(max(FEW_TASKS, 10 * n), n, 1)),
        "jobs": _grown("jobs", tens(1, jobs), lambda n: cost_us(FEW_TASKS, FEW_HOSTS, n)),
    }
    show("")
    document: dict[str, Any] = {"bench": "growth"}
    for what, costs in found.items():
        document |= {f"us_with_{n}_{what}": us for n, us in costs.items()}
        document[f"most_{what}_over_fewest"] = costs[max(costs)] / costs[min(costs)]
    document["goal"] = "a finished task costs the same at every size"
    if out is not None:
        document["picture"] = str(_draw(found, out))
    report(document, as_json)


def tens(least: int, most: int) -> list[int]:
    """Sizes from the least on, each ten times the one before, up to the most."""
    found = [least]
    while found[-1] * 10 <= most:
        found.append(found[-1] * 10)
    return found


def _grown(what: str, sizes: list[int], cost: Any) -> dict[int, float]:
    found = {}
    for n in sizes:
        show(f"{n:,} {what}")
        found[n] = cost(n)
    return found


def cost_us(tasks: int, hosts: int, jobs: int) -> float:
    """Microseconds of processor time for a result and the next task, in a state of the given size."""
    engine, state = Engine(), State()
    engine.step(state, ServerStarted(0.0, Settings()))
    for _ in range(jobs):
        engine.step(state, JobSubmitted(0.0, JobRules("growth"), [TaskClass()]))
        job = state.bags.next - 1
        engine.step(state, TasksAdded(0.0, job, tasks // jobs, 0))
        engine.step(state, JobSealed(0.0, job))
    for number in range(hosts):
        engine.step(state, HostAsked(1.0, f"host-{number}", "boot", 1, 1, 1, {"pool": "growth"}))
    return 1e6 * min(_round_s(engine, state, 2 + number) for number in range(ROUNDS)) / ASKING


def _round_s(engine: Engine, state: State, n: int) -> float:
    """Seconds for one result and one task of each asking host."""
    began = time.process_time()
    for number in range(ASKING):
        host = state.hosts.by_name[f"host-{number}"]
        job, task, attempt = next(iter(host.held))
        engine.step(state, ResultsReported(n, host.name, [Result(job, task, attempt, SUCCESS, 0, n - 1.0, n, 1.0)]))
        engine.step(state, HostAsked(n, host.name, "boot", n, 1, 1))
    return time.process_time() - began


def _draw(found: dict[str, dict[int, float]], out: Path) -> Path:
    from windfall.figures.sheet import Line, Panel, sheet, write

    panels = [
        Panel(
            title=f"by {what}",
            lines=[Line(x=[float(n) for n in costs], y=list(costs.values()), name="windfall", hue=0, dots=True)],
            x_name=what,
            y_name="a finished task (us)",
            x_log=True,
            y_log=True,
            y_span=(1.0, 1000.0),
        )
        for what, costs in found.items()
    ]
    return write(out, sheet(panels, "Processor time of a finished task by tasks, hosts and jobs."))
