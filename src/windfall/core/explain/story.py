"""The story of a task: every attempt, told from the records of the log. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from windfall.core.decisions import (
    VERDICT_NAMES,
    WHY_NAMES,
    HostAnswered,
    MachineSettled,
    PlanTaken,
    ResultsJudged,
    SiteSettled,
    TasksChosen,
    TimeJudged,
)
from windfall.core.events import HostsEnded, MachineEnded, ResultsReported
from windfall.core.records import Record
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.renting.fleet import FAILED, RELEASED, TAKEN
from windfall.core.state.state import State
from windfall.wire.messages import CAUSES

if TYPE_CHECKING:
    from windfall.api.explained import Step

ENDED_HOW = {
    RELEASED: "was given back", TAKEN: "was reclaimed by its provider", FAILED: "failed",
}  # fmt: skip


def story(state: State, records: Iterable[Record], bag: Bag, task: int) -> list[Step]:
    """Every attempt of a task: when, where, why there, why again. From the log alone."""
    told: list[Step] = []
    job = bag.number
    for record in records:
        event, decided = record.event, record.decided
        t = event.t
        if isinstance(decided, HostAnswered):
            host = state.hosts.get(decided.host)
            for piece in decided.assigned:
                if piece.job == job and piece.first <= task < piece.first + piece.count:
                    told.append(
                        {
                            "t": t, "what": "sent", "attempt": piece.attempt, "host": host.name if host else None,
                            "why": WHY_NAMES[piece.why], "deadline": piece.deadline,
                        }
                    )  # fmt: skip
            told += _lost(decided.lost, job, task, t, "its worker started anew or left")
        elif isinstance(event, ResultsReported) and isinstance(decided, ResultsJudged):
            for result, verdict in zip(event.results, decided.verdicts, strict=True):
                if result.job == job and result.task == task:
                    told.append(
                        {
                            "t": t, "what": VERDICT_NAMES[verdict], "attempt": result.attempt, "host": event.host,
                            "cause": CAUSES[result.cause], "exit_code": result.exit, "run_s": result.end - result.start,
                            "rss_bytes": result.rss_bytes,
                        }
                    )  # fmt: skip
        elif isinstance(decided, TimeJudged):
            said = "its host fell silent"
            if isinstance(event, HostsEnded):
                said = f"its worker is no more, says its pool '{event.pool}'"
            told += _lost(decided.lost, job, task, t, said)
            told += _lost(decided.expired, job, task, t, "its deadline passed")
        elif isinstance(event, MachineEnded) and isinstance(decided, MachineSettled):
            why = f"its machine m{event.machine} {ENDED_HOW.get(decided.cause or event.cause, 'ended')}"
            told += _lost(decided.lost, job, task, t, why)
        elif isinstance(decided, SiteSettled):
            told += _lost(decided.lost, job, task, t, "its instance at a site was evicted or ended")
        elif isinstance(decided, PlanTaken):
            told += _lost(decided.moved, job, task, t, "its machine hibernates, and the plan moved it elsewhere")
        elif isinstance(decided, TasksChosen) and getattr(event, "job", None) == job and task in decided.tasks:
            told.append({"t": t, "what": type(event).__name__, "reason": getattr(event, "reason", "")})
    return told


def _lost(losses: list[tuple[int, int, int, int]], job: int, task: int, t: float, why: str) -> list[Step]:
    return [
        {"t": t, "what": "given up", "attempt": number, "why": why, "then": VERDICT_NAMES[verdict]}
        for lost_job, lost_task, number, verdict in losses
        if lost_job == job and lost_task == task
    ]
