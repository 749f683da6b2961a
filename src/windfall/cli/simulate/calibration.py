"""`windfall simulate calibration`: how often forecasts hold what they say. Touches the terminal and a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from windfall.cli.processes import processes
from windfall.cli.show.output import console, plot_file, print_json, print_table, wrote
from windfall.errors import BadInput
from windfall.units import show_usd

if TYPE_CHECKING:
    from windfall.sim.studies.calibration import Judged
    from windfall.sim.studies.random_worlds import GroupResult, PlansJudged

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
    "--true-runs", type=click.IntRange(1), metavar="M",
    help="True runs of a setting, or of a random world.  [default: 20; of a random world 1]",
)  # fmt: skip
@click.option("--random", "worlds", type=click.IntRange(1), metavar="N", help="N random worlds instead of settings.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, metavar="N", help="First random world.")
@click.option("--jobs", type=click.IntRange(1), metavar="P", help="Random worlds at a time; default: all cores.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--plot", callback=plot_file, metavar="FILE", help="Draw stated against observed shares.")
def calibration_command(
    chosen: tuple[str, ...], runs: int | None, forecasts: int, true_runs: int | None, worlds: int | None, seed: int,
    jobs: int | None, as_json: bool, plot: str | None,
) -> None:  # fmt: skip
    """Measure how often forecasts hold: cost and finish in the stated interval, deadlines against the stated chance.

    Every setting is forecast as `windfall plan` forecasts it and then run with seeds that no forecast has seen. In some
    the truth differs from what was told; these are marked.

    With --random N, worlds are drawn at random: run times of light and heavy tail, known or not; machines that
    hibernate, stop or are terminated, at rates that were told, not told, or told wrong by three times; tight and loose
    deadlines; budgets; free hosts, some of which leave; workflows. Each is forecast once and run once, or as often as
    --true-runs says. As many jobs must be in time as were named, within two standard errors.

    \b
    Examples:
      windfall simulate calibration --random 40
      windfall simulate calibration --setting demo --true-runs 40
      windfall simulate calibration --runs 40 --plot calibration.png
    """
    if worlds is not None:
        if chosen or plot:
            raise BadInput("--random goes with neither --setting nor --plot", hint="leave them out")
        _random_worlds(range(seed, seed + worlds), runs or 10, true_runs or 1, jobs, as_json)
        return
    true_runs = true_runs or 20
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
        from windfall.figures.calibration import calibration_picture
        from windfall.figures.saved import save

        wrote(save(calibration_picture(found), plot))
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


def _random_worlds(numbers: range, runs: int, true_runs: int, jobs: int | None, as_json: bool) -> None:
    from windfall.sim.studies.random_worlds import by_class, by_group, judge_worlds

    with console().status("") as shown, processes(len(numbers), jobs) as executor:

        def show(done: int) -> None:
            shown.update(f"{done} of {len(numbers)} random worlds")

        results = judge_worlds(numbers, runs, executor, show, true_runs)
    groups, classes = by_group(results, runs), by_class(results, runs)
    if as_json:
        print_json({"worlds": len(numbers), "first": numbers[0], "runs": runs, "true_runs": true_runs,
                    "groups": [_group(group) for group in groups], "classes": [_group(each) for each in classes],
                    "each": [msgspec.to_builtins(result) for result in results]})  # fmt: skip
        return
    heads = ("worlds", "jobs", "in time", "named", "two errors", "kept", "said", "cost inside", "finish inside",
             "stated", "first plan", "tenth plan")  # fmt: skip
    print_table(heads, [_group_cells(group) for group in groups])
    click.echo()
    print_table(("a world is in several rows", *heads[1:]), [_group_cells(each) for each in classes])
    click.echo(
        "first and tenth plan: the cost that it expected over the true one, median, and how many were in time of those "
        "that it expected to be.  * the truth differs"
    )


def _group(group: GroupResult) -> Json:
    return {**msgspec.to_builtins(group), "is_kept": group.is_kept}


def _group_cells(group: GroupResult) -> tuple[str, ...]:
    from windfall.sim.studies.random_worlds import WRONG

    return (
        group.group + (" *" if group.group.endswith(WRONG) else ""), str(group.jobs), str(group.met),
        f"{group.named:.1f}", f"{2 * group.error:.1f}", "yes" if group.is_kept else "no", f"{group.said:.1f}",
        f"{group.cost_inside / group.jobs:.0%}", f"{group.finish_inside / group.jobs:.0%}", f"{group.interval:.0%}",
        _plan_cell(group.first, group.first_plan), _plan_cell(group.tenth, group.tenth_plan),
    )  # fmt: skip


def _plan_cell(ratio: float | None, judged: PlansJudged | None) -> str:
    if ratio is None or judged is None:
        return "-"
    return f"{ratio:.2f}, {judged.met_of_these} of {judged.said_in_time}"


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
