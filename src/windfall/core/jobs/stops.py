"""Which jobs are given up because too many of their tasks failed. Pure: looks and chooses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from windfall.core.decisions import FAILED_FOR_GOOD, LOST_FOR_GOOD, Stop
from windfall.core.events import JobRules
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.causes import Loss
from windfall.core.state.jobs.columns import FAILED
from windfall.core.state.state import State


def after(state: State, verdicts: Iterable[tuple[int, int]]) -> list[Stop]:
    """Jobs to stop once these verdicts, each with its job, are carried out."""
    failed = Counter(job for job, verdict in verdicts if verdict in (FAILED_FOR_GOOD, LOST_FOR_GOOD))
    found = (with_failures(bag, bag.rules, count) for job, count in failed.items() if (bag := state.bags.get(job)))
    return [stop for stops in found for stop in stops]


def after_losses(state: State, losses: Sequence[Loss]) -> list[Stop]:
    for loss in losses:
        if loss[3] == LOST_FOR_GOOD:
            return after(state, [(job, verdict) for job, _, _, verdict in losses])
    return []


def with_failures(bag: Bag, rules: JobRules, more: int, stopped: str | None = None) -> list[Stop]:
    """The job itself if `more` failed tasks bring it over what these rules allow."""
    limit = rules.max_failed_tasks
    was_stopped = bag.stopped if stopped is None else stopped
    if limit is None or was_stopped or bag.counts[FAILED] + more <= limit:
        return []
    return [(bag.number, f"more than {limit} tasks failed")]
