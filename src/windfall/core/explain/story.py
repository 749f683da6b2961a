"""The story of a task: every attempt, told from the records of the log. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from windfall.core.decisions import (
    SECOND_ATTEMPT,
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
from windfall.core.events import HostsEnded, MachineEnded, PlanProposed, ResultsReported
from windfall.core.records import Record
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.renting.fleet import FAILED, RELEASED, TAKEN, machine_of
from windfall.core.state.renting.fleets import named
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
    job, beside = bag.number, 0
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
                            "why": _why(state, told, piece.why), "deadline": piece.deadline,
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
        elif isinstance(event, PlanProposed) and isinstance(decided, PlanTaken):
            free = _free_hosts(state, told)
            why = "its machine hibernates, and the plan moved it elsewhere"
            told += _lost(decided.moved, job, task, t, f"{free} took too long for the plan" if free else why)
            name = named(event.job, job, task)
            machine = next((number for number, names in decided.beside if name in names), 0)
            if machine and machine != beside:
                reason = (
                    f"on machine m{machine}, because {free or 'its host'} might be too late; it goes on there as well"
                )
                told.append({"t": t, "what": "second attempt planned", "reason": reason})
                beside = machine
        elif isinstance(decided, TasksChosen) and getattr(event, "job", None) == job and task in decided.tasks:
            told.append({"t": t, "what": type(event).__name__, "reason": getattr(event, "reason", "")})
    return told


def _free_hosts(state: State, told: list[Step]) -> str:
    """The free hosts on which attempts run that were told of, in words."""
    out: dict[int, str] = {}
    for step in told:
        if step["what"] == "sent":
            out[step["attempt"]] = step["host"] or ""
        elif "attempt" in step:
            out.pop(step["attempt"], None)
    hosts = ((name, state.hosts.by_name.get(name)) for name in out.values())
    free = dict.fromkeys(name for name, host in hosts if host is not None and machine_of(state, host) is None)
    return " and ".join(f"free host {name}" for name in free)


def _why(state: State, told: list[Step], why: int) -> str:
    free = _free_hosts(state, told) if why == SECOND_ATTEMPT else ""
    return f"second attempt: {free} might be too late" if free else WHY_NAMES[why]


def _lost(losses: list[tuple[int, int, int, int]], job: int, task: int, t: float, why: str) -> list[Step]:
    return [
        {"t": t, "what": "given up", "attempt": number, "why": why, "then": VERDICT_NAMES[verdict]}
        for lost_job, lost_task, number, verdict in losses
        if lost_job == job and lost_task == task
    ]
