"""`windfall lab spot`: all planners on all series, against the omniscient cost. Touches: series, processes, files."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from windfall.cli.show.output import folder_option
from windfall.errors import BadInput
from windfall.figures.sheet import Line, Mark, Panel, sheet, write
from windfall.lab import cases, data
from windfall.lab.spot.bound import omniscient_usd
from windfall.lab.spot.trace import Series, read_series, run, terms_of
from windfall.planning.spot.law import Prior, fit_prior
from windfall.planning.spot.market import Planner, Terms
from windfall.planning.spot.windfall import PLANNERS, Windfall

FOLDER = "spot/skypilot-spot-traces"
LEFT_OUT = "windfall, folder left out"
BOUND = "omniscient"
GOALS = {52.0: 1.10, 70.0: 1.06}
ONE_NODE = "availability/1-node"
NAMES = ["one", "fleet", "bags", "zones", "prices", "engine"]


@cache
def load(path: str) -> Series:
    return read_series(Path(path))


@cache
def _everything(root: str) -> list[str]:
    return sorted(str(path) for path in Path(root).rglob("*.json"))


@cache
def prior_without(root: str, folder: str) -> Prior:
    """A prior fitted without the series of this folder, as for an unknown kind of series."""
    others = [load(path) for path in _everything(root) if str(Path(path).parent) != folder]
    return fit_prior((series.tick_s, series.available) for series in others)


def _without_folder(root: str, folder: str) -> Callable[[Terms], Planner]:
    prior = prior_without(root, folder)
    return lambda terms: Windfall(terms, prior)


def work(case: cases.Case) -> cases.Case:
    """Cost of one planner (or the bound) on one series from one start."""
    series, start = load(case["series"]), case["start"]
    terms = terms_of(series.tick_s, **case["terms"])
    if case["planner"] == BOUND:
        future = series.available[start : start + terms.deadline_ticks]
        return {"cost_usd": omniscient_usd(terms, future), "finish_h": None, "met": True}
    if case["planner"] == LEFT_OUT:
        make = _without_folder(case["root"], str(Path(case["series"]).parent))
    else:
        make = PLANNERS[case["planner"]]
    result: cases.Case = msgspec.to_builtins(run(series, start, terms, make(terms)))
    return result


def starts_of(series: Series, longest_h: float, count: int, rng: np.random.Generator | None = None) -> list[int]:
    """First ticks such that the longest deadline lies inside the series; empty if the series is too short.

    One per `count` equal parts: in the middle of the part, or at a random place in it.
    """
    last = len(series.available) - int(longest_h * 3600.0 / series.tick_s)
    within = np.full(count, 0.5) if rng is None else rng.random(count)
    return sorted({int((place + part) * last / count) for place, part in enumerate(within)}) if last > 0 else []


def all_starts(root: Path, longest_h: float, count: int) -> list[tuple[str, int]]:
    """Every series that is long enough, with each of its evenly spread starts."""
    return [(path, start) for path in _everything(str(root)) for start in starts_of(load(path), longest_h, count)]


def all_cases(
    root: Path, deadlines_h: list[float], starts: int, terms: dict[str, float], seed: int | None = None
) -> list[cases.Case]:
    rng = None if seed is None else np.random.default_rng(seed)
    return [
        {"root": str(root), "series": path, "start": start, "planner": name, "terms": terms | {"deadline_h": hours}}
        for path in _everything(str(root))
        for start in starts_of(load(path), max(deadlines_h), starts, rng)
        for hours in deadlines_h
        for name in (BOUND, *PLANNERS, LEFT_OUT)
    ]


def ratio_of_sums(costs: list[float], bounds: list[float]) -> tuple[float, float]:
    """The sum of costs over that of bounds, and its standard error as if the runs were independent."""
    cost, bound = np.array(costs), np.array(bounds)
    ratio = cost.sum() / bound.sum()
    return float(ratio), float(np.sqrt(((cost - ratio * bound) ** 2).sum()) / bound.sum())


def summarise(done: list[cases.Case], results: list[cases.Case]) -> dict[str, Any]:
    """Sums of costs over sums of omniscient costs, and their errors: by deadline, group of series and planner."""
    costs: dict[tuple[float, str, str], list[float]] = defaultdict(list)
    misses: dict[tuple[float, str], int] = defaultdict(int)
    for case, result in zip(done, results, strict=True):
        hours, name = case["terms"]["deadline_h"], case["planner"]
        series = str(Path(case["series"]).relative_to(case["root"]))
        for group in ("all", ONE_NODE if series.startswith(ONE_NODE) else "other", series):
            costs[hours, group, name].append(result["cost_usd"])
        misses[hours, name] += not result["met"]
    ratios: dict[str, Any] = {}
    errors: dict[str, Any] = {}
    for (hours, group, name), paid in costs.items():
        if name != BOUND:
            ratio, error = ratio_of_sums(paid, costs[hours, group, BOUND])
            ratios.setdefault(f"{hours:g}", {}).setdefault(group, {})[name] = round(ratio, 4)
            errors.setdefault(f"{hours:g}", {}).setdefault(group, {})[name] = round(error, 4)
    missed = {f"{hours:g}": {n: count for (h, n), count in misses.items() if h == hours} for hours, _ in misses}
    return {"ratio": ratios, "error": errors, "missed": missed, "runs": len(results)}


def markdown(summary: dict[str, Any], starts: int, seed: int | None = None) -> str:
    """The report: the figure by planner and deadline, then each series."""
    names = [*PLANNERS, LEFT_OUT]
    chosen = "evenly spread" if seed is None else f"random (seed {seed})"

    def cell(hours: str, group: str, name: str) -> str:
        return f"{summary['ratio'][hours][group][name]:.3f} ± {summary['error'][hours][group][name]:.3f}"

    lines = [
        "# Spot and on-demand against the omniscient planner",
        "",
        f"Sum of costs over sum of omniscient costs; {starts} {chosen} starts a series, {summary['runs']} runs.",
        "± is the standard error over the runs: how far another choice of starts may lie from this one.",
        f"“{LEFT_OUT}” plans with a prior fitted without any series of the same folder: it is the figure to",
        "expect on series that were never seen.",
    ]
    for hours, groups in summary["ratio"].items():
        goal = GOALS.get(float(hours))
        lines += ["", f"## Deadline {hours} h" + (f" (goal: at most {goal})" if goal else ""), ""]
        lines += ["| series | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
        for group in sorted(groups, key=lambda group: (group.endswith(".json"), group)):
            lines.append(f"| {group} | " + " | ".join(cell(hours, group, name) for name in names) + " |")
        lines.append("| deadlines missed | " + " | ".join(str(summary["missed"][hours][name]) for name in names) + " |")
    return "\n".join(lines) + "\n"


def draw(summary: dict[str, Any], path: Path) -> None:
    """A dot per series and planner, a bar at each planner's ratio of sums."""
    names = [*PLANNERS, LEFT_OUT]
    panels = []
    for hours, groups in summary["ratio"].items():
        lines = []
        for place, name in enumerate(names):
            values = [ratios[name] for group, ratios in groups.items() if group.endswith(".json")]
            lines.append(Line(x=[float(place)] * len(values), y=values, hue=place, joined=False))
            level = groups["all"][name]
            lines.append(Line(x=[place - 0.3, place + 0.3], y=[level] * 2, name=f"{name}: {level:.3f}", hue=place))
        goal = GOALS.get(float(hours))
        panels.append(
            Panel(
                title=f"deadline {hours} h", lines=lines, names=names, y_name="cost / omniscient cost",
                across=[Mark(goal, f"goal {goal}")] if goal else [], y_span=_span(lines),
            )
        )  # fmt: skip
    write(path, sheet(panels, "Cost beside the least possible one, of each planner on each series.", columns=2))


