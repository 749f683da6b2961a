"""What deadlines and confidences cost beside each other, and what keeps a deadline that is missed too often. Pure.

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
SURER = (0.99, 0.999)
"""Confidences that are simulated in search of a plan that keeps the deadline as often as asked."""


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
    """A row for each variant, by all of its runs; by those of the seeds that all have in common where rows of many and
    of few runs would contradict each other.

    A row takes the plan of another variant if that is a plan for it, costs less, and is in time as often as asked or
    as often as the row's own plan; both are compared by the seeds that they have in common.
    """
    rows = _rows({variant: made.runs for variant, made in found.items() if made is not None}, found)
    if not _contradictions(rows):
        return rows
    seeds = [{run.seed for run in made.runs} for made in found.values() if made is not None]
    common = set.intersection(*seeds)
    few = {v: [run for run in made.runs if run.seed in common] for v, made in found.items() if made is not None}
    return _rows(few, found)


def too_few_runs(found: Mapping[Variant, Forecast | None]) -> list[Variant]:
    """The variants that need as many runs as another one, because their rows contradict each other."""
    wanted = []
    for one, other in _contradictions(_rows({v: made.runs for v, made in found.items() if made is not None}, found)):
        fewer = min((one, other), key=lambda variant: len(_runs_of(found, variant)))
        if len(_runs_of(found, fewer)) < max(len(_runs_of(found, one)), len(_runs_of(found, other))):
            wanted.append(fewer)
    return list(dict.fromkeys(wanted))


def _runs_of(found: Mapping[Variant, Forecast | None], variant: Variant) -> tuple[Run, ...]:
    made = found[variant]
    return () if made is None else made.runs


def _contradictions(rows: Sequence[Row]) -> list[tuple[Variant, Variant]]:
    """Plans of two rows, where the first row asks for more than the second and costs less."""
    shown = [(row.variant, row.planned_for, row.made.cost_usd.mean) for row in rows if row.made is not None]
    return [
        (plan, other_plan)
        for variant, plan, cost_usd in shown
        for other, other_plan, other_usd in shown
        if variant != other and variant.is_plan_for(other) and cost_usd < other_usd - 1e-9
    ]


def _rows(runs: Mapping[Variant, Sequence[Run]], found: Mapping[Variant, Forecast | None]) -> list[Row]:
    return [_row(variant, runs) for variant in found]


def _row(variant: Variant, runs: Mapping[Variant, Sequence[Run]]) -> Row:
    if variant not in runs:
        return Row(variant, None, variant)
    best, least = variant, (0.0, 0.0, 0.0)
    for plan, done in runs.items():
        if plan == variant or not plan.is_plan_for(variant):
            continue
        seeds = {run.seed for run in done} & {run.seed for run in runs[variant]}
        own, made = (
            judged([run for run in each if run.seed in seeds], variant.deadline_s) for each in (runs[variant], done)
        )
        if not seeds or made.met < min(own.met, variant.confidence * len(own.runs)):
            continue
        order = (round(made.cost_usd.mean - own.cost_usd.mean, 9), -plan.deadline_s, plan.confidence)
        if order[0] < 0.0 and (best == variant or order < least):
            best, least = plan, order
    return Row(variant, judged(runs[best], variant.deadline_s), best)


def judged(runs: Sequence[Run], deadline_s: float) -> Forecast:
    """The same runs under another deadline."""
    return Forecast(
        deadline_s,
        tuple(replace(run, met=run.finish_s is not None and run.finish_s <= deadline_s) for run in runs),
    )


def surer_plan(
    made: Forecast, confidence: float, simulated: Callable[[float], Forecast | None]
) -> tuple[float, Forecast] | None:
    """The lowest confidence of `SURER` whose plan keeps the deadline of `made` as often as `confidence` asks for, and
    its runs; None if none does.

    `made` is planned for `confidence` and keeps its deadline less often, because the runs meet what no plan expects.
    """
    for higher in SURER:
        if higher <= confidence:
            continue
        surer = simulated(higher)
        if surer is None:
            return None
        if surer.met >= confidence * len(surer.runs):
            return higher, surer
    return None


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
