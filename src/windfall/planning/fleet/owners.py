"""How the owners of a fleet's jobs share it: caps, shares and priorities. Pure.

A cap is the number of cores that the tasks of an owner hold or have reserved at most. Shares count only while the fleet
cannot run at once all that could run: then tasks are let in by weighted fair queueing. The jobs of one owner and one
priority are a queue, ordered by deadline; the weight of a queue is its part of the share of its owner, and the next
higher priority has `PRIORITY_BASE` times as much. Every weight is above zero, and in a queue the deadlines of later
jobs pass those of the oldest in the end: no job waits for ever. A fleet with one queue and no caps is planned as if
none of this existed.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heapreplace

from msgspec.structs import replace

from windfall.planning.contract import ONDEMAND, Snapshot, Task
from windfall.planning.offers import Offer

PRIORITY_BASE = 2.0
"""Jobs of the next higher priority get this many times as much, of the share of their owner."""
MOST_PRIORITY = 16.0
"""Priorities beyond count as this one: weights stay finite."""
LEAST_SHARE = 1e-6
WINDOW_PERIODS = 4.0
"""Tasks are let in for this many periods of planning."""
Queue = tuple[str, float]
"""An owner and a priority."""


def let_in(snapshot: Snapshot, period_s: float) -> tuple[Snapshot, list[str]]:
    """The snapshot with the tasks that may be planned now, and in words why others are held back."""
    turns = _Turns(snapshot)
    if len(turns.keys) < 2 and not snapshot.owner_caps:
        return snapshot, []
    capacity = cores_at_most(snapshot)
    contended = turns.cores_running + turns.cores_ready > capacity
    if not contended and not snapshot.owner_caps:
        return snapshot, []
    admitted = turns.taken(capacity * WINDOW_PERIODS * period_s if contended else math.inf)
    kept, capped = _within_caps(snapshot, turns, admitted)
    if len(kept) == len(turns.waiting):
        return snapshot, []
    said = [
        f"{owner or 'jobs without an owner'}: {count} tasks wait for the cap of {snapshot.owner_caps[owner]} cores"
        for owner, count in sorted(capped.items())
    ]
    if later := len(turns.waiting) - len(admitted):
        said.append(f"owners share {capacity:g} cores: {later} tasks wait for their turn")
    tasks = {id_: task for id_, task in snapshot.tasks.items() if id_ in turns.running or id_ in kept}
    return replace(snapshot, tasks=tasks), said


def cores_by_owner(snapshot: Snapshot) -> dict[str, int]:
    """The cores that a promise to an owner may count on, for the owners with fewer than the fleet can have.

    Those of its cap. While limits keep the fleet from running all at once, those of its share as well, among the owners
    whose tasks wait or run; priorities change that within one owner only.
    """
    found = dict(snapshot.owner_caps)
    turns = _Turns(snapshot)
    owner_of = {number: key[0] for number, key in turns.key_of.items()}
    owners = sorted({owner_of[task.job] for task in snapshot.tasks.values()})
    capacity = cores_at_most(snapshot)
    if len(owners) > 1 and turns.cores_running + turns.cores_ready > capacity:
        weights = {owner: max(snapshot.owner_shares.get(owner, 1.0), LEAST_SHARE) for owner in owners}
        whole = math.fsum(weights.values())
        for owner, weight in weights.items():
            mine = max(1, math.floor(capacity * weight / whole + 1e-9))
            found[owner] = min(found.get(owner, mine), mine)
    widest: dict[str, int] = {}
    for task in snapshot.tasks.values():
        owner = owner_of[task.job]
        widest[owner] = max(widest.get(owner, 1), task.cores)
    # Turns are of whole tasks: an owner gets one of any width in the end. A cap holds in any case.
    return {
        owner: max(cores, min(widest.get(owner, 1), snapshot.owner_caps.get(owner, widest.get(owner, 1))))
        for owner, cores in found.items()
    }


class _Turns:
    """The waiting tasks in queues by owner and priority."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.key_of: dict[int, Queue] = {
            job.number: (job.owner, max(-MOST_PRIORITY, min(MOST_PRIORITY, job.priority))) for job in snapshot.jobs
        }
        self.keys = set(self.key_of.values())
        self.running = {run.task: run.left_s for machine in snapshot.machines for run in machine.running}
        self.waiting = [task for id_, task in snapshot.tasks.items() if id_ not in self.running]
        self.cores_running = sum(snapshot.tasks[id_].cores for id_ in self.running if id_ in snapshot.tasks)
        self.cores_ready = sum(task.cores for task in self.waiting if self.is_ready(task))
        self._offers = [offer for offer in snapshot.offers if offer.market == ONDEMAND]
        self._seconds: dict[tuple[float, str, int, float], float] = {}

    def is_ready(self, task: Task) -> bool:
        return not self.snapshot.after.get(task.id)

    def taken(self, core_s: float) -> list[Task]:
        """Tasks in the order of their turns until these core-seconds are full; what runs counts as used.

        Of a job the tasks that are ready come first, so no task is let in whose parents are kept out for good.
        """
        queues: dict[Queue, list[Task]] = {}
        for task in self.waiting:
            queues.setdefault(self.key_of[task.job], []).append(task)
        for row in queues.values():
            row.sort(key=lambda task: (task.deadline_t, task.job, not self.is_ready(task), task.id), reverse=True)
        weight = self._weights(queues)
        used = dict.fromkeys(queues, 0.0)
        for id_, left_s in self.running.items():
            runs = self.snapshot.tasks.get(id_)
            if runs is not None and self.key_of[runs.job] in used:
                used[self.key_of[runs.job]] += runs.cores * left_s
        heap = [(used[key] / weight[key], key) for key in queues]
        heapify(heap)
        found: list[Task] = []
        total = 0.0
        while heap and (total < core_s or not found):
            key = heap[0][1]
            task = queues[key].pop()
            used[key] += task.cores * self._run_s(task)
            total += task.cores * self._run_s(task)
            found.append(task)
            if queues[key]:
                heapreplace(heap, (used[key] / weight[key], key))
            else:
                heappop(heap)
        return found

    def _weights(self, queues: dict[Queue, list[Task]]) -> dict[Queue, float]:
        of_owner: dict[str, float] = {}
        for owner, priority in queues:
            of_owner[owner] = of_owner.get(owner, 0.0) + PRIORITY_BASE**priority
        shares = self.snapshot.owner_shares
        return {
            (owner, priority): max(shares.get(owner, 1.0), LEAST_SHARE) * PRIORITY_BASE**priority / of_owner[owner]
            for owner, priority in queues
        }

    def _run_s(self, task: Task) -> float:
        """The shortest run time of a task on what is on offer."""
        key = task.runtime_s, task.task_class, task.cores, task.memory_gb
        if key not in self._seconds:
            able: list[Offer] = [offer for offer in self._offers if task.fits(offer)]
            self._seconds[key] = max(1e-3, min(map(task.seconds_on, able), default=task.runtime_s))
        return self._seconds[key]


