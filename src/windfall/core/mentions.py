"""Which jobs a record of the log mentions, so that the story of one job can be found without reading all. Pure."""

from __future__ import annotations

from windfall.core.decisions import HostAnswered, JobTaken
from windfall.core.events import HostAsked, ResultsReported
from windfall.core.records import Record

SEVERAL_JOBS = 0
"""Stands in the log's column of jobs for a record that mentions more than one; no job has this number."""


def mentioned_jobs(record: Record) -> set[int]:
    """The job that a record is about, or those of which tasks are sent, reported, cancelled or lost by it."""
    about = _about(record)
    return _in_passing(record) if about is None else {about}


def job_column(record: Record) -> int | None:
    """What the log's column of jobs says of a record.

    N: it is about job N. -N: it mentions job N alone (the store has no index of these: there are too many of them).
    SEVERAL_JOBS: it mentions more than one. None: it mentions none, or an older version wrote it.
    """
    event, decided = record.event, record.decided
    # Nearly all records of a busy server: one result, or one task.
    if type(event) is ResultsReported:
        if len(event.results) == 1:
            return -event.results[0].job
    elif type(decided) is HostAnswered:
        assigned = decided.assigned
        if len(assigned) == 1 and not (decided.lost or decided.cancel or decided.tails):
            return -assigned[0].job
    about = None if isinstance(event, HostAsked) else _about(record)
    if about is not None:
        return about
    found = _in_passing(record)
    if len(found) > 1:
        return SEVERAL_JOBS
    return -found.pop() if found else None


def shown_job(column: int | None) -> int | None:
    """The job that the column names, if it names one."""
    return abs(column) or None if column is not None else None


def _about(record: Record) -> int | None:
    decided = record.decided
    job: int | None = decided.job if isinstance(decided, JobTaken) else getattr(record.event, "job", None)
    return job


def _in_passing(record: Record) -> set[int]:
    event, decided = record.event, record.decided
    if isinstance(event, ResultsReported):
        return {result.job for result in event.results}
    if isinstance(decided, HostAnswered):
        found = {piece.job for piece in decided.assigned}
        if decided.lost or decided.cancel or decided.tails:
            found.update(key[0] for keys in (decided.lost, decided.cancel, decided.tails) for key in keys)
        return found
    return {key[0] for name in ("lost", "expired") for key in getattr(decided, name, ())}
