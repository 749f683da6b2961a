"""`windfall report`: a job on one page, with pictures. Touches the server and the file that it writes."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import click

from windfall.cli.options import Place, json_option, place_options
from windfall.cli.show import page
from windfall.cli.show.money import outcome_lines
from windfall.cli.show.output import plural, print_json
from windfall.client import Job
from windfall.client.results import cause_text
from windfall.figures.timeline import Axis, Bar, rows_chart, steps_chart
from windfall.units import show_duration, show_usd

Json = dict[str, Any]
MOST_ROWS = 60
KINDS = {"done": "done", "lost": "lost", "preempted": "lost", "cancelled": "cancelled"}
"""How the end of an attempt is drawn; everything else is a failure."""


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
        figures = _figures(found, status)
        failures = _failures(found.groups() if status["causes"] or status["tasks"]["failed"] else [])
    path = Path(out)
    page.write(path, f"job {status['job']} '{status['name']}'", _facts(status), figures, failures)
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
    return [*facts, *(" · ".join(line.strip().split("   ")) for line in outcome_lines(status))]


def _figures(job: Job, status: Json) -> list[tuple[str, str]]:
    """(heading, picture), all over the same time axis."""
    began_t = status["submitted_s"]
    tasks = [task for task in job.tasks() if task["end_s"] and task["start_s"]]
    machines = job.cost()["machines"]
    ends_t = [task["end_s"] for task in tasks] + [_end_t(row) for row in machines]
    if not ends_t:
        return []
    deadline = status.get("deadline_s")
    axis = Axis(max(ends_t) - began_t, None if deadline is None else deadline - began_t)
    figures = []
    if tasks:
        figures.append(("Incomplete tasks over time", _incomplete(tasks, status, axis)))
        figures.append(("Who ran what", _key(done="done", failed="failed", lost="lost") + _ran(tasks, began_t, axis)))
    if machines:
        key = _key(boot="boots", spot="spot", **{"on-demand": "on-demand"})
        figures.append(("Rented machines", key + _rented(machines, began_t, axis)))
        figures.append(("Cost over time", _cost(machines, status, axis)))
    return figures


def _key(**names: str) -> str:
    """What the colours mean."""
    return "<p>" + "".join(f'<i class="key {kind}"></i>{name}' for kind, name in names.items()) + "</p>"


def _show_s(seconds: float) -> str:
    """A tick of the axis: `90 s`, `5m`, `1h30m`."""
    if seconds < 60 or seconds % 60:
        return f"{seconds:g} s" if seconds < 600 else show_duration(seconds)
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{minutes}m" if not hours else f"{hours}h" + (f"{minutes:02}m" if minutes else "")


def _incomplete(tasks: list[Json], status: Json, axis: Axis) -> str:
    total = status["tasks"]["total"]
    ended = (task for task in tasks if task["state"] not in ("waiting", "running"))
    ends = sorted(task["end_s"] - status["submitted_s"] for task in ended)
    points = [(0.0, float(total)), *((end, float(total - place)) for place, end in enumerate(ends, 1))]
    return steps_chart(points, axis, _show_s, lambda value: f"{value:,.0f}")


def _ran(tasks: list[Json], began_t: float, axis: Axis) -> str:
    """The last attempt of every task, on some hosts spread evenly over all of them."""
    hosts: dict[str, list[Bar]] = {}
    for task in tasks:
        if task["host"]:
            kind = KINDS.get(task["cause"], "failed")
            title = f"task {task['task']}: {show_duration(task['end_s'] - task['start_s'])}, {task['cause']}"
            bar = Bar(task["start_s"] - began_t, task["end_s"] - began_t, kind, title)
            hosts.setdefault(task["host"], []).append(bar)
    names = sorted(hosts)[:: max(1, -(-len(hosts) // MOST_ROWS))]
    return rows_chart([(name, hosts[name]) for name in names], axis, _show_s)


def _end_t(row: Json) -> float:
    return float(row["requested_s"] + row["billed_s"] + row["slept_s"] if row["ended_s"] is None else row["ended_s"])


def _rented(machines: list[Json], began_t: float, axis: Axis) -> str:
    """Every machine from its order to its end."""
    shown = machines[:: max(1, -(-len(machines) // MOST_ROWS))]
    rows = []
    for row in shown:
        ended_t = _end_t(row)
        ready_t = ended_t if row["ready_s"] is None else row["ready_s"]
        title = f"{row['offer']} m{row['machine']}: {show_usd(row['cost_usd'])}, {row['cause'] or row['phase']}"
        bars = [Bar(row["requested_s"] - began_t, ready_t - began_t, "boot", title)]
        bars.append(Bar(ready_t - began_t, ended_t - began_t, row["market"], title))
        rows.append((f"m{row['machine']} {row['offer']}", bars))
    return rows_chart(rows, axis, _show_s)


def _cost(machines: list[Json], status: Json, axis: Axis) -> str:
    """What had been committed by when: a cycle is paid in full at its beginning."""
    paid = sorted(step for row in machines for step in cycles_of(row, status["submitted_s"]))
    points, spent = [(0.0, 0.0)], 0.0
    for t_s, usd in paid:
        spent += usd
        points.append((t_s, spent))
    budget = (status.get("money") or {}).get("budget_usd")
    limit = None if budget is None else (budget, f"budget {show_usd(budget)}")
    return steps_chart(points, axis, _show_s, show_usd, limit)


def cycles_of(row: Json, began_t: float) -> list[tuple[float, float]]:
    """(seconds since submission, dollars) of every billing cycle; cycles stand still while a machine is hibernated."""
    if not row["cycles"]:
        return []
    held_s = max(row["billed_s"], 1e-9)
    stretch = (held_s + row["slept_s"]) / held_s
    start_s, each_usd = row["requested_s"] - began_t, row["cost_usd"] / row["cycles"]
    return [
        (min(start_s + number * row["cycle_s"] * stretch, _end_t(row) - began_t), each_usd)
        for number in range(row["cycles"])
    ]


def _failures(groups: list[Json]) -> str:
    """Failures by cause as a table; nothing if there were none."""
    if not groups:
        return ""
    rows = []
    for group in sorted(groups, key=lambda group: (not group["final"], -group["count"])):
        tasks = ", ".join(map(str, (group.get("names") or group["tasks"])[:5])) + (" …" if group["count"] > 5 else "")
        said = (group["stderr_tail"] or group["last_line"] or "").strip().splitlines()
        cells = (
            f"{group['count']:,}", cause_text(group["cause"], group["exit_code"]),
            "failed" if group["final"] else "went on", tasks, said[-1][:160] if said else "",
        )  # fmt: skip
        rows.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    heads = "".join(f"<th>{head}</th>" for head in ("count", "cause", "in the end", "tasks", "last line"))
    return f"<h2>Failures</h2><div class='chart'><table><tr>{heads}</tr>{''.join(rows)}</table></div>"
