"""`windfall lab spot-trace`: one planner on one availability series. Touches: the series' file, the terminal."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from windfall.bounds import BROKEN
from windfall.errors import BadInput
from windfall.planning.spot.market import Market, Planner, State, Terms, advance, begin, price_usd
from windfall.planning.spot.windfall import PLANNERS


class _Metadata(msgspec.Struct):
    gap_seconds: float


class _File(msgspec.Struct):
    metadata: _Metadata
    data: list[float]


class Series(msgspec.Struct, frozen=True):
    """Availability by ticks of `tick_s` seconds; any positive count of instances is availability."""

    name: str
    tick_s: float
    available: list[bool]
    counts: list[float] = []


class SpotCaseResult(msgspec.Struct, frozen=True):
    """The result of one run."""

    cost_usd: float
    finish_h: float
    met: bool


def read_series(path: Path) -> Series:
    """A series from its JSON file: {"metadata": {"gap_seconds": 600}, "data": [1, 0, ...]}, 0 = unavailable."""
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise BadInput(
            f"cannot read the series {path}: {error.strerror}", hint="name a JSON file of a series"
        ) from None
    except BROKEN as error:
        raise BadInput(
            f"{path} is not a series: {error}",
            hint='a series reads {"metadata": {"gap_seconds": 600}, "data": [1, 0, 0, 1]} with 0 = unavailable',
        ) from None
    if not content.data or not content.metadata.gap_seconds > 0:
        raise BadInput(
            f"{path} has no ticks" if not content.data else f"{path}: gap_seconds must be above zero",
            hint="a series has gap_seconds above zero and at least one tick in data",
        )
    return Series(str(path), content.metadata.gap_seconds, [count > 0 for count in content.data], content.data)


def terms_of(
    tick_s: float, *, work_h: float, deadline_h: float, changeover_s: float, spot_usd: float, ondemand_usd: float
) -> Terms:
    """Hours and seconds in whole ticks: work and changeover rounded up, the deadline down."""
    if deadline_h * 3600.0 < tick_s:
        raise BadInput(
            f"a deadline of {deadline_h:g} h is shorter than one tick of the series ({tick_s:g} s)",
            hint="--deadline-h takes hours",
        )
    return Terms(
        # An excess of 1e-9 ticks is a rounding error of the division.
        work_ticks=math.ceil(work_h * 3600.0 / tick_s - 1e-9),
        deadline_ticks=math.floor(deadline_h * 3600.0 / tick_s + 1e-9),
        changeover_ticks=math.ceil(changeover_s / tick_s - 1e-9),
        tick_s=tick_s,
        spot_usd=spot_usd,
        ondemand_usd=ondemand_usd,
    )


def choices(series: Series, start: int, terms: Terms, chosen: Planner) -> Iterator[Market]:
    """What the planner chooses, tick by tick, until the work is done; it sees the past and the present tick.

    After the end of the series there is no spot.
    """
    for available in series.available[:start]:
        chosen.observe(available)
    state: State = begin(terms)
    while state.left > 0:
        tick = start + state.tick
        available = tick < len(series.available) and series.available[tick]
        chosen.observe(available)
        choice = chosen.choose(state)
        if choice is Market.SPOT and not available:
            raise AssertionError(f"spot chosen in tick {tick}, where there is none")
        yield choice
        state = advance(terms, state, choice)


def run(series: Series, start: int, terms: Terms, chosen: Planner) -> SpotCaseResult:
    """The cost and the end of the work with this planner."""
    counts = Counter(choices(series, start, terms, chosen))
    ticks = counts.total()
    return SpotCaseResult(
        cost_usd=price_usd(terms, {market: counts[market] for market in Market}),
        finish_h=ticks * terms.tick_s / 3600.0,
        met=ticks <= terms.deadline_ticks,
    )


@click.command("spot-trace")
@click.option("--trace", type=click.Path(path_type=Path), required=True, help="JSON file of an availability series.")
@click.option(
    "--work-h", type=click.FloatRange(0, min_open=True), default=48.0, show_default=True, help="Hours of work."
)
@click.option(
    "--deadline-h", type=click.FloatRange(0, min_open=True), default=52.0, show_default=True, help="Hours allowed."
)
@click.option(
    "--changeover-s",
    type=click.FloatRange(0),
    default=720.0,
    show_default=True,
    help="Paid time without progress at every start and every change of market.",
)
@click.option("--spot", "spot_usd", type=click.FloatRange(0), default=0.973, show_default=True, help="USD an hour.")
@click.option(
    "--ondemand", "ondemand_usd", type=click.FloatRange(0), default=3.06, show_default=True, help="USD an hour."
)
@click.option("--planner", "name", type=click.Choice(list(PLANNERS)), default="windfall", show_default=True)
@click.option(
    "--start", type=click.IntRange(0), default=0, show_default=True, help="First tick; those before it are the past."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(trace: Path, name: str, start: int, as_json: bool, **terms: Any) -> None:
    """Run one machine's worth of work with a deadline on one availability series, and print its cost.

    At the start of each tick the planner sees whether there is spot, and chooses idle, spot or on-demand. Progress is
    kept; every start and every change of market costs the changeover in whole paid ticks.

    Example: windfall lab spot-trace --trace us-west-2a_v100_1.json --deadline-h 70 --start 500
    """
    series = read_series(trace)
    if start >= len(series.available):
        raise BadInput(
            f"--start {start} lies beyond {trace}, which has {len(series.available)} ticks",
            hint=f"the last tick is {len(series.available) - 1}",
        )
    deal = terms_of(series.tick_s, **terms)
    outcome = run(series, start, deal, PLANNERS[name](deal))
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(outcome)))
        return
    met = "met" if outcome.met else "MISSED"
    click.echo(f"{name}: ${outcome.cost_usd:.2f}, done after {outcome.finish_h:.2f} h, deadline {met}")
