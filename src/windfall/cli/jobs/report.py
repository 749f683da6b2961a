"""`windfall report`: a job on one page, with pictures. Touches the server and the file that it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from windfall.cli.options import Place, json_option, place_options
from windfall.cli.show import page
from windfall.cli.show.money import outcome_lines
from windfall.cli.show.output import plural, print_json
from windfall.client import Client, Job
from windfall.units import show_duration

Json = dict[str, Any]
MOST_ROWS = 60
COLOURS = {"done": "#4c9f70", "lost": "#8e44ad", "preempted": "#8e44ad", "cancelled": "#bdc3c7"}
OTHER_COLOUR = "#c0392b"
MARKETS = {"spot": "#4c9f70", "on-demand": "#2980b9"}
BOOTS = "#f1c40f"


@click.command()
@click.argument("job", default="last")
@click.option("--out", default="report.html", show_default=True, metavar="FILE", help="Where to write the page.")
@place_options
@json_option
def report(job: str, out: str, place: Place, as_json: bool) -> None:
    """Write a page about a job: what was incomplete when, which host ran what, machines and what they cost.

    One HTML file that needs nothing else.

    \b
    Examples:
      windfall report last
      windfall report sweep --out sweep.html
    """
    with place.open() as client:
        found = client.job(job)
        status = found.status()
        figures = _figures(client, found, status)
    path = Path(out)
    page.write(path, f"job {status['job']} '{status['name']}'", _facts(status), figures)
    if as_json:
        print_json({"job": status["job"], "report": str(path.absolute()), "figures": [name for name, _ in figures]})
    else:
        click.echo(f"{path}: {plural(len(figures), 'picture')} of job {status['job']} '{status['name']}'")


def _facts(status: Json) -> list[str]:
    tasks, ended = status["tasks"], status.get("finished_s")
    lasted = "" if ended is None else f" after {show_duration(ended - status['submitted_s'])}"
    facts = [f"{status['state']}{lasted}: {tasks['done']:,} of {plural(tasks['total'], 'task')} done"]
    if tasks.get("failed"):
        facts[0] += f", {tasks['failed']:,} failed"
    return [*facts, *(line.strip() for line in outcome_lines(status))]


def _figures(client: Client, job: Job, status: Json) -> list[tuple[str, str]]:
    tasks = [task for task in job.tasks() if task["end_s"]]
    figures = []
    if tasks:
        figures.append(("Incomplete tasks over time", _incomplete(tasks, status)))
        figures.append(("Who ran what", _gantt(tasks, status["submitted_s"])))
    machines = [row for row in client.machines(job=status["job"])["machines"] if row["cause"] != "refused"]
    if machines:
        machines.reverse()
        figures.append(("Rented machines", _rented(machines, status)))
        figures.append(("Cost over time", _cost(machines, status)))
    return figures


def _incomplete(tasks: list[Json], status: Json) -> str:
    from windfall.figures.canvas import new_figure

    began_t, total = status["submitted_s"], status["tasks"]["total"]
    ends = sorted(task["end_s"] - began_t for task in tasks if task["state"] not in ("waiting", "running"))
    figure, axes = new_figure(width=9)
    axes.step([0.0, *ends], [total - place for place in range(len(ends) + 1)], where="post")
    deadline = status.get("deadline_s")
    if deadline is not None:
        axes.axvline(deadline - began_t, color="#c0392b", ls="--", lw=1)
    axes.set(xlabel="seconds since submission (dashed: deadline)", ylabel="incomplete tasks", ylim=(0, None))
    axes.grid(alpha=0.3)
    return page.png(figure)


def _gantt(tasks: list[Json], began_t: float) -> str:
    """The last attempt of every task, on some hosts spread evenly over all of them."""
    from windfall.figures.canvas import new_figure

    hosts = sorted({task["host"] for task in tasks if task["host"]})
    rows = {host: place for place, host in enumerate(hosts[:: max(1, -(-len(hosts) // MOST_ROWS))])}
    figure, axes = new_figure(width=9, height=max(2.5, 0.2 * len(rows) + 1))
    for task in tasks:
        if task["host"] in rows:
            bar = (task["start_s"] - began_t, task["end_s"] - task["start_s"])
            colour = COLOURS.get(task["cause"], OTHER_COLOUR)
            axes.broken_barh([bar], (rows[task["host"]] + 0.1, 0.8), facecolors=colour, alpha=0.6)
    axes.set_yticks([place + 0.5 for place in rows.values()], list(rows), fontsize=6)
    axes.set(xlabel="seconds since submission (green: done, violet: lost, red: failed)")
    return page.png(figure)


def _rented(machines: list[Json], status: Json) -> str:
    """Every machine from its order to its end."""
    from windfall.figures.canvas import new_figure

    shown = machines[:: max(1, -(-len(machines) // MOST_ROWS))]
    figure, axes = new_figure(width=9, height=max(2.5, 0.2 * len(shown) + 1))
    began_t = status["submitted_s"]
    for place, row in enumerate(shown):
        ended_t = row["requested_s"] + row["held_s"]
        ready_t = ended_t if row["ready_s"] is None else row["ready_s"]
        for start_t, end_t, colour in (
            (row["requested_s"], ready_t, BOOTS),
            (ready_t, ended_t, MARKETS.get(row["market"], OTHER_COLOUR)),
        ):
            axes.broken_barh([(start_t - began_t, end_t - start_t)], (place + 0.1, 0.8), facecolors=colour)
        if row["cause"] == "taken":
            axes.plot(ended_t - began_t, place + 0.5, "x", color="#c0392b")
    names = [f"{row['offer']} m{row['machine']}" for row in shown]
    axes.set_yticks([place + 0.5 for place in range(len(shown))], names, fontsize=6)
    axes.set(xlabel="seconds since submission (yellow: boots, green: spot, blue: on-demand, cross: taken away)")
    axes.invert_yaxis()
    return page.png(figure)


def _cost(machines: list[Json], status: Json) -> str:
    """What had been spent by when; what a machine cost is spread over the time that it was held."""
    from windfall.figures.canvas import new_figure

    began_t = status["submitted_s"]
    spans = [(row["requested_s"] - began_t, max(row["held_s"], 1e-9), row["cost_usd"]) for row in machines]
    moments = sorted({time for start, held, _ in spans for time in (start, start + held)})
    spent = [sum(cost * min(max((t - start) / held, 0.0), 1.0) for start, held, cost in spans) for t in moments]
    figure, axes = new_figure(width=9)
    axes.plot(moments, spent)
    money = status.get("money") or {}
    if money.get("budget_usd") is not None:
        axes.axhline(money["budget_usd"], color="#c0392b", ls="--", lw=1)
    axes.set(xlabel="seconds since submission (dashed: budget)", ylabel="dollars", ylim=(0, None))
    axes.grid(alpha=0.3)
    return page.png(figure)
