"""Workflows as they come in and are asked about: shapes, instances of a class, names of tasks. Decides nothing."""

from __future__ import annotations

import base64
import binascii
from array import array
from difflib import get_close_matches
from typing import Any

import msgspec
from starlette.requests import Request

from windfall import graph as graphs
from windfall.api.small import Classes, GraphTask, OneClass, WorkflowClass, WorkflowGraph
from windfall.bags.chunks import decompress
from windfall.bags.spec import JobSpec
from windfall.bounds import MAX_SECONDS
from windfall.core import events as ev
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import STATE_NAMES
from windfall.core.state.state import State
from windfall.errors import BadInput
from windfall.server.service import NotFound, Service

Json = dict[str, Any]
SEARCHED_NAMES = 10_000
"""A mistyped name gets the nearest one suggested in workflows of at most this many tasks."""


# --- coming in --------------------------------------------------------------------------------------------------------


def shape_of(packed: list[str] | None, spec: JobSpec, most_bytes: int) -> graphs.Graph | None:
    """The shape that was sent along, each column within `most_bytes`; None for a bag of independent tasks."""
    if packed is None:
        return None
    if spec.source.kind != "tasks" or spec.streaming or spec.like:
        raise BadInput("only a job of whole tasks that is submitted at once can be a workflow")
    if len(packed) != 2:
        raise BadInput("'shape' must be two packed columns: offsets and children")
    try:
        return graphs.unpack(*(_column(text, most_bytes) for text in packed))
    except graphs.BadGraph as error:
        raise BadInput(f"the shape of the workflow: {error}") from None


def _column(text: str, most_bytes: int) -> bytes:
    try:
        data = base64.b64decode(text)
    except (binascii.Error, TypeError, ValueError) as error:
        raise BadInput(f"the shape of the workflow cannot be decoded: {error}") from None
    return decompress(data, most_bytes, "the shape of the workflow")


def shaped(state: State, job: int, shape: graphs.Graph, now: float) -> list[ev.AnyEvent]:
    """The event that gives a job its shape; one that is known already is only named."""
    if shape.key in state.bags.shapes:
        return [ev.JobShaped(now, job, shape.key)]
    return [ev.JobShaped(now, job, shape.key, shape.offsets.tobytes(), shape.children.tobytes())]


def estimated(packed: str | None, job: int, shape: graphs.Graph, now: float, most_bytes: int) -> list[ev.AnyEvent]:
    """The event that says how long each task is thought to take, if that was sent along."""
    if packed is None:
        return []
    seconds = array("f")
    try:
        seconds.frombytes(_column(packed, most_bytes))
    except ValueError:
        seconds = array("f")
    if len(seconds) != shape.tasks or not all(0 <= value <= MAX_SECONDS for value in seconds):
        raise BadInput(f"'estimates' must be {shape.tasks} packed numbers of seconds, one a task")
    return [ev.TasksEstimated(now, job, seconds.tobytes())]


def instance(service: Service, job: int, spec: JobSpec, now: float) -> list[ev.AnyEvent]:
    """Another job with the tasks of the first of its class: nothing is sent or stored again."""
    first = service.state.bags.get(spec.like)
    if first is None or first.shape is None or not first.sealed or first.rules.like:
        raise BadInput(f"job {spec.like} is not the first of a class of workflows")
    if first.total != first.shape.tasks:
        raise BadInput(f"job {spec.like} was cancelled before all of its tasks had come", hint="submit the class anew")
    ends = [start for start, _ in first.columns.segments[1:]] + [first.total]
    events = shaped(service.state, job, first.shape, now)
    if first.progress.estimates:
        events.append(ev.TasksEstimated(now, job, first.progress.estimates.tobytes()))
    events += [
        ev.TasksAdded(now, job, end - start, klass)
        for (start, klass), end in zip(first.columns.segments, ends, strict=True)
    ]  # fmt: skip
    return events


