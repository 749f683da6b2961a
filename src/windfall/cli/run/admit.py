"""Whether a fleet would keep the deadline of a job, before it is submitted. Touches the server and the terminal."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING

from windfall.bags.submission import Submission
from windfall.cli.show.output import note
from windfall.client import Client
from windfall.errors import Missed
from windfall.planning.offers import GIB
from windfall.units import show_duration, show_usd

if TYPE_CHECKING:
    from windfall.planning.fleet.admission import NewJob, Verdict

MOST_TASKS = 5_000
"""Larger jobs are not laid out before they are sent."""


def check_fleet(client: Client, bag: Submission, reject: bool, accept_late: bool) -> None:
    """Say that the deadline of a job in a fleet would not be kept, and what would help; with `reject`, raise Missed.

    Only of a job with estimates. With `accept_late` nothing is said.
    """
    if not bag.spec.fleet or bag.spec.deadline_s is None or accept_late or bag.count > MOST_TASKS:
        return
    seconds = _seconds(bag)
    if seconds is None:
        return
    import msgspec

    from windfall.planning.contract import Snapshot
    from windfall.planning.fleet.admission import judge

    snapshot = msgspec.msgpack.decode(client.fleet_snapshot(bag.spec.fleet), type=Snapshot)
    verdict = judge(snapshot, _new_job(bag, seconds))
    lines = in_words(verdict, bag.spec.fleet, bag.spec.deadline_s)
    if not lines:
        return
    if reject:
        raise Missed(f"{lines[0]}; nothing was submitted", hint="; ".join([*lines[1:], "or --accept-late"]))
    for line in lines:
        note(line)


def in_words(verdict: Verdict, fleet: str, deadline_s: float) -> list[str]:
    """Nothing if the deadline is kept within the budget; else what is wrong, and what would help."""
    if verdict.fits_nowhere:
        return [f"fleet '{fleet}' rents no machine on which all tasks fit", "try: fewer --cpus, or less --memory"]
    if not verdict.met or verdict.late_others:
        said = [f"fleet '{fleet}' would not keep a deadline {show_duration(deadline_s)} from now beside its other jobs"]
        if verdict.met:
            said = [f"fleet '{fleet}' would be late with {len(verdict.late_others)} of its other jobs"]
        if verdict.earliest_s is not None:
            said.append(f"the earliest deadline that it would keep is {show_duration(verdict.earliest_s)} from now")
        if verdict.without_limits is not None:
            more = show_usd(verdict.without_limits.extra_usd)
            said.append(f"with larger limits of its offers it would be kept, for {more} more")
        return said
    if verdict.over_budget_usd > 0:
        over = show_usd(verdict.over_budget_usd)
        return [f"the budget of fleet '{fleet}' does not suffice for this period: {over} are missing"]
    return []


def _seconds(bag: Submission) -> list[float] | None:
    """Estimated run times by task; None if one is not known."""
    if bag.estimates:
        return array("f", bag.estimates).tolist()
    classes = bag.spec.task_classes()
    found = [classes[klass].estimate_s for klass in _class_of(bag)]
    known = [estimate_s for estimate_s in found if estimate_s is not None]
    return known if len(known) == bag.count else None


def _class_of(bag: Submission) -> list[int]:
    """By task its class; tasks that are counted and not listed (a range) are of the first."""
    listed = [klass for chunk in bag.chunks for klass in [chunk.klass] * chunk.count]
    return listed + [0] * (bag.count - len(listed))


def _new_job(bag: Submission, seconds: list[float]) -> NewJob:
    from windfall.planning.contract import Task
    from windfall.planning.fleet.admission import NewJob

    classes = bag.spec.task_classes()
    class_of = _class_of(bag)
    tasks = []
    for place, run_s in enumerate(seconds):
        needs = classes[class_of[place]]
        memory_gb = 0.0 if needs.memory is None else needs.memory.bytes_ / GIB
        tasks.append(
            Task(place, run_s, memory_gb, needs.name, cores=max(1, math.ceil(needs.cpus)), resources=needs.resources)
        )
    after: dict[int, tuple[int, ...]] = {}
    if bag.shape is not None:
        for place, parents in enumerate(bag.shape.parent_rows()):
            if parents:
                after[place] = tuple(parents)
    return NewJob(tuple(tasks), after, float(bag.spec.deadline_s or 0.0))
