"""What deadlines and confidences cost beside each other, and the nearest deadline that can be promised. Pure.

The plan for an earlier deadline, or for a higher confidence, is a plan for a later deadline or a lower confidence. So a
row whose own plan costs more takes the runs of that other plan, and a front never rises with the deadline, nor falls
with the confidence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from windfall.sim.studies.forecast import Forecast, Run

MOST_TRIES = 6
"""Deadlines that are simulated in search of one that can be promised."""
LATER = 1.02
"""Each is at least this much later than the one before."""


class Variant(Struct, frozen=True):
    """What a plan was asked to do."""

    deadline_s: float
    confidence: float

    def is_plan_for(self, other: Variant) -> bool:
        return self.deadline_s <= other.deadline_s and self.confidence >= other.confidence


class Row(Struct, frozen=True):
    """A variant, its runs (None where it is impossible), and the variant whose plan they follow."""

    variant: Variant
    made: Forecast | None
    planned_for: Variant


def front(found: Mapping[Variant, Forecast | None]) -> list[Row]:
    """A row for each variant, by the runs of the seeds that all possible variants have in common.

    A row takes the plan of another variant if that is a plan for it, costs less, and is in time as often as asked or
    as often as the row's own plan.
    """
    seeds = [{run.seed for run in made.runs} for made in found.values() if made is not None]
    common = set.intersection(*seeds) if seeds else set()
    runs = {
        variant: [run for run in made.runs if run.seed in common] for variant, made in found.items() if made is not None
    }
    return [_row(variant, runs) for variant in found]


def _row(variant: Variant, runs: Mapping[Variant, Sequence[Run]]) -> Row:
    if variant not in runs:
        return Row(variant, None, variant)
    able = {plan: judged(done, variant.deadline_s) for plan, done in runs.items() if plan.is_plan_for(variant)}
    own = able[variant]
    needed = min(own.met, variant.confidence * len(own.runs))
    best = min(
        (plan for plan, made in able.items() if made.met >= needed),
        key=lambda plan: (round(able[plan].cost_usd.mean, 9), plan != variant, -plan.deadline_s, plan.confidence),
    )
    return Row(variant, able[best], best)


def judged(runs: Sequence[Run], deadline_s: float) -> Forecast:
    """The same runs under another deadline."""
    return Forecast(
        deadline_s,
        tuple(replace(run, met=run.finish_s is not None and run.finish_s <= deadline_s) for run in runs),
    )


def nearest_promised(
    made: Forecast, confidence: float, simulated: Callable[[float], Forecast | None]
) -> Forecast | None:
    """The runs under the nearest deadline found that is kept as often as asked; None if none was found.

    `made` misses its deadline too often. Its own runs say by when enough of them were done; the planner, given that
    deadline, is simulated again (`simulated`; None: no more), because it may then begin later.
    """
    for _ in range(MOST_TRIES):
        ends_s = sorted(run.finish_s for run in made.runs if run.finish_s is not None)
        needed = max(1, ceil(confidence * len(made.runs) - 1e-9))
        if len(ends_s) < needed:
            return None
        # Whole seconds, as a deadline is typed.
        later = simulated(float(ceil(max(ends_s[needed - 1], made.deadline_s * LATER))))
        if later is None:
            return None
        if later.met >= confidence * len(later.runs):
            return later
        made = later
    return None
