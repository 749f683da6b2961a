"""`windfall lab spot --experiment fleet|zones|prices`: fleets over zones, against a bound. Touches: traces, files."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from windfall.errors import BadInput
from windfall.figures.sheet import Bars, Mark, Panel, sheet, write
from windfall.lab import cases
from windfall.lab.spot.bags import bag, run_bag
from windfall.lab.spot.command import BOUND, Run, prior_without, ratio_of_sums
from windfall.lab.spot.worlds import EXPERIMENTS, World, bound_usd, fleet_terms, run
from windfall.planning.spot.fleet import FleetPlanner, FleetTerms, SeatBySeat
from windfall.planning.spot.fleet_windfall import FleetWindfall
from windfall.planning.spot.law import Prior
from windfall.planning.spot.multi_region import RULES
from windfall.planning.spot.windfall import PLANNERS

TITLES = {
    "fleet": "Several machines: series of counts",
    "bags": "Several machines: real tasks that start again when their machine goes",
    "zones": "One machine over several zones",
    "prices": "Four machines at prices that move",
}


def planner_of(name: str, prior: Prior) -> Callable[[FleetTerms, int], FleetPlanner]:
    """Windfall's own planner for fleets, or a rival on every seat, which chooses zones in the same way.

    The published rules for several regions choose zones by themselves.
    """
    if name == "windfall":
        return lambda terms, zones: FleetWindfall(terms, zones, prior)
    if name in RULES:
        return lambda terms, zones: RULES[name](terms, zones, prior)
    return lambda terms, zones: SeatBySeat(terms, zones, PLANNERS[name], prior)


def planners_in(experiment: str) -> tuple[str, ...]:
    """The planners of an experiment: with one machine over several zones, the rules for several regions as well."""
    return (*PLANNERS, *(RULES if experiment == "zones" else ()))


def _world(case: cases.Case) -> World:
    worlds = EXPERIMENTS[case["experiment"]](case["terms"]["spot_usd"], case["terms"]["ondemand_usd"])
    return next(world for world in worlds if world.name == case["world"])


def work(case: cases.Case) -> cases.Case:
    """Cost of one planner (or the bound) in one world from one start."""
    world, wanted = _world(case), case["terms"]
    terms = fleet_terms(
        world, work_h=wanted["work_h"], deadline_h=wanted["deadline_h"], changeover_s=wanted["changeover_s"]
    )
    if case["experiment"] == "bags":
        seconds = math.fsum(bag(wanted["work_h"] * world.seats))
        terms = replace(terms, work_ticks=math.floor(seconds / terms.tick_s))
    if case["planner"] == BOUND:
        return {"cost_usd": bound_usd(world, case["start"], terms), "met": True}
    prior = prior_without(case["root"], world.folder)
    make = planner_of(case["planner"], prior)
    if case["experiment"] == "bags":
        outcome = run_bag(world, case["start"], terms, bag(wanted["work_h"] * world.seats), make)
    else:
        outcome = run(world, case["start"], terms, make(terms, len(world.counts[0])))
    result: cases.Case = msgspec.to_builtins(outcome)
    return result


def all_cases(
    name: str, root: Path, deadlines_h: list[float], starts: int, terms: dict[str, float]
) -> list[cases.Case]:  # fmt: skip
    found = []
    for world in EXPERIMENTS[name](terms["spot_usd"], terms["ondemand_usd"]):
        last = len(world.counts) - int(max(deadlines_h) * 3600.0 / world.tick_s)
        firsts = sorted({int((place + 0.5) * last / starts) for place in range(starts)}) if last > 0 else []
        found += [
            {
                "experiment": name,
                "root": str(root),
                "world": world.name,
                "seats": world.seats,
                "start": start,
                "planner": planner,
                "terms": terms | {"deadline_h": hours},
            }
            for start in firsts
            for hours in deadlines_h
            for planner in (BOUND, *planners_in(name))
        ]
    return found


def summarise(todo: list[cases.Case], results: list[cases.Case]) -> dict[str, Any]:
    """Sums of costs over sums of bounds, and their errors: by deadline, world and planner."""
    costs: dict[tuple[float, str, str], list[float]] = defaultdict(list)
    misses: dict[tuple[float, str], int] = defaultdict(int)
    for case, result in zip(todo, results, strict=True):
        hours, name = case["terms"]["deadline_h"], case["planner"]
        for group in ("all", f"{case['world']} ({case['seats']} seat{'s' * (case['seats'] > 1)})"):
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


def markdown(name: str, summary: dict[str, Any], starts: int) -> str:
    def cell(hours: str, group: str, planner: str) -> str:
        ratio = f"{summary['ratio'][hours][group][planner]:.3f}"
        # One run says nothing about the next.
        return ratio if starts == 1 and group != "all" else f"{ratio} ± {summary['error'][hours][group][planner]:.3f}"

    lines = [
        f"# {TITLES[name]}",
        "",
        f"Sum of costs over the sum of lower bounds; {starts} evenly spread starts, {summary['runs']} runs. The",
        "bound is a linear relaxation in which machines may be split: even one who knows the future may have to pay",
        "more. Windfall's prior has seen no series of the same folder. ± is the standard error over the runs.",
    ]
    for hours, groups in summary["ratio"].items():
        names = planners_in(name)
        lines += ["", f"## Deadline {hours} h", "", "| world | " + " | ".join(names) + " |"]
        lines.append("|---|" + "---:|" * len(names))
        for group in sorted(groups, key=lambda group: (group != "all", group)):
            lines.append(f"| {group} | " + " | ".join(cell(hours, group, planner) for planner in names) + " |")
        missed = summary["missed"][hours]
        lines.append("| deadlines missed | " + " | ".join(str(missed[planner]) for planner in names) + " |")
    return "\n".join(lines) + "\n"


def draw(name: str, summary: dict[str, Any], path: Path) -> None:
    """Bars: each planner in each world."""
    panels = []
    for hours, groups in summary["ratio"].items():
        worlds = sorted(groups, key=lambda group: (group != "all", group))
        names = planners_in(name)
        bars = [
            Bars(name=planner, values=[groups[world][planner] for world in worlds], hue=hue)
            for hue, planner in enumerate(names)
        ]
        most = 1.1 * max(groups[world][planner] for world in worlds for planner in names)
        title = f"{TITLES[name]}, deadline {hours} h"
        panels.append(
            Panel(
                title=title,
                bars=bars,
                names=worlds,
                y_name="cost / lower bound",
                y_span=(0.9, most),
                across=[Mark(1.0)],
            )
        )
    write(path, sheet(panels, "Cost beside the lower bound, of each planner in each world.", columns=1))


def run_worlds(
    name: str, root: Path, deadlines: list[float], starts: int, terms: dict[str, float], run_cases: Run
) -> dict[str, Any]:
    """One experiment; writes spot-NAME.md, .json and .svg."""
    todo = all_cases(name, root, deadlines, starts, terms)
    if not todo:
        raise BadInput(f"no trace for '{name}' lasts {max(deadlines):g} h", hint="try a shorter --deadline-h")
    summary = summarise(todo, run_cases(f"spot-{name}", todo, work))
    report = markdown(name, summary, starts)
    (run_cases.out / f"spot-{name}.md").write_text(report)
    (run_cases.out / f"spot-{name}.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw(name, summary, run_cases.out / f"spot-{name}.svg")
    return {"summary": summary, "report": report}
