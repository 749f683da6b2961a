"""`windfall lab workflows`: every workflow planner on real workflows, tight to loose deadlines, against a lower bound.

Touches: the workflow files, lab/workflows/, worker processes.
"""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from msgspec import structs

from windfall.cli.show.output import folder_option
from windfall.errors import BadInput
from windfall.figures.sheet import Line, Panel, sheet, write
from windfall.lab import cases, data
from windfall.planning.offers import Offer
from windfall.planning.workflow.bounds import work_bound_usd
from windfall.planning.workflow.check import faults
from windfall.planning.workflow.model import US, Problem, Workflow, make_problem
from windfall.planning.workflow.planners import NAMES, plan, publish
from windfall.workflows import read
from windfall.workflows.offers import read_offers

FACTORS = (1.1, 1.5, 2.0, 3.0, 4.0)
BILLING = {"hour": 3600.0, "second": 1.0}
EXACT_UP_TO = 40  # tasks; above this, the bound counts machines per type
EQUAL = 1 + 1e-9
QUICK = 100_000  # machines examined for the plan that the solver starts from

# A small, a double, a fast and a wide type; prices per core are neither equal nor in the order of speeds.
OFFERS = (
    Offer(name="small", cores=1, speed=1.0, price_usd=0.050, lag_s=60.0),
    Offer(name="double", cores=2, speed=1.0, price_usd=0.096, lag_s=60.0),
    Offer(name="wide", cores=4, speed=1.3, price_usd=0.250, lag_s=60.0),
    Offer(name="fast", cores=1, speed=2.0, price_usd=0.130, lag_s=60.0),
)


