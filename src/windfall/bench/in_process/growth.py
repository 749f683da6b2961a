"""`windfall bench growth`: what a finished task costs the engine, by the number of tasks, hosts, machines and jobs.

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
    MachineStarted,
    OffersConfigured,
    PlanProposed,
    Result,
    ResultsReported,
    ServerStarted,
    Settings,
    TaskClass,
    TasksAdded,
)
from windfall.core.state.jobs.causes import SUCCESS
from windfall.core.state.state import State
from windfall.core.wishes import wishes
from windfall.planning.contract import Plan, Start
from windfall.planning.offers import Offer

ASKING, ROUNDS = 1000, 5
"""Hosts that report a result and ask again, and how often; the cheapest round counts."""
FEW_TASKS, FEW_HOSTS, FEW_MACHINES = 100_000, 1000, 10
"""Where the number of something else is varied; and the fewest machines."""
OFFER = Offer(name="small", pool="cloud", price_usd=0.25, cores=1, cycle_s=60.0, lag_s=60.0, market="spot")


@click.command()
@click.option(
    "--tasks", default=10_000_000, show_default=True, type=click.IntRange(FEW_TASKS), help="Most queued tasks."
)
@click.option("--hosts", default=100_000, show_default=True, type=click.IntRange(FEW_HOSTS), help="Most hosts.")
@click.option(
    "--machines", default=10_000, show_default=True, type=click.IntRange(FEW_MACHINES), help="Most rented machines."
)
@click.option("--jobs", default=1000, show_default=True, type=click.IntRange(10, FEW_TASKS // 10), help="Most jobs.")
@click.option(
    "--out", callback=plot_file, type=click.Path(path_type=Path), help="Draw it here: FILE.svg, FILE.png or FILE.pdf."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(tasks: int, hosts: int, machines: int, jobs: int, out: Path | None, as_json: bool) -> None:
    """Take a result and hand out the next task, with ten times as many tasks, hosts, machines or jobs at each step.

    \b
    Example:
      windfall bench growth --tasks 100000000 --out growth.svg
    """
    found = {
        "tasks": _grown("tasks", tens(FEW_TASKS, tasks), lambda n: cost_us(*with_hosts(n, FEW_HOSTS, 1))),
        "hosts": _grown("hosts", tens(FEW_HOSTS, hosts), lambda n: cost_us(*with_hosts(max(FEW_TASKS, 10 * n), n, 1))),
        "machines": _grown("machines", tens(FEW_MACHINES, machines), lambda n: cost_us(*with_machines(n))),
        "jobs": _grown("jobs", tens(1, jobs), lambda n: cost_us(*with_hosts(FEW_TASKS, FEW_HOSTS, n))),
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


def with_hosts(tasks: int, hosts: int, jobs: int) -> tuple[Engine, State]:
    """Jobs with this many tasks in all, and free hosts that hold one each."""
    engine, state = Engine(), State()
    engine.step(state, ServerStarted(0.0, Settings()))
    for _ in range(jobs):
        _submit(engine, state, JobRules("growth"), tasks // jobs)
    for number in range(hosts):
        engine.step(state, HostAsked(1.0, f"host-{number}", "boot", 1, 1, 1, {"pool": "growth"}))
    return engine, state


def with_machines(machines: int) -> tuple[Engine, State]:
    """One job, and rented machines that hold one of its tasks each."""
    engine, state = Engine(), State()
    engine.step(state, ServerStarted(0.0, Settings()))
    engine.step(state, OffersConfigured(0.0, "cloud", [OFFER]))
    job = _submit(
        engine, state, JobRules("growth", rent_from=["cloud"], deadline_s=86_400.0), max(FEW_TASKS, 10 * machines)
    )
    plan = Plan(start=[Start(f"new-{number}", OFFER) for number in range(machines)])
    engine.step(state, PlanProposed(0.0, job, state.seq, plan))
    for number, machine in state.fleet.machines.items():
        engine.step(state, MachineStarted(1.0, number, f"i-{number}", 1.0))
        ad = {"pool": "cloud", "machine": number}
        engine.step(state, HostAsked(1.0, machine.host_name, "boot", 1, 1, 1, ad))
    return engine, state


def _submit(engine: Engine, state: State, rules: JobRules, tasks: int) -> int:
    job = state.bags.next
    engine.step(state, JobSubmitted(0.0, rules, [TaskClass()]))
    engine.step(state, TasksAdded(0.0, job, tasks, 0))
    engine.step(state, JobSealed(0.0, job))
    return job


def cost_us(engine: Engine, state: State) -> float:
    """Microseconds of processor time for a result and the next task, and for looking what drivers have to do."""
    names = list(state.hosts.by_name)
    asking = [names[number % len(names)] for number in range(ASKING)]
    return 1e6 * min(_round_s(engine, state, asking, 2 + number) for number in range(ROUNDS)) / ASKING


def _round_s(engine: Engine, state: State, asking: list[str], t: float) -> float:
    """Seconds for one result and one task of each asking host."""
    began = time.process_time()
    for name in asking:
        host = state.hosts.by_name[name]
        job, task, attempt = next(iter(host.held))
        engine.step(state, ResultsReported(t, name, [Result(job, task, attempt, SUCCESS, 0, t - 1.0, t, 1.0)]))
        wishes(state)
        engine.step(state, HostAsked(t, name, "boot", host.session.n + 1, 1, 1))
        wishes(state)
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
    return write(out, sheet(panels, "Processor time of a finished task by tasks, hosts, machines and jobs.", columns=2))
