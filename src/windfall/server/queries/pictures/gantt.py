"""Rented machines over time: boots, busy, idle, hibernated and lost, with their tasks and their price. Reads only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from windfall.core.renting.shares import FLEET, shares_of
from windfall.core.state.renting.fleet import FAILED, REFUSED, RELEASED, TAKEN, MachineState
from windfall.numeric import np
from windfall.server.queries.pictures.columns_copy import Copied, copied
from windfall.server.service import Service
from windfall.units import show_duration, show_usd
from windfall.wire.messages import CAUSES

Json = dict[str, Any]
Point = tuple[float, float]
Span = tuple[float, float]
MOST_ROWS, MOST_BARS, MOST_POINTS = 60, 2000, 300
KINDS = {"done": "done", "lost": "lost", "preempted": "lost", "cancelled": "cancelled"}
"""How the end of an attempt is drawn; everything else is a failure."""
SHORT = 1 / 300
"""Pauses shorter than this part of the picture are not drawn: a host asks for its next task meanwhile."""


async def machine_series(service: Service, machines: Sequence[MachineState], since_t: float, now: float) -> Json:
    """Some machines from order to end with their tasks, and the price of all of them an hour; seconds since `since_t`.

    The columns of a job know the last attempt of each task: where an earlier one ran, a machine looks idle.
    """
    came = [machine for machine in machines if machine.cause != REFUSED]
    shown = shown_of(came)
    boxes: dict[int, list[list[Any]]] = {}
    busy: dict[int, list[Span]] = {}
    for job, hosts in _hosts_by_job(service, shown).items():
        copy = copied(service, service.state.bags[job])
        drawn, spans = await asyncio.to_thread(lambda: (task_boxes(copy, hosts), busy_spans(copy, hosts)))  # noqa: B023
        for host, rows in drawn.items():
            boxes.setdefault(host, []).extend(rows)
        for host, found in spans.items():
            busy.setdefault(host, []).extend(found)
    listed: list[Json] = []
    for machine in shown:
        running = _running(service, machine, now)
        work = merged([*busy.get(machine.host, ()), *((start, end) for start, end, _, _ in running)])
        tasks = [*boxes.get(machine.host, ()), *running]
        bars, tasks = (
            [[start - since_t, end - since_t, kind, title] for start, end, kind, title in rows]
            for rows in (_spans(machine, work, since_t, now), tasks)
        )
        listed.append({"name": f"{machine.name} {machine.offer.name}", "bars": bars, "tasks": tasks})
    return {"machines": listed, "machines_total": len(came), "price_per_h": _price(came, since_t, now)}


def shown_of(came: Sequence[MachineState]) -> list[MachineState]:
    """Spread evenly over all of them."""
    return list(came[:: max(1, -(-len(came) // MOST_ROWS))])


def _hosts_by_job(service: Service, shown: list[MachineState]) -> dict[int, set[int]]:
    """The jobs that machines have served, and on which of their hosts."""
    found: dict[int, set[int]] = {}
    for machine in shown:
        own = machine.fleet in service.state.bags
        for job in [machine.fleet] if own else shares_of(service.state, machine, service.driver.clock()):
            if job != FLEET and job in service.state.bags:
                found.setdefault(job, set()).add(machine.host)
    return found


def _mine(copy: Copied, hosts: set[int]) -> Any:
    """Places of tasks whose last attempt ended on one of these hosts."""
    ran = np.frombuffer(copy.attempt, np.uint32) > 0
    return np.flatnonzero(ran & np.isin(np.frombuffer(copy.host, np.uint32), list(hosts - {0})))


def task_boxes(copy: Copied, hosts: set[int]) -> dict[int, list[list[Any]]]:
    """By host: (start, end, kind, title) of the last attempts that ended there; Unix seconds."""
    host = np.frombuffer(copy.host, np.uint32)
    start, end = np.frombuffer(copy.start, np.float64), np.frombuffer(copy.end, np.float64)
    mine = _mine(copy, hosts)
    found: dict[int, list[list[Any]]] = {}
    for task in mine[np.argsort(end[mine])[-MOST_BARS:]].tolist():
        cause = CAUSES[copy.cause[task]]
        title = f"task {task}: {show_duration(float(end[task] - start[task]))}, {cause}"
        bar = [float(start[task]), float(end[task]), KINDS.get(cause, "failed"), title]
        found.setdefault(int(host[task]), []).append(bar)
    return found


def busy_spans(copy: Copied, hosts: set[int]) -> dict[int, list[Span]]:
    """By host: when at least one attempt ran there, however many there were; Unix seconds."""
    host = np.frombuffer(copy.host, np.uint32)
    start, end = np.frombuffer(copy.start, np.float64), np.frombuffer(copy.end, np.float64)
    mine = _mine(copy, hosts)
    found: dict[int, list[Span]] = {}
    for number in np.unique(host[mine]):
        here = mine[host[mine] == number]
        here = here[np.argsort(start[here])]
        begins, until = start[here], np.maximum.accumulate(end[here])
        apart = np.flatnonzero(begins[1:] > until[:-1]) + 1
        firsts, lasts = np.concatenate([[0], apart]), np.concatenate([apart - 1, [len(here) - 1]])
        found[int(number)] = list(zip(begins[firsts].tolist(), until[lasts].tolist(), strict=True))
    return found


def merged(spans: Sequence[Span]) -> list[Span]:
    """In order, without overlaps."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _running(service: Service, machine: MachineState, now: float) -> list[list[Any]]:
    """Attempts that a machine holds at the moment."""
    host = service.state.hosts.get(machine.host) if machine.there else None
    found = []
    for job, task, number in host.held if host is not None else ():
        attempt = service.state.bags[job].attempts.find(task, number)
        if attempt is not None:
            found.append([attempt.sent, now, "running", f"task {task}: runs for {show_duration(now - attempt.sent)}"])
    return found


