"""How much of the time that is left each job of a DAG may take. Pure.

The deadline is that of the whole DAG. A job gets the share of the time left that it has of the longest path from it to
the end: the paths below it keep the rest. Whatever finishes early leaves its time to the jobs after it.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

UNKNOWN_S = 60.0
"""Seconds that a job of a rule is taken to run of which nothing is known."""
LEAST_S = 1.0
"""Seconds that a job gets whose deadline is over: planners refuse none."""
Job = TypeVar("Job", bound=Hashable)


class RunTimes:
    """Seconds by rule: the mean of those measured, else what the rule says (`runtime`), else a guess."""

    def __init__(self) -> None:
        self._measured: dict[str, tuple[int, float]] = {}

    def add(self, rule: str, run_s: float) -> None:
        count, mean_s = self._measured.get(rule, (0, 0.0))
        self._measured[rule] = (count + 1, mean_s + (run_s - mean_s) / (count + 1))

    def measured_s(self, rule: str) -> float | None:
        known = self._measured.get(rule)
        return None if known is None else known[1]

    def expected_s(self, rule: str, said_s: float | None) -> float:
        measured_s = self.measured_s(rule)
        found = said_s if measured_s is None else measured_s
        return max(UNKNOWN_S if found is None else found, 1e-3)


def longest_paths(
    jobs: Iterable[Job], after: Callable[[Job], Iterable[Job]], seconds: Callable[[Job], float]
) -> Mapping[Job, float]:
    """Seconds of the longest path that begins with each job, its own among them. `after`: the jobs that wait for it."""
    known: dict[Job, float] = {}
    for first in jobs:
        stack = [first]
        while stack:
            job = stack[-1]
            missing = [] if job in known else [child for child in after(job) if child not in known]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if job not in known:
                known[job] = seconds(job) + max((known[child] for child in after(job)), default=0.0)
    return known


def share_s(left_s: float, own_s: float, path_s: float) -> float:
    """Seconds from now by which a job has to end. `path_s`: the longest path that begins with it, `own_s` included."""
    return max(LEAST_S, left_s * min(1.0, own_s / path_s))
