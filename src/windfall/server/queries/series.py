"""What the pictures of a job are drawn from: series of bounded length, however many tasks there are. Reads only.

The columns are copied on the event loop (a few milliseconds for a million tasks); all counting happens in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from starlette.concurrency import run_in_threadpool

from windfall.core.explain.jobs import timeouts_of
from windfall.core.explain.plan import money_of
from windfall.core.renting.machines import machines_of
from windfall.core.state.jobs.bags import FINAL, Bag
from windfall.core.state.jobs.columns import CANCELLED, DONE
from windfall.core.state.renting.fleet import FAILED, REFUSED, RELEASED, TAKEN, MachineState
from windfall.numeric import np
from windfall.server.queries.by_pool import FORGOTTEN
from windfall.server.queries.money import ledger
from windfall.server.service import Service
from windfall.units import show_duration, show_usd
from windfall.wire.messages import CAUSES

Json = dict[str, Any]
Point = tuple[float, float]
MOST_ROWS, MOST_BARS, MOST_POINTS, BINS, CELLS = 60, 2000, 300, 60, 30
MOST_POOLS = 8
LEAST_DONE = 10
"""Fewer ended tasks say nothing about when the others end."""
WINDOWS = 8
SURE = 1.645
"""Standard deviations to each side that nine of ten values fall into."""
KINDS = {"done": "done", "lost": "lost", "preempted": "lost", "cancelled": "cancelled"}
"""How the end of an attempt is drawn; everything else is a failure."""


class Copied(Struct):
    """The columns of a job at one moment, and what else the counting needs; a thread works on it."""

    total: int
    submitted_t: float
    end_t: float
    running: bool
    state: bytes
    start: bytes
    end: bytes
    host: bytes
    cause: bytes
    attempt: bytes
    failures: bytes
    losses: bytes
    waste: int
    pools: dict[int, str]
    names: dict[int, str]


def copied(service: Service, bag: Bag) -> Copied:
    columns, hosts = bag.columns, service.state.hosts.values()
    over = bag.finished_t is not None
    end_t = (bag.tally.last_result_t or bag.finished_t) if over else service.driver.clock()
    return Copied(
        total=bag.total,
        submitted_t=bag.submitted_t,
        end_t=end_t or service.driver.clock(),
        running=not over,
        state=columns.state.tobytes(),
        start=columns.start.tobytes(),
        end=columns.end.tobytes(),
        host=columns.host.tobytes(),
        cause=columns.cause.tobytes(),
        attempt=columns.attempt.tobytes(),
        failures=columns.failures.tobytes(),
        losses=columns.losses.tobytes(),
        waste=bag.tally.waste,
        pools={host.number: host.pool for host in hosts},
        names={host.number: host.name for host in hosts},
    )


async def job_series(service: Service, bag: Bag) -> Json:
    """Everything that `windfall.figures.job` draws."""
    copy, now = copied(service, bag), service.driver.clock()
    money = money_of(service.state, bag, now)
    plan = service.state.fleet.plan_of(bag.number)
    deadline_s = bag.rules.deadline_s
    tail_t = service.tails.get(bag.number)
    rented = machines_of(service.state, service.state.fleet.serving(bag.number))
    boxes = await run_in_threadpool(task_boxes, copy, {machine.host for machine in shown_of(rented)})
    machines = machine_series(rented, boxes, bag.submitted_t, copy.end_t)
    costs = sorted(step for row in ledger(service, bag)["machines"] for step in cycles_of(row, bag.submitted_t))
    timeouts = [row["timeout_s"] for row in timeouts_of(service.state, bag) if row["basis"] != "prior"]
    counted = await run_in_threadpool(count, copy)
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


# --- machines ---------------------------------------------------------------------------------------------------------


def shown_of(machines: Sequence[MachineState]) -> list[MachineState]:
    """Machines that came, spread evenly over all of them."""
    came = [machine for machine in machines if machine.cause != REFUSED]
    return came[:: max(1, -(-len(came) // MOST_ROWS))]


def task_boxes(copy: Copied, hosts: set[int]) -> dict[int, list[list[Any]]]:
    """By host: (start, end, kind, title) of the last attempts that ended there; Unix seconds."""
    host = np.frombuffer(copy.host, np.uint32)
    start, end = np.frombuffer(copy.start, np.float64), np.frombuffer(copy.end, np.float64)
    mine = np.flatnonzero((np.frombuffer(copy.attempt, np.uint32) > 0) & np.isin(host, list(hosts - {0})))
    found: dict[int, list[list[Any]]] = {}
    for task in mine[np.argsort(end[mine])[-MOST_BARS:]].tolist():
        cause = CAUSES[copy.cause[task]]
        title = f"task {task}: {show_duration(float(end[task] - start[task]))}, {cause}"
        bar = [float(start[task]), float(end[task]), KINDS.get(cause, "failed"), title]
        found.setdefault(int(host[task]), []).append(bar)
    return found


def machine_series(
    machines: Sequence[MachineState], boxes: dict[int, list[list[Any]]], since_t: float, now: float
) -> Json:
    """Machines from their order to their end with their tasks, and the price of all of them an hour.

    Seconds since `since_t`. Tasks stand below the bar of their machine: where there are none, it is idle.
    """
    came = [machine for machine in machines if machine.cause != REFUSED]
    rows = []
    for machine in shown_of(machines):
        tasks = [
            [start - since_t, end - since_t, kind, title] for start, end, kind, title in boxes.get(machine.host, ())
        ]
        bars = [*_spans(machine, since_t, now), *tasks]
        rows.append({"name": f"{machine.name} {machine.offer.name}", "bars": bars})
    return {"machines": rows, "machines_total": len(came), "price_per_h": _price(came, since_t, now)}


def _spans(machine: MachineState, since_t: float, now: float) -> list[list[Any]]:
    """What it did: booted, was there, was hibernated, and how it ended."""
    ended_t = now if machine.ended_t is None else machine.ended_t
    ready_t = ended_t if machine.ready_t is None else machine.ready_t
    cost = f"{machine.offer.name} {machine.name}, {show_usd(machine.offer.price_usd)} a cycle"
    spans: list[list[Any]] = [[machine.requested_t, ready_t, "boot", f"{cost}: boots"]]
    at = ready_t
    for from_t, to_t in machine.sleeps:
        until_t = ended_t if to_t is None else to_t
        spans.append([at, from_t, machine.offer.market, f"{cost}: up"])
        spans.append([from_t, until_t, "hibernated", f"{cost}: hibernated"])
        at = until_t
    spans.append([at, ended_t, machine.offer.market, f"{cost}: up"])
    if machine.cause in (TAKEN, FAILED):
        said = {TAKEN: "reclaimed by its provider", FAILED: f"failed: {machine.error}"}[machine.cause]
        spans.append([ended_t, ended_t, "lost", f"{cost}: {said}"])
    elif machine.cause == RELEASED:
        spans[-1][3] = f"{cost}: up, then given back"
    kept = [span for span in spans if span[1] > span[0] or span[2] == "lost"]
    return [[start - since_t, end - since_t, kind, title] for start, end, kind, title in kept]


def _price(machines: Sequence[MachineState], since_t: float, now: float) -> list[Point]:
    """Dollars an hour of all machines that are up, in steps."""
    steps: list[Point] = []
    for machine in machines:
        rate = machine.offer.price_usd * 3600.0 / machine.offer.cycle_s if machine.offer.cycle_s else 0.0
        ended_t = now if machine.ended_t is None else machine.ended_t
        edges = [machine.requested_t, *(t for sleep in machine.sleeps for t in sleep if t is not None), ended_t]
        if machine.sleeps and machine.sleeps[-1][1] is None:
            edges.pop()  # hibernated to the end: the price is off already
        steps += [(t - since_t, rate if place % 2 == 0 else -rate) for place, t in enumerate(edges)]
    return thinned(summed(sorted(steps)))


def cycles_of(row: Json, began_t: float) -> list[Point]:
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


def summed(steps: Sequence[Point]) -> list[Point]:
    """Running sums of sorted steps, thinned; empty for no steps."""
    points: list[Point] = []
    total = 0.0
    for t_s, change in steps:
        total += change
        if points and points[-1][0] == t_s:
            points[-1] = (t_s, max(0.0, total))
        else:
            points.append((t_s, max(0.0, total)))
    return thinned([(0.0, 0.0), *points] if points and points[0][0] > 0 else points)


def thinned(points: list[Point]) -> list[Point]:
    """At most `MOST_POINTS` of them, the last one always."""
    every = -(-len(points) // MOST_POINTS)
    return points if every <= 1 else [*points[:-1:every], points[-1]]
