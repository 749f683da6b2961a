"""`windfall lab hads`: HADS and its rivals on the paper's jobs (tables 10 and 11, figures 4 to 6).

Every run goes through the engine, its ledger and the simulated cloud. Touches: lab/hads/, worker processes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from windfall.cli.show.output import folder_option
from windfall.errors import BadInput
from windfall.lab import cases
from windfall.lab.hads import report as hads_report
from windfall.lab.hads.world import JOBS, SCENARIOS, one_case
from windfall.planning.registry import PLANNERS

Row = dict[str, Any]
# Figure 6: job J553, rising rates of hibernation, three rates of resumption.
FIGURE_6_K_H, FIGURE_6_K_R = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0), (0.0, 3.0, 7.0)
FIGURE_6_PLANNERS = ("hads-as-printed", "windfall")
BASELINES = ("hads-as-printed", "windfall", "on-demand")


@click.command("hads")
@folder_option()
@click.option("--seeds", default=200, show_default=True, type=click.IntRange(2), help="Runs of each cell.")
@click.option(
    "--planner", "planners", multiple=True, metavar="NAME", help="Only this one; may be repeated. Default: all."
)
@click.option("--seed", "first_seed", default=0, show_default=True, type=click.IntRange(0), help="First seed.")
@click.option(
    "--after",
    multiple=True,
    type=click.IntRange(1),
    metavar="N",
    help="Also windfall as the next job of a state in which N equal jobs ran before; may be repeated.",
)
@click.option("--in-boot", is_flag=True, help="Only table 11, all in a world where machines hibernate while they boot.")
@click.option("--jobs", type=click.IntRange(1), help="Processes. Default: all cores.")
@click.option("--fresh", is_flag=True, help="Delete earlier results; otherwise they are used again.")
@click.option("--json", "as_json", is_flag=True, help="The summary as one JSON document.")
def command(
    out: Path, seeds: int, planners: Sequence[str], first_seed: int, after: Sequence[int], in_boot: bool,
    jobs: int | None, fresh: bool, as_json: bool,
) -> None:  # fmt: skip
    """Run the experiments of HADS again with every planner: a bag with a deadline on machines that may hibernate.

    Three jobs, five scenarios of hibernation, 200 seeds of each, beside the paper's numbers. An interrupted run
    continues where it stopped. Writes Markdown, figures and JSON to lab/hads/.

    \b
    Example:
      windfall lab hads --seeds 5 --planner windfall --planner hads-as-printed
    """
    for name in planners:
        if name not in PLANNERS:
            raise BadInput(f"there is no planner '{name}'", hint=f"one of {', '.join(PLANNERS)}")
    if after and planners and "windfall" not in planners:
        raise BadInput("--after is a row of windfall, which is not among the planners", hint="add --planner windfall")
    target = out / "hads"
    store = target / "cases.ndjson"
    if fresh:
        store.unlink(missing_ok=True)
    # Figure 6 and table 11 share some cases: run each once.
    made = all_cases(range(first_seed, first_seed + seeds), planners or tuple(PLANNERS), in_boot, after)
    wanted = list({tuple(case.values()): case for case in made}.values())
    rows = [
        case | result for case, result in zip(wanted, cases.run("hads", wanted, one_case, store, jobs), strict=True)
    ]
    summary = hads_report.summarise(rows)
    text = hads_report.markdown(summary)
    (target / "hads.json").write_text(json.dumps(summary, indent=1))
    (target / "hads.md").write_text(text)
    hads_report.figures(summary, target)
    click.echo(json.dumps(summary) if as_json else f"{text}\nwritten to {target}/")


def all_cases(seeds: range, planners: Sequence[str], in_boot: bool = False, after: Sequence[int] = ()) -> Iterable[Row]:
    """Table 10, then table 11 (our own also with a known market, and with hibernation in the boot), then figure 6.

    `in_boot`: table 10 and all planners where machines hibernate while they boot, our own also with known rates.
    `after`: our own also after each of these numbers of earlier jobs, in both kinds of worlds unless `in_boot`.
    """
    for job in JOBS:
        for planner in BASELINES:
            yield _case(job, 0.0, 0.0, "", planner, 0)
        yield _case(job, 0.0, 0.0, "on-demand prices", "hads-as-printed", 0)
    for planner in planners:
        yield from _table_11(seeds, "in boot" if in_boot else "", planner)
    if "windfall" in planners:
        for market in ("in boot, known",) if in_boot else ("known", "in boot"):
            yield from _table_11(seeds, market, "windfall")
        for market in ("in boot",) if in_boot else ("", "in boot"):
            for earlier in dict.fromkeys(after):
                yield from _table_11(seeds, market, "windfall", earlier)
    for planner in () if in_boot else FIGURE_6_PLANNERS:
        for seed in seeds[: max(2, len(seeds) // 4)] if planner in planners else ():
            for k_r in FIGURE_6_K_R:
                for k_h in FIGURE_6_K_H:
                    yield _case("J553", k_h, k_r, "", planner, seed)


def _table_11(seeds: range, market: str, planner: str, after: int = 0) -> Iterable[Row]:
    for seed in seeds:
        for job in JOBS:
            for k_h, k_r in SCENARIOS.values():
                yield _case(job, k_h, k_r, market, planner, seed) | ({"after": after} if after else {})


def _case(job: str, k_h: float, k_r: float, market: str, planner: str, seed: int) -> Row:
    return {"job": job, "k_h": k_h, "k_r": k_r, "market": market, "planner": planner, "seed": seed}
