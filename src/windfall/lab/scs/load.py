"""The stream of `windfall lab scs`: machine types, applications, task times, arrivals. Pure."""

from __future__ import annotations

import math

import numpy as np

from windfall.graph import from_edges
from windfall.planning.offers import Offer
from windfall.planning.workflow.model import Workflow

HOURS = 72
LAG_S = 390.0
DEADLINES_H = (0.5, 1.0, 1.5, 2.0)
PRICES = {"micro": 0.02, "standard": 0.085, "high-cpu": 0.68, "high-memory": 0.50}
PATTERNS = ("stable", "growing", "cycle", "on-off")
FASTEST_PATH_S = (540.0, 900.0)
PER_HOUR = 12.0  # mean number of jobs, for every pattern

# The applications of figure 7: a chain; a fan of chains; a mixture with joins between the branches.
APPLICATIONS: dict[str, tuple[int, list[tuple[int, int]]]] = {
    "pipeline": (5, [(0, 1), (1, 2), (2, 3), (3, 4)]),
    "parallel": (10, [(0, 1), (0, 2), (0, 3), (0, 4), (1, 5), (2, 6), (3, 7), (4, 8), (5, 9), (6, 9), (7, 9), (8, 9)]),
    "hybrid": (
        10,
        [(0, 1), (0, 2), (1, 3), (1, 4), (2, 4), (2, 5), (3, 6), (4, 6), (4, 7), (5, 8), (6, 9), (7, 9), (8, 9)],
    ),
}


def world_of_times(application: str, number: int) -> tuple[Workflow, tuple[Offer, ...]]:
    """Set `number` of random task times: the workflow and the four types with their speeds for each task.

    A task is compute-intensive, memory-intensive or neither. The paper does not give its times; here they are scaled so
    that the fastest machines leave the shortest deadline possible, boot included, as the paper asks.
    """
    n, edges = APPLICATIONS[application]
    graph = from_edges(n, edges)
    rng = np.random.default_rng([list(APPLICATIONS).index(application), number])
    names = [f"s{i}" for i in range(n)]
    speeds = [_speeds(rng) for _ in range(n)]
    raw = rng.uniform(1.0, 5.0, n)
    fastest = [round(1000 * raw[i] / max(speeds[i].values())) for i in range(n)]
    seconds = raw * 1000 * rng.uniform(*FASTEST_PATH_S) / max(graph.earliest_finish(fastest))
    workflow = Workflow(application, names, names, seconds.tolist(), [1] * n, [0] * n, graph)
    offers = tuple(
        Offer(name=name, price_usd=price, lag_s=LAG_S, speed={names[i]: speeds[i][name] for i in range(n)})
        for name, price in PRICES.items()
    )
    return workflow, offers


def _speeds(rng: np.random.Generator) -> dict[str, float]:
    kind = rng.choice(["compute", "memory", "neither"])
    return {
        "micro": float(rng.uniform(0.08, 0.3)),
        "standard": 1.0,
        "high-cpu": float(rng.uniform(8.0, 20.0) if kind == "compute" else rng.uniform(2.0, 4.0)),
        "high-memory": float(rng.uniform(6.0, 15.0) if kind == "memory" else rng.uniform(2.0, 4.0)),
    }


def arrivals_s(pattern: str, number: int, volume: float = 1.0, hours: float = HOURS) -> list[float]:
    """Arrival times of one run: a Poisson stream whose rate follows the pattern, the same total for all of them."""
    rng = np.random.default_rng([10_000 + PATTERNS.index(pattern), number])
    most = PER_HOUR * volume * 4
    moments = np.cumsum(rng.exponential(3600 / most, int(most * hours * 1.3) + 50))
    moments = moments[moments < hours * 3600]
    keep = rng.random(len(moments)) * 4 < np.array([rate(pattern, moment / 3600, hours) for moment in moments])
    return [float(moment) for moment in moments[keep]]


def rate(pattern: str, hour: float, hours: float = HOURS) -> float:
    """The rate relative to the average."""
    if pattern == "stable":
        return 1.0
    if pattern == "growing":
        return 2.0 * hour / hours
    if pattern == "cycle":
        return 1.0 + 0.9 * math.sin(2 * math.pi * hour / 24)
    return 3.0 if hour % 12 < 4 else 0.0
