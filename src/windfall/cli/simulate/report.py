"""The page of a simulated run: figures in one HTML file that needs nothing else. Touches: that file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from windfall.cli.show import page
from windfall.core.state.renting import fleet
from windfall.figures.charts import HUES, stacked_chart
from windfall.figures.job import key, show_tick
from windfall.figures.sheet import SOFT, Line, Mark, Panel, sheet
from windfall.figures.timeline import Axis, Bar, escaped, rows_chart
from windfall.sim.run import RunOutcome, completions
from windfall.sim.world import World
from windfall.units import show_duration

MOST_ROWS, MOST_BAGS, BINS = 60, 12, 120


def write(path: Path, outcome: RunOutcome, world: World, seen: list[tuple[Any, ...]]) -> None:
    """`seen`: (host, key, start, end, cause) of every attempt."""
    figures = [
        ("Incomplete tasks over time", _incomplete(outcome, world)),
        ("Tasks done an hour, by pool", _throughput(world, seen)),
        ("Machines", _gantt(world, seen)),
    ]
    if world.driver.state.fleet.machines:
        figures.append(("Rented machines", _rented(world)))
    if outcome.cost_usd:
        figures.append(("Cost over time", _cost(world)))
    met = "" if outcome.met is None else (", deadline met" if outcome.met else ", deadline missed")
    title = f"{outcome.scenario}, seed {outcome.seed}"
    facts = (
        f"{'done' if outcome.finished else 'not done'} after {show_duration(outcome.turnaround_s)}{met}; "
        f"cost ${outcome.cost_usd:,.2f}; utilisation {outcome.utilisation:.1%}; "
        f"replicas {outcome.replicas:.1%} of tasks; "
        f"wasted on replicas {outcome.waste:.1%} and lost to failures {outcome.lost:.1%} of the useful time"
    )
    page.write(path, title, [world.scenario.about, facts], figures)


def _axis(world: World) -> Axis:
    return Axis(max(world.driver.now, 1.0))


def _incomplete(outcome: RunOutcome, world: World) -> str:
    """One line for each bag; marks are named if there is one bag."""
    lines, marks = [], []
    bags = list(world.driver.state.bags.values())[:MOST_BAGS]
    for hue, (bag, found) in enumerate(zip(bags, outcome.bags, strict=False)):
        ends = completions(bag)
        if not len(ends):
            continue
        x = np.concatenate([[bag.submitted_t], ends]) / 3600
        lines.append(
            Line(x=x.tolist(), y=(bag.total - np.arange(len(x))).tolist(), name=found.name, hue=hue, steps=True)
        )
        moments = (("the tail begins", found.tail_s), ("deadline", found.deadline_s))
        marks += [
            Mark((bag.submitted_t + at_s) / 3600, name if len(bags) == 1 else "") for name, at_s in moments
            if at_s is not None
        ]  # fmt: skip
        if found.planned_finish_s is not None:
            at_h = (bag.submitted_t + found.planned_finish_s) / 3600
            lines.append(Line(x=[at_h], y=[0.0], name="end as first planned", hue=hue, joined=False))
    says = "hours" if len(bags) == 1 else "hours (dashed: tails and deadlines)"
    panel = Panel(lines=lines, upright=marks, x_name=says, y_name="incomplete tasks")
    return sheet([panel], "Incomplete tasks over time.")


def _throughput(world: World, seen: list[tuple[Any, ...]]) -> str:
    pool_of = {host.name: host.pool.pool.name for host in world.hosts}
    axis = _axis(world)
    edges = np.linspace(0, axis.end_s, BINS + 1)
    step_s = float(edges[1] - edges[0])
    layers = []
    for name in world.scenario.pool_names:
        ends = [
            end for host, _, _, end, cause in seen if cause == 0 and pool_of.get(host, host.rsplit("-", 1)[0]) == name
        ]
        layers.append((name, (np.histogram(ends, edges)[0] * 3600 / step_s).tolist()))
    words = "".join(
        f'<span><i class="key hue{number % HUES}"></i>{escaped(name)}</span> '
        for number, (name, _) in enumerate(layers)
    )
    drawn = stacked_chart(
        layers, step_s, axis, show_tick, lambda value: f"{value:,.3g}", "Tasks done an hour, by pool."
    )
    return f"<p>{words}</p>{drawn}"


def _gantt(world: World, seen: list[tuple[Any, ...]]) -> str:
    """Every attempt of some hosts, spread evenly over all of them by name."""
    from windfall.wire.messages import CAUSES

    hosts = sorted({attempt[0] for attempt in seen})
    shown = hosts[:: max(1, -(-len(hosts) // MOST_ROWS))]
    rows: dict[str, list[Bar]] = {host: [] for host in shown}
    for host, _, start, end, cause in seen:
        if host in rows:
            title = f"{CAUSES[cause]}, {show_duration(end - start)}"
            rows[host].append(Bar(start, end, KINDS.get(CAUSES[cause], "failed"), title))
    words = key(done="done", failed="failed", lost="lost", cancelled="cancelled")
    return words + rows_chart(list(rows.items()), _axis(world), show_tick, f"Attempts on {len(shown)} hosts.")


KINDS = {"done": "done", "lost": "lost", "preempted": "lost", "cancelled": "cancelled"}
"""How the end of an attempt is drawn; everything else is a failure."""


def _rented(world: World) -> str:
    """Machines from order to end, in the order in which they were ordered."""
    machines = [machine for machine in world.driver.state.fleet.machines.values() if machine.cause != fleet.REFUSED]
    shown = machines[:: max(1, -(-len(machines) // MOST_ROWS))]
    bars = []
    for machine in shown:
        ended = world.driver.now if machine.ended_t is None else machine.ended_t
        ready = ended if machine.ready_t is None else machine.ready_t
        mine = [Bar(machine.requested_t, ready, "boot", "boots"), Bar(ready, ended, machine.offer.market, "up")]
        mine += [
            Bar(since, ended if until is None else until, "hibernated", "hibernated") for since, until in machine.sleeps
        ]
        if machine.cause == fleet.TAKEN:
            mine.append(Bar(ended, ended, "lost", "reclaimed"))
        bars.append(mine)
    words = key(boot="boots", spot="spot", **{"on-demand": "on-demand"}, hibernated="hibernated", lost="reclaimed")
    rows: list[tuple[str, list[Bar]]] = [(f"{machine.name} {machine.offer.name}", []) for machine in shown]
    says = f"{len(shown)} of {len(machines)} machines, from order to end."
    return words + rows_chart(rows, _axis(world), show_tick, says, bars)


def _cost(world: World) -> str:
    """What had been spent by when; the cost of a stay is spread over it."""
    times = np.linspace(0, max(world.driver.now, 1.0), 400)
    names = dict.fromkeys(name for _, _, name, _ in world.bills)
    total = np.zeros(len(times))
    lines: list[Line] = []
    for shown in names:
        spent = np.zeros(len(times))
        for start, end, name, cost in world.bills:
            if name == shown:
                spent += cost / 1e6 * np.clip((times - start) / max(end - start, 1e-9), 0, 1)
        total += spent
        if spent.any():
            lines.append(Line(x=(times / 3600).tolist(), y=spent.tolist(), name=shown, hue=len(lines)))
    if len(lines) > 1:
        lines.append(Line(x=(times / 3600).tolist(), y=total.tolist(), name="all", hue=SOFT))
    return sheet([Panel(lines=lines, x_name="hours", y_name="USD spent")], "Cost over time.")
