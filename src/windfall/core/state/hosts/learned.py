"""What finished and lost attempts have taught: latencies, run times, and the timeouts that follow. Pure data."""

from __future__ import annotations

from msgspec import Struct, field

from windfall.timeouts.learning.memory import Decision, Latencies


class Advice(Struct, array_like=True):
    """What a pool has taught about a bag: the timeout and why, and how long nearly all results take to come."""

    pool: str
    bag: str
    decision: Decision
    latency_95_s: float | None = None


class RunTimes(Struct, array_like=True):
    """The newest run times of one class of tasks, at speed 1, and how many there ever were."""

    seconds: list[float] = field(default_factory=list)
    count: int = 0

    def add(self, seconds: float, kept: int) -> None:
        self.count += 1
        self.seconds.append(seconds)
        del self.seconds[: max(0, len(self.seconds) - kept)]


class Learned(Struct, array_like=True):
    """What finished and lost attempts have taught."""

    latencies: Latencies = field(default_factory=Latencies)
    """By pool and by bag: see core.liveness.timeouts."""
    advice: dict[str, Advice] = field(default_factory=dict)
    run_times: dict[str, RunTimes] = field(default_factory=dict)
    """Finished attempts by class of tasks, of the jobs that are planned."""

    def take(self, advice: Advice) -> None:
        self.advice[f"{advice.pool}\n{advice.bag}"] = advice
