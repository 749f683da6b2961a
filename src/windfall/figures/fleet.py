"""The pictures of a shared fleet: the load of its machines, and its jobs with their slack. Pure.

The series are what `windfall.server.queries.pictures.fleet_series` gathers. Times are seconds since the first machine.
"""

from __future__ import annotations

from typing import Any

from windfall.api.answers import Picture
from windfall.figures.job import WIDE, key, show_tick
from windfall.figures.timeline import Axis, Bar, rows_chart, steps_chart
from windfall.units import show_duration

Json = dict[str, Any]


def fleet_pictures(series: Json, axis: Axis) -> list[Picture]:
    """Cores that are rented and used, and each job from its submission to its deadline."""
    return [picture for picture in (_load(series, axis), _slack(series, axis)) if picture is not None]


def _load(series: Json, axis: Axis) -> Picture | None:
    rented = [(t_s, cores) for t_s, cores in series["rented"]]
    used = [(t_s, cores) for t_s, cores in series["used"]] or [(0.0, 0.0)]
    if not rented:
        return None
    share = f"{100 * series['used_share']:.0f} %"
    says = f"At most {max(cores for _, cores in rented):g} cores were rented; tasks used {share} of the time of all."
    words = key(used="cores that tasks use", against="cores that are rented")
    drawn = steps_chart(
        used, axis, show_tick, lambda cores: f"{cores:g}", label=says, height=120.0, until_s=axis.end_s, against=rented
    )
    return {"name": "Load", "html": words + drawn, "says": says, "wide": WIDE}


def _slack(series: Json, axis: Axis) -> Picture | None:
    rows = series["jobs"]
    if not rows:
        return None
    groups = [(f"job {row['job']}", _bars(row, axis.end_s)) for row in rows]
    late = sum(row["late"] for row in rows)
    slacks = [row["deadline_s"] - row["end_s"] for row in rows if row["ended"]]
    says = f"{len(rows):,} of {series['jobs_total']:,} jobs, {late:,} of them late"
    says += f"; the least slack at the end of a job was {show_duration(max(0.0, min(slacks)))}." if slacks else "."
    words = key(done="in work, from its submission", idle="slack to its deadline", failed="after its deadline")
    drawn = rows_chart(groups, axis, show_tick, says)
    return {"name": "Jobs and their slack", "html": words + drawn, "says": says, "wide": WIDE}


def _bars(row: Json, end_s: float) -> list[Bar]:
    start_s, done_s, due_s = row["start_s"], row["end_s"], row["deadline_s"]
    name = f"job {row['job']} '{row['name']}'"
    bars = [Bar(start_s, min(done_s, due_s), "done" if row["ended"] else "running", f"{name}: in work")]
    if done_s < due_s:
        slack = show_duration(due_s - done_s)
        bars.append(Bar(done_s, min(due_s, end_s), "idle", f"{name}: {slack} to its deadline"))
    elif done_s > due_s:
        bars.append(Bar(max(start_s, due_s), done_s, "failed", f"{name}: {show_duration(done_s - due_s)} late"))
    return bars
