"""`windfall lab scs`: SCS, Greedy, GAIN and Windfall on a stream of workflows (figures 8 to 14 of the paper).

Touches: lab/scs/, worker processes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import click

from windfall.bench.in_process.scs import measure_all
from windfall.cli.exits import Terminated
from windfall.cli.show.output import folder_option
from windfall.lab import cases
from windfall.lab.scs.cell import one_case
from windfall.lab.scs.load import APPLICATIONS, DEADLINES_H, HOURS, PATTERNS
from windfall.lab.scs.report import (
    ERROR,
    FIGURES,
    HIGH,
    HIGH_SHARE,
    LOW,
    PLAIN,
    PLANNERS,
    Row,
    draw,
    markdown,
    summarise,
)


@click.command("scs")
@folder_option()
@click.option(
    "--sets", default=2, show_default=True, help="Random sets of task times for each combination; 50: as in the paper."
)
@click.option("--hours", default=float(HOURS), show_default=True, help="Simulated hours of one run.")
@click.option("--first-set", default=0, show_default=True, help="Number of the first set.")
@click.option(
    "--figure", "figures", multiple=True, type=click.IntRange(8, 14), help="Only what this figure needs; repeats."
)
@click.option("--jobs", type=int, help="Processes. Default: all cores.")
@click.option("--fresh", is_flag=True, help="Delete earlier results; otherwise they are used again.")
@click.option("--json", "as_json", is_flag=True, help="The summary as one JSON document.")
def command(
    out: Path, sets: int, hours: float, first_set: int, figures: tuple[int, ...], jobs: int | None, fresh: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Run the stream experiments of SCS again: cost, utilisation, volume, errors in estimates, overhead of the loop.

    Three applications, four arrival patterns, four deadlines, four planners. Every run is a fleet in the simulator:
    engine, plans and bills are those of the live server. One simulated hour takes about half a second, so a set of 72
    hours takes some hours on one core; at ten times the volume a run lasts a sixth of the hours. Writes Markdown,
    figures and JSON to lab/scs/. An interrupted run writes the report of what is there, and continues where it stopped.

    \b
    Example:
      windfall lab scs --sets 1 --hours 12
    """
    target = out / "scs"
    store = target / "cases.ndjson"
    if fresh:
        store.unlink(missing_ok=True)
    wanted = [
        case
        for case in all_cases(range(first_set, first_set + sets), hours)
        if not figures or figures_of(case) & set(figures)
    ]
    sizes = 100_000 if hours >= HOURS else 1_000
    try:
        cases.run("scs", wanted, one_case, store, jobs)
    except (KeyboardInterrupt, Terminated):
        rows = cases.stored(wanted, one_case, store)
        write(rows, len(wanted), [], target)
        click.echo(f"broken off after {len(rows)} of {len(wanted)} runs: {target}/scs.md has these", err=True)
        raise
    overhead = measure_all(jobs=sizes, classes=100, types=16, repeat=3) if not figures or 14 in figures else []
    summary = write(cases.stored(wanted, one_case, store), len(wanted), overhead, target)
    click.echo(json.dumps(summary) if as_json else markdown(summary) + f"\nwritten to {target}/")


def write(rows: list[Row], wanted: int, overhead: list[Row], target: Path) -> Row:
    """The report of these runs: Markdown, figures, JSON. Returns its summary."""
    summary = summarise(rows, overhead, wanted)
    (target / "scs.json").write_text(json.dumps({"summary": summary, "cases": rows}, indent=1))
    (target / "scs.md").write_text(markdown(summary))
    draw(summary, target)
    return summary


def figures_of(case: Row) -> set[int]:
    """The figures of the paper that a run is for."""
    if case["volume"] != 1.0:
        return {11}
    if case["run_error"]:
        return {12}
    if case["boot_error"] or case["boot_bias"]:
        return {13}
    found = {FIGURES[case["application"]]}
    if case["application"] == "pipeline":
        found |= {0.5: {12}, 1.0: {11, 13}}.get(case["deadline_h"], set())
    return found


def all_cases(sets: Iterable[int], hours: float) -> Iterable[Row]:
    """Figures 8 to 10, then the volumes of figure 11 and the errors of figures 12 and 13 (pipeline)."""
    for number in sets:
        one: Row = {"hours": hours} | PLAIN | {"set": number, "application": "pipeline"}
        for application in APPLICATIONS:
            for deadline in DEADLINES_H:
                for pattern in PATTERNS:
                    for planner in PLANNERS:
                        yield one | {
                            "application": application, "pattern": pattern, "deadline_h": deadline, "planner": planner,
                        }  # fmt: skip
        for pattern in PATTERNS:
            for planner in PLANNERS:
                mine = one | {"pattern": pattern, "planner": planner}
                yield mine | {"deadline_h": 1.0, "volume": LOW}
                yield mine | {"deadline_h": 1.0, "volume": HIGH, "hours": hours * HIGH_SHARE}
                yield mine | {"deadline_h": 0.5, "run_error": ERROR}
                yield mine | {"deadline_h": 1.0, "boot_error": ERROR}
                yield mine | {"deadline_h": 1.0, "boot_bias": ERROR}
