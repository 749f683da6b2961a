"""How often a task should save its progress: from the hazard rate of its machine and the cost of saving. Pure.

Saving too often wastes the time of saving, too seldom the work that is lost. With a constant hazard rate the best
interval is Young's, sqrt(2 C M) for a save of C seconds and M seconds between losses, and more exactly Daly's. Spot
machines have a hazard rate that depends on their age: M is then that of the ages that the task will meet, its run time
over the interruptions that are expected within it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from windfall.numeric import Floats, np
from windfall.planning.contract import CHECKPOINT_S, CHECKPOINT_S_PER_MB

LOSSES_PER_H = 1.0 / 24.0
"""Losses of a host that no provider interrupts: it crashes, is switched off or loses its network."""
STEPS = 32
"""Points of the run at which the hazard rate is taken."""


def save_s(checkpoint_mb: float) -> float:
    """Seconds to write or to read a checkpoint of this size."""
    return CHECKPOINT_S + CHECKPOINT_S_PER_MB * checkpoint_mb


def young_s(cost_s: float, between_s: float) -> float:
    """Young's interval (1974): the first order of the best one."""
    return math.sqrt(2.0 * cost_s * between_s)


def daly_s(cost_s: float, between_s: float) -> float:
    """Daly's interval (2006): the work between two saves of `cost_s`, with `between_s` between two losses."""
    if cost_s >= 2.0 * between_s:
        return between_s
    ratio = cost_s / (2.0 * between_s)
    return young_s(cost_s, between_s) * (1.0 + math.sqrt(ratio) / 3.0 + ratio / 9.0) - cost_s


def best_interval_s(cost_s: float, run_s: float, rates_ahead: Callable[[Floats], Floats]) -> float:
    """The interval for a task that runs for `run_s`, on a machine whose hazard rates per second ahead are given.

    At least the time of a save, at most the run itself: then no save pays.
    """
    ahead = (np.arange(STEPS, dtype=np.float64) + 0.5) * (run_s / STEPS)
    per_s = max(float(rates_ahead(ahead).mean()), 1e-12)
    return min(max(daly_s(cost_s, 1.0 / per_s), cost_s), max(run_s, cost_s))


def constant(per_h: float) -> Callable[[Floats], Floats]:
    """Hazard rates that do not depend on age."""
    return lambda ahead: np.full(len(ahead), per_h / 3600.0)


def share_left(cost_s: float, every_s: float, run_s: float) -> float:
    """The share of a task's run that is left, on average, after it was interrupted: one without checkpoints.

    Half of it had run; of that, half an interval is lost, and the checkpoint is read.
    """
    return min(1.0, 0.5 + (every_s / 2.0 + cost_s) / run_s)