def _within_caps(snapshot: Snapshot, turns: _Turns, tasks: list[Task]) -> tuple[set[int], dict[str, int]]:
    """The tasks that fit below the caps, in their order, and how many of each owner do not.

    Of an owner with a cap only tasks that are ready are let in: one that waits for a parent could keep it out.
    """
    caps = snapshot.owner_caps
    used: dict[str, int] = {}
    for id_ in turns.running if caps else ():
        runs = snapshot.tasks.get(id_)
        if runs is not None:
            owner = turns.key_of[runs.job][0]
            used[owner] = used.get(owner, 0) + runs.cores
    kept: set[int] = set()
    over: dict[str, int] = {}
    for task in tasks:
        owner = turns.key_of[task.job][0]
        cap = caps.get(owner)
        if cap is None:
            kept.add(task.id)
        elif turns.is_ready(task) and used.get(owner, 0) + task.cores <= cap:
            used[owner] = used.get(owner, 0) + task.cores
            kept.add(task.id)
        else:
            over[owner] = over.get(owner, 0) + 1
    return kept, over


def cores_at_most(snapshot: Snapshot) -> float:
    """Cores that the fleet can have at once, by the limits of offers and pools and by its budget; may be infinite."""
    offers = [offer for offer in snapshot.offers if offer.market == ONDEMAND]
    room = snapshot.room()
    more = 0.0
    for pool in sorted({offer.pool for offer in offers}):
        mine = [offer for offer in offers if offer.pool == pool]
        count = [math.inf if offer.limit is None else room.of_offer(offer) for offer in mine]
        cores = math.fsum(number * offer.cores for number, offer in zip(count, mine, strict=True) if number)
        limit = mine[0].pool_limit
        if limit is not None:
            free = max(0, limit - sum(machine.offer.pool == pool for machine in snapshot.machines))
            cores = min(cores, free * max(offer.cores for offer in mine))
        more += cores
    if snapshot.budget_usd is not None and offers:
        left = max(0.0, snapshot.budget_usd - snapshot.spent_usd)
        cheapest = min(offer.price_usd / offer.cores for offer in offers)
        more = min(more, left / cheapest if cheapest > 0 else math.inf)
    return more + sum(machine.offer.cores for machine in snapshot.machines)
