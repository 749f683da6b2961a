"""How long the tasks of a planned bag take: as its file or the command line says, or as those of an earlier job took.

Touches the server, for an earlier job.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import TYPE_CHECKING

from windfall.bags.submission import Submission
from windfall.bounds import MAX_SPREAD
from windfall.cli.show.output import plural
from windfall.errors import BadInput
from windfall.units import show_duration

if TYPE_CHECKING:
    from windfall.cli.plan.bag import Asked


def class_numbers(bag: Submission) -> Iterator[int]:
    """The class of every task, in their order; a range has no chunks."""
    if not bag.chunks:
        yield from (0 for _ in range(bag.count))
    for chunk in bag.chunks:
        yield from (chunk.klass for _ in range(chunk.count))


def run_times(asked: Asked, bag: Submission, assumed: list[str]) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """What each task is expected to take, what was seen of an earlier job, and how unequal they are."""
    from windfall.planning.estimates import GUESSED
    from windfall.sim.studies.forecast import SPREADS

    if asked.like:
        seen_s = _seen_before(asked, asked.like)
        assumed.append(
            f"run times as those of job {asked.like}: "
            f"{plural(len(seen_s), 'task')}, {show_duration(fmean(seen_s))} on average"
        )
        return (fmean(seen_s),) * bag.count, seen_s, 0.0
    estimates = [klass.estimate_s for klass in bag.spec.task_classes()]
    by_task = [estimates[number] for number in class_numbers(bag)]
    if any(estimate is None for estimate in by_task):
        raise BadInput(
            f"{asked.job} does not say how long a task takes",
            hint="try: --estimate 5m (a guess will do), or --like JOB (as an earlier one took)",
        )
    known = spread_of(asked, bag)
    spread = GUESSED.spread if known is None else known
    if known is None:
        assumed.append(
            f"run times vary by an unknown spread, from 0 to {spread * max(SPREADS):.1g}: log-normal   "
            "(known: --spread, --like JOB)"
        )
    if spread and len(set(by_task)) > 1:
        assumed.append("planners trust estimates that differ from task to task as if they had been measured")
    return tuple(float(estimate or 0.0) for estimate in by_task), (), spread


def spread_of(asked: Asked, bag: Submission) -> float | None:
    """How much run times vary, as the command line or the job file says; None: neither does."""
    return bag.spec.spread if asked.spread is None else checked_spread(asked.spread)


def checked_spread(spread: float) -> float:
    """What `--spread` says, if it can be."""
    if not 0 <= spread <= MAX_SPREAD:
        what = "is below zero" if spread < 0 else f"is no number from 0 to {MAX_SPREAD:g}"
        raise BadInput(f"--spread {spread:g} {what}", hint="as in: --spread 0.3; 0 says that estimates are exact")
    return spread


def _seen_before(asked: Asked, reference: str) -> tuple[float, ...]:
    with asked.place.open() as client:
        job = client.job(reference)
        rows = job.tasks("done")
        seen_s = tuple(row["end_s"] - row["start_s"] for row in rows if row["end_s"] is not None)
    if not seen_s:
        raise BadInput(f"nothing of job {reference} is done: its run times are not known", hint="try: --estimate 5m")
    return tuple(max(1e-3, seconds) for seconds in seen_s)
