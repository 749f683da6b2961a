"""`windfall simulate planners`: one scenario under several planners over the same seeds. Touches the terminal."""

from __future__ import annotations

from math import isfinite
from statistics import fmean
from typing import Any

import click

from windfall.cli.show.output import print_json, print_table
from windfall.cli.simulate.runs import many, read_scenario, sweep_options
from windfall.units import show_duration


@click.command("planners")
@click.argument("scenario")
@click.argument("names", nargs=-1, metavar="[PLANNER]...")
@click.option("--seeds", type=click.IntRange(2), default=20, show_default=True, metavar="K", help="Number of seeds.")
@click.option("--seed", "first", type=click.IntRange(0), default=1, show_default=True, metavar="N", help="First seed.")
@sweep_options
def planners_command(
    scenario: str, names: tuple[str, ...], seeds: int, first: int, changes: tuple[str, ...], jobs: int | None,
    server: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Run SCENARIO under several planners: what each costs, and how often it is in time.

    Every planner meets the same interruptions, prices and run times, seed by seed; differences are to the first one
    named. Without names: all planners. Of a bag, the mean costs stand beside a lower bound: what it would cost with
    divisible work and knowledge of the future (see docs/explanation/deadlines.md).

    \b
    Examples:
      windfall simulate planners spot-law windfall uniform-progress greedy --seeds 10
      windfall simulate planners spot --set bag.deadline=8h --seeds 40 --seed 301
    """
    from windfall.planning.registry import PLANNERS
    from windfall.planning.workflow.planners import NAMES as WORKFLOW_NAMES

    is_workflow = any(bag.edges for bag in read_scenario(scenario, changes).bags)
    chosen = list(dict.fromkeys(names)) or list(WORKFLOW_NAMES if is_workflow else PLANNERS)
    made = {name: read_scenario(scenario, (*changes, f"bag.*.planner={name}")) for name in chosen}
    chosen_seeds = range(first, first + seeds)
    rows = _rows({name: many(one, chosen_seeds, jobs, server) for name, one in made.items()})
    bounds = _bounds(made[chosen[0]], chosen_seeds)
    for row in rows:
        row["over_bound"] = row["cost_usd"].mean / bounds["usd"] if bounds and bounds["usd"] else None
    if as_json:
        print_json({"scenario": scenario, "seeds": seeds, "first_seed": first, "planners": rows, "bound": bounds})
        return
    print_table(
        ("planner", "cost", "95 % interval", f"against {chosen[0]}", "p", "in time", "turnaround", "interrupted"),
        [
            (
                row["planner"], f"${row['cost_usd'].mean:,.2f}",
                f"${row['cost_usd'].low:,.2f} .. ${row['cost_usd'].high:,.2f}",
                "-" if row["relative"] is None else f"{row['relative']:+.1%}",
                "-" if row["p_value"] is None else f"{row['p_value']:.2g}", f"{row['met']} of {seeds}",
                show_duration(row["turnaround_s"].mean), f"{row['interrupted'].mean:.1f}",
            )
            for row in rows
        ],
    )  # fmt: skip
    if bounds is not None:
        click.echo(_bound_words(rows, bounds))
        if bounds["in_time"] < seeds:
            late = seeds - int(bounds["in_time"])
            click.echo(
                f"no planner is in time with more than {bounds['in_time']} of {seeds} seeds: "
                f"with {late} a single task takes longer than the deadline"
            )


def _bounds(scenario: Any, seeds: range) -> dict[str, float] | None:
    """Mean costs, and how many seeds can be in time at all; None if the scenario is not one bag on rented machines."""
    from windfall.sim.studies.bounds import bound_usd, can_be_in_time

    found = [(bound_usd(scenario, seed), bound_usd(scenario, seed, charged=True)) for seed in seeds]
    finite = [(one, other) for one, other in found if one is not None and other is not None and isfinite(other)]
    if len(finite) < len(found):
        return None
    return {
        "usd": fmean(one for one, _ in finite),
        "charged_usd": fmean(other for _, other in finite),
        "in_time": sum(bool(can_be_in_time(scenario, seed)) for seed in seeds),
    }


def _bound_words(rows: list[dict[str, Any]], bounds: dict[str, float]) -> str:
    def line(what: str, usd: float) -> str:
        ratios = ", ".join(f"{row['planner']} {row['cost_usd'].mean / usd:.2f} times" for row in rows) if usd else ""
        return f"{what}: ${usd:,.2f}" + (f"   ({ratios})" if ratios else "")

    words = line("lower bound with knowledge of the future", bounds["usd"])
    if bounds["charged_usd"] > bounds["usd"] * (1 + 1e-9):
        words += "\n" + line("the same if cycles of reclaimed machines were charged", bounds["charged_usd"])
    return words


def _rows(runs: dict[str, list[Any]]) -> list[dict[str, Any]]:
    from windfall.sim.studies.sweep import compare, measured, values_of

    first = next(iter(runs.values()))
    rows = []
    for name, outcomes in runs.items():
        paired = None if outcomes is first else compare(first, outcomes, "cost_usd")
        rows.append(
            {
                "planner": name,
                **{key: measured(values_of(outcomes, key)) for key in ("cost_usd", "turnaround_s", "interrupted")},
                "met": sum(bool(outcome.met) for outcome in outcomes),
                "finished": sum(outcome.finished for outcome in outcomes),
                "relative": None if paired is None else paired.relative,
                "p_value": None if paired is None else paired.p_value,
                "failed_plans": sum(bag.failed_plans for outcome in outcomes for bag in outcome.bags),
            }
        )
    return rows
