"""`windfall bench simulate`: GridBot's largest run in virtual time, and how time and memory grow with it."""

from __future__ import annotations

import multiprocessing
import resource
import time
from typing import Any

import click

from windfall.bench.harness import report, show

HOSTS = {"egee": 4000, "osg": 3500, "madison": 1200, "campus": 1200, "cluster": 100, "volunteers": 15000}
TASKS = 2_200_000


@click.command()
@click.option("--scale", type=click.FloatRange(0.001, 1), default=1.0, show_default=True, help="Share of the full run.")
@click.option("--growth/--no-growth", default=True, help="Also run an eighth, a quarter and a half of it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(scale: float, growth: bool, as_json: bool) -> None:
    """Run 2.2 million tasks on 25,000 hosts (GridBot, figure 6) with the real engine and real policies.

    Wall and processor time, memory, events a second; smaller runs show how they grow. On a machine that others use
    the processor time says more than the wall time.

    Example: windfall bench simulate --scale 0.1
    """
    document: dict[str, Any] = {"bench": "simulate"}
    measured = []
    for part in (0.125, 0.25, 0.5, 1.0) if growth else (1.0,):
        show(f"{part:g} of {scale:g} of the run")
        measured.append(_measure_apart(scale * part))
    show("")
    full = measured[-1]
    document |= full
    document["events_per_s"] = full["events"] / full["cpu_s"]
    document["us_per_attempt"] = [1e6 * run["cpu_s"] / run["attempts"] for run in measured]
    document["bytes_per_task"] = [run["peak_mb"] * 1e6 / run["tasks"] for run in measured]
    if growth:
        document["growth"] = document["us_per_attempt"][-1] / document["us_per_attempt"][0]
    document["goal"] = "full run: <= 120 s and <= 2000 MB; growth about 1"
    report(document, as_json)


def _measure_apart(scale: float) -> dict[str, Any]:
    """In a process of its own: peak memory is a process's, and one run must not warm the next."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (scale,))


def measure(scale: float) -> dict[str, Any]:
    from windfall.sim.run import run
    from windfall.sim.scenario import read

    changes = [f"bag.tasks={round(TASKS * scale)}"]
    changes += [f"pool.{name}.hosts={max(1, round(hosts * scale))}" for name, hosts in HOSTS.items()]
    scenario = read("volunteers", changes)
    wall, cpu = time.perf_counter(), time.process_time()
    outcome, _ = run(scenario, 1)
    return {
        "tasks": outcome.bags[0].tasks,
        "hosts": sum(books.hosts for books in outcome.pools.values()),
        "done": outcome.bags[0].done,
        "days": outcome.turnaround_s / 86400,
        "attempts": outcome.bags[0].attempts,
        "events": outcome.events,
        "records": outcome.records,
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }
