"""The picture of `windfall simulate calibration`: observed shares against stated ones. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windfall.figures.sheet import SOFT, Line, Panel, sheet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windfall.sim.studies.calibration import Judged

IN_A_ROW = 4
"""Settings beside each other: more names do not fit."""


def calibration_picture(found: Sequence[Judged]) -> str:
    """For each setting: cost and finish inside their intervals, and deadlines met, each beside what was stated."""
    rows = [found[at : at + IN_A_ROW] for at in range(0, len(found), IN_A_ROW)]
    return sheet(
        [_panel(row) for row in rows],
        "Shares of runs inside the stated intervals, and in time, beside what was stated.",
        columns=1,
        title="Observed and stated shares of runs (* not as told)",
    )


def _panel(row: Sequence[Judged]) -> Panel:
    at = [float(place) for place in range(len(row))]
    met = [judged.met_share for judged in row]

    def dots(name: str, shift: float, values: list[float], hue: int, **more: object) -> Line:
        return Line(x=[x + shift for x in at], y=values, name=name, hue=hue, joined=False, **more)  # type: ignore[arg-type]

    return Panel(
        names=[judged.setting + ("" if judged.as_told else " *") for judged in row],
        y_name="share of runs",
        y_span=(0.0, 1.05),
        lines=[
            dots("stated interval", -0.24, [judged.interval for judged in row], SOFT),
            dots("cost inside", -0.12, [judged.cost_share for judged in row], 0),
            dots("finish inside", 0.0, [judged.finish_share for judged in row], 2),
            dots("stated chance", 0.12, [judged.said for judged in row], SOFT),
            dots("in time", 0.24, [each.mean for each in met], 1,
                 spread=[(each.mean - each.low, each.high - each.mean) for each in met]),
        ],
    )  # fmt: skip
