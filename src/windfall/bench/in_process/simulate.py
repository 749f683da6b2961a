"""`windfall bench simulate`: GridBot's largest run in virtual time, and how time and memory grow with it."""

from __future__ import annotations

import resource
import time
from typing import Any

import click

from windfall.bench.harness import apart, report, show

HOSTS = {"egee": 4000, "osg": 3500, "madison": 1200, "campus": 1200, "cluster": 100, "volunteers": 15000}
VOLUNTEERS = "volunteers"
TASKS = 2_200_000
# Shares of tasks and of hosts: each doubled alone, then both, up to the full run.
GROWTH = ((1 / 8, 1 / 8), (1 / 4, 1 / 8), (1 / 8, 1 / 4), (1 / 4, 1 / 4), (1 / 2, 1 / 2), (1.0, 1.0))


@click.command()
@click.option("--scale", type=click.FloatRange(0.001, 1), default=1.0, show_default=True, help="Share of the full run.")
@click.option("--growth/--no-growth", default=True, help="Also run parts of it: tasks doubled, hosts doubled, both.")
@click.option("--bundles", is_flag=True, help="Hosts of grids ask once for five tasks, as the paper's did.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(scale: float, growth: bool, bundles: bool, as_json: bool) -> None:
    """Run 2.2 million tasks on 25,000 hosts (GridBot, figure 6) with the real engine and real policies.

    Prints wall and processor time, memory and events a second. Smaller runs show how these grow: if an attempt costs
    the same for any number of tasks and hosts, growth is linear. On a shared machine compare processor times.

    Hosts of grids hold five tasks, report each when it is done and ask for another one. With --bundles they report five
    together and ask for five more, as the paper's did (`windfall lab gridbot requests`): 0.4 of the exchanges.

    Example: windfall bench simulate --scale 0.1
    """
    measured = []
    for tasks, hosts in GROWTH if growth else GROWTH[-1:]:
        show(f"{tasks:g} of the tasks on {hosts:g} of the hosts")
        measured.append(apart(measure, scale * tasks, scale * hosts, bundles))
    show("")
    document: dict[str, Any] = {"bench": "simulate"} | measured[-1]
    if growth:
        document |= grown(measured)
    document["goal"] = "full run: <= 75 s and <= 2000 MB; an attempt costs the same at every size"
    if as_json and growth:
        document["runs"] = measured
    report(document, as_json)
    if growth and not as_json:
        click.echo("\n" + table(measured))


def grown(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Cost of an attempt and memory at 2x the tasks, 2x the hosts, and 8x both, relative to the smallest run."""
    small, more_tasks, more_hosts, whole = runs[0], runs[1], runs[2], runs[-1]
    cost = small["us_per_attempt"]
    return {
        "us_with_tasks_x2": more_tasks["us_per_attempt"] / cost,
        "us_with_hosts_x2": more_hosts["us_per_attempt"] / cost,
        "us_with_both_x8": whole["us_per_attempt"] / cost,
        "bytes_per_task": 1e6 * (more_tasks["peak_mb"] - small["peak_mb"]) / (more_tasks["tasks"] - small["tasks"]),
        "bytes_per_host": 1e6 * (more_hosts["peak_mb"] - small["peak_mb"]) / (more_hosts["hosts"] - small["hosts"]),
    }


def table(runs: list[dict[str, Any]]) -> str:
    lines = ["    tasks   hosts  attempts  exchanges   cpu s  events/s  us/attempt  peak MB"]
    lines += [
        f"{run['tasks']:9,} {run['hosts']:7,} {run['attempts']:9,} {run['exchanges']:10,} {run['cpu_s']:7.1f} "
        f"{run['events_per_s']:9,.0f} {run['us_per_attempt']:11.1f} {run['peak_mb']:8.0f}"
        for run in runs
    ]
    return "\n".join(lines)


def measure(tasks: float, hosts: float, bundles: bool = False) -> dict[str, Any]:
    """One run with these shares of the tasks and of the hosts; `bundles`: hosts of grids ask once for five tasks."""
    from windfall.sim.run import run
    from windfall.sim.scenario import read

    changes = [f"bag.tasks={round(TASKS * tasks)}"]
    changes += [f"pool.{name}.hosts={max(1, round(count * hosts))}" for name, count in HOSTS.items()]
    if bundles:
        changes += [f"pool.{name}.report=batch" for name in HOSTS if name != VOLUNTEERS]
    scenario = read("volunteers", changes)
    wall, cpu = time.perf_counter(), time.process_time()
    outcome, _ = run(scenario, 1)
    wall_s, cpu_s = time.perf_counter() - wall, time.process_time() - cpu
    attempts = outcome.bags[0].attempts
    return {
        "tasks": outcome.bags[0].tasks,
        "hosts": sum(books.hosts for books in outcome.pools.values()),
        "done": outcome.bags[0].done,
        "days": outcome.turnaround_s / 86400,
        "attempts": attempts,
        "exchanges": sum(books.exchanges for books in outcome.pools.values()),
        "events": outcome.events,
        "records": outcome.records,
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "events_per_s": outcome.events / cpu_s,
        "us_per_attempt": 1e6 * cpu_s / attempts,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }
