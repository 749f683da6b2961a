"""`run --changed` of a workflow: which of its tasks are new, or have changed since they were done. Touches the server.

A task is done if an earlier job of the same name has done one of the same name with the same command, variables and
standard input, on files of the same content, and if all tasks before it are done, too. Whatever comes after a task that
runs again runs again.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from windfall.bags.chunks import decode
from windfall.bags.params import from_tasks
from windfall.bags.rendering import Made, Rendered, Renderer, Rows, named_files
from windfall.bags.spec import InputFile, TaskRow
from windfall.bags.submission import Submission
from windfall.client import Client, Job
from windfall.errors import BadInput
from windfall.graph import from_edges

Json = dict[str, Any]


class DoneTask(Struct, frozen=True):
    """A task as an earlier job has done it: what it ran, and the files that it made, by name."""

    job: int
    ran: Json
    made: dict[str, list[Any]]


def without_done(client: Client, bag: Submission, earlier: list[Job]) -> tuple[Submission | None, set[int]]:
    """The workflow without the tasks that are done, None if all are; and the jobs that have done them."""
    if bag.spec.cwd is not None:
        raise BadInput(
            "--changed does not go with --cwd: what tasks read there is not known",
            hint="declare inputs and outputs in the workflow and leave --cwd out",
        )
    assert bag.shape is not None
    before = _done_by_name(earlier)
    done: dict[int, DoneTask] = {}
    renderer = _renderer(bag, done)
    there = _Kept(client)
    for task in bag.shape.order():
        found = before.get(renderer.name(task) or "")
        if found is None or any(parent not in done for parent in bag.shape.parents_of(task)):
            continue
        if _comparable(renderer.task(task)) == found.ran and all(there(row[1]) for row in found.made.values()):
            done[task] = found
    left = [task for task in range(bag.count) if task not in done]
    jobs = {found.job for found in done.values()}
    return (_reduced(bag, left, done) if left and done else bag if left else None), jobs


class _Kept:
    """Whether the server still has a file, asked once for each."""

    def __init__(self, client: Client) -> None:
        self._client, self._known = client, dict[str, bool]()

    def __call__(self, sha256: str) -> bool:
        if sha256 not in self._known:
            self._known[sha256] = self._client.transport.exists(f"/v1/blobs/{sha256}")
        return self._known[sha256]


def _done_by_name(earlier: list[Job]) -> dict[str, DoneTask]:
    """The newest time that each task was done."""
    found: dict[str, DoneTask] = {}
    for job in earlier:
        for task in job.results():
            if task.ok and task.name and task.name not in found:
                made = {row[0]: row for row in task.outputs}
                found[task.name] = DoneTask(job.id, _rendered(job.render(task.task)), made)
    return found


def _comparable(task: Rendered) -> Json:
    return _rendered({"argv": task.argv, "stdin": task.payload.decode(), "overrides": task.overrides})


def _rendered(shown: Mapping[str, Any]) -> Json:
    """What decides whether two tasks do the same: not how much memory or time they may use."""
    own = shown["overrides"] or {}
    return {
        "argv": shown["argv"],
        "stdin": shown["stdin"],
        "env": own.get("env"),
        "cwd": own.get("cwd"),
        "outputs": sorted(own.get("outputs") or ()),
        "inputs": sorted([row[0], row[1], row[3]] for row in own.get("inputs") or ()),
    }


def _renderer(bag: Submission, done: Mapping[int, DoneTask]) -> Renderer:
    """Renders tasks whose makers are all done with the files that they made then."""
    data = {chunk.first: chunk.data for chunk in bag.chunks}

    def made(tasks: list[int]) -> Made:
        return {task: done[task].made for task in tasks if task in done}

    return Renderer(bag.spec, Rows(bag.chunks, data.__getitem__), made)


def _reduced(bag: Submission, left: list[int], done: Mapping[int, DoneTask]) -> Submission:
    """The workflow of the tasks that are left; files of tasks that are done come along as inputs."""
    assert bag.shape is not None
    number = {old: new for new, old in enumerate(left)}
    rows, classes = _rows_of(bag)
    parameters = from_tasks(((_relinked(rows[task], number, done), classes[task]) for task in left), bag.spec.name)
    edges = ((number[task], number[child]) for task in left for child in bag.shape.children_of(task))
    shape = from_edges(len(left), edges)
    seconds = array("f")
    seconds.frombytes(bag.estimates)
    estimates = array("f", [seconds[task] for task in left]).tobytes() if seconds else b""
    digest = json.dumps([bag.fingerprint, left, parameters.digest]).encode()
    return msgspec.structs.replace(
        bag, count=len(left), chunks=parameters.chunks, shape=shape, estimates=estimates,
        fingerprint=hashlib.sha256(digest).hexdigest(), identity="",
    )  # fmt: skip


def _rows_of(bag: Submission) -> tuple[list[TaskRow], list[int]]:
    rows: list[TaskRow] = []
    classes: list[int] = []
    for chunk in bag.chunks:
        rows += cast("Sequence[TaskRow]", decode(chunk.codec, chunk.data, chunk.count))
        classes += [chunk.klass] * chunk.count
    return rows, classes


def _relinked(row: TaskRow, number: Mapping[int, int], done: Mapping[int, DoneTask]) -> TaskRow:
    """The row with its makers by their new numbers, and with the files of those that are done."""
    if not row.takes:
        return row
    takes = [(name, number[maker] if maker >= 0 else maker) for name, maker in row.takes if maker not in done]
    taken = [file for name, maker in row.takes if maker in done for file in named_files(done[maker].made, name)]
    inputs = [*(row.inputs or ()), *(InputFile(*file) for file in {file[0]: file for file in taken}.values())]
    return msgspec.structs.replace(row, takes=takes or None, inputs=inputs or None)