def refuse_odd_count(bag: Bag, total: int, seal: bool) -> None:
    """A workflow has as many tasks as its shape."""
    if bag.shape is not None and (total > bag.shape.tasks or (seal and total < bag.shape.tasks)):
        raise BadInput(f"the workflow has {bag.shape.tasks} tasks by its shape, and {total} were sent")


# --- asked about ------------------------------------------------------------------------------------------------------


def name_of(service: Service, bag: Bag, task: int) -> str | None:
    """What a task of a workflow is called."""
    return service.renderer(bag.number).name(task) if bag.shape is not None else None


def numbered(service: Service, bag: Bag, name: str) -> int:
    """The number of a task by its name."""
    names = service.names(bag) if bag.shape is not None else {}
    if name in names:
        return names[name]
    near = get_close_matches(name, names, n=1) if len(names) <= SEARCHED_NAMES else []
    raise NotFound(
        f"job {bag.number} '{bag.rules.name}' has no task '{name}'",
        hint=f"did you mean '{near[0]}'?" if near else f"see them: windfall tasks {bag.number}",
        code="no-such-task",
    )


async def graph(service: Service, request: Request) -> tuple[int, WorkflowGraph]:
    """A workflow with the states of its tasks, to be drawn."""
    bag = service.bag(request.path_params["job"])
    await service.driver.settled()
    if bag.shape is None:
        raise BadInput(f"job {bag.number} '{bag.rules.name}' is no workflow: its tasks do not wait for each other")
    return 200, described(service, bag)


def described(service: Service, bag: Bag) -> WorkflowGraph:
    """A workflow and its tasks: names, states, parents."""
    assert bag.shape is not None
    renderer, columns, blocked = service.renderer(bag.number), bag.columns, service.blocked(bag)
    tasks: list[GraphTask] = [
        {
            "task": task,
            "name": renderer.name(task) or str(task),
            "state": STATE_NAMES[columns.state[task]],
            "blocked": task in blocked,
            "parents_left": bag.queues.parents_left[task],
            "parents": bag.shape.parents_of(task).tolist(),
            "start_s": columns.start[task] if columns.attempt[task] else None,
            "end_s": columns.end[task] if columns.attempt[task] else None,
        }
        for task in range(bag.total)
    ]
    return {
        "job": bag.number, "name": bag.rules.name, "state": bag.state, "class": bag.rules.workflow_class,
        "tasks": tasks,
    }  # fmt: skip


async def classes(service: Service, request: Request) -> tuple[int, Classes]:
    """The classes of workflows: what defines each, and how its jobs fare."""
    rows: dict[str, WorkflowClass] = {
        name: {"class": name, "job": job, "tasks": service.state.bags[job].total, "jobs": 0, "running": 0, "failed": 0}
        for name, job in service.classes().items()
    }
    for bag in service.state.bags.values():
        if (row := rows.get(bag.rules.workflow_class)) is not None:
            row["jobs"] += 1
            row["running"] += bag.finished_t is None
            row["failed"] += bag.state == "failed"
    return 200, {"classes": list(rows.values())}


async def one_class(service: Service, request: Request) -> tuple[int, OneClass]:
    """What a client needs to submit another job of a class."""
    first = first_of_class(service, request.path_params["name"])
    spec = msgspec.to_builtins(service.spec(first.number))
    return 200, {"class": first.rules.workflow_class, "job": first.number, "tasks": first.total, "spec": spec}


def first_of_class(service: Service, name: str) -> Bag:
    """The job that defines a class: the newest that brought its own tasks."""
    classes = service.classes()
    if name in classes:
        return service.state.bags[classes[name]]
    known = ", ".join(classes)
    raise NotFound(
        f"there is no class '{name}'",
        hint=f"known are: {known}" if known else f"make one: windfall submit --workflow wf.toml --class {name}",
        code="no-such-class",
    )
