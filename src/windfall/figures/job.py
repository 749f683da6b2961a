"""The pictures of one job, drawn from its series: the console and `windfall report` show the same ones. Pure.

The series are what `windfall.server.queries.pictures.series` gathers: plain numbers, of bounded length however many
tasks there are. Times are seconds since the submission.
"""

from __future__ import annotations

from typing import Any

from windfall.api.answers import Picture
from windfall.figures.charts import HUES, bars_chart, histogram_chart, stacked_chart
from windfall.figures.timeline import Axis, Bar, Fan, escaped, rows_chart, steps_chart
from windfall.units import show_duration, show_usd

Json = dict[str, Any]
WIDE = "yes"
FAR = 3.0
"""A forecast further away than this many times what has happened is cut off there."""
MOST_WITH_TASKS = 20
"""Of more machines single tasks are not drawn: the picture would be too high."""
OUTCOMES = {
    "done": "done", "failed": "failed", "lost": "lost", "replica": "boot", "cancelled": "cancelled",
}  # fmt: skip


def pictures(series: Json) -> list[Picture]:
    """All that there is something to see in."""
    axis = _axis(series)
    found = [
        _incomplete(series, axis),
        _throughput(series, axis),
        _outcomes(series),
        _run_times(series),
        _ran(series, axis),
        *machine_pictures(series, axis),
        _cost(series, axis),
    ]
    return [picture for picture in found if picture is not None]


def _axis(series: Json) -> Axis:
    end_s = max(series["end_s"], 1e-3)
    if series["forecast"]:
        end_s = max(end_s, min(series["forecast"]["high_s"], FAR * end_s))
    return Axis(end_s, series["deadline_s"])


def _incomplete(series: Json, axis: Axis) -> Picture | None:
    points = [(t_s, float(left)) for t_s, left in series["incomplete"]]
    if not points:
        return None
    forecast = series["forecast"]
    fan = None
    says = f"{points[-1][1]:,.0f} of {series['total']:,} tasks are incomplete after {show_duration(series['end_s'])}."
    if forecast:
        fan = Fan(series["end_s"], points[-1][1], forecast["low_s"], forecast["mid_s"], forecast["high_s"])
        says += (
            f" If the throughput goes on, the last is done after {show_duration(forecast['low_s'])} to "
            f"{show_duration(forecast['high_s'])}."
        )
    marks = [] if series["tail_s"] is None else [(series["tail_s"], "tail begins")]
    drawn = steps_chart(
        points, axis, show_tick, lambda value: f"{value:,.0f}", label=says, fan=fan, marks=marks,
        until_s=series["end_s"],
    )  # fmt: skip
    return {"name": "Incomplete tasks over time", "html": drawn, "says": says}


def _throughput(series: Json, axis: Axis) -> Picture | None:
    pools, step_s = series["throughput"]["pools"], series["throughput"]["step_s"]
    if not pools:
        return None
    unit_s, unit = (1.0, "second") if step_s < 10 else (60.0, "minute") if step_s < 600 else (3600.0, "hour")
    layers = [(name, [count / step_s * unit_s for count in counts]) for name, counts in pools.items()]
    sums = {name: sum(counts) for name, counts in pools.items()}
    says = f"Tasks done a {unit}; " + ", ".join(f"{name}: {count:,} in all" for name, count in sums.items()) + "."
    key = "".join(
        f'<span><i class="key hue{number % HUES}"></i>{escaped(name)}</span> ' for number, name in enumerate(pools)
    )
    drawn = stacked_chart(layers, step_s, axis, show_tick, lambda value: f"{value:,.3g}", says)
    return {"name": f"Tasks done a {unit}, by pool", "html": f"<p>{key}</p>{drawn}", "says": says}


def _outcomes(series: Json) -> Picture | None:
    rows = [
        (name, float(count), OUTCOMES.get(name, "failed"), f"{count:,}")
        for name, count in series["outcomes"].items()
        if count
    ]
    if not rows:
        return None
    says = "Attempts: " + ", ".join(f"{text} {name}" for name, _, _, text in rows) + "."
    return {"name": "Outcomes of attempts", "html": bars_chart(rows, says), "says": says}


