"""`windfall report`: a job on one page, with pictures. Touches the server and the file that it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from windfall.cli.options import Place, json_option, place_options
from windfall.cli.show import page
from windfall.cli.show.money import outcome_lines
from windfall.cli.show.output import plural, print_json
from windfall.client.results import cause_text
from windfall.figures.timeline import escaped
from windfall.units import show_duration

Json = dict[str, Any]


@click.command()
@click.argument("job", default="last")
@click.option("-o", "--out", default="report.html", show_default=True, metavar="FILE", help="Where to write the page.")
@place_options
@json_option
def report(job: str, out: str, place: Place, as_json: bool) -> None:
    """Write a page about a job: what was incomplete when, which host ran what, machines and what they cost.

    One HTML file that needs nothing else, with the pictures that the console shows.

    \b
    Examples:
      windfall report last
      windfall report sweep -o sweep.html
    """
    with place.open() as client:
        found = client.job(job)
        status = found.status()
        figures = [(each["name"], each["html"]) for each in found.pictures()]
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
        rows.append("<tr>" + "".join(f"<td>{escaped(cell)}</td>" for cell in cells) + "</tr>")
    heads = "".join(f"<th>{head}</th>" for head in ("count", "cause", "in the end", "tasks", "last line"))
    return f"<h2>Failures</h2><div class='chart'><table><tr>{heads}</tr>{''.join(rows)}</table></div>"
