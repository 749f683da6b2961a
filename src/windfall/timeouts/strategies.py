"""Resubmit, submit several at once, or submit another before giving up: one family, scored together. Pure.

Every `every_s` seconds, while nothing has come back, `copies` more are submitted; each is cancelled at the age of
`keep` such periods. copies = keep = 1 is resubmission with a timeout; copies > 1 a burst; keep > 1 a delayed
resubmission, where the old copy stays in the race. The score is the expected time plus the price of the jobs used, so
replicating and resubmitting are one decision, and the price of a job decides between them.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from msgspec import Struct
from scipy import optimize

from windfall.errors import BadInput
from windfall.timeouts.arrays import Array
from windfall.timeouts.best import best_timeout, search_grid
from windfall.timeouts.process import Process

Name = Literal["wait", "resubmit", "burst", "delayed", "delayed burst"]
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)
_SHARES = np.concatenate([[0.0, 1e-4, 1e-3], np.linspace(0.01, 0.99, 50), [0.999, 0.9999, 0.99999, 1 - 1e-7]])


class Strategy(Struct, frozen=True):
    """`every_s` None: submit once and wait for ever."""

    copies: int = 1
    keep: int = 1
    every_s: float | None = None

    @property
    def name(self) -> Name:
        if self.every_s is None:
            return "wait" if self.copies == 1 else "burst"
        if self.keep == 1:
            return "resubmit" if self.copies == 1 else "burst"
        return "delayed" if self.copies == 1 else "delayed burst"


class Scored(Struct, frozen=True):
    """The effect of a strategy: expected time, jobs used, and their weighted sum; `frontier`: no other beats both."""

    name: Name
    copies: int
    keep: int
    every_s: float | None
    timeout_s: float | None
    expected_s: float
    jobs: float
    score_s: float
    frontier: bool = False


def latency_and_jobs(process: Process, strategy: Strategy) -> tuple[float, float]:
    """Expected time to the first result and expected number of jobs submitted, exactly (up to quadrature)."""
    if strategy.every_s is None:
        return _wait_for_ever(process, strategy.copies), float(strategy.copies)
    every, keep, copies = strategy.every_s, strategy.keep, strategy.copies
    edges = _edges(process, every, keep)
    half = np.diff(edges)[:, None] / 2
    inside = ((edges[:-1] + edges[1:])[:, None] / 2 + half * _NODES).ravel()
    weights = (half * _WEIGHTS).ravel()
    # Chance that nothing submitted so far has come back, u seconds into the m-th period, for m < keep; later periods
    # repeat the last of these, each time scaled by the chance that the copies given up had all failed.
    during = np.cumprod([_none_back(process, inside + m * every, copies) for m in range(keep)], axis=0)
    at_start = np.cumprod([float(_none_back(process, np.array([m * every]), copies)[0]) for m in range(keep)])
    lost = float(_none_back(process, np.array([keep * every]), copies)[0])
    if lost >= 1:
        return math.inf, math.inf
    periods = during @ weights
    again = lost / (1 - lost)
    return float(periods.sum() + periods[-1] * again), copies * float(at_start.sum() + at_start[-1] * again)


def _edges(process: Process, every: float, keep: int) -> Array:
    """Where to cut a period for quadrature: wherever one of the copies alive meets a quantile of the law."""
    ages = np.asarray(process.law.ppf(_SHARES), dtype=np.float64) + process.run_s
    inside = np.concatenate([ages - m * every for m in range(keep)])
    even = np.linspace(0.0, every, 33)
    return np.unique(np.concatenate([even, inside[(inside > 0) & (inside < every)]]))


def _none_back(process: Process, age: Array, copies: int) -> Array:
    back = np.where(age >= process.run_s, process.success(np.maximum(age - process.run_s, 0.0)), 0.0)
    return np.asarray((1 - back) ** copies, dtype=np.float64)


def _wait_for_ever(process: Process, copies: int) -> float:
    if process.rho > 0:
        return math.inf
    if copies == 1:
        return process.law.mean() + process.run_s
    grid = np.concatenate([[0.0], search_grid(process)])
    middle, width = (grid[1:] + grid[:-1]) / 2, np.diff(grid)
    return float((process.law.sf(middle) ** copies * width).sum()) + process.run_s


def score(process: Process, strategy: Strategy) -> Scored:
    latency, jobs = latency_and_jobs(process, strategy)
    total = latency + process.submit_cost_s * jobs
    timeout_s = strategy.every_s * strategy.keep if strategy.every_s is not None else None
    return Scored(strategy.name, strategy.copies, strategy.keep, strategy.every_s, timeout_s, latency, jobs, total)


def best_strategies(process: Process, most_copies: int = 3) -> list[Scored]:
    """The best of each kind with at most `most_copies` alive at a time, the best of all first."""
    if process.submit_cost_s <= 0:
        raise BadInput(
            "copies that cost nothing are always worth it: the price of a job is needed to decide",
            hint="say what one more job costs, in seconds of waiting: --submit-cost-s",
        )
    if most_copies < 1:
        raise BadInput(f"at least one copy is needed, not {most_copies}")
    found = [score(process, Strategy(copies)) for copies in range(1, most_copies + 1)]
    for copies in range(1, most_copies + 1):
        for keep in range(1, most_copies // copies + 1):
            found.append(_best_period(process, copies, keep))
    usable = sorted((one for one in found if math.isfinite(one.score_s)), key=lambda one: one.score_s)
    return [_mark(one, usable) for one in usable]


def _mark(one: Scored, others: list[Scored]) -> Scored:
    beaten = any(
        other.expected_s <= one.expected_s and other.jobs <= one.jobs and other.score_s < one.score_s
        for other in others
    )
    return Scored(
        one.name, one.copies, one.keep, one.every_s, one.timeout_s, one.expected_s, one.jobs, one.score_s, not beaten
    )


def _best_period(process: Process, copies: int, keep: int) -> Scored:
    if copies == keep == 1:
        best = best_timeout(process)
        if best.kind == "finite" and best.timeout_s is not None:
            return score(process, Strategy(1, 1, best.timeout_s))
    grid = (search_grid(process) + process.run_s) / keep
    grid = np.geomspace(max(float(grid[0]), 1e-6 * float(np.median(grid))), float(grid[-1]), 80)
    values = [score(process, Strategy(copies, keep, float(every))).score_s for every in grid]
    index = int(np.argmin(values))
    low, high = grid[max(index - 1, 0)], grid[min(index + 1, len(grid) - 1)]
    fine = optimize.minimize_scalar(
        lambda log_every: score(process, Strategy(copies, keep, math.exp(log_every))).score_s,
        bounds=(math.log(low), math.log(high)),
        method="bounded",
    )
    every = math.exp(fine.x) if fine.fun < values[index] else float(grid[index])
    return score(process, Strategy(copies, keep, every))
