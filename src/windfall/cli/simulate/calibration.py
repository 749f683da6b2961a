"""`windfall simulate calibration`: how often forecasts hold what they say. Touches the terminal and a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from windfall.cli.processes import processes
from windfall.cli.show.output import console, print_json, print_table
from windfall.errors import BadInput
from windfall.units import show_usd

if TYPE_CHECKING:
    from windfall.sim.studies.calibration import Judged

Json = dict[str, Any]


@click.command("calibration")
@click.option("--setting", "chosen", multiple=True, metavar="NAME", help="Only these settings.  [default: all]")
@click.option(
    "--runs", type=click.IntRange(2), metavar="N",
    help="Simulated runs of one forecast.  [default: 20, and more where they are not sure enough]",
)  # fmt: skip
@click.option(
    "--forecasts", type=click.IntRange(1), default=2, show_default=True, metavar="K", help="Forecasts of a setting."
)
@click.option(
    "--true-runs", type=click.IntRange(1), default=20, show_default=True, metavar="M", help="True runs of a setting."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--plot", metavar="PNG", help="Draw stated against observed shares.")
def calibration_command(
    chosen: tuple[str, ...], runs: int | None, forecasts: int, true_runs: int, as_json: bool, plot: str | None
) -> None:
    """Measure how often forecasts hold: cost and finish in the stated interval, deadlines against the stated chance.

    Every setting is forecast as `windfall plan` forecasts it and then run with seeds that no forecast has seen. In some
    the truth differs from what was told; these are marked.

    \b
    Examples:
      windfall simulate calibration --setting demo --true-runs 40
      windfall simulate calibration --runs 40 --plot calibration.png
    """
    from windfall.sim.studies.calibration import judge, settings

    all_ = settings()
    if unknown := next((name for name in chosen if name not in [setting.name for setting in all_]), None):
        names = "; ".join(setting.name for setting in all_)
        raise BadInput(f"there is no setting '{unknown}'", hint=f"settings: {names}")
    wanted = [setting for setting in all_ if not chosen or setting.name in chosen]
    each = (runs or 20) * forecasts + true_runs
    found: list[Judged] = []
    with console().status("") as shown, processes(each) as executor:
        for place, setting in enumerate(wanted, 1):
            shown.update(f"{setting.name}: {each} runs   (setting {place} of {len(wanted)})")
            found.append(judge(setting, runs, forecasts, true_runs, executor))
    if plot:
        from windfall.figures.calibration import draw

        draw(found, plot)
    rows = [_row(judged) for judged in found]
    if as_json:
        print_json({"runs": runs, "forecasts": forecasts, "true_runs": true_runs, "settings": rows})
        return
    heads = (
        "setting",
        "runs",
        "cost inside",
        "finish inside",
        "stated",
        "in time",
        "chance said",
        "forecast",
        "true mean",
    )
    print_table(heads, [_cells(row) for row in rows])
    for words, told in (("as told", True), ("truth differs from what was told (*)", False)):
        these = [judged for judged in found if judged.as_told is told]
        if these:
            pairs = sum(judged.pairs for judged in these)
            cost, finish = (sum(getattr(judged, key) for judged in these) for key in ("cost_inside", "finish_inside"))
            click.echo(f"{words}: cost inside {cost} of {pairs} ({cost / pairs:.0%}), finish {finish} of {pairs}")


def _row(judged: Judged) -> Json:
    """A public contract: docs/reference/cli.md."""
    met = judged.met_share
    return {
        "setting": judged.setting, "as_told": judged.as_told, "runs": judged.runs, "interval": judged.interval,
        "pairs": judged.pairs,
        "cost_inside": judged.cost_share, "finish_inside": judged.finish_share, "true_runs": judged.true_runs,
        "met": {"runs": judged.met, "share": met.mean, "low": met.low, "high": met.high}, "chance_said": judged.said,
        "cost_usd": {"mean": judged.cost_usd.mean, "low": judged.cost_usd.low, "high": judged.cost_usd.high},
        "true_cost_usd": judged.true_cost_usd,
    }  # fmt: skip


def _cells(row: Json) -> tuple[str, ...]:
    cost = row["cost_usd"]
    return (
        row["setting"] + ("" if row["as_told"] else " *"), str(row["runs"]),
        f"{row['cost_inside']:.0%}", f"{row['finish_inside']:.0%}",
        f"{row['interval']:.0%}", f"{row['met']['runs']} of {row['true_runs']}", f"{row['chance_said']:.0%}",
        f"{show_usd(cost['low'])} to {show_usd(cost['high'])}", show_usd(row["true_cost_usd"]),
    )  # fmt: skip
