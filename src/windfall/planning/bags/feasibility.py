"""Whether the machines on offer can meet a deadline, and the earliest deadline that they can. Pure."""

from __future__ import annotations

import math

from msgspec.structs import replace

from windfall.planning.bags.packing import Item, expected, fill, fresh, longest_first
from windfall.planning.bags.safety_net import SafetyNet
from windfall.planning.bags.shared_queue import run_times
from windfall.planning.contract import ONDEMAND, Snapshot, Task

PRECISION = 0.01
"""Of a deadline that can be promised, as a share of the time to it."""
LONGEST_S = 2.0**32
LATE_FACTOR = 2.0
"""If some tasks are too long for the deadline wherever they begin, plans accept this many times that chance."""


def fits_by(snapshot: Snapshot, by_t: float) -> bool:
    """Whether all machines of both markets together could finish by then if none is interrupted."""
    items = longest_first(_items(snapshot))
    left, room = [item.count for item in items], snapshot.room()
    for offer in sorted(snapshot.offers, key=lambda offer: (-offer.speed_for(""), offer.key)):
        for _ in range(room.of(offer)):
            if not any(left) or not fill(fresh("", offer, snapshot.t, math.inf), items, left, by_t):
                break
            room.take(offer)
    return not any(left)


def _items(snapshot: Snapshot) -> list[Item]:
    """All tasks to be placed; one that takes several machines at once counts as one for each of them."""
    alone = [Item(task, max(1, task.nodes), []) for task in snapshot.tasks.values()]
    return alone + [Item(group.task, group.count * max(1, group.task.nodes), []) for group in snapshot.groups]


def earliest_deadline_t(snapshot: Snapshot, margin_s: float) -> float:
    """The earliest deadline that could be met, to the second; infinite if a task fits on no machine."""
    low_s, high_s = 0.0, 1.0
    while not fits_by(snapshot, snapshot.t + high_s):
        low_s, high_s = high_s, 2.0 * high_s
        if high_s > 2.0**40:
            return math.inf
    while high_s - low_s > 0.5:
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (low_s, middle_s) if fits_by(snapshot, snapshot.t + middle_s) else (middle_s, high_s)
    return snapshot.t + high_s + margin_s


def promised_deadline_t(snapshot: Snapshot, margin_s: float) -> float | None:
    """The nearest deadline that new on-demand machines alone keep at the quantile of the job's confidence.

    None if there is none on offer, or some task fits on none.
    """
    items, left = longest_first(expected(item) for item in _items(snapshot)), snapshot.room()

    def holds(after_s: float) -> bool:
        later = replace(snapshot, deadline_t=snapshot.t + after_s)
        return SafetyNet(later, [], left, margin_s).holds(items, snapshot.t)

    low_s, high_s = 0.0, max(1.0, snapshot.deadline_t - snapshot.t)
    while not holds(high_s):
        low_s, high_s = high_s, 2.0 * high_s
        if high_s > LONGEST_S:
            return None
    while high_s - low_s > PRECISION * high_s:
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (low_s, middle_s) if holds(middle_s) else (middle_s, high_s)
    return snapshot.t + math.ceil(high_s)


def attainable(snapshot: Snapshot, margin_s: float) -> Snapshot:
    """The snapshot with quantiles of run times that plans can keep.

    A heavy tail may reach beyond the deadline: such a task is late even if it begins now, on demand, and a machine for
    each task hardly helps. So a quantile is not counted beyond the one that is exceeded `LATE_FACTOR` times as often
    as the time that is left.
    """
    ondemand = [offer for offer in snapshot.offers if offer.market == ONDEMAND]
    asked = snapshot.run_time_quantile or snapshot.confidence
    kept: dict[tuple[str, float, float | None], tuple[float, float]] = {}

    def capped(task: Task) -> Task:
        key = (task.task_class, task.runtime_s, task.mean_s)
        if key not in kept:
            left_s = snapshot.deadline_t - margin_s - snapshot.t
            kept[key] = _kept(task, max((left_s - o.lag_s) * o.speed_for(task.task_class) for o in ondemand), asked)
        return task if kept[key][0] >= task.runtime_s else replace(task, runtime_s=kept[key][0])

    if not ondemand:
        return snapshot
    tasks = {number: capped(task) for number, task in snapshot.tasks.items()}
    groups = tuple(replace(group, task=capped(group.task)) for group in snapshot.groups)
    lowest = min((quantile for _, quantile in kept.values()), default=asked)
    return snapshot if lowest >= asked else replace(snapshot, tasks=tasks, groups=groups, run_time_quantile=lowest)


def _kept(task: Task, left_s: float, asked: float) -> tuple[float, float]:
    """The run time to plan with, and its quantile, if on-demand machines that start now have `left_s` for it."""
    if task.mean_s is None or not task.mean_s < min(task.runtime_s, left_s):
        return task.runtime_s, asked
    law = run_times(task.mean_s, task.runtime_s, asked)
    quantile = 1.0 - LATE_FACTOR * (1.0 - law.share_within(left_s))
    seconds = law.quantile_s(quantile) if 0.5 < quantile < asked else task.runtime_s
    return (max(task.mean_s, seconds), quantile) if seconds < task.runtime_s else (task.runtime_s, asked)
