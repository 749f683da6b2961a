"""The risk of losing tasks, and the time reserved to run them again. Pure.

A lost task and its descendants run again on on-demand machines. On a risky machine (any spot machine, and any other
whose chance of loss exceeds its share of the accepted risk) a task must therefore end early enough: if it is lost at
its very end, a boot and the longest path that begins with it still fit before the deadline.

That suffices for any number of lost machines at any time, as long as on-demand machines can be rented: whatever is not
done then can start again on on-demand machines and be in time (a property test plays it). A task that fails by itself
may do so once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from windfall.graph import Graph
from windfall.numeric import Floats, np
from windfall.planning.offers import Offer

NEVER = 1 << 60  # µs; later than any deadline
HOUR_US = 3600e6
SPOT = "spot"


class Risk(Struct, frozen=True):
    """Failures of tasks beside the interruptions of offers, and the risk that is accepted."""

    task_failures: float = 0.0  # chance that an attempt of a task fails by itself
    accept: float = 0.01  # chance that a task is lost for which no time is reserved


class Exposure(Struct, frozen=True, eq=False):
    """Chances and costs of losses, and the due times that follow. Rows are offers, columns tasks."""

    chance: Floats  # that an attempt is lost
    rerun_by: list[int]  # per task: lost by then, it and all after it can still be in time
    due: list[list[int]]  # latest end of a task there: `rerun_by` where time is kept, NEVER where not
    loss_usd: list[list[float]]  # what losses of it are expected to cost: its share of a run again and another boot
    matters: bool


def expose(
    graph: Graph, offers: Sequence[Offer], duration: Sequence[Sequence[int]], lag: Sequence[int], deadline: int,
    risk: Risk, lease_usd: Floats, width: Sequence[int],
) -> Exposure:  # fmt: skip
    """The exposure of every task on every offer. `lease_usd[o, t]`: a machine of offer o for task t alone.

    `width`: the cores of each task. Tasks that run side by side are lost together and run again side by side.
    """
    n = graph.tasks
    length = np.asarray(duration, dtype=np.float64).reshape(len(offers), n)
    fits = length < NEVER
    rate = np.array([offer.interruptions_per_h or 0.0 for offer in offers])[:, None]
    chance = np.where(fits, 1 - (1 - risk.task_failures) * np.exp(-rate * length / HOUR_US), 0.0)
    spot = np.array([offer.market == SPOT for offer in offers])
    if not spot.any() and not chance.any():
        never, nothing = [NEVER] * n, [0.0] * n
        return Exposure(chance, [deadline] * n, [never] * len(offers), [nothing] * len(offers), False)
    able = fits & ~spot[:, None]
    able[:, ~able.any(axis=0)] = fits[:, ~able.any(axis=0)]  # where on-demand cannot hold a task, spot must do again
    again = np.where(able, length, np.inf)
    best = again.argmin(axis=0)
    boot = max((lag[o] for o in set(best.tolist())), default=0)
    rerun_by = [deadline - boot - tail for tail in graph.tail([int(d) for d in again.min(axis=0)])]
    kept = fits & (spot[:, None] | (chance > risk.accept / max(1, n)))
    due = [[by if keep else NEVER for by, keep in zip(rerun_by, row, strict=True)] for row in kept.tolist()]
    per_cycle = np.array([offer.price_usd / offer.cycle_s for offer in offers])
    another_boot = (per_cycle * np.array(lag) / 1e6)[:, None]
    where_usd = np.where(able, lease_usd, np.inf)
    cheapest, cores = where_usd.argmin(axis=0), np.array([offer.cores for offer in offers])
    together = np.minimum(cores[:, None], cores[cheapest][None, :])
    share = np.minimum(1.0, np.asarray(width)[None, :] / np.maximum(1, together))
    loss_usd = np.where(fits, chance * (where_usd.min(axis=0) * share + another_boot), 0.0)
    return Exposure(chance, rerun_by, due, loss_usd.tolist(), True)


def without_failures(exposure: Exposure, offers: Sequence[Offer]) -> Exposure:
    """The same with no time reserved on on-demand machines: for deadlines that leave none."""
    never = [NEVER] * len(exposure.rerun_by)
    due = [row if offer.market == SPOT else never for offer, row in zip(offers, exposure.due, strict=True)]
    return Exposure(exposure.chance, exposure.rerun_by, due, exposure.loss_usd, exposure.matters)


def chance_of_any(chances: Sequence[float]) -> float:
    """The chance that at least one of several independent losses happens."""
    return 0.0 - math.expm1(math.fsum(math.log1p(-min(chance, 1 - 1e-12)) for chance in chances))
