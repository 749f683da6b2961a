"""The picture of `windfall simulate calibration`: observed shares against stated ones. Touches: the file it draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windfall.sim.studies.calibration import Judged


def draw(found: Sequence[Judged], path: str) -> None:
    """One row per setting: cost and finish inside their intervals, and deadlines met, each beside what was stated."""
    from windfall.figures.canvas import new_figure, save

    figure, axes = new_figure(width=9.0, height=1.6 + 0.45 * len(found))
    for place, judged in enumerate(found):
        axes.plot([judged.interval] * 2, [place - 0.3, place + 0.3], color="black", lw=2)
        axes.plot(judged.cost_share, place - 0.15, "o", color="tab:blue")
        axes.plot(judged.finish_share, place, "s", color="tab:orange")
        met = judged.met_share
        axes.plot([met.low, met.high], [place + 0.15] * 2, color="tab:green", lw=1)
        axes.plot(met.mean, place + 0.15, "^", color="tab:green")
        axes.plot(judged.said, place + 0.15, "|", color="tab:green", ms=12)
    names = [judged.setting + ("" if judged.as_told else " *") for judged in found]
    axes.set_yticks(range(len(found)), names)
    axes.set(
        xlim=(-0.02, 1.02), xlabel="share of runs (black: stated interval, green bar: stated chance; * not as told)"
    )
    axes.invert_yaxis()
    for marker, colour, name in (("o", "blue", "cost"), ("s", "orange", "finish"), ("^", "green", "in time")):
        axes.plot([], [], marker, color=f"tab:{colour}", label=name)
    axes.legend(loc="lower left")
    axes.grid(alpha=0.3, axis="x")
    save(figure, path)
