"""The rivals of Windfall's own planner of bags, on the same desk and over the same net. Pure.

Greedy and Uniform Progress are known for one machine's divisible work (planning.spot); here they run a bag on machines:
progress is counted in seconds of work, and "spot is away" means that a machine sleeps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from windfall.planning.bags.packing import Item
from windfall.planning.bags.planning_pass import Choice, Desk, Sleeper
from windfall.planning.contract import ONDEMAND, SPOT


class Greedy(Desk):
    """Spot by its price alone until the last safe moment, then on-demand."""

    risk_weight = 0.0

    def worth_waiting(self, sleeper: Sleeper) -> bool:
        return self.t < sleeper.limit_t - 1e-6

    def worth_putting_off(self, rest: Sequence[Item], later_t: float) -> bool:
        return True

    def wanted(self, choices: list[Choice]) -> list[Choice]:
        return [choice for choice in choices if choice.bin.offer.market == SPOT] or choices


class UniformProgress(Greedy):
    """Never below the line from the start to the deadline: behind it and with spot away, on-demand."""

    def ahead_s(self) -> float:
        """Seconds of work done beyond the line W t / T."""
        snapshot = self.snapshot
        running = {entry.task: entry.left_s for machine in snapshot.machines for entry in machine.running}
        left_s = math.fsum(running.get(number, task.runtime_s) for number, task in snapshot.tasks.items())
        left_s += math.fsum(group.count * group.task.runtime_s for group in snapshot.groups)
        whole_s = math.fsum(task.runtime_s for task in snapshot.tasks.values())
        whole_s += math.fsum(group.count * group.task.runtime_s for group in snapshot.groups)
        # What is finished is not shown: it took as long, one by one, as what is left.
        work_s = whole_s * max(1.0, snapshot.total / max(1, snapshot.unfinished))
        gone = (snapshot.t - snapshot.begun_t) / max(1e-9, snapshot.deadline_t - snapshot.begun_t)
        return work_s - left_s - work_s * min(1.0, gone)

    def enough_s(self) -> float:
        """With on-demand machines: twice the changeover of all their cores, so that not every flicker is followed."""
        machines = [machine for machine in self.snapshot.machines if machine.offer.market == ONDEMAND]
        return 2.0 * sum(machine.offer.lag_s * machine.offer.cores for machine in machines)

    def worth_waiting(self, sleeper: Sleeper) -> bool:
        return super().worth_waiting(sleeper) and self.ahead_s() >= self.enough_s()

    def worth_putting_off(self, rest: Sequence[Item], later_t: float) -> bool:
        return super().worth_putting_off(rest, later_t) and self.ahead_s() >= self.enough_s()

    def wanted(self, choices: list[Choice]) -> list[Choice]:
        if any(sleeper not in self.waits for sleeper in self.sleepers) and self.ahead_s() < self.enough_s():
            return [choice for choice in choices if choice.bin.offer.market == ONDEMAND] or choices
        return super().wanted(choices)


class AllSpot(Desk):
    """Spot as if nothing slept: what is taken or put to sleep is given up, and a new spot machine takes over."""

    risk_weight = 0.0

    def worth_waiting(self, sleeper: Sleeper) -> bool:
        return False