def _span(lines: list[Line]) -> tuple[float, float]:
    """From a little below the least value: all ratios are 1 and more."""
    values = [value for line in lines for value in line.y]
    return min(0.98, *values), 1.02 * max(values)


def run_one(
    root: Path, deadlines: list[float], starts: int, terms: dict[str, float], run: Run, seed: int | None = None
) -> dict[str, Any]:
    """One machine on every series long enough; writes spot.md, spot.json and spot.svg."""
    todo = all_cases(root, deadlines, starts, terms, seed)
    if not todo:
        raise BadInput(f"no series in {root} lasts {max(deadlines):g} h", hint="name a folder of series with --data")
    summary = summarise(todo, run("spot", todo, work))
    report = markdown(summary, starts, seed)
    (run.out / "spot.md").write_text(report)
    (run.out / "spot.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw(summary, run.out / "spot.svg")
    return {"summary": summary, "report": report}


class Run:
    """How cases are run and where the results go."""

    def __init__(self, out: Path, jobs: int | None, resume: bool) -> None:
        self.out, self.jobs, self.resume = out, jobs, resume

    def __call__(
        self, name: str, todo: list[cases.Case], work: Callable[[cases.Case], cases.Case]
    ) -> list[cases.Case]:  # fmt: skip
        store = self.out / f"{name}-cases.ndjson"
        if not self.resume:
            store.unlink(missing_ok=True)
        results = cases.run(name, todo, work, store, self.jobs)
        store.unlink()
        return results


@click.command("spot")
@click.option(
    "--experiment",
    type=click.Choice([*NAMES, "all"]),
    default="one",
    show_default=True,
    help="One machine on every series; fleets of 4 and 16; the same with a bag of real tasks; several zones; prices "
    "that move; one machine through the engine beside the laboratory.",
)
@click.option("--data", "root", type=click.Path(path_type=Path), help="Folder of series [default: the shared traces].")
@click.option("--starts", type=click.IntRange(1), default=12, show_default=True, help="Starts per series.")
@click.option("--seed", type=int, help="One machine from random starts [default: evenly spread ones].")
@click.option("--deadline-h", "deadlines", type=float, multiple=True, default=(52.0, 70.0), show_default=True)
@click.option("--work-h", type=float, default=48.0, show_default=True, help="Hours of work for each machine.")
@click.option("--changeover-s", type=float, default=720.0, show_default=True)
@click.option("--spot", "spot_usd", type=float, default=0.973, show_default=True, help="USD an hour.")
@click.option("--ondemand", "ondemand_usd", type=float, default=3.06, show_default=True, help="USD an hour.")
@click.option("--jobs", type=click.IntRange(1), help="Processes [default: one per core].")
@click.option("--resume", is_flag=True, help="Go on where a broken run of the same version stopped.")
@folder_option()
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def command(
    experiment: str,
    root: Path | None,
    starts: int,
    seed: int | None,
    deadlines: tuple[float, ...],
    jobs: int | None,
    resume: bool,
    out: Path,
    as_json: bool,
    **terms: float,
) -> None:
    """Run every planner on every series from many starts, beside the omniscient cost.

    For one machine that cost is exact; for fleets, zones and changing prices it is a lower bound. The planners run tick
    by tick in a model of their own, without the engine; `--experiment engine` sets the same planner beside it, through
    the engine. Writes spot.md, spot.json and spot.svg, and spot-fleet.md and so on for the other experiments.

    Example: windfall lab spot --starts 3

    Example: windfall lab spot --experiment fleet --starts 2
    """
    from windfall.lab.spot.beside import run_beside
    from windfall.lab.spot.fleet import run_worlds

    needed_h = terms["work_h"] + terms["changeover_s"] / 3600.0
    if min(deadlines) < needed_h:
        raise BadInput(
            f"{terms['work_h']:g} h of work cannot be done in {min(deadlines):g} h",
            hint=f"with one start it takes {needed_h:g} h: a longer --deadline-h, or a shorter --work-h",
        )
    root, run = root or data.find(FOLDER), Run(out, jobs, resume)
    found = {}
    for name in NAMES if experiment == "all" else [experiment]:
        if name == "one":
            found[name] = run_one(root, list(deadlines), starts, terms, run, seed)
        elif name == "engine":
            found[name] = run_beside(root, list(deadlines), starts, terms, run)
        else:
            found[name] = run_worlds(name, root, list(deadlines), starts, terms, run)
    if as_json:
        summaries = {name: result["summary"] for name, result in found.items()}
        click.echo(json.dumps(summaries if experiment == "all" else summaries[experiment]))
    else:
        click.echo("\n".join(result["report"] for result in found.values()), nl=False)
