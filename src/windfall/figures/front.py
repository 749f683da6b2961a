"""What a deadline costs: the picture of `windfall plan --plot` and of the console's page Plan. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf
from typing import TYPE_CHECKING

from msgspec import Struct

from windfall.api.answers import Picture
from windfall.figures.charts import HUES, front_chart, stacked_chart
from windfall.figures.job import show_tick
from windfall.figures.standalone import standalone
from windfall.figures.timeline import Axis, escaped
from windfall.units import show_duration, show_usd

if TYPE_CHECKING:
    from windfall.sim.studies.forecast import Forecast


class FrontPoint(Struct, frozen=True):
    """One deadline: cost and its interval in dollars, and how many runs were in time."""

    deadline_s: float
    mean: float
    low: float
    high: float
    met: int
    runs: int


def front_picture(points: Sequence[FrontPoint], earliest_s: float, own_s: float | None) -> Picture:
    """Cost against deadline, the earliest first."""
    notes = [f"{each.met}/{each.runs}" for each in points]
    says = "; ".join(
        f"{show_tick(each.deadline_s)}: {show_usd(each.mean)}, {note} in time"
        for each, note in zip(points, notes, strict=True)
    )
    rows = [(each.deadline_s, each.mean, each.low, each.high) for each in points]
    drawn = front_chart(rows, notes, earliest_s, own_s, show_tick, show_usd, says)
    return {"name": "What a deadline costs", "html": drawn, "says": says + "."}


def plan_picture(name: str, deadline_s: float, soonest_s: float, found: dict[float, Forecast | None]) -> str:
    """An SVG document: cost against deadline, and the machines over time for the job's own deadline."""
    made = sorted((each for each in found.values() if each is not None), key=lambda each: each.deadline_s)
    points = [
        FrontPoint(each.deadline_s, each.cost_usd.mean, each.cost_usd.low, each.cost_usd.high, each.met, len(each.runs))
        for each in made
    ]
    own = found[deadline_s]
    pictures = [front_picture(points, soonest_s, deadline_s), *([_machines(own)] if own is not None else [])]
    return standalone(f"'{name}'", pictures)


def _machines(made: Forecast) -> Picture:
    times, counts = made.machines_over_time()
    step_s = times[1] - times[0] if len(times) > 1 else 2 * times[0]
    axis = Axis(times[-1] + step_s / 2, made.deadline_s)
    key = "".join(
        f'<span><i class="key hue{number % HUES}"></i>{escaped(market)}</span> ' for number, market in enumerate(counts)
    )
    done = made.finish_s
    says = "Machines over time, the mean of all runs." + (
        ""
        if done is None or isinf(done.high)
        else f" Done after {show_duration(done.low)} to {show_duration(done.high)} in most runs."
    )
    layers = list(counts.items()) or [("none", [0.0] * len(times))]
    drawn = stacked_chart(layers, step_s, axis, show_tick, lambda value: f"{value:.3g}", says)
    return {"name": says, "html": f"<p>{key}</p>{drawn}", "says": says}
