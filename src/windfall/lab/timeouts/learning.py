"""A pool with lost jobs and a heavy tail, simulated with fixed timeouts and with the learner. Pure.

Used by `windfall lab timeouts` and by the simulation tests.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from windfall.timeouts.arrays import Array
from windfall.timeouts.best import best_timeout
from windfall.timeouts.learning.memory import Decision
from windfall.timeouts.learning.online import Sketch
from windfall.timeouts.process import Process


class Pool(Struct, frozen=True):
    """A pool, and its initial timeout: a multiple of the best."""

    process: Process
    prior_factor: float = 10.0


def best_fixed(pool: Pool) -> float:
    """The best timeout if the law is known."""
    timeout_s = best_timeout(pool.process).timeout_s
    assert timeout_s is not None
    return timeout_s


class Draws:
    """Latencies of attempts, infinite for the lost; drawn in blocks because drawing one at a time is slow."""

    def __init__(self, process: Process, seed: int) -> None:
        self.process, self.rng = process, np.random.default_rng(seed)
        self.left: Iterator[float] = iter(())

    def next(self) -> float:
        for value in self.left:
            return value
        latency = np.asarray(self.process.law.ppf(self.rng.random(4096)))
        lost = self.rng.random(4096) < self.process.rho
        self.left = iter(np.where(lost, np.inf, latency).tolist())
        return self.next()


def play_fixed(pool: Pool, timeout_s: float, jobs: int, seed: int) -> Array:
    """Total time of each job with one timeout throughout."""
    process, draws = pool.process, Draws(pool.process, seed)
    wait = timeout_s - process.run_s
    totals = []
    for _ in range(jobs):
        total = 0.0
        while True:
            latency = draws.next()
            total += process.overhead_s + min(latency, wait)
            if latency <= wait:
                break
        totals.append(total)
    return np.array(totals)


class Learned(Struct, frozen=True):
    """Total time of each job begun after the warm-up, and how long each of their attempts was allowed to wait."""

    totals: Array
    waits: Array


def turnaround(pool: Pool, waits: Array) -> float:
    """Mean turnaround with these waits, in expectation over the latencies: expected time over expected results.

    The same mean as that of the totals, without the luck of the draw; what is left is what the waits are worth.
    """
    process = pool.process
    return float(process.attempt_mean(waits).sum() / process.success(waits).sum())


def learned_wait(pool: Pool, attempts: int, seed: int) -> float:
    """Seconds of latency after which a learner gives an attempt up, once it has made `attempts` attempts."""
    process, draws, sketch = pool.process, Draws(pool.process, seed), Sketch()
    prior_s = pool.prior_factor * best_fixed(pool)

    def choose() -> Decision:
        return sketch.best_timeout(run_s=process.run_s, prior_s=prior_s, submit_cost_s=process.submit_cost_s)

    decision = choose()
    for attempt in range(attempts):
        if sketch.stale(decision):
            decision = choose()
        wait, latency = decision.for_attempt(attempt) - process.run_s, draws.next()
        if latency <= wait:
            sketch.observe(latency)
        else:
            sketch.observe_censored(wait)
    return choose().timeout_s - process.run_s


def play_learner(pool: Pool, jobs: int, seed: int, warm_up: int) -> Learned:
    """A learner from its first attempt on; jobs count from `warm_up` attempts on, the learner's exploring included."""
    process, draws, sketch = pool.process, Draws(pool.process, seed), Sketch()
    prior_s = pool.prior_factor * best_fixed(pool)

    def choose() -> Decision:
        return sketch.best_timeout(run_s=process.run_s, prior_s=prior_s, submit_cost_s=process.submit_cost_s)

    decision = choose()
    totals: list[float] = []
    waits: list[float] = []
    attempts = 0
    while len(totals) < jobs:
        total, begun = 0.0, attempts
        while True:
            if sketch.stale(decision):
                decision = choose()
            wait = decision.for_attempt(attempts) - process.run_s
            attempts += 1
            if begun >= warm_up:
                waits.append(wait)
            latency = draws.next()
            total += process.overhead_s + min(latency, wait)
            if latency <= wait:
                sketch.observe(latency)
                break
            sketch.observe_censored(wait)
        if begun >= warm_up:
            totals.append(total)
    return Learned(np.array(totals), np.array(waits))
