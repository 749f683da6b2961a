"""How many tasks to hold ready, when to exchange, how long to back off. Pure but for the given generator."""

from __future__ import annotations

import random

AHEAD_S = 0.6
"""Seconds of work to hold ready per slot: enough for an exchange whose commit waits half a second for the disk."""

MAX_READY_PER_SLOT = 2048
GAP_S = 0.04
"""Least time between two exchanges: results of this time are sent together."""
BUSY_GAP_S = 0.15
"""The same while enough tasks are held: an exchange costs the worker and the server as much as ten short tasks."""

QUIET_GAP_S = 1.0
"""Time between two exchanges of a worker whose slots are all busy and that has nothing to report."""

ROUND_TRIP_TOLD_S = 0.02
"""Shorter round trips are not told to the server: tasks of a second or more do not notice them."""
ROUND_TRIPS_KEPT, ROUND_TRIPS_TOLD_AFTER = 8, 3

FORGET = 0.15
"""Weight of the newest duration in the running mean."""


class Durations:
    """A running mean of run times that reacts fast when tasks get longer."""

    def __init__(self) -> None:
        self._mean_s: float | None = None

    def add(self, run_s: float) -> None:
        mean_s = self._mean_s
        self._mean_s = run_s if mean_s is None else mean_s + FORGET * (run_s - mean_s)

    def mean_s(self, longest_running_s: float = 0.0) -> float | None:
        """Mean run time, at least the age of the longest running task; `None` before the first result."""
        if self._mean_s is None:
            return longest_running_s if longest_running_s >= 1.0 else None
        return max(self._mean_s, longest_running_s)


def ready_target(slots: int, mean_s: float | None) -> int:
    """Tasks to hold beyond the running ones: none before the first result, none for tasks of a second or longer."""
    if mean_s is None or mean_s >= 1.0:
        return 0
    per_slot = min(MAX_READY_PER_SLOT, int(AHEAD_S / max(mean_s, 1e-6)))
    return max(1, slots * per_slot)


def want(slots: int, held: int, mean_s: float | None) -> int:
    return max(0, slots + ready_target(slots, mean_s) - held)


def room(slots: int, held: int) -> int:
    """Tasks that the worker could hold ready beyond those that it asks for, if the server hands out ahead."""
    return max(0, slots * MAX_READY_PER_SLOT - held)


def gap_s(slots: int, held: int, mean_s: float | None) -> float:
    """Least time between two exchanges: a quarter of the time for which the held tasks last, within limits.

    None if nothing is held: nothing more comes that could be sent together, and every slot is idle.
    """
    if not held:
        return 0.0
    if mean_s is None or mean_s >= 1.0:
        return GAP_S
    return max(GAP_S, min(BUSY_GAP_S, 0.25 * held * mean_s / slots))


class RoundTrip:
    """The time of an exchange without waiting: the shortest of the last few, because a busy server answers late."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self.told_s: float | None = None

    def add(self, seconds: float) -> None:
        self._seconds = [*self._seconds[1 - ROUND_TRIPS_KEPT :], max(0.0, seconds)]

    @property
    def seconds(self) -> float | None:
        return min(self._seconds, default=None)

    @property
    def is_news(self) -> bool:
        """Whether the server should be told: it is long enough to matter, and differs from what was told."""
        found_s = self.seconds
        if found_s is None or len(self._seconds) < ROUND_TRIPS_TOLD_AFTER:
            return False
        if self.told_s is None:
            return found_s >= ROUND_TRIP_TOLD_S
        return abs(found_s - self.told_s) > max(ROUND_TRIP_TOLD_S, 0.25 * self.told_s)


def hand_ahead(mean_s: float | None) -> int:
    """Tasks that a runner holds, the running one included: about 100 ms of work, so it does not wait for the agent."""
    if mean_s is None or mean_s >= 0.1:
        return 1
    return max(2, min(128, int(0.1 / max(mean_s, 1e-6))))


def pause_s(least_in_hand: int, mean_s: float | None) -> float:
    """How long the agent may pause so that results gather and no slot becomes idle."""
    if mean_s is None or least_in_hand < 2:
        return 0.0
    return min(0.03, 0.4 * least_in_hand * max(mean_s, 30e-6))


def wait_s(held: int, mean_s: float | None, next_s: float) -> float:
    """How long the server may hold its answer: briefly while results are expected, else nearly `next_s`."""
    if held and (mean_s is None or mean_s < 1.0):
        return 0.05
    return max(0.05, min(20.0, next_s * 0.8))


def quiet_gap_s(gap_s: float, next_s: float, busy_s: float, wanted: int) -> float:
    """The gap after an answer at once that held no news: twice the last one, up to a second.

    `busy_s`: what a server with many hosts asks for, up to `next_s`, of a worker that wanted no task.
    """
    most_s = QUIET_GAP_S if wanted else max(QUIET_GAP_S, min(next_s, busy_s))
    return min(most_s, gap_s * 2)


class Backoff:
    """Exponential back-off with full jitter."""

    def __init__(self, generator: random.Random, base_s: float = 0.1, cap_s: float = 30.0) -> None:
        self._generator = generator
        self._base_s = base_s
        self._cap_s = cap_s
        self.failures = 0

    def next_s(self) -> float:
        ceiling_s = min(self._cap_s, self._base_s * 2 ** min(self.failures, 30))
        self.failures += 1
        return self._generator.uniform(0, ceiling_s)

    def reset(self) -> None:
        self.failures = 0
