"""What `windfall lab hads` says: its runs in numbers, Markdown and figures beside the paper's. Touches: image files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from windfall.figures.sheet import SOFT, Bars, Line, Mark, Panel, sheet, write
from windfall.lab.hads.statements import listed, statements
from windfall.lab.hads.world import (
    DEADLINE_S,
    JOBS,
    LIMIT,
    PAPER_10,
    PAPER_11,
    PAPER_FIGURE_4_S,
    SCENARIOS,
    TYPES,
    job,
    offers,
)
from windfall.planning.contract import SPOT
from windfall.planning.hads.primary import primary, spot_deadline_s, worst_makespan_s

Row = dict[str, Any]
MARKETS = {
    "": "",
    "known": " (market known)",
    "in boot": " (hibernation in the boot too)",
    "in boot, known": " (hibernation in the boot too, market known)",
}
PROCEDURES = {
    "recovered": "woke again",
    "stolen": "work stealing",
    "to_idle": "to idle",
    "to_busy": "to busy",
    "to_new": "to on-demand",
}
PAPER_FIGURE_6 = "the paper's figure has no numbers; ours is to be compared in shape"


def summarise(rows: Sequence[Row]) -> Row:
    """Everything that the report shows, in numbers."""
    scenarios = {rates: name for name, rates in SCENARIOS.items()}
    cells: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        scenario = scenarios.get((row["k_h"], row["k_r"]))
        if scenario is not None:
            cells.setdefault((row["job"], scenario, _named(row)), []).append(row)
    table_11 = [
        {"job": name, "scenario": scenario, "planner": planner, "paper_usd": PAPER_11[name][scenario][3]} | _cell(found)
        for (name, scenario, planner), found in sorted(cells.items())
    ]
    summary = {
        "table_10": [_baseline(name, rows) for name in JOBS],
        "table_11": table_11,
        "goal": _goal(table_11),
        "figure_4": _figure_4(cells),
        "figure_5": _figure_5(cells),
        "figure_6": _figure_6(rows),
    }
    return summary | {"statements": statements(summary)}


def _named(row: Row) -> str:
    """The planner of a run, with what its market is and what its state had seen before."""
    after = row.get("after", 0)
    earlier = f" (after {after} earlier job{'s' if after > 1 else ''})" if after else ""
    return str(row["planner"]) + MARKETS[row["market"]] + earlier


def _cell(found: Sequence[Row]) -> Row:
    costs = [row["cost_usd"] for row in found]
    finishes = [row["finish_s"] for row in found if row["finish_s"] is not None]
    by_count: dict[int, list[float]] = {}
    for row in found:
        by_count.setdefault(row["hibernations"], []).append(row["cost_usd"])
    spread = 1.96 * stdev(costs) / math.sqrt(len(costs)) if len(costs) > 1 else 0.0
    return {
        "runs": len(found),
        "cost_usd": round(mean(costs), 4),
        "plus_minus_usd": round(spread, 4),
        "missed": sum(not row["met"] for row in found),
        "hibernations": round(mean(row["hibernations"] for row in found), 2),
        "spot": round(mean(row["spot"] for row in found), 2),
        "on_demand": round(mean(row["on_demand"] for row in found), 2),
        "makespan_s": round(mean(finishes), 1) if finishes else None,
        "latest_s": round(max(finishes), 1) if finishes else None,
        "usd_by_hibernations": {count: round(mean(usd), 4) for count, usd in sorted(by_count.items())},
    }


def _baseline(name: str, rows: Sequence[Row]) -> Row:
    """Table 10, and the formulas that give its number of machines."""
    tasks, spot = job(name), [offer for offer in offers() if offer.market == SPOT]
    most = LIMIT * len(TYPES)
    until_s = spot_deadline_s(tasks, spot, most, DEADLINE_S)
    quiet = {(row["planner"], row["market"]): row for row in rows if row["job"] == name and not row["k_h"]}
    machines = primary(tasks, spot, until_s) or []
    return {
        "job": name,
        "longest_tasks": math.ceil(len(tasks) / most),
        "mkp_w_s": round(worst_makespan_s(tasks, spot, most), 1),
        "d_spot_s": round(until_s, 1),
        "work_s": round(math.fsum(task.runtime_s for task in tasks), 1),
        "machines": len(machines),
        "makespan_s": quiet["hads-as-printed", ""]["finish_s"],
        "spot_usd": quiet["hads-as-printed", ""]["cost_usd"],
        "on_demand_usd": quiet["hads-as-printed", "on-demand prices"]["cost_usd"],
        "windfall_usd": quiet["windfall", ""]["cost_usd"],
        "windfall_makespan_s": quiet["windfall", ""]["finish_s"],
        "windfall_on_demand_usd": quiet["on-demand", ""]["cost_usd"],
        "paper": dict(zip(("machines", "makespan_s", "spot_usd", "on_demand_usd"), PAPER_10[name], strict=True)),
    }


def _goal(table_11: Sequence[Row]) -> Row:
    """In how many of the 15 cells our own costs at most what the paper printed, and what it missed."""
    found = {}
    for planner in sorted({row["planner"] for row in table_11}):
        mine = [row for row in table_11 if row["planner"] == planner]
        above = [f"{row['job']} {row['scenario']}" for row in mine if row["cost_usd"] > row["paper_usd"] + 5e-4]
        found[planner] = {
            "cells": len(mine),
            "at_or_below_the_paper": len(mine) - len(above),
            "above": above,
            "runs": sum(row["runs"] for row in mine),
            "missed": sum(row["missed"] for row in mine),
            "mean_usd": round(mean(row["cost_usd"] for row in mine), 4),
        }
    return found


def _figure_4(cells: dict[tuple[str, str, str], list[Row]]) -> Row:
    found = {}
    for scenario in SCENARIOS:
        runs = [row for name in JOBS for row in cells.get((name, scenario, "hads-as-printed"), [])]
        sleeps = sum(row["hibernations"] for row in runs)
        asleep_s = sum(row["asleep_s"] for row in runs)
        found[scenario] = {
            "ours_s": round(asleep_s / sleeps, 1) if sleeps else None,
            "paper_s": PAPER_FIGURE_4_S[scenario],
        }
    return found


def _figure_5(cells: dict[tuple[str, str, str], list[Row]]) -> list[Row]:
    """How often each procedure of HADS ran, as a share of the hibernations."""
    found = []
    for (name, scenario, planner), runs in sorted(cells.items()):
        if planner == "hads-as-printed" and (sleeps := sum(row["hibernations"] for row in runs)):
            counts = {what: sum(row[what] for row in runs) for what in ("stolen", "to_idle", "to_busy", "to_new")}
            counts["recovered"] = sum(row["woken"] for row in runs)
            shares = {what: round(100.0 * counts[what] / sleeps, 1) for what in PROCEDURES}
            found.append({"job": name, "scenario": scenario} | shares)
    return found


def _figure_6(rows: Sequence[Row]) -> list[Row]:
    found: dict[tuple[str, float, float], list[float]] = {}
    for row in rows:
        is_shown = row["job"] == "J553" and row["k_h"] and row["k_r"] in (0.0, 3.0, 7.0)
        if is_shown and _named(row) == row["planner"]:
            found.setdefault((row["planner"], row["k_r"], row["k_h"]), []).append(row["cost_usd"])
    return [
        {"planner": planner, "k_r": k_r, "k_h": k_h, "runs": len(costs), "cost_usd": round(mean(costs), 4)}
        for (planner, k_r, k_h), costs in sorted(found.items())
        if planner in ("hads-as-printed", "windfall")
    ]


# --- in words -------------------------------------------------------------------------------------------------------


def clock(seconds: float | None) -> str:
    return "-" if seconds is None else f"{round(seconds) // 60}:{round(seconds) % 60:02d}"


def markdown(summary: Row) -> str:
    judged = ["", "## What the paper says, statement by statement", "", *listed(summary["statements"])]
    return "\n".join([*_text_10(summary), *_text_11(summary), *_text_figures(summary), *judged]) + "\n"


def _text_10(summary: Row) -> list[str]:
    lines = [
        "# HADS and its rivals",
        "",
        "A bag by a deadline of 35 minutes on machines that may hibernate (Teylo et al. 2019). All runs by the engine "
        "in the simulated cloud; the paper's numbers are means of three runs of its own.",
        "",
        "## Table 10: nothing hibernates",
        "",
        "| job | machines (paper) | makespan (paper) | spot $ (paper) | on-demand $ (paper) | Windfall $, makespan "
        "| Windfall on demand $ |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in summary["table_10"]:
        paper = row["paper"]
        lines.append(
            f"| {row['job']} | {row['machines']} ({paper['machines']}) | {clock(row['makespan_s'])} "
            f"({clock(paper['makespan_s'])}) | {row['spot_usd']:.3f} ({paper['spot_usd']:.2f}) | "
            f"{row['on_demand_usd']:.3f} ({paper['on_demand_usd']:.3f}) | {row['windfall_usd']:.3f}, "
            f"{clock(row['windfall_makespan_s'])} | {row['windfall_on_demand_usd']:.3f} |"
        )
    lines += ["", "Where the number of machines comes from:", ""]
    for row in summary["table_10"]:
        theirs = row["paper"]["machines"]
        differs = "" if row["machines"] == theirs else f", where the paper has {theirs}"
        lines.append(
            f"- {row['job']}: n = {row['longest_tasks']}, these longest tasks take mkp_w = {clock(row['mkp_w_s'])} on "
            f"the slowest machine (2 cores), so D_spot = {clock(row['d_spot_s'])}; less 3:00 of boot a machine of four "
            f"cores does {4 * (row['d_spot_s'] - 180):.0f} s of the {row['work_s']:.0f} s of work: "
            f"{row['machines']} machines{differs}."
        )
    return lines


def _text_11(summary: Row) -> list[str]:
    planners = sorted({row["planner"] for row in summary["table_11"]}, key=_order)
    cells = {(row["job"], row["scenario"], row["planner"]): row for row in summary["table_11"]}
    lines = ["", "## Table 11: mean cost in $ (half of the 95 % interval; deadlines missed, if any)", ""]
    lines += ["| job | scenario | paper | " + " | ".join(planners) + " |", "|---" * (3 + len(planners)) + "|"]
    for name in JOBS:
        for scenario in SCENARIOS:
            shown = [_shown(cells.get((name, scenario, planner))) for planner in planners]
            lines.append(f"| {name} | {scenario} | {PAPER_11[name][scenario][3]:.3f} | " + " | ".join(shown) + " |")
    lines += [
        "",
        "| planner | runs | missed | cells at or below the paper | above | mean $ of the cells |",
        "|---" * 6 + "|",
    ]
    for planner in planners:
        goal = summary["goal"][planner]
        above = ", ".join(goal["above"]) or "none"
        lines.append(
            f"| {planner} | {goal['runs']} | {goal['missed']} | {goal['at_or_below_the_paper']} of {goal['cells']} | "
            f"{above} | {goal['mean_usd']:.3f} |"
        )
    lines += ["", "HADS as printed, with the paper's means in brackets:", ""]
    lines += ["| job | scenario | hibernations | on-demand machines | makespan | latest |", "|---" * 6 + "|"]
    for name in JOBS:
        for scenario in SCENARIOS:
            row, paper = cells.get((name, scenario, "hads-as-printed")), PAPER_11[name][scenario]
            if row is not None:
                lines.append(
                    f"| {name} | {scenario} | {row['hibernations']:.2f} ({paper[0]:.2f}) | {row['on_demand']:.2f} "
                    f"({paper[1]:.2f}) | {clock(row['makespan_s'])} ({clock(paper[2])}) | {clock(row['latest_s'])} |"
                )
    lines += [
        "",
        "HADS as printed misses deadlines, in the paper too (35:35 and 35:32 in c4): its limit (equation 1) is the "
        "last moment for new machines, and a machine that resumes just before it has no time for all of its own queue. "
        "`hads` moves what such a machine cannot do in time.",
    ]
    return lines


def _order(planner: str) -> tuple[int, str]:
    first = ("windfall", "windfall (market known)", "hads-as-printed", "hads")
    return (first.index(planner) if planner in first else len(first), planner)


def _shown(row: Row | None) -> str:
    if row is None:
        return "-"
    missed = f"; {row['missed']} of {row['runs']}" if row["missed"] else ""
    best = f"{row['cost_usd']:.3f} (±{row['plus_minus_usd']:.3f}{missed})"
    return (
        f"**{best}**" if row["planner"].startswith("windfall") and row["cost_usd"] <= row["paper_usd"] + 5e-4 else best
    )


def _text_figures(summary: Row) -> list[str]:
    lines = ["", "## Figure 4: how long a hibernation lasts (until it resumes or the job ends)", ""]
    lines += ["| scenario | ours | paper |", "|---|---|---|"]
    for scenario, row in summary["figure_4"].items():
        lines.append(f"| {scenario} | {clock(row['ours_s'])} | {clock(row['paper_s'])} |")
    lines += ["", "## Figure 5: procedures of HADS, in % of the hibernations", ""]
    lines += ["| job | scenario | " + " | ".join(PROCEDURES.values()) + " |", "|---" * (2 + len(PROCEDURES)) + "|"]
    for row in summary["figure_5"]:
        lines.append(f"| {row['job']} | {row['scenario']} | " + " | ".join(f"{row[w]:.0f}" for w in PROCEDURES) + " |")
    lines += [
        "",
        "Work stealing takes only tasks that would begin in a later billing cycle; an on-demand machine that is rented "
        "after 20:00 has none before the deadline. How often that happens depends on the hibernation time limit, and "
        "so on the set K of rescuers, which the paper leaves open: here it is one machine of the slowest type, as in "
        "mkp_w. With as many machines as may be rented the limit comes so late that nothing is ever stolen.",
    ]
    lines += ["", f"## Figure 6: J553, more and more hibernation ({PAPER_FIGURE_6})", ""]
    lines += ["| planner | k_r | k_h | runs | mean $ |", "|---|---|---|---|---|"]
    for row in summary["figure_6"]:
        lines.append(f"| {row['planner']} | {row['k_r']:g} | {row['k_h']:g} | {row['runs']} | {row['cost_usd']:.3f} |")
    return lines


# --- in pictures ----------------------------------------------------------------------------------------------------


def figures(summary: Row, target: Path) -> None:
    _draw_11(summary, target / "table11.svg")
    _draw_4(summary, target / "figure4.svg")
    _draw_5(summary, target / "figure5.svg")
    _draw_6(summary, target / "figure6.svg")


def _draw_11(summary: Row, path: Path) -> None:
    planners = [p for p in sorted({row["planner"] for row in summary["table_11"]}, key=_order) if "boot" not in p]
    panels = []
    for name in JOBS:
        bars = []
        for hue, planner in enumerate(planners):
            rows = {r["scenario"]: r for r in summary["table_11"] if r["job"] == name and r["planner"] == planner}
            values = [rows[s]["cost_usd"] if s in rows else float("nan") for s in SCENARIOS]
            bars.append(Bars(name=planner, values=values, hue=hue))
        lines = [
            Line(x=[number - 0.45, number + 0.4], y=[PAPER_11[name][scenario][3]] * 2, name="paper", hue=SOFT)
            for number, scenario in enumerate(SCENARIOS)
        ]
        panels.append(Panel(title=name, bars=bars, lines=lines, names=list(SCENARIOS), y_name="mean cost, $"))
    write(path, sheet(panels, "Table 11: mean cost of each job in each scenario, by planner, beside the paper's."))


def _draw_4(summary: Row, path: Path) -> None:
    names = list(summary["figure_4"])
    bars = [
        Bars(name=label, values=[(summary["figure_4"][name][key] or 0.0) / 60 for name in names], hue=hue)
        for hue, (key, label) in enumerate((("ours_s", "ours"), ("paper_s", "paper")))
    ]
    panel = Panel(bars=bars, names=names, y_name="mean hibernation, minutes")
    write(path, sheet([panel], "Figure 4: mean time in hibernation, ours and the paper's."))


def _draw_5(summary: Row, path: Path) -> None:
    panels = []
    for name in JOBS:
        rows = [row for row in summary["figure_5"] if row["job"] == name]
        bars = [
            Bars(name=label, values=[row[what] for row in rows], hue=hue)
            for hue, (what, label) in enumerate(PROCEDURES.items())
        ]
        scenarios = [row["scenario"] for row in rows]
        panels.append(Panel(title=name, bars=bars, names=scenarios, y_name="% of the hibernations"))
    write(path, sheet(panels, "Figure 5: what was done at hibernations."))


def _draw_6(summary: Row, path: Path) -> None:
    lines = []
    for planner, dashed in (("hads-as-printed", True), ("windfall", False)):
        for hue, k_r in zip((4, 2, 1), (0.0, 3.0, 7.0), strict=True):
            rows = [row for row in summary["figure_6"] if row["planner"] == planner and row["k_r"] == k_r]
            name = f"{planner}, k_r = {k_r:g}"
            x, y = [r["k_h"] for r in rows], [r["cost_usd"] for r in rows]
            lines.append(Line(x=x, y=y, name=name, hue=hue, dashed=dashed, dots=True))
    dear = next(row["on_demand_usd"] for row in summary["table_10"] if row["job"] == "J553")
    panel = Panel(
        lines=lines, x_name="expected hibernations within the deadline, k_h", y_name="mean cost of J553, $",
        across=[Mark(dear, "on demand only (HADS's schedule)")],
    )  # fmt: skip
    write(path, sheet([panel], "Figure 6: cost by expected hibernations."))
