"""The page of a simulated run: figures in one HTML file that needs nothing else. Touches: that file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from windfall.cli.show import page
from windfall.core.state.renting import fleet
from windfall.figures.canvas import new_figure
from windfall.sim.run import RunOutcome, completions
from windfall.sim.world import World
from windfall.units import show_duration

MOST_ROWS, MOST_BAGS, BINS = 60, 12, 120
COLOURS = {"done": "#4c9f70", "exit": "#c0392b", "lost": "#8e44ad", "cancelled": "#bdc3c7"}


def write(path: Path, outcome: RunOutcome, world: World, seen: list[tuple[Any, ...]]) -> None:
    """`seen`: (host, key, start, end, cause) of every attempt."""
    figures = [
        ("Incomplete tasks over time", _incomplete(outcome, world)),
        ("Tasks done an hour, by pool", _throughput(world, seen)),
        ("Machines", _gantt(seen)),
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


def _incomplete(outcome: RunOutcome, world: World) -> str:
    figure, axes = new_figure(width=9)
    bags = list(world.driver.state.bags.values())[:MOST_BAGS]
    for bag, found in zip(bags, outcome.bags, strict=False):
        ends = completions(bag)
        if not len(ends):
            continue
        x = np.concatenate([[bag.submitted_t], ends]) / 3600
        (line,) = axes.step(x, bag.total - np.arange(len(x)), where="post", label=found.name)
        if found.tail_s is not None:
            axes.axvline((bag.submitted_t + found.tail_s) / 3600, color=line.get_color(), ls=":", lw=1)
        if found.deadline_s is not None:
            axes.axvline((bag.submitted_t + found.deadline_s) / 3600, color=line.get_color(), ls="--", lw=1)
        if found.planned_finish_s is not None:
            axes.plot((bag.submitted_t + found.planned_finish_s) / 3600, 0, "v", color=line.get_color(), clip_on=False)
    axes.set(
        xlabel="hours (dotted: the tail begins; dashed: deadline; triangle: end as first planned)",
        ylabel="incomplete tasks",
        ylim=(0, None),
    )
    axes.grid(alpha=0.3)
    axes.legend()
    return page.png(figure)


def _throughput(world: World, seen: list[tuple[Any, ...]]) -> str:
    figure, axes = new_figure(width=9)
    pool_of = {host.name: host.pool.pool.name for host in world.hosts}
    edges = np.linspace(0, max(world.driver.now, 1.0), BINS + 1)
    rows = []
    names = world.scenario.pool_names
    for name in names:
        ends = [
            end for host, _, _, end, cause in seen if cause == 0 and pool_of.get(host, host.rsplit("-", 1)[0]) == name
        ]
        rows.append(np.histogram(ends, edges)[0] * 3600 / (edges[1] - edges[0]))
    axes.stackplot(edges[:-1] / 3600, rows, labels=names, step="post")
    axes.set(xlabel="hours", ylabel="tasks done an hour")
    axes.legend(loc="upper right")
    return page.png(figure)


def _gantt(seen: list[tuple[Any, ...]]) -> str:
    """Every attempt of some hosts, spread evenly over all of them by name."""
    from windfall.wire.messages import CAUSES

    hosts = sorted({attempt[0] for attempt in seen})
    shown = hosts[:: max(1, -(-len(hosts) // MOST_ROWS))]
    rows = {host: place for place, host in enumerate(shown)}
    figure, axes = new_figure(width=9, height=max(2.5, 0.14 * len(rows) + 1))
    for host, _, start, end, cause in seen:
        if host in rows:
            colour = COLOURS.get(CAUSES[cause], "#e67e22")
            axes.broken_barh([(start / 3600, (end - start) / 3600)], (rows[host] + 0.1, 0.8), facecolors=colour)
    axes.set_yticks([place + 0.5 for place in rows.values()], list(rows), fontsize=5)
    axes.set(xlabel="hours (" + ", ".join(f"{name}: {colour}" for name, colour in _words().items()) + ")")
    return page.png(figure)


MACHINE_COLOURS = {"boots": "#f1c40f", "spot": "#4c9f70", "on-demand": "#2980b9", "hibernated": "#d5d8dc"}


def _rented(world: World) -> str:
    """Every machine from its order to its end, in the order in which they were ordered."""
    machines = [machine for machine in world.driver.state.fleet.machines.values() if machine.cause != fleet.REFUSED]
    shown = machines[:: max(1, -(-len(machines) // MOST_ROWS))]
    figure, axes = new_figure(width=9, height=max(2.5, 0.16 * len(shown) + 1))
    for place, machine in enumerate(shown):
        ended = world.driver.now if machine.ended_t is None else machine.ended_t
        ready = ended if machine.ready_t is None else machine.ready_t
        spans = [("boots", machine.requested_t, ready), (machine.offer.market, ready, ended)]
        spans += [("hibernated", since, ended if until is None else until) for since, until in machine.sleeps]
        for what, start, end in spans:
            axes.broken_barh(
                [(start / 3600, (end - start) / 3600)], (place + 0.1, 0.8), facecolors=MACHINE_COLOURS[what]
            )
        if machine.cause == fleet.TAKEN:
            axes.plot(ended / 3600, place + 0.5, "x", color="#c0392b", ms=4)
    axes.set_yticks(
        [place + 0.5 for place in range(len(shown))], [f"{m.offer.name} {m.name}" for m in shown], fontsize=5
    )
    axes.set(xlabel="hours (yellow: boots, green: spot, blue: on-demand, grey: hibernated, cross: reclaimed)")
    axes.invert_yaxis()
    return page.png(figure)


def _words() -> dict[str, str]:
    return {"done": "green", "failed": "red", "lost": "violet", "cancelled": "grey"}


def _cost(world: World) -> str:
    """What had been spent by when; the cost of a stay is spread over it."""
    figure, axes = new_figure(width=9, height=3.2)
    times = np.linspace(0, max(world.driver.now, 1.0), 400)
    names = dict.fromkeys(name for _, _, name, _ in world.bills)
    total = np.zeros(len(times))
    for shown in names:
        spent = np.zeros(len(times))
        for start, end, name, cost in world.bills:
            if name == shown:
                spent += cost / 1e6 * np.clip((times - start) / max(end - start, 1e-9), 0, 1)
        total += spent
        if spent.any():
            axes.plot(times / 3600, spent, label=shown)
    if len(names) > 1:
        axes.plot(times / 3600, total, color="black", lw=1, label="all")
    axes.set(xlabel="hours", ylabel="USD spent", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    return page.png(figure)