@click.command("workflows")
@click.option("--data", "folder", metavar="DIR", help="Folder of WfFormat files. Default: the shared traces.")
@click.option("--offers", "offers_file", metavar="FILE", help="Prices per hour to use instead of the built-in four.")
@folder_option()
@click.option("--only", default="", metavar="TEXT", help="Only files whose path contains this.")
@click.option("--bound-s", default=30.0, show_default=True, help="Seconds for each lower bound.")
@click.option("--jobs", type=int, help="Processes. Default: all cores.")
@click.option("--fresh", is_flag=True, help="Delete earlier results; otherwise they are used again.")
@click.option("--json", "as_json", is_flag=True, help="The summary as one JSON document.")
def command(
    folder: str | None, offers_file: str | None, out: Path, only: str, bound_s: float, jobs: int | None, fresh: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Run every planner on every workflow: deadlines of 1.1 to 4 critical paths, billed by the hour and by the second.

    The deadline is the boot plus a multiple of the critical path on the fastest type. The bound is exact (CP-SAT)
    up to 40 tasks and a relaxation above. Writes Markdown, a figure and JSON to lab/workflows/.

    \b
    Example:
      windfall lab workflows --only helloworld
    """
    root = Path(folder) if folder else data.find("workflows")
    files = sorted(path for path in root.rglob("*.json") if only in str(path))
    if not files:
        raise BadInput(
            f"{root}: no workflow files" + (f" with '{only}' in their path" if only else ""), hint="see --help"
        )
    if importlib.util.find_spec("ortools") is None:
        raise BadInput("the bound needs OR-tools", hint="try: pip install 'windfall[bounds]'")
    target = out / "workflows"
    store = target / "cases.ndjson"
    if fresh:
        for kept in (store, target / "bounds.ndjson"):
            kept.unlink(missing_ok=True)
    offers = json.loads(json.dumps([structs.asdict(offer) for offer in _offers(offers_file)]))
    wanted = [
        {"file": str(path), "factor": factor, "billing": billing, "offers": offers}
        for path in files for billing in BILLING for factor in FACTORS
    ]  # fmt: skip
    bounds = cases.run(
        "bounds", [case | {"bound_s": bound_s} for case in wanted], one_bound, target / "bounds.ndjson", jobs
    )
    planned = cases.run("planners", wanted, one_case, store, jobs)
    rows = [plans | bound for plans, bound in zip(planned, bounds, strict=True)]
    summary = summarise(rows)
    target.mkdir(parents=True, exist_ok=True)
    (target / "workflows.json").write_text(json.dumps({"summary": summary, "cases": rows}, indent=1))
    (target / "workflows.md").write_text(_markdown(summary, rows))
    _figure(rows, target / "workflows.svg")
    click.echo(json.dumps(summary) if as_json else _markdown(summary, []) + f"\nwritten to {target}/")


def _offers(path: str | None) -> tuple[Offer, ...]:
    offers = read_offers(path) if path else OFFERS
    return tuple(structs.replace(offer, memory_gb=min(offer.memory_gb, 1e9)) for offer in offers)


def one_case(case: dict[str, Any]) -> dict[str, Any]:
    """All planners for one workflow, deadline and billing cycle; the independent checker verifies every plan."""
    workflow, problem = _read(case)
    planners = {}
    for name in NAMES:
        began = time.process_time()
        made = plan(problem, name, np.random.default_rng(0))
        cpu_s = time.process_time() - began
        document = publish(problem, made)
        found = faults(document, workflow, problem.offers, problem.deadline / US)
        planners[name] = {"cost_usd": document["cost_usd"], "met": document["met"], "faults": found, "cpu_s": cpu_s}
    name = Path(case["file"]).stem
    return {
        "workflow": name, "tasks": problem.n, "factor": case["factor"], "billing": case["billing"], "planners": planners
    }  # fmt: skip


def one_bound(case: dict[str, Any]) -> dict[str, Any]:
    """The lower bound. The solver starts from a fast plan of ours, which limits the number of machines."""
    from windfall.lab.workflows.cpsat import bound as solve

    _, problem = _read(case)
    work = work_bound_usd(problem)
    quick = plan(problem, "windfall", np.random.default_rng(0), looks=QUICK)
    if not quick.met(problem):
        return {"bound_usd": work, "proved": False}
    exact = problem.n <= EXACT_UP_TO
    solved = solve(problem, quick.cost_usd(problem), case["bound_s"] if exact else case["bound_s"] / 3, exact)
    return {"bound_usd": max(work, solved["bound_usd"]), "proved": solved["proved"]}


def _read(case: dict[str, Any]) -> tuple[Workflow, Problem]:
    workflow = read(case["file"]).for_planning()
    offers = tuple(Offer(**offer) for offer in case["offers"])
    return workflow, _problem(workflow, offers, case["factor"], case["billing"])


def _problem(workflow: Workflow, offers: tuple[Offer, ...], factor: float, billing: str) -> Problem:
    cycle_s = BILLING[billing]
    billed = tuple(
        structs.replace(offer, cycle_s=cycle_s, price_usd=offer.price_usd * cycle_s / offer.cycle_s) for offer in offers
    )
    draft = make_problem(workflow, billed, 1.0)
    fastest = [min(row) for row in zip(*draft.duration, strict=True)]
    path_s = max(workflow.graph.earliest_finish(fastest)) / US
    return make_problem(workflow, billed, max(offer.lag_s for offer in offers) + factor * path_s)


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Per planner: cost over the bound (small workflows), cost over Windfall's, share cheapest, deadlines missed."""
    possible = [row for row in rows if any(entry["met"] for entry in row["planners"].values())]
    small = [row for row in possible if row["tasks"] <= EXACT_UP_TO]
    table = {}
    for name in NAMES:
        mine = [row for row in possible if row["planners"][name]["met"]]
        both = [row for row in mine if row["planners"]["windfall"]["met"]]
        cheapest = [row for row in mine if row["planners"][name]["cost_usd"] <= _least(row) * EQUAL]
        tight = [row for row in small if row["planners"][name]["met"] and row["bound_usd"] > 0]
        over = [row["planners"][name]["cost_usd"] / row["planners"]["windfall"]["cost_usd"] for row in both]
        table[name] = {
            "over_bound_up_to_40": _mean([r["planners"][name]["cost_usd"] / r["bound_usd"] for r in tight]),
            "over_windfall": _mean(over),
            "cheapest_or_equal": len(cheapest) / len(possible) if possible else None,
            "missed": len(possible) - len(mine),
            "faults": sum(bool(row["planners"][name]["faults"]) for row in rows),
        }
    proved = sum(row["proved"] for row in small)
    return {"cases": len(rows), "possible": len(possible), "small": len(small), "proved": proved, "planners": table}


def _least(row: dict[str, Any]) -> float:
    return float(min(entry["cost_usd"] for entry in row["planners"].values() if entry["met"]))


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _markdown(summary: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    def cell(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    lines = [
        "# Workflow planners on real workflows",
        "",
        f"{summary['cases']} cases (deadline possible in {summary['possible']}); bound exact up to {EXACT_UP_TO} tasks "
        f"({summary['small']} cases, {summary['proved']} proved optimal), a relaxation above.",
        "",
        "| planner | cost / bound, up to 40 tasks | cost / Windfall's | cheapest or equal | missed | faulty plans |",
        "|---|---|---|---|---|---|",
    ]
    for name, entry in summary["planners"].items():
        lines.append(
            f"| {name} | {cell(entry['over_bound_up_to_40'], '.3f')} | {cell(entry['over_windfall'], '.3f')} | "
            f"{cell(entry['cheapest_or_equal'], '.0%')} | {entry['missed']} | {entry['faults']} |"
        )
    if rows:
        lines += ["", "| workflow | tasks | billing | deadline | " + " | ".join(NAMES) + " | bound | proved |"]
        lines.append("|---" * (6 + len(NAMES)) + "|")
        for row in rows:
            costs = [f"{e['cost_usd']:.4g}{'' if e['met'] else ' (late)'}" for e in row["planners"].values()]
            lines.append(
                f"| {row['workflow']} | {row['tasks']} | {row['billing']} | {row['factor']} | " + " | ".join(costs)
                + f" | {row['bound_usd']:.4g} | {'yes' if row['proved'] else ''} |"
            )  # fmt: skip
    return "\n".join(lines) + "\n"


def _figure(rows: list[dict[str, Any]], path: Path) -> None:
    panels = []
    for billing in BILLING:
        lines = []
        for hue, name in enumerate(NAMES):
            means = []
            for factor in FACTORS:
                mine = [r for r in rows if r["billing"] == billing and r["factor"] == factor]
                ratios = [
                    r["planners"][name]["cost_usd"] / r["planners"]["windfall"]["cost_usd"]
                    for r in mine if r["planners"][name]["met"] and r["planners"]["windfall"]["met"]
                ]  # fmt: skip
                means.append(float(np.mean(ratios)) if ratios else float("nan"))
            lines.append(Line(x=FACTORS, y=means, name=name, hue=hue, dots=True))
        title, x_name = f"billed by the {billing}", "deadline / critical path on the fastest type"
        panels.append(Panel(title=title, lines=lines, x_name=x_name, y_name="mean cost / Windfall's"))
    write(path, sheet(panels, "Mean cost of each planner beside Windfall's, by deadline."))
