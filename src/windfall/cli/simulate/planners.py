"""`windfall simulate planners`: one scenario under several planners over the same seeds. Touches the terminal."""

from __future__ import annotations

from typing import Any

import click

from windfall.cli.show.output import print_json, print_table
from windfall.cli.simulate.runs import many, read_scenario, sweep_options
from windfall.units import show_duration


@click.command("planners")
@click.argument("scenario")
@click.argument("names", nargs=-1, metavar="[PLANNER]...")
@click.option("--seeds", type=click.IntRange(2), default=20, show_default=True, metavar="K", help="Seeds 1 to K.")
@sweep_options
def planners_command(
    scenario: str, names: tuple[str, ...], seeds: int, changes: tuple[str, ...], jobs: int | None, server: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Run SCENARIO under several planners: what each costs, and how often it is in time.

    Every planner meets the same interruptions, prices and run times, seed by seed; differences are to the first one
    named. Without names: all planners.

    \b
    Examples:
      windfall simulate planners spot-law windfall uniform-progress greedy --seeds 10
      windfall simulate planners spot --set bag.deadline=8h
    """
    from windfall.planning.registry import PLANNERS
    from windfall.planning.workflow.planners import NAMES as WORKFLOW_NAMES

    is_workflow = any(bag.edges for bag in read_scenario(scenario, changes).bags)
    chosen = list(dict.fromkeys(names)) or list(WORKFLOW_NAMES if is_workflow else PLANNERS)
    made = {name: read_scenario(scenario, (*changes, f"bag.*.planner={name}")) for name in chosen}
    rows = _rows({name: many(one, range(1, seeds + 1), jobs, server) for name, one in made.items()})
    if as_json:
        print_json({"scenario": scenario, "seeds": seeds, "planners": rows})
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
