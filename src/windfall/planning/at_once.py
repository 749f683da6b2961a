"""Tasks that need GPUs and the like, for planners that count cores only: as many at once as the units serve. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec.structs import replace

from windfall.planning.bags.packing import tasks_at_once
from windfall.planning.contract import Snapshot, Task
from windfall.planning.offers import Offer


def counted(snapshot: Snapshot) -> Snapshot:
    """The snapshot with fewer cores, so that no more tasks fit on a machine than its units of resources serve.

    Each task takes the cores of the widest. Exact where all tasks need the same; where they differ, machines seem
    smaller than they are, and a plan rents rather too much than too little.
    """
    tasks = [*snapshot.tasks.values(), *(group.task for group in snapshot.groups)]
    needs = sorted({task.resources for task in tasks if task.resources})
    if not needs:
        return snapshot
    widest = max(task.cores for task in tasks)
    return replace(
        snapshot,
        offers=tuple(_smaller(offer, needs, widest) for offer in snapshot.offers),
        machines=tuple(replace(each, offer=_smaller(each.offer, needs, widest)) for each in snapshot.machines),
        tasks={name: _wider(task, widest) for name, task in snapshot.tasks.items()},
        groups=tuple(replace(group, task=_wider(group.task, widest)) for group in snapshot.groups),
    )


def _wider(task: Task, cores: int) -> Task:
    return replace(task, cores=cores) if task.resources and task.cores < cores else task


def _smaller(offer: Offer, needs: Iterable[tuple[tuple[str, float], ...]], widest: int) -> Offer:
    """An offer that lacks a resource stays as it is: what needs it does not fit there."""
    at_once = [min(tasks_at_once(need, offer.units[name]) for name, need in each) for each in needs if offer.has(each)]
    cores = min(at_once, default=math.inf) * widest
    return replace(offer, cores=int(cores)) if cores < offer.cores else offer