def _run_times(series: Json) -> Picture | None:
    told = series["run_times"]
    if not told:
        return None
    marks = [(told["timeout_s"], f"timeout {show_duration(told['timeout_s'])}")] if told["timeout_s"] else []
    says = (
        f"Half of the tasks took at most {show_duration(told['median_s'])}, nine of ten at most "
        f"{show_duration(told['ninth_s'])}."
    )
    if marks:
        says += f" A silent attempt is given up after {show_duration(told['timeout_s'])}."
    drawn = histogram_chart(told["edges_s"], told["counts"], show_axis_duration, says, marks)
    return {"name": "Run times", "html": drawn, "says": says}


def _ran(series: Json, axis: Axis) -> Picture | None:
    rows = series["hosts"]
    if not rows:
        return None
    hosts = [(row["host"], [Bar(*bar) for bar in row["bars"]]) for row in rows]
    shown = sum(len(bars) for _, bars in hosts)
    says = f"{shown:,} attempts on {len(hosts):,} of {series['hosts_total']:,} hosts."
    words = key(done="done", failed="failed", lost="lost")
    drawn = rows_chart(hosts, axis, show_tick, says)
    return {"name": "Who ran what", "html": words + drawn, "says": says, "wide": WIDE}


def machine_pictures(series: Json, axis: Axis) -> list[Picture]:
    """Rented machines over time, and what all of them cost an hour."""
    machines = series["machines"]
    if not machines:
        return []
    with_tasks = len(machines) <= MOST_WITH_TASKS
    above = [[Bar(*bar) for bar in row["bars"]] for row in machines]
    rows = [(row["name"], [Bar(*bar) for bar in row["tasks"]] if with_tasks else []) for row in machines]
    says = f"{len(machines):,} of {series['machines_total']:,} machines, from order to end."
    words = key(
        boot="boots", spot="spot, busy", **{"on-demand": "on-demand, busy"}, idle="idle", hibernated="hibernated",
        lost="reclaimed or failed", **({"done": "a task", "running": "a task that runs"} if with_tasks else {}),
    )  # fmt: skip
    drawn = rows_chart(rows, axis, show_tick, says, above)
    found: list[Picture] = [{"name": "Rented machines", "html": words + drawn, "says": says, "wide": WIDE}]
    price = [(t_s, usd) for t_s, usd in series["price_per_h"]]
    if price:
        most = max(usd for _, usd in price)
        says = f"All machines together cost at most {show_usd(most)} an hour."
        drawn = steps_chart(price, axis, show_tick, show_usd, label=says, height=90.0, until_s=series["end_s"])
        found.append({"name": "Price of all machines, per hour", "html": drawn, "says": says, "wide": WIDE})
    return found


def _cost(series: Json, axis: Axis) -> Picture | None:
    if not series["cost"]:
        return None
    budget = series["budget_usd"]
    spent = series["cost"][-1][1]
    says = f"{show_usd(spent)} spent" + ("" if budget is None else f" of a budget of {show_usd(budget)}")
    if series["forecast_usd"] is not None:
        says += f"; {show_usd(series['forecast_usd'])} expected in the end"
    limit = None if budget is None else (budget, f"budget {show_usd(budget)}")
    points = [(t_s, usd) for t_s, usd in series["cost"]]
    drawn = steps_chart(points, axis, show_tick, show_usd, limit, label=says + ".", until_s=series["end_s"])
    return {"name": "Cost over time", "html": drawn, "says": says + "."}


def key(**names: str) -> str:
    """What the colours mean."""
    return "<p>" + "".join(f'<span><i class="key {kind}"></i>{name}</span> ' for kind, name in names.items()) + "</p>"


def show_tick(seconds: float) -> str:
    """A tick of the axis: `30 s`, `1m30s`, `5m`, `1h30m`."""
    if seconds < 60 or seconds % 60:
        return f"{seconds:g} s" if seconds < 60 else show_duration(seconds)
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{minutes}m" if not hours else f"{hours}h" + (f"{minutes:02}m" if minutes else "")


def show_axis_duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 600 else show_duration(seconds)
