"""What the pictures of a job are drawn from: series of bounded length, however many tasks there are. Reads only.

The columns are copied on the event loop (a few milliseconds for a million tasks); all counting happens in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from windfall.core.explain.jobs import timeouts_of
from windfall.core.explain.plan import money_of
from windfall.core.renting.machines import machines_of
from windfall.core.state.jobs.bags import FINAL, Bag
from windfall.core.state.jobs.columns import CANCELLED, DONE
from windfall.numeric import np
from windfall.server.queries.by_pool import FORGOTTEN
from windfall.server.queries.pictures.columns_copy import Copied, copied
from windfall.server.queries.pictures.gantt import KINDS, MOST_BARS, MOST_ROWS, Point, machine_series, summed
from windfall.server.queries.renting.money import ledger
from windfall.server.service import Service
from windfall.units import show_duration
from windfall.wire.messages import CAUSES

Json = dict[str, Any]
MOST_POINTS, BINS, CELLS = 300, 60, 30
MOST_POOLS = 8
LEAST_DONE = 10
"""Fewer ended tasks say nothing about when the others end."""
WINDOWS = 8
SURE = 1.645
"""Standard deviations to each side that nine of ten values fall into."""


async def job_series(service: Service, bag: Bag) -> Json:
    """Everything that `windfall.figures.job` draws."""
    copy, now = copied(service, bag), service.driver.clock()
    money = money_of(service.state, bag, now)
    plan = service.state.fleet.plan_of(bag.number)
    deadline_s = bag.rules.deadline_s
    tail_t = service.tails.get(bag.number)
    rented = machines_of(service.state, service.state.fleet.serving(bag.number))
    machines = await machine_series(service, rented, bag.submitted_t, copy.end_t)
    costs = sorted(step for row in ledger(service, bag)["machines"] for step in cycles_of(row, bag.submitted_t))
    # A policy says how long in words alone.
    timeouts = [row["timeout_s"] for row in timeouts_of(service.state, bag) if row["basis"] not in ("prior", "policy")]
    counted = await asyncio.to_thread(count, copy)
    if counted["run_times"]:
        counted["run_times"]["timeout_s"] = max(timeouts) if timeouts else None
    return {
        "job": bag.number,
        "name": bag.rules.name,
        "total": bag.total,
        "submitted_s": bag.submitted_t,
        "end_s": max(0.0, copy.end_t - bag.submitted_t),
        "deadline_s": deadline_s,
        "tail_s": None if tail_t is None else tail_t - bag.submitted_t,
        "planned_s": None if plan is None or plan.plan is None else _since(plan.plan.predicted_finish_t, bag),
        **counted,
        **machines,
        "cost": summed(costs),
        "budget_usd": None if money is None else money["budget_usd"],
        "forecast_usd": None if money is None else money["forecast_usd"],
    }


def _since(t: float | None, bag: Bag) -> float | None:
    return None if t is None else t - bag.submitted_t


def count(copy: Copied) -> Json:
    """Counted from the columns, in a thread."""
    state = np.frombuffer(copy.state, np.uint8)
    attempt = np.frombuffer(copy.attempt, np.uint32)
    start = np.frombuffer(copy.start, np.float64) - copy.submitted_t
    end = np.frombuffer(copy.end, np.float64) - copy.submitted_t
    host = np.frombuffer(copy.host, np.uint32)
    ended = np.isin(state, list(FINAL))
    timed = ended & (attempt > 0)
    done = state == DONE
    end_s = max(copy.end_t - copy.submitted_t, 1e-3)
    left = copy.total - int(ended.sum())
    ends = np.sort(end[timed])
    return {
        "incomplete": _incomplete(ends, copy.total, left, end_s),
        "forecast": forecast(ends, left, end_s) if copy.running else None,
        "throughput": _throughput(end[done], host[done], copy.pools, end_s),
        "outcomes": {
            "done": int(done.sum()),
            "failed": int(np.frombuffer(copy.failures, np.uint32).sum()),
            "lost": int(np.frombuffer(copy.losses, np.uint32).sum()),
            "replica": copy.waste,
            "cancelled": int((state == CANCELLED).sum()),
        },
        "run_times": _run_times((end - start)[done]),
        **_bars(copy, host, start, end, attempt),
    }


def _incomplete(ends: Any, total: int, left: int, end_s: float) -> list[Point]:
    """(seconds, incomplete tasks); tasks that ended without having run go at the end."""
    if len(ends) <= MOST_POINTS:
        points: list[Point] = [(0.0, total), *((float(t), total - place) for place, t in enumerate(ends, 1))]
    else:
        times = np.linspace(0.0, end_s, MOST_POINTS + 1)
        gone = np.searchsorted(ends, times, side="right")
        points = [(float(t), int(total - n)) for t, n in zip(times, gone, strict=True)]
    if points[-1][1] != left:
        points.append((end_s, left))
    return points


def forecast(ends: Any, left: int, end_s: float) -> Json | None:
    """When the last task ends if the throughput of the last half of the time goes on: nine of ten, and the middle.

    Counts of equal windows say how uneven the throughput is; None if too few tasks have ended.
    """
    edges = np.linspace(end_s / 2, end_s, WINDOWS + 1)
    counts = np.diff(np.searchsorted(ends, edges))
    seen = int(counts.sum())
    if not left or seen < LEAST_DONE:
        return None
    uneven = max(1.0, float(counts.var(ddof=1)) / float(counts.mean()))
    half = SURE * (uneven / seen) ** 0.5
    slow, fast = seen * max(0.05, 1 - half), seen * (1 + half)
    span_s = end_s / 2
    return {
        "low_s": end_s + left * span_s / fast,
        "mid_s": end_s + left * span_s / seen,
        "high_s": end_s + left * span_s / slow,
    }


def _throughput(ends: Any, hosts: Any, pools: dict[int, str], end_s: float) -> Json:
    """Tasks done in equal steps of time, by pool, the pool with the most first."""
    if not len(ends):
        return {"step_s": end_s / BINS, "pools": {}}
    numbers, places = np.unique(hosts, return_inverse=True)
    names = [pools.get(int(number), FORGOTTEN) for number in numbers]
    known = list(dict.fromkeys(names))
    of_host = np.array([known.index(name) for name in names])
    cells = np.clip((ends / end_s * BINS).astype(int), 0, BINS - 1)
    table = np.bincount(of_host[places.reshape(-1)] * BINS + cells, minlength=len(known) * BINS)
    rows = sorted(zip(known, table.reshape(-1, BINS).tolist(), strict=True), key=lambda row: -sum(row[1]))
    shown = dict(rows[:MOST_POOLS])
    if len(rows) > MOST_POOLS:
        shown["others"] = [sum(values) for values in zip(*(row[1] for row in rows[MOST_POOLS:]), strict=True)]
    return {"step_s": end_s / BINS, "pools": shown}


def _run_times(seconds: Any) -> Json | None:
    """A histogram; the longest hundredth of a per cent counts into the last cell."""
    if not len(seconds):
        return None
    median_s, ninth_s, most_s = (float(value) for value in np.quantile(seconds, [0.5, 0.9, 0.9999]))
    counts, edges = np.histogram(np.clip(seconds, 0.0, most_s), CELLS, (0.0, max(most_s, 1e-3)))
    return {"edges_s": edges.tolist(), "counts": counts.tolist(), "median_s": median_s, "ninth_s": ninth_s}


def _bars(copy: Copied, host: Any, start: Any, end: Any, attempt: Any) -> Json:
    """The last attempts of tasks on some hosts, spread evenly over all of them by name."""
    ran = np.flatnonzero((attempt > 0) & (end >= start) & (start > -1e9))
    numbers = sorted((copy.names.get(int(n), f"host {n}"), int(n)) for n in np.unique(host[ran]))
    chosen = numbers[:: max(1, -(-len(numbers) // MOST_ROWS))]
    mine = ran[np.isin(host[ran], [number for _, number in chosen])]
    if len(mine) > MOST_BARS:
        mine = mine[np.sort(np.argsort(end[mine])[-MOST_BARS:])]
    rows: dict[int, list[Any]] = {number: [] for _, number in chosen}
    for task in mine.tolist():
        cause = CAUSES[copy.cause[task]]
        title = f"task {task}: {show_duration(float(end[task] - start[task]))}, {cause}"
        rows[int(host[task])].append([float(start[task]), float(end[task]), KINDS.get(cause, "failed"), title])
    listed = [{"host": name, "bars": rows[number]} for name, number in chosen if rows[number]]
    return {"hosts": listed, "hosts_total": len(numbers)}


def cycles_of(row: Mapping[str, Any], began_t: float) -> list[Point]:
    """(seconds since submission, dollars) of every billing cycle; cycles stand still while a machine is hibernated."""
    if not row["cycles"]:
        return []
    held_s = max(row["billed_s"], 1e-9)
    stretch = (held_s + row["slept_s"]) / held_s
    ended_t = row["requested_s"] + row["billed_s"] + row["slept_s"] if row["ended_s"] is None else row["ended_s"]
    start_s, each_usd = row["requested_s"] - began_t, row["cost_usd"] / row["cycles"]
    return [
        (min(start_s + number * row["cycle_s"] * stretch, ended_t - began_t), each_usd)
        for number in range(row["cycles"])
    ]
