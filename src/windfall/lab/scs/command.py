"""`windfall lab scs`: SCS, Greedy, GAIN and Windfall on a stream of workflows (figures 8 to 14 of the paper).

Touches: lab/scs/, worker processes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import click

from windfall.bench.in_process.scs import measure_all
from windfall.lab import cases
from windfall.lab.scs.cell import one_case
from windfall.lab.scs.load import APPLICATIONS, DEADLINES_H, HOURS, PATTERNS
from windfall.lab.scs.report import ERROR, HIGH, LOW, PLAIN, PLANNERS, Row, draw, markdown, summarise


@click.command("scs")
@click.option("--out", default="lab", show_default=True, metavar="DIR")
@click.option(
    "--sets", default=2, show_default=True, help="Random sets of task times for each combination; 50: as in the paper."
)
@click.option("--hours", default=float(HOURS), show_default=True, help="Simulated hours of one run.")
@click.option("--first-set", default=0, show_default=True, help="Number of the first set.")
@click.option("--jobs", type=int, help="Processes. Default: all cores.")
@click.option("--fresh", is_flag=True, help="Delete earlier results; otherwise they are used again.")
@click.option("--json", "as_json", is_flag=True, help="The summary as one JSON document.")
def command(
    out: str, sets: int, hours: float, first_set: int, jobs: int | None, fresh: bool, as_json: bool
) -> None:  # fmt: skip
    """Run the stream experiments of SCS again: cost, utilisation, volume, errors in estimates, overhead of the loop.

    Three applications, four arrival patterns, four deadlines, four planners. Every run is a fleet in the simulator:
    engine, plans and bills are those of the live server. A run of 72 hours takes about half a minute. An interrupted
    run continues where it stopped. Writes Markdown, figures and JSON to lab/scs/.

    \b
    Example:
      windfall lab scs --sets 1 --hours 12
    """
    target = Path(out) / "scs"
    store = target / "cases.ndjson"
    if fresh:
        store.unlink(missing_ok=True)
    wanted = list(all_cases(range(first_set, first_set + sets), hours))
    results = cases.run("scs", wanted, one_case, store, jobs)
    rows = [case | result for case, result in zip(wanted, results, strict=True)]
    overhead = measure_all(jobs=100_000 if hours >= HOURS else 1_000, classes=100, types=16, repeat=3)
    summary = summarise(rows, overhead)
    (target / "scs.json").write_text(json.dumps({"summary": summary, "cases": rows}, indent=1))
    (target / "scs.md").write_text(markdown(summary))
    draw(summary, target)
    click.echo(json.dumps(summary) if as_json else markdown(summary) + f"\nwritten to {target}/")


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
                yield mine | {"deadline_h": 1.0, "volume": HIGH}
                yield mine | {"deadline_h": 0.5, "run_error": ERROR}
                yield mine | {"deadline_h": 1.0, "boot_error": ERROR}
                yield mine | {"deadline_h": 1.0, "boot_bias": ERROR}
