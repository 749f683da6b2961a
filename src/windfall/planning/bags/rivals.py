"""Rivals of Windfall's own planner of bags, with the same planning pass and the same safety net. Pure.

Greedy and Uniform Progress are published for divisible work on one machine (planning.spot). Here they plan a bag:
progress is counted in seconds of work, and "spot is unavailable" means that a machine is hibernated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from windfall.planning.bags.packing import Choice, HibernatedMachine, Item
from windfall.planning.bags.planning_pass import PlanningPass
from windfall.planning.contract import ONDEMAND, SPOT


class Greedy(PlanningPass):
    """Spot by its price alone until the last safe moment, then on-demand."""

    risk_weight = 0.0
    shares_queue = False

    def worth_waiting(self, hibernated: HibernatedMachine) -> bool:
        return self.t < hibernated.limit_t - 1e-6

    def worth_postponing(self, rest: Sequence[Item], later_t: float) -> bool:
        return True

    def wanted(self, choices: list[Choice]) -> list[Choice]:
        return [choice for choice in choices if choice.bin.offer.market == SPOT] or choices


class UniformProgress(Greedy):
    """Keep up with a constant rate of progress: behind it and with spot unavailable, use on-demand."""

    def ahead_s(self) -> float:
        """Seconds of work done beyond constant progress (W t / T); negative if behind."""
        snapshot = self.snapshot
        running = {entry.task: entry.left_s for machine in snapshot.machines for entry in machine.running}
        left_s = math.fsum(running.get(number, task.runtime_s) for number, task in snapshot.tasks.items())
        left_s += math.fsum(group.count * group.task.runtime_s for group in snapshot.groups)
        whole_s = math.fsum(task.runtime_s for task in snapshot.tasks.values())
        whole_s += math.fsum(group.count * group.task.runtime_s for group in snapshot.groups)
        # Finished tasks are not in the snapshot: assume that they took as long on average as those left.
        work_s = whole_s * max(1.0, snapshot.total / max(1, snapshot.unfinished))
        elapsed = (snapshot.t - snapshot.begun_t) / max(1e-9, snapshot.deadline_t - snapshot.begun_t)
        return work_s - left_s - work_s * min(1.0, elapsed)

    def enough_s(self) -> float:
        """Seconds of lead that allow going back to spot: twice the boot of every on-demand core, against flapping."""
        machines = [machine for machine in self.snapshot.machines if machine.offer.market == ONDEMAND]
        return 2.0 * sum(machine.offer.lag_s * machine.offer.cores for machine in machines)

    def worth_waiting(self, hibernated: HibernatedMachine) -> bool:
        return super().worth_waiting(hibernated) and self.ahead_s() >= self.enough_s()

    def worth_postponing(self, rest: Sequence[Item], later_t: float) -> bool:
        return super().worth_postponing(rest, later_t) and self.ahead_s() >= self.enough_s()

    def wanted(self, choices: list[Choice]) -> list[Choice]:
        given_up = any(machine not in self.left_hibernated for machine in self.hibernated_machines)
        if given_up and self.ahead_s() < self.enough_s():
            return [choice for choice in choices if choice.bin.offer.market == ONDEMAND] or choices
        return super().wanted(choices)


class AllSpot(PlanningPass):
    """Spot only and no waiting: a hibernated machine is given up at once and replaced by a new spot machine."""

    risk_weight = 0.0
    shares_queue = False

    def worth_waiting(self, hibernated: HibernatedMachine) -> bool:
        return False
