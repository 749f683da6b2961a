"""`windfall report`: a job on one page, with pictures. Touches the server and the file that it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from windfall.api.answers import JobStatus
from windfall.cli.options import Place, json_option, place_options
from windfall.cli.show import page
from windfall.cli.show.money import outcome_lines
from windfall.cli.show.output import output_file, plain, plural, print_json
from windfall.client.results import cause_text
from windfall.errors import BadInput
from windfall.figures.timeline import escaped
from windfall.units import show_duration, show_usd

Json = dict[str, Any]
PAGE_SUFFIXES = ("", ".html", ".htm")


@click.command()
@click.argument("job", default="last")
@click.option(
    "-o", "--out", callback=output_file, default="report.html", show_default=True, metavar="FILE",
    help="Where to write the page.",
)  # fmt: skip
@click.option("--fleet", metavar="NAME", help="A page about this fleet: its machines, their load, slack of its jobs.")
@place_options
@json_option
def report(job: str, out: str, fleet: str | None, place: Place, as_json: bool) -> None:
    """Write a page about a job: what was incomplete when, which host ran what, machines and what they cost.

    One HTML file that needs nothing else, with the pictures that the console shows.

    \b
    Examples:
      windfall report last
      windfall report sweep -o sweep.html
      windfall report --fleet night -o night.html
    """
    path = _page_file(out)
    if fleet is not None:
        _of_fleet(fleet, job, path, place, as_json)
        return
    with place.open() as client:
        found = client.job(job)
        status = found.status()
        figures = [(each["name"], each["html"]) for each in found.pictures()]
        failures = _failures(found.groups() if status["causes"] or status["tasks"]["failed"] else [])
    page.write(path, f"job {status['job']} '{status['name']}'", _facts(status), figures, failures)
    if as_json:
        print_json({"job": status["job"], "report": str(path.absolute()), "figures": [name for name, _ in figures]})
    else:
        click.echo(f"{path}: {plural(len(figures), 'picture')} of job {status['job']} '{status['name']}'")


def _page_file(out: str) -> Path:
    path = Path(out)
    if path.suffix.lower() not in PAGE_SUFFIXES:
        raise BadInput(f"--out {out}: a report is an HTML page", hint=f"as in: -o {path.with_suffix('.html')}")
    return path


def _of_fleet(name: str, job: str, path: Path, place: Place, as_json: bool) -> None:
    if job != "last":
        raise BadInput("a job and a fleet: report one of them", hint=f"try: windfall report --fleet {name}")
    with place.open() as client:
        told = client.fleet(name)
        figures = [(each["name"], each["html"]) for each in client.fleet_pictures(name)]
    facts = [
        f"{told['mode']}, planner {told['planner']}: {plural(told['jobs_ever'], 'job')}, {told['jobs']:,} unfinished",
        f"{show_usd(told['spent_usd'])} spent, {show_usd(told['idle_usd'])} of it for cycles that no job used",
    ]
    page.write(path, f"fleet '{name}'", [*facts, *told["because"]], figures)
    if as_json:
        print_json({"fleet": name, "report": str(path.absolute()), "figures": [title for title, _ in figures]})
    else:
        click.echo(f"{path}: {plural(len(figures), 'picture')} of fleet '{name}'")


def _facts(status: JobStatus) -> list[str]:
    tasks, ended = status["tasks"], status.get("finished_s")
    lasted = "" if ended is None else f" after {show_duration(ended - status['submitted_s'])}"
    facts = [f"{status['state']}{lasted}: {tasks['done']:,} of {plural(tasks['total'], 'task')} done"]
    if tasks.get("failed"):
        facts[0] += f", {tasks['failed']:,} failed"
    return [*facts, *(" · ".join(line.strip().split("   ")) for line in outcome_lines(plain(status)))]


def _failures(groups: Sequence[Mapping[str, Any]]) -> str:
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
