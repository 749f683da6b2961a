"""`run --changed`: which tasks of a bag are new, or have changed since they were done. Touches the server and files.

A task is done if an earlier job of the same command, files and variables has done one with the same parameters, and no
file that its command or parameters name is newer than that result.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from windfall.bags.chunks import Chunker, decode
from windfall.bags.rendering import Renderer, Rows
from windfall.bags.spec import JobSpec, Source
from windfall.bags.submission import Submission
from windfall.bags.template import BRACES
from windfall.cli.show.output import note, plural
from windfall.client import Client, Job
from windfall.errors import BadInput

Json = dict[str, Any]
_KINDS = ("lines", "rows", "range")
_SAME = ("command", "env", "task_env", "cwd", "task_cwd", "stdin", "inputs", "outputs", "python", "image")
"""Fields of a specification that say what a task does."""
_MOST_JOBS = 20
"""The newest jobs of the same name that are looked at."""


def only_changed(client: Client, bag: Submission) -> tuple[Submission | None, int | None]:
    """The bag without the tasks that are done, None if all are; and the newest job that has done one of them."""
    if bag.shape is not None:
        from windfall.cli.run.changed_workflow import without_done

        return _told(bag, *without_done(client, bag, _alike(client, bag)))
    if bag.spec.source.kind not in _KINDS:
        raise BadInput(
            "--changed goes with a list, a CSV file, a range or a workflow file",
            hint="leave it out to run every task",
        )
    if any(match[2] == "#" for text in _templates(bag.spec) for match in BRACES.finditer(text)):
        raise BadInput(
            "--changed does not go with {#}: tasks that are left out would change the numbers of the others",
            hint="use a parameter in its place, or leave --changed out",
        )
    done = _done(client, bag)
    here = _newest_s(bag.spec.cwd, [word for word in bag.spec.command if not BRACES.search(word)])
    items, renderer = _items(bag), _renderer(bag)
    left, jobs = [], set[int]()
    for index, item in enumerate(items):
        command, parameters = _shown(renderer, index)
        end_s, job = done.get(_key(command, parameters), (-2.0, 0))
        if max(here, _newest_s(bag.spec.cwd, _words(command, parameters))) > end_s:
            left.append(item)
        else:
            jobs.add(job)
    return _told(bag, _with_items(bag, left) if left else None, jobs)


def _told(bag: Submission, left: Submission | None, jobs: set[int]) -> tuple[Submission | None, int | None]:
    """What is left to run, after saying whose results stand for the rest."""
    if not jobs:
        return bag, None
    several = ", ".join(map(str, sorted(jobs)))
    done = bag.count - (left.count if left else 0)
    note(
        f"{done:,} of {plural(bag.count, 'task')} done before and unchanged: not run again; their"
        f" results are those of job{'s' * (len(jobs) > 1)} {several}"
    )
    return left, max(jobs)


def _templates(spec: JobSpec) -> list[str]:
    return [*spec.command, *spec.outputs, *spec.task_env.values(), spec.stdin or "", spec.task_cwd or ""]


def _done(client: Client, bag: Submission) -> dict[str, tuple[float, int]]:
    """When each task was done last and by which job, by what the task is."""
    found: dict[str, tuple[float, int]] = {}
    for job in _alike(client, bag):
        ends = {row["task"]: row["end_s"] for row in job.tasks("done") if row["end_s"] is not None}
        for task, command, parameters in job.commands() if ends else ():
            if task in ends:
                found.setdefault(_key(command, parameters), (ends[task], job.id))
    return found


def _alike(client: Client, bag: Submission) -> list[Job]:
    """Earlier jobs of the same name that do the same to their parameters or tasks, the newest first."""
    wanted = _what_it_does(msgspec.to_builtins(bag.spec))
    named = [row["job"] for row in client.jobs() if row["name"] == bag.spec.name][:_MOST_JOBS]
    return [job for job in map(client.job, named) if _what_it_does(job.spec()) == wanted]


def _what_it_does(spec: Json) -> Json:
    return {field: spec.get(field) for field in _SAME if spec.get(field)}


def _key(command: str, parameters: Any) -> str:
    return json.dumps([command, parameters], sort_keys=True)


def _shown(renderer: Renderer, index: int) -> tuple[str, Any]:
    """Command and parameters as the server shows them (`GET /v1/jobs/JOB/commands`)."""
    parameters = renderer.parameters(index)
    if isinstance(parameters, str) and not renderer.spec.command:
        return parameters, None
    return shlex.join(renderer.task(index).argv or ()), parameters


def _words(command: str, parameters: Any) -> list[str]:
    if parameters is None:
        return command.split()
    return [parameters] if isinstance(parameters, str) else list(parameters.values())


def _newest_s(cwd: str | None, words: Iterable[str]) -> float:
    """When the newest of the files that these words name was changed; -1.0 if they name none."""
    found = -1.0
    for word in words:
        path = os.path.join(cwd or "", word)  # noqa: PTH118
        if word and len(word) < 4096 and "\0" not in word and Path(path).is_file():
            found = max(found, Path(path).stat().st_mtime)
    return found


def _renderer(bag: Submission) -> Renderer:
    data = {chunk.first: chunk.data for chunk in bag.chunks}
    return Renderer(bag.spec, Rows(bag.chunks, data.__getitem__))


def _items(bag: Submission) -> Sequence[Any]:
    if bag.spec.source.kind == "range":
        renderer = _renderer(bag)
        return [renderer.parameters(index) for index in range(bag.count)]
    return [item for chunk in bag.chunks for item in decode(chunk.codec, chunk.data, chunk.count)]


def _with_items(bag: Submission, items: Sequence[Any]) -> Submission:
    """The same bag with these lines or rows; what is left of a range is a list."""
    source = Source() if bag.spec.source.kind == "range" else bag.spec.source
    chunker = Chunker(source.kind)
    for item in items:
        chunker.add([item], len(item) if isinstance(item, str) else sum(map(len, item)))
    spec = msgspec.structs.replace(bag.spec, source=source)
    fingerprint = hashlib.sha256(json.dumps([bag.fingerprint, items]).encode()).hexdigest()
    # It is compared with no other job: what an interrupted one has done is left out, and the rest is this one's.
    return msgspec.structs.replace(
        bag, spec=spec, count=len(items), chunks=chunker.finish(), fingerprint=fingerprint, identity=""
    )
