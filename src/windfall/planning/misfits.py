"""Tasks that wait for a machine which cannot hold them any more: what they need was changed, or grew. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from windfall.planning.contract import Later, Machine, Snapshot
from windfall.planning.offers import Offer


def without_misfits(snapshot: Snapshot) -> Snapshot:
    """The snapshot, whose machines, rented and intended, have only tasks in their queues that fit there.

    Planners that keep their queues place the others anew, as those of a machine that was lost.
    """
    machines = tuple(_rented(snapshot, machine) for machine in snapshot.machines)
    later = tuple(_intended(snapshot, entry) for entry in snapshot.last_later)
    return replace(snapshot, machines=machines, last_later=later)


def _rented(snapshot: Snapshot, machine: Machine) -> Machine:
    fitting = _fitting(snapshot, machine.waiting, machine.offer)
    return machine if len(fitting) == len(machine.waiting) else replace(machine, waiting=fitting)


def _intended(snapshot: Snapshot, entry: Later) -> Later:
    fitting = _fitting(snapshot, entry.tasks, entry.offer)
    return entry if len(fitting) == len(entry.tasks) else replace(entry, tasks=fitting)


def _fitting(snapshot: Snapshot, tasks: tuple[int, ...], offer: Offer) -> tuple[int, ...]:
    known = snapshot.tasks
    return tuple(task for task in tasks if task not in known or known[task].fits(offer))
