"""`windfall simulate`: scenarios in virtual time, seed by seed, compared and replayed. Touches terminal and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from windfall.cli.show.output import note, output_file, plural, print_json, print_table
from windfall.cli.simulate.calibration import calibration_command
from windfall.cli.simulate.planners import planners_command
from windfall.cli.simulate.runs import many, progress, read_scenario, sweep_options
from windfall.errors import BadInput
from windfall.units import show_duration

Json = dict[str, Any]


class _Default(click.Group):
    """`simulate compare ...` is a command of its own; everything else is a run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Default)
def simulate() -> None:
    """Run a scenario in virtual time."""


simulate.add_command(planners_command)
simulate.add_command(calibration_command)


@simulate.command("run")
@click.argument("scenario", required=False)
@click.option("--list", "listed", is_flag=True, help="Name the ready scenarios.")
@click.option("--seed", type=click.IntRange(0), default=None, help="One run under this seed (default: seed 1).")
@click.option("--seeds", type=click.IntRange(1), default=None, metavar="K", help="K runs, seeds 1 to K.")
@click.option(
    "--log",
    type=click.Path(path_type=Path),
    callback=output_file,
    metavar="FILE",
    help="Write the run's log, as windfall events --json.",
)
@click.option(
    "--report", type=click.Path(path_type=Path), callback=output_file, metavar="HTML",
    help="Write a page of figures of the run.",
)  # fmt: skip
@click.option("--replay", metavar="STATE", help="Fit the world to a live state: a directory or postgresql://...")
@sweep_options
def run_command(
    scenario: str | None, listed: bool, seed: int | None, seeds: int | None, log: Path | None, report: Path | None,
    replay: str | None, changes: tuple[str, ...], jobs: int | None, server: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Run SCENARIO in virtual time: the same engine and policies as the live server, in a simulated world.

    SCENARIO is a name from --list or a TOML file (docs/reference/scenario.md). The same scenario and seed give the
    same log, on any machine. `windfall simulate compare A B` compares two over the same seeds, and `windfall simulate
    planners SCENARIO` the planners that rent machines.

    \b
    Examples:
      windfall simulate campus
      windfall simulate campus --seeds 20 --set pool.slurm.hosts=200
      windfall simulate campus --seed 7 --log campus.ndjson --report campus.html
      windfall simulate --replay ~/.windfall --seeds 20
    """
    if listed:
        _list(as_json)
        return
    if (scenario is None) == (replay is None):
        raise BadInput(
            "name a scenario, or a state with --replay", hint="windfall simulate --list names the ready ones"
        )
    if seed is not None and seeds is not None:
        raise BadInput("--seed is one run, --seeds many", hint="give one of the two")
    if seeds is not None and seeds > 1 and (log or report):
        raise BadInput("--log and --report are of one run", hint="give --seed N instead of --seeds")
    if server is not None and (log or report):
        raise BadInput("--log and --report are written where the run is", hint="leave out --on")
    if replay is not None:
        numbers = range(1, (seeds or 10) + 1) if seed is None and not (log or report) else [1 if seed is None else seed]
        _replay(replay, list(changes), numbers, jobs, server, log, report, as_json)
        return
    read = read_scenario(scenario or "", changes)
    if seeds is not None and seeds > 1:
        _show_many(many(read, range(1, seeds + 1), jobs, server), as_json)
        return
    number = 1 if seed is None else seed
    if server is None:
        outcome = _one(read, number, log, report)
    else:
        (outcome,) = many(read, range(number, number + 1), jobs, server)
    if as_json:
        print_json(outcome)
    else:
        show_outcome(outcome)


@simulate.command("compare")
@click.argument("a")
@click.argument("b")
@click.option("--seeds", type=click.IntRange(2), default=20, show_default=True, metavar="K", help="Seeds 1 to K.")
@click.option("--set-a", "changes_a", multiple=True, metavar="KEY=VALUE", help="Change A only.")
@click.option("--set-b", "changes_b", multiple=True, metavar="KEY=VALUE", help="Change B only.")
@sweep_options
def compare_command(
    a: str, b: str, seeds: int, changes_a: tuple[str, ...], changes_b: tuple[str, ...], changes: tuple[str, ...],
    jobs: int | None, server: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Compare two scenarios, or two policies in one scenario, over the same seeds.

    Both sides meet the same hosts, run times and failures, so a few seeds tell more than many unpaired ones.

    \b
    Example:
      windfall simulate compare campus campus --set-b bag.policy.ReplicationRequirements=false
    """
    from windfall.sim.studies.sweep import MEASURES, compare, values_of

    first = many(read_scenario(a, (*changes, *changes_a)), range(1, seeds + 1), jobs, server)
    second = many(read_scenario(b, (*changes, *changes_b)), range(1, seeds + 1), jobs, server)
    found = [
        compare(first, second, measure)
        for measure in MEASURES
        if len(values_of(first, measure)) == len(values_of(second, measure)) == seeds
    ]
    if as_json:
        print_json(
            {"a": a, "b": b, "seeds": seeds, "comparisons": found, "significant": [c.significant for c in found]}
        )
        return
    rows = [
        (
            MEASURES[c.measure], _value(c.measure, c.a.mean), _value(c.measure, c.b.mean),
            "-" if c.relative is None else f"{c.relative:+.1%}",
            f"{_value(c.measure, c.difference.low, True)} .. {_value(c.measure, c.difference.high, True)}",
            "-" if c.p_value is None else f"{c.p_value:.2g}",
        )
        for c in found
        if c.a.mean or c.b.mean
    ]  # fmt: skip
    print_table(("", "A", "B", "B - A", "95 % interval of B - A", "p"), rows)
    click.echo()
    for main in found:
        if main.measure == "turnaround_s" or (main.measure == "cost_usd" and (main.a.mean or main.b.mean)):
            click.echo(_verdict(main))


def _verdict(c: Any) -> str:
    """One sentence on a comparison."""
    what, less = ("cost", "cheaper") if c.measure == "cost_usd" else ("turnaround", "quicker")
    over = f"paired over {c.seeds} seeds; B was {less} in {c.b_lower} of them"
    if not c.significant:
        return f"B's {what} does not differ significantly, {over}."
    word = "lower" if c.difference.mean < 0 else "higher"
    return f"B's {what} is {word} by {abs(c.relative or 0):.1%}: significant (p = {c.p_value:.2g}), {over}."


# --- running --------------------------------------------------------------------------------------------------------


def _list(as_json: bool) -> None:
    from windfall.sim.scenario import library, load_document

    rows = [(name, load_document(name)[0].get("about", "")) for name in library()]
    if as_json:
        print_json([{"name": name, "about": about} for name, about in rows])
    else:
        print_table(("scenario", "about"), rows)


def _one(scenario: Any, seed: int, log: Path | None, report: Path | None) -> Any:
    """One run here, with its log and its page where asked for."""
    from windfall.sim.run import run

    seen: list[tuple[Any, ...]] = []
    with progress(f"simulating {scenario.name}") as show:
        outcome, world = run(
            scenario, seed, log, (lambda *attempt: seen.append(attempt)) if report else None,
            lambda world: show(_how_far(world)),
        )  # fmt: skip
    if report is not None:
        from windfall.cli.simulate.report import write

        write(report, outcome, world, seen)
    return outcome


def _how_far(world: Any) -> str:
    bags = world.driver.state.bags.values()
    total = sum(work.bag.tasks for work in world.jobs.values()) or 1
    done = sum(bag.counts[2] for bag in bags)
    return f"{done:,} of {total:,} tasks after {show_duration(world.driver.now)} of virtual time"


def _replay(
    state: str, changes: list[str], seeds: Sequence[int], jobs: int | None, server: str | None, log: Path | None,
    report: Path | None, as_json: bool,
) -> None:  # fmt: skip
    from windfall.sim.studies.replay import answer, fit
    from windfall.store.archives import is_archive, unpacked

    fitted = fit(unpacked(state) if is_archive(state) else state)
    scenario = fitted.scenario(changes)
    outcomes = [_one(scenario, seeds[0], log, report)] if log or report else many(scenario, seeds, jobs, server)
    document = answer(fitted, outcomes, bool(changes))
    if as_json:
        print_json(document)
        return
    click.echo(fitted.describe())
    for line in document["lines"]:
        click.echo(line)


# --- showing --------------------------------------------------------------------------------------------------------


def show_outcome(outcome: Any) -> None:
    """One run at a glance."""
    state = "done after" if outcome.finished else "NOT done after"
    met = "" if outcome.met is None else ("   deadline met" if outcome.met else "   deadline MISSED")
    cost = f"   cost ${outcome.cost_usd:,.2f}" if outcome.cost_usd else ""
    failed = sum(bag.failed for bag in outcome.bags)
    bad = f"   {plural(failed, 'task')} FAILED" if failed else ""
    click.echo(
        f"{outcome.scenario}, seed {outcome.seed}: {state} {show_duration(outcome.turnaround_s)}{met}{cost}{bad}"
    )
    click.echo(
        f"  utilisation {outcome.utilisation:.1%}   replicas {outcome.replicas:.1%} of tasks"
        f"   wasted on replicas {outcome.waste:.1%} of the useful time   lost to failures {outcome.lost:.1%}"
    )
    shown = outcome.bags if len(outcome.bags) <= 12 else outcome.bags[:12]
    click.echo()
    print_table(
        ("bag", "tasks", "done", "failed", "attempts", "replicas", "tail from", "turnaround", "deadline"),
        [
            (
                bag.name, bag.tasks, bag.done, bag.failed, bag.attempts, bag.replicas, show_duration(bag.tail_s),
                show_duration(bag.turnaround_s), {None: "-", True: "met", False: "missed"}[bag.met],
            )
            for bag in shown
        ],
    )  # fmt: skip
    if len(shown) < len(outcome.bags):
        click.echo(f"... and {plural(len(outcome.bags) - len(shown), 'bag')} more (--json shows all)")
    _show_planned(shown)
    click.echo()
    print_table(
        ("pool", "hosts", "stays", "done", "lost", "failed", "cancelled", "useful h", "utilisation", "cost"),
        [
            (
                name, books.hosts, books.stays, books.done, books.lost, books.failed, books.cancelled,
                f"{books.useful_s / 3600:,.1f}", f"{books.useful_s / books.present_s if books.present_s else 0:.1%}",
                f"${books.cost_microusd / 1e6:,.2f}",
            )
            for name, books in outcome.pools.items()
        ],
    )  # fmt: skip

    if outcome.offers:
        click.echo()
        print_table(
            ("offer", "market", "machines", "refused", "reclaimed", "hibernated", "hours held", "cost"),
            [
                (
                    offer.offer, offer.market, offer.machines, offer.refused, offer.taken, offer.slept,
                    f"{offer.held_h:,.1f}", f"${offer.cost_usd:,.2f}",
                )
                for offer in outcome.offers
            ],
        )  # fmt: skip


def _show_planned(bags: list[Any]) -> None:
    """What the first plan said, and what it came to."""
    rented = [bag for bag in bags if bag.planner]
    if not rented:
        return
    click.echo()
    print_table(
        ("bag", "planner", "plans", "cost planned", "cost", "done planned", "done", "deadline"),
        [
            (
                bag.name, bag.planner, bag.plans,
                "-" if bag.planned_cost_usd is None else f"${bag.planned_cost_usd:,.2f}", f"${bag.cost_usd:,.2f}",
                show_duration(bag.planned_finish_s), show_duration(bag.turnaround_s), show_duration(bag.deadline_s),
            )
            for bag in rented
        ],
    )  # fmt: skip
    for bag in rented:
        if bag.failed_plans:
            note(f"{bag.name}: no plan {plural(bag.failed_plans, 'time')}; {bag.trouble}")


def _show_many(outcomes: list[Any], as_json: bool) -> None:
    from windfall.sim.studies.sweep import MEASURES, summary

    document = summary(outcomes)
    if as_json:
        print_json(document | {"runs": outcomes})
        return
    click.echo(f"{document['scenario']}: {plural(len(outcomes), 'run')}, {document['finished']} finished\n")
    rows = [
        (text, _value(name, found.mean), f"{_value(name, found.low)} .. {_value(name, found.high)}")
        for name, text in MEASURES.items()
        if (found := document.get(name)) is not None and (found.mean or name == "turnaround_s")
    ]
    print_table(("", "mean", "95 % interval of the mean"), rows)
    click.echo()
    print_table(
        ("pool", "done", "lost", "failed", "useful h", "utilisation", "cost"),
        [
            (
                name, f"{pool['done'].mean:,.0f}", f"{pool['lost'].mean:,.1f}", f"{pool['failed'].mean:,.1f}",
                f"{pool['useful_h'].mean:,.1f}", f"{pool['utilisation'].mean:.1%}", f"${pool['cost_usd'].mean:,.2f}",
            )
            for name, pool in document["pools"].items()
        ],
    )  # fmt: skip
    if document["finished"] < len(outcomes):
        note("some runs did not end within the scenario's time; their turnaround counts as that time")


def _value(measure: str, value: float | None, signed: bool = False) -> str:
    if value is None:
        return "-"
    if measure == "turnaround_s":
        return f"-{show_duration(-value)}" if value < 0 else show_duration(value)
    if measure in ("failed", "machines", "interrupted"):
        return f"{value:,.1f}"
    if measure == "cost_usd":
        return f"{'-' if value < 0 else ''}${abs(value):,.2f}"
    return f"{value:+.2%}" if signed else f"{value:.2%}"
