"""How much of the processor time that tasks ask for their host gives them. Reads /proc; standard library only.

A task that sleeps or waits for a file asks for nothing. One that could run and has to wait for a processor, because
other programs of the host take it, waits in the scheduler's queue; the kernel counts both times for every thread.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING

from windfall.worker.running import system

if TYPE_CHECKING:
    from collections.abc import Callable

    Times = dict[int, tuple[float, float]]
    """Thread -> (seconds that it ran, seconds that it waited for a processor)."""

LOOK_EVERY_S = 5.0
LEAST_ASKED = 0.1
"""Share of the time for which tasks must have asked for a processor: below that there is nothing to judge."""


def times_of(pids: list[int]) -> Times:
    """Of all threads of these processes; of a kernel that does not count, nothing."""
    found: Times = {}
    for pid in pids:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for thread in threads:
            try:
                with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as file:
                    ran, waited, *_ = file.read().split()
            except (OSError, ValueError):
                continue
            found[int(thread)] = (int(ran) / 1e9, int(waited) / 1e9)
    return found


def of_tasks() -> Times:
    """Of everything that this worker has started."""
    return times_of(system.family(os.getpid())[1:])


class ProcessorTime:
    """The share of the processor time that tasks asked for and got, over the last `over_s` seconds of work."""

    def __init__(self, over_s: float, read: Callable[[], Times] = of_tasks) -> None:
        self._over_s, self._read = over_s, read
        self._last_s: float | None = None
        self._seen: Times = {}
        self._spans: deque[tuple[float, float, float]] = deque()
        """(seconds, of which threads ran, and waited), each between two looks."""

    def share(self, now_s: float, busy: bool) -> float | None:
        """Between 0 and 1; None while too little is known. Time without a task does not count."""
        if not busy:
            self._last_s = None
            self._spans.clear()
            return None
        if self._last_s is not None and now_s - self._last_s < LOOK_EVERY_S:
            return None
        before, self._seen = self._seen, self._read()
        if self._last_s is None:
            self._last_s = now_s
            return None
        ran_s = waited_s = 0.0
        for thread, (ran, waited) in self._seen.items():
            old_ran, old_waited = before.get(thread, (0.0, 0.0))
            ran_s += max(0.0, ran - old_ran)
            waited_s += max(0.0, waited - old_waited)
        self._spans.append((now_s - self._last_s, ran_s, waited_s))
        self._last_s = now_s
        return self._judged()

    def _judged(self) -> float | None:
        covered_s: float = sum(span[0] for span in self._spans)
        ran_s: float = sum(span[1] for span in self._spans)
        waited_s: float = sum(span[2] for span in self._spans)
        while covered_s - self._spans[0][0] >= self._over_s:
            span_s, ran, waited = self._spans.popleft()
            covered_s, ran_s, waited_s = covered_s - span_s, ran_s - ran, waited_s - waited
        if covered_s < self._over_s or ran_s + waited_s < LEAST_ASKED * covered_s:
            return None
        return ran_s / (ran_s + waited_s)
