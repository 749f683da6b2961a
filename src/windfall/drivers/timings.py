"""How long things took, counted in cells. Pure; cheap enough for every exchange."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Timings:
    """A histogram of seconds: `counts[i]` of at most `BOUNDS_S[i]`, the last one of more."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """As Prometheus counts: the upper bound of each cell, and how many were at most that long."""
        total, found = 0, []
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found
