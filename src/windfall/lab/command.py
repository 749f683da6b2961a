"""`windfall lab`: one sub-command per paper or experiment, each in its own module."""

from __future__ import annotations

import click

from windfall.cli import LazyGroup

EXPERIMENTS: dict[str, tuple[str, str, str]] = {
    "timeouts": ("windfall.lab.timeouts.command", "command", "Timeouts: figures 1 to 8, table 2, real grid logs."),
    "opie": ("windfall.lab.opie.command", "command", "OPIE: tables 3 to 6, figure 2, a week of real pods."),
    "scs": ("windfall.lab.scs.command", "command", "SCS: figures 8 to 14, a stream of workflows for 72 hours."),
    "workflows": (
        "windfall.lab.workflows.command",
        "command",
        "All workflow planners on real workflows, with a bound.",
    ),
    "gridbot": (
        "windfall.lab.gridbot.command",
        "command",
        "GridBot: figures 5 to 9 and the replication table.",
    ),
    "hads": ("windfall.lab.hads.command", "command", "HADS: tables 10 and 11, figures 4 to 6, with every planner."),
    "spot-trace": ("windfall.lab.spot.trace", "command", "One planner on one availability series."),
    "spot": ("windfall.lab.spot.command", "command", "All planners on all series, against the omniscient cost."),
}


@click.group(cls=LazyGroup, table=EXPERIMENTS, invoke_without_command=True)
@click.option("--list", "listed", is_flag=True, help="Name the experiments, one a line.")
@click.pass_context
def lab(context: click.Context, listed: bool) -> None:
    """Run the papers' experiments again, beside their published figures.

    gridbot and hads run the engine in the simulator; the others use planners, timeouts and placement without it.
    """
    if listed:
        for name in sorted(EXPERIMENTS):
            click.echo(f"{name:<12} {EXPERIMENTS[name][2]}")
    elif context.invoked_subcommand is None:
        click.echo(context.get_help())