def _spans(machine: MachineState, work: Sequence[Span], since_t: float, now: float) -> list[list[Any]]:
    """What it did: booted, was busy or idle, was hibernated, and how it ended; Unix seconds."""
    ended_t = now if machine.ended_t is None else machine.ended_t
    ready_t = ended_t if machine.ready_t is None else machine.ready_t
    cost = f"{machine.offer.name} {machine.name}, {show_usd(machine.offer.price_usd)} a cycle"
    spans: list[list[Any]] = [[machine.requested_t, ready_t, "boot", f"{cost}: boots"]]
    ups, at = list[Span](), ready_t
    for from_t, to_t in machine.sleeps:
        until_t = ended_t if to_t is None else to_t
        ups.append((at, from_t))
        spans.append([from_t, until_t, "hibernated", f"{cost}: hibernated"])
        at = until_t
    last = ", then given back" if machine.cause == RELEASED else ""
    for up in [*ups, (at, ended_t)]:
        for start, end, is_busy in halves(up, work, SHORT * (now - since_t)):
            words = f"busy{last}" if is_busy else f"idle{last}"
            spans.append([start, end, machine.offer.market if is_busy else "idle", f"{cost}: {words}"])
    if machine.cause in (TAKEN, FAILED):
        said = {TAKEN: "reclaimed by its provider", FAILED: f"failed: {machine.error}"}[machine.cause]
        spans.append([ended_t, ended_t, "lost", f"{cost}: {said}"])
    return [span for span in sorted(spans, key=lambda span: span[0]) if span[1] > span[0] or span[2] == "lost"]


def halves(up: Span, work: Sequence[Span], short_s: float) -> list[tuple[float, float, bool]]:
    """A span in parts: (start, end, whether something ran). Pauses shorter than `short_s` count as busy."""
    found: list[tuple[float, float, bool]] = []
    at, end_t = up
    if end_t <= at:
        return []
    inside = [(max(start, at), min(end, end_t)) for start, end in work if end > at and start < end_t]
    for start, end in inside:
        if start - at > short_s:
            found.append((at, start, False))
        else:
            start = at
        if found and found[-1][2] and found[-1][1] >= start:
            found[-1] = (found[-1][0], end, True)
        else:
            found.append((start, end, True))
        at = end
    if end_t - at > short_s or not found:
        found.append((at, end_t, False))
    else:
        found[-1] = (found[-1][0], end_t, found[-1][2])
    return found


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
