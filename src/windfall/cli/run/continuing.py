"""Which job a command continues: an unfinished one of the same words, one with lines appended since, or a new one.

Touches the server; tells the terminal what was decided.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

import msgspec

from windfall.api.answers import JobStatus
from windfall.bags.chunks import behind, digest
from windfall.bags.submission import Submission
from windfall.cli.show.output import note, plural
from windfall.client import Client, Job
from windfall.client.submitting.sending import append_chunks
from windfall.errors import BadInput

Json = dict[str, Any]
Send = Callable[[Client, Submission], Job]
_UNFINISHED = ("running", "paused", "open")
_GROWING = ("lines", "rows")
"""Sources whose lists may grow: a list and a CSV file."""


def submitted(client: Client, bag: Submission, send: Send, place_words: str = "") -> Job:
    """The job of this bag: an unfinished one of the same command, or a new one."""
    alike, same = _hash(bag.identity, bag), _hash(bag.fingerprint, bag)
    changed: list[JobStatus] = []
    akin: list[JobStatus] = []
    for status in [status for state in _UNFINISHED for status in client.jobs(state)]:
        if status["name"] != bag.spec.name:
            continue
        spec = client.job(status["job"]).spec()
        key = spec.get("key", "")
        if key.startswith(f"run-{alike}-{same}-"):
            _say_going_on(status, bag.count)
            return send(client, _with_key(bag, key))
        if bag.identity and key.startswith(f"run-{alike}-") and status["state"] != "open":
            changed.append(status)
        elif key.startswith("run-") and spec.get("command") == bag.spec.command:
            akin.append(status)
    for status in changed:
        job = client.job(status["job"])
        if extends(job, bag, status["tasks"]["total"]):
            _say_going_on(status, bag.count)
            append(job, bag, status["tasks"]["total"])
            return job
    for status in [*changed, *akin][:1]:
        _say_other(status, "tasks" if changed else "options or tasks", place_words)
    return send(client, _with_key(bag, f"run-{alike}-{same}-{os.urandom(6).hex()}"))


def resumed(client: Client, reference: str, bag: Submission) -> Job:
    """The job that is named, with the tasks appended that its list has gained since."""
    job = client.job(reference)
    status, spec = job.status(), job.spec()
    where = f"job {job.id} '{job.name}'"
    if bag.spec.source.kind not in _GROWING or bag.shape is not None:
        raise BadInput("--resume appends the new lines of a list or a CSV file, nothing else",
                       hint=f"try: windfall run --resume {reference}")  # fmt: skip
    if spec.get("command", []) != bag.spec.command:
        raise BadInput(f"the command is not that of {where}", hint="leave --resume out to start a new job")
    if not extends(job, bag, status["tasks"]["total"]):
        raise BadInput(
            f"the first {plural(status['tasks']['total'], 'task')} are not those of {where}",
            hint="only lines behind them can be added; leave --resume out to start a new job",
        )
    _say_going_on(status, bag.count)
    append(job, bag, status["tasks"]["total"])
    return job


def extends(job: Job, bag: Submission, tasks: int) -> bool:
    """Are the first tasks of a bag those that a job has? Both are compared by their hash."""
    if bag.spec.source.kind not in _GROWING or bag.shape is not None or not 0 < tasks <= bag.count:
        return False
    return job.parameters_digest(tasks) == digest(bag.chunks, tasks)


def append(job: Job, bag: Submission, tasks: int) -> None:
    """Add what stands behind the first `tasks` of a bag to a job."""
    if bag.count > tasks:
        append_chunks(job.transport, job.id, behind(bag.chunks, tasks))
        note(f"{plural(bag.count - tasks, 'task')} appended to job {job.id}: it has {bag.count:,} now")


def _hash(text: str, bag: Submission) -> str:
    return hashlib.sha256(f"{text} {bag.spec.cwd} {bag.spec.task_cwd}".encode()).hexdigest()[:24]


def _with_key(bag: Submission, key: str) -> Submission:
    bag.spec = msgspec.structs.replace(bag.spec, key=key)
    return bag


def _say_other(status: JobStatus, what: str, place_words: str) -> None:
    """Why an unfinished job of the same command is not continued."""
    ended = status["tasks"]["done"] + status["tasks"]["failed"]
    note(
        f"the {what} have changed since job {status['job']} was stopped ({ended:,} of"
        f" {status['tasks']['total']:,} had ended): this is a new job"
    )
    note(f"  continue the old one: windfall run --resume {status['job']}{place_words}")


def _say_going_on(status: JobStatus, total: int) -> None:
    ended = status["tasks"]["done"] + status["tasks"]["failed"]
    note(f"going on with job {status['job']} '{status['name']}': {ended:,} of {total:,} tasks have ended")
