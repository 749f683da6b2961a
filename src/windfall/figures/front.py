"""The picture of `windfall plan --plot`: cost against deadline, and machines over time. Touches: the file it draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windfall.sim.studies.forecast import Forecast

COLOURS = {"spot": "tab:blue", "on-demand": "tab:orange"}


def draw(name: str, deadline_s: float, soonest_s: float, found: dict[float, Forecast | None], path: str) -> None:
    """Two panels; times in minutes or hours, as they are read most easily."""
    from windfall.figures.canvas import new_figure, save

    longest_s = max([deadline_s, *found])
    unit_s, unit = (3600.0, "hours") if longest_s >= 2 * 3600 else (60.0, "minutes")
    unit_s, unit = (unit_s, unit) if longest_s >= 120 else (1.0, "seconds")
    figure, (left, right) = new_figure(1, 2, width=11.0, height=4.2)
    figure.suptitle(f"'{name}': what a deadline costs")
    _front(left, [made for made in found.values() if made is not None], deadline_s, soonest_s, unit_s, unit)
    made = found[deadline_s]
    if made is not None:
        _machines(right, made, unit_s, unit)
    else:
        right.set_axis_off()
        right.text(0.5, 0.5, "your deadline is impossible", ha="center", transform=right.transAxes)
    save(figure, path)


def _front(axes: Any, made: list[Forecast], deadline_s: float, soonest_s: float, unit_s: float, unit: str) -> None:
    made = sorted(made, key=lambda each: each.deadline_s)
    x = [each.deadline_s / unit_s for each in made]
    costs = [each.cost_usd for each in made]
    axes.fill_between(x, [c.low for c in costs], [c.high for c in costs], alpha=0.2, label="9 of 10 runs")
    axes.plot(x, [c.mean for c in costs], marker="o", label="mean cost")
    most = max(c.high for c in costs) or 1.0
    for each, at, cost in zip(made, x, costs, strict=True):
        share = each.met / len(each.runs)
        if share < 1:
            axes.annotate(f"{share:.0%} in time", (at, cost.mean), textcoords="offset points", xytext=(4, 8),
                          color="tab:red", fontsize=8)  # fmt: skip
    axes.axvspan(0, soonest_s / unit_s, color="tab:red", alpha=0.12, label="impossible")
    axes.axvline(deadline_s / unit_s, color="black", linestyle=":", label="your deadline")
    axes.set(xlabel=f"deadline ({unit})", ylabel="cost ($)", xlim=(0, max(x) * 1.05), ylim=(0, most * 1.15))
    axes.legend(frameon=False, fontsize=8)


def _machines(axes: Any, made: Forecast, unit_s: float, unit: str) -> None:
    times, counts = made.machines_over_time()
    x = [t / unit_s for t in times]
    markets = sorted(counts)
    axes.stackplot(x, [counts[market] for market in markets], labels=markets, step="mid",
                   colors=[COLOURS.get(market, "tab:grey") for market in markets], alpha=0.8)  # fmt: skip
    axes.axvline(made.deadline_s / unit_s, color="black", linestyle=":", label="your deadline")
    if (finish := made.finish_s) is not None:
        axes.axvspan(finish.low / unit_s, finish.high / unit_s, color="tab:green", alpha=0.15, label="done (9 of 10)")
    axes.set(xlabel=f"time ({unit})", ylabel="machines, on average", xlim=(0, None), ylim=(0, None))
    axes.legend(loc="upper right", fontsize=8)
