"""The laboratory's figure beside the engine's for the same series and starts. Touches: series, processes, files.

Three ways to run the same planner: seeing every tick, as published rules do; seeing capacity only by asking for it; and
through the engine, with machines that boot, tasks that save and a ledger.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from windfall.errors import BadInput
from windfall.lab import cases
from windfall.lab.spot.bound import omniscient_usd
from windfall.lab.spot.engine import boot_of, run_in_engine
from windfall.lab.spot.trace import run, terms_of
from windfall.planning.spot.windfall import Windfall, WindfallByAsking

if TYPE_CHECKING:
    from windfall.lab.spot.command import Run

SEEN, ASKED, ENGINE, BOUND = "laboratory, sees every tick", "laboratory, asks", "engine", "omniscient"
WAYS = (BOUND, SEEN, ASKED, ENGINE)


def one_way(case: cases.Case) -> cases.Case:
    """The cost of one way to run the work from one start."""
    from windfall.lab.spot.command import load

    series, start = load(case["series"]), case["start"]
    terms = terms_of(series.tick_s, **case["terms"])
    if case["way"] == BOUND:
        future = series.available[start : start + terms.deadline_ticks]
        return {"cost_usd": omniscient_usd(terms, future), "finish_h": None, "met": True}
    if case["way"] == ENGINE:
        found = run_in_engine(series, start, terms).result
    elif case["way"] == ASKED:
        found = run(series, start, terms, WindfallByAsking(terms, boot_s=boot_of(terms)))
    else:
        found = run(series, start, terms, Windfall(terms))
    result: cases.Case = msgspec.to_builtins(found)
    return result


def run_beside(
    root: Path, deadlines: list[float], starts: int, terms: dict[str, float], execute: Run
) -> dict[str, Any]:
    """Every series from some starts in every way; writes spot-engine.md and spot-engine.json."""
    from windfall.lab.spot.command import all_starts

    todo: list[cases.Case] = [
        {"series": path, "start": start, "way": way, "terms": terms | {"deadline_h": hours}}
        for path, start in all_starts(root, max(deadlines), starts)
        for hours in deadlines
        for way in WAYS
    ]
    if not todo:
        raise BadInput(f"no series in {root} lasts {max(deadlines):g} h", hint="name a folder of series with --data")
    summary = summed(todo, execute("spot-engine", todo, one_way))
    report = markdown(summary, starts)
    (execute.out / "spot-engine.md").write_text(report)
    (execute.out / "spot-engine.json").write_text(json.dumps(summary, indent=1) + "\n")
    return {"summary": summary, "report": report}


def summed(todo: list[cases.Case], results: list[cases.Case]) -> dict[str, Any]:
    """By deadline and way: the sum of costs, over that of the omniscient planner, and deadlines missed."""
    found: dict[str, Any] = {}
    for case, result in zip(todo, results, strict=True):
        row = found.setdefault(f"{case['terms']['deadline_h']:g}", {}).setdefault(
            case["way"], {"cost_usd": 0.0, "missed": 0, "runs": 0}
        )
        row["cost_usd"] += result["cost_usd"]
        row["missed"] += not result["met"]
        row["runs"] += 1
    for rows in found.values():
        for row in rows.values():
            row["ratio"] = round(row["cost_usd"] / rows[BOUND]["cost_usd"], 4)
            row["cost_usd"] = round(row["cost_usd"], 2)
    return found


def markdown(summary: dict[str, Any], starts: int) -> str:
    lines = [
        "# The same planner in the laboratory and through the engine",
        "",
        f"Sum of costs on all series, {starts} evenly spread starts each, over the omniscient cost. The engine boots",
        "machines, moves the task with its checkpoints and pays by the minute; it sees capacity by asking.",
        "",
        "| deadline | way | cost | over omniscient | deadlines missed |",
        "|---|---|---:|---:|---:|",
    ]
    for hours, rows in summary.items():
        for way in WAYS:
            row = rows[way]
            missed = f"{row['missed']} of {row['runs']}"
            lines.append(f"| {hours} h | {way} | ${row['cost_usd']:.2f} | {row['ratio']:.3f} | {missed} |")
    return "\n".join(lines) + "\n"
