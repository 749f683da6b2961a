"""The work of a simulated world: how long each task really takes, and what chance holds for its attempts. Pure."""

from __future__ import annotations

from windfall.core.events import JobRules, TaskClass
from windfall.policy.compiled import named_policies
from windfall.sim.chance import stream
from windfall.sim.scenario import Bag


class Work:
    """One submitted bag: its run times by task, its luck by (task, attempt). The same for every policy."""

    def __init__(self, bag: Bag, copy: int, seed: int) -> None:
        self.name = bag.name if bag.copies == 1 else f"{bag.name}-{copy + 1}"
        self.bag = bag
        self.submit_s = bag.submit_s + copy * bag.every_s
        self.priority = bag.priority + copy * bag.priority_step
        self._law = bag.run.quantile()
        self._length = stream(seed, f"bag/{self.name}/run")
        self._factor = None if bag.error.kind == "fixed" else bag.error.quantile()
        self._constant = bag.error.parameters.get("value", 1.0)
        self._wrong = stream(seed, f"bag/{self.name}/error")
        self.luck = stream(seed, f"bag/{self.name}/luck")
        self.moment = stream(seed, f"bag/{self.name}/moment")
        self.delay = stream(seed, f"bag/{self.name}/delay")
        self.drag = stream(seed, f"bag/{self.name}/drag")

    def run_s(self, task: int) -> float:
        """How long a task runs on a host of speed 1."""
        traced = self.bag.run_times_s
        named = traced[task] if traced else self._law(self._length(task))
        return named * (self._constant if self._factor is None else self._factor(self._wrong(task)))

    def rules(self) -> JobRules:
        deadline_s = self.bag.deadline_s
        return JobRules(
            name=self.name,
            priority=self.priority,
            deadline_s=None if deadline_s == float("inf") else deadline_s,
            policies=named_policies(self.bag.policy),
        )

    def classes(self) -> list[TaskClass]:
        bag = self.bag
        return [
            TaskClass(
                cpus=float(bag.cpus),
                memory_bytes=bag.memory_mb << 20,
                max_failures=bag.max_failures,
                max_losses=bag.max_losses,
            )
        ]


def submissions(bags: tuple[Bag, ...], seed: int) -> list[Work]:
    """Every bag of a scenario in the order of submission."""
    works = [Work(bag, copy, seed) for bag in bags for copy in range(bag.copies)]
    return sorted(works, key=lambda work: work.submit_s)
