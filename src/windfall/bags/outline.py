"""A job as a fleet is asked about it before it is submitted: how long its tasks take, what they need, who waits. Pure.

It is the body of `POST /v1/fleets/FLEET/admission`, and `outline` of `POST /v1/jobs`.
"""

from __future__ import annotations

from array import array
from typing import Annotated

from msgspec import Meta, Struct

from windfall.bags.chunks import Chunk
from windfall.bags.spec import JobSpec
from windfall.bounds import MAX_CPUS, MAX_MEMORY_BYTES, MAX_RESOURCES, MAX_SECONDS, MAX_UNITS, Name, Seconds
from windfall.errors import BadInput
from windfall.graph import Graph

MOST_TASKS = 5_000
"""Larger jobs are not laid out before they are sent."""
Place = Annotated[int, Meta(ge=0, lt=MOST_TASKS)]
Positive = Annotated[float, Meta(gt=0.0, le=MAX_SECONDS)]


class OutlinedTasks(Struct, forbid_unknown_fields=True):
    """`count` equal tasks. `seconds`: the estimated run time at speed 1."""

    seconds: Seconds
    count: Annotated[int, Meta(ge=1, le=MOST_TASKS)] = 1
    cpus: Annotated[float, Meta(ge=0.0, le=MAX_CPUS)] = 1.0
    memory_bytes: Annotated[int, Meta(ge=0, le=MAX_MEMORY_BYTES)] = 0
    task_class: Name = ""
    resources: Annotated[dict[Name, Annotated[float, Meta(ge=0.0, le=MAX_UNITS)]], Meta(max_length=MAX_RESOURCES)] = {}


class Outline(Struct, forbid_unknown_fields=True):
    """Tasks are counted from 0 in the order of `tasks`. `after`: the parents of each task that has any."""

    deadline_s: Positive
    tasks: Annotated[list[OutlinedTasks], Meta(min_length=1, max_length=MOST_TASKS)]
    after: Annotated[dict[Place, Annotated[list[Place], Meta(max_length=MOST_TASKS)]], Meta(max_length=MOST_TASKS)] = {}
    recorded: bool = False
    """The seconds were recorded for each task, and not guessed for all."""
    every_s: Positive | None = None
    """One such job comes in each of these seconds; None: one job."""
    owner: Name = ""
    """Who submits it: caps and shares of owners count. A user's own token says it in any case."""

    @property
    def count(self) -> int:
        return sum(group.count for group in self.tasks)


def check(outline: Outline) -> None:
    """Refuse more tasks than are laid out, and parents that do not come before their children."""
    if outline.count > MOST_TASKS:
        raise BadInput(f"{outline.count:,} tasks are too many to be laid out", hint=f"at most {MOST_TASKS:,}")
    for task, parents in outline.after.items():
        if task >= outline.count or any(parent >= outline.count for parent in parents):
            raise BadInput(f"task {task} or a parent of it is not among the {outline.count} tasks")
    # Kahn's order: tasks that are never free wait for each other.
    left = {task: len(set(parents)) for task, parents in outline.after.items()}
    children: dict[int, list[int]] = {}
    for task, parents in outline.after.items():
        for parent in set(parents):
            children.setdefault(parent, []).append(task)
    free = [task for task in range(outline.count) if not left.get(task)]
    for task in free:
        for child in children.get(task, ()):
            left[child] -= 1
            if not left[child]:
                free.append(child)
    if len(free) < outline.count:
        raise BadInput("tasks of the outline wait for each other in a circle")


def outlined(
    spec: JobSpec, count: int, chunks: list[Chunk], shape: Graph | None = None, estimates: bytes = b""
) -> Outline | None:
    """The outline of a job; None if a run time is not estimated, it has no deadline or too many tasks."""
    if not spec.deadline_s or not 0 < count <= MOST_TASKS:
        return None
    classes = spec.task_classes()
    class_of = [klass for chunk in chunks for klass in [chunk.klass] * chunk.count]
    class_of += [0] * (count - len(class_of))  # a range is counted and not listed: it has one class
    own = array("f", estimates).tolist() if estimates else [classes[klass].estimate_s for klass in class_of]
    groups: list[OutlinedTasks] = []
    for klass, seconds in zip(class_of, own, strict=True):
        if seconds is None:
            return None
        needs = classes[klass]
        memory = 0 if needs.memory is None else needs.memory.bytes_
        made = OutlinedTasks(seconds, 1, needs.cpus, memory, needs.name, dict(needs.resources))
        last = groups[-1] if groups else None
        if last is not None and (last.seconds, last.cpus, last.memory_bytes, last.task_class, last.resources) == (
            made.seconds, made.cpus, made.memory_bytes, made.task_class, made.resources
        ):  # fmt: skip
            last.count += 1
        else:
            groups.append(made)
    rows = enumerate(() if shape is None else shape.parent_rows())
    after = {task: list(map(int, parents)) for task, parents in rows if parents}
    return Outline(spec.deadline_s, groups, after, recorded=bool(estimates), owner=spec.owner)
