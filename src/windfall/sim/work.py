"""The work of a simulated world: the true run time of each task, and the random outcome of its attempts. Pure."""

from __future__ import annotations

from array import array
from statistics import fmean

from windfall import graph as graphs
from windfall.core.events import JobRules, TaskClass
from windfall.core.renting import money
from windfall.policy.compiled import named_policies
from windfall.resources import needs_of
from windfall.sim.chance import stream, stream_in_turn
from windfall.sim.scenario import Bag

MEAN_OF = 200
"""Quantiles over which the mean of a law is computed."""


class Work:
    """One submitted bag: run times by task, random numbers by (task, attempt). The same for every policy."""

    def __init__(self, bag: Bag, copy: int, seed: int, submit_s: float) -> None:
        self.name = bag.name if bag.copies == 1 else f"{bag.name}-{copy + 1}"
        self.bag, self.copy, self.submit_s = bag, copy, submit_s
        self.priority = bag.priority + copy * bag.priority_step
        self._law = bag.run.quantile()
        self._length = stream_in_turn(seed, f"bag/{self.name}/run")
        self._factor = None if bag.error.kind == "fixed" else bag.error.quantile()
        self._constant = bag.error.parameters.get("value", 1.0)
        self._wrong = stream(seed, f"bag/{self.name}/error")
        self._longest = -1
        if bag.longest_of > 1.0:
            chance = self._wrong if self._factor is not None else self._length
            self._longest = max(range(bag.tasks), key=chance)
        # First attempts start nearly in the order of the tasks, and so do second ones: computed in blocks.
        self.luck = stream_in_turn(seed, f"bag/{self.name}/luck", usual=(1, 2))
        self.moment = stream(seed, f"bag/{self.name}/moment")
        self.delay = stream_in_turn(seed, f"bag/{self.name}/delay", usual=(1,))
        self.drag = stream(seed, f"bag/{self.name}/drag")
        self.unfinished = {(task, attempt): least_s for task, attempt, least_s in bag.unfinished}
        """Attempts that take at least this long, on a host of speed 1."""
        self.at_waking = {(task, attempt): later_s for task, attempt, later_s in bag.at_waking}
        self.sent = {(task, attempt): (machine, at_s) for task, attempt, machine, at_s in bag.sent}
        """When and to which machine attempts of a replayed log were handed out."""

    def begins_s(self, task: int, attempt: int, machine: int, now: float) -> float:
        """When an attempt begins that a machine gets now: no sooner than it got it in the log, by a slower exchange."""
        logged, at_s = self.sent.get((task, attempt), (0, 0.0))
        return max(now, at_s) if machine == logged else now

    def named_s(self, task: int) -> float:
        """The named run time of a task; the true one differs by its error."""
        traced, bag = self.bag.run_times_s, self.bag
        if not traced:
            return self._law(self._as_longest(task, self._length(task)))
        # Copies of a workflow are equal; copies of a bag continue in the trace where the one before ended.
        return traced[task if bag.edges else (self.copy * bag.tasks + task) % len(traced)]

    def class_of(self, task: int) -> str:
        """The name of a task's class: offers may have a speed for it."""
        return self.bag.classes_of[task] if self.bag.classes_of else self.bag.task_class

    def shape(self) -> graphs.Graph | None:
        """The edges of a workflow."""
        return graphs.from_edges(self.bag.tasks, self.bag.edges) if self.bag.edges else None

    def run_s(self, task: int) -> float:
        """How long a task runs on a host of speed 1."""
        named_s = self.named_s(task) if self.bag.run_times_s else self._law(self._length(task))
        if self._factor is None:
            return named_s * self._constant
        return named_s * self._factor(self._as_longest(task, self._wrong(task)))

    def _as_longest(self, task: int, chance: float) -> float:
        """The largest of n numbers to the power 1/k is distributed as the largest of n k numbers."""
        return float(chance ** (1.0 / self.bag.longest_of)) if task == self._longest else chance

    def rules(self, clouds: list[str], replication: str) -> JobRules:
        bag = self.bag
        return JobRules(
            name=self.name,
            priority=self.priority,
            deadline_s=None if bag.deadline_s == float("inf") else bag.deadline_s,
            budget_microusd=money.microusd(bag.budget_usd) or None,
            policies=named_policies(bag.policy),
            rent_from=(list(bag.clouds) or clouds) if bag.planner else [],
            planner=bag.planner,
            confidence=bag.confidence,
            replication=bag.replication or replication,
            max_replicas=bag.max_replicas,
            fleet=bag.fleet,
        )

    def classes(self) -> tuple[list[TaskClass], list[tuple[int, int]]]:
        """The classes of the tasks, and (count, class) in the order of the tasks."""
        bag = self.bag
        mean_s = self._mean_s() if bag.told == "mean" else None
        each = bag.told == "each" and self.exact
        if not each and not bag.memory_bytes_of and not bag.classes_of:
            return [self._class(bag.task_class, bag.cpus, bag.memory_mb << 20, mean_s, bag.nodes)], [(bag.tasks, 0)]
        numbers: dict[tuple[str, int, int, float | None, int], int] = {}
        parts: list[tuple[int, int]] = []
        for task in range(bag.tasks):
            cpus = bag.cpus_of[task] if bag.cpus_of else bag.cpus
            memory = bag.memory_bytes_of[task] if bag.memory_bytes_of else bag.memory_mb << 20
            told_s = bag.estimates_of[task] if bag.estimates_of else mean_s
            nodes = bag.nodes_of[task] if bag.nodes_of else bag.nodes
            what = (self.class_of(task), cpus, memory, self.named_s(task) if each else told_s, nodes)
            number = numbers.setdefault(what, len(numbers))
            if parts and parts[-1][1] == number:
                parts[-1] = (parts[-1][0] + 1, number)
            else:
                parts.append((1, number))
        return [self._class(*what) for what in numbers], parts

    def _class(self, name: str, cpus: int, memory_bytes: int, estimate_s: float | None, nodes: int) -> TaskClass:
        bag = self.bag
        return TaskClass(
            cpus=float(cpus),
            memory_bytes=memory_bytes,
            max_failures=bag.max_failures,
            max_losses=bag.max_losses,
            name=name,
            estimate_s=estimate_s if bag.planner or bag.fleet else None,
            estimate_is_exact=bag.told == "each" and self.exact,
            checkpoint_mb=bag.checkpoint_mb or None,
            checkpoint_auto=bag.checkpoint_auto,
            checkpoint_s=bag.checkpoint_every_s if bag.checkpoint_mb and not bag.checkpoint_auto else None,
            needs=needs_of(bag.resources),
            nodes=nodes,
            spread=bag.told_spread,
        )

    def estimates(self) -> bytes:
        """Estimated run times, if planners are told them and they differ from the true ones."""
        bag = self.bag
        if not (bag.planner or bag.fleet) or bag.told != "each" or self.exact:
            return b""
        return array("f", (self.named_s(task) for task in range(bag.tasks))).tobytes()

    @property
    def exact(self) -> bool:
        """Whether the named run times are the true ones."""
        return self._factor is None and self._constant == 1.0

    def _mean_s(self) -> float:
        if self.bag.estimate_s:
            return self.bag.estimate_s
        traced = self.bag.run_times_s[: self.bag.tasks]
        if traced:
            return fmean(traced)
        return fmean(self._law((place + 0.5) / MEAN_OF) for place in range(MEAN_OF))


def submissions(bags: tuple[Bag, ...], seed: int) -> list[Work]:
    """Every bag of a scenario in the order of submission."""
    works = [Work(bag, copy, seed, at_s) for bag in bags for copy, at_s in enumerate(_moments(bag, seed))]
    return sorted(works, key=lambda work: work.submit_s)


def _moments(bag: Bag, seed: int) -> list[float]:
    """When the copies of a bag are submitted."""
    if bag.arrivals_s:
        return [bag.submit_s + moment for moment in bag.arrivals_s[: bag.copies]]
    gap, chance = bag.every.quantile(), stream(seed, f"bag/{bag.name}/every")
    moments = [bag.submit_s]
    for copy in range(1, bag.copies):
        moments.append(moments[-1] + gap(chance(copy)))
    return moments
