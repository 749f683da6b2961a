"""A workflow as a job to submit: rows of tasks, files, classes of needs, shape. Touches files, reading only.

Whatever is wrong is said before anything is sent. Tasks run in directories of their own: what they take is brought
there before they start, what they make is sent from there before they count as done.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import msgspec

from windfall import graph as graphs
from windfall.bags.params import from_tasks
from windfall.bags.reading import read_inputs
from windfall.bags.settings import Settings, spec_fields
from windfall.bags.spec import (
    InputFile,
    JobSpec,
    Memory,
    TaskClass,
    TaskRow,
    check,
    check_files,
    check_needs,
    check_relative,
    check_texts,
    decode,
)
from windfall.bags.submission import Request, Submission, identity_of, placed, with_sizes
from windfall.errors import BadInput
from windfall.workflows import emulation
from windfall.workflows.read import read
from windfall.workflows.spec import TaskSpec, WorkflowSpec

OUTSIDE = -1
"""Stands for the maker of a file that no task makes."""
MOST_KINDS = 100
"""Kinds of tasks whose run times are learned apart."""


def read_workflow(request: Request) -> Submission:
    """The workflow of a file with what the command line says about it. BadInput: nothing was started."""
    assert request.workflow is not None
    refuse_other_sources(request)
    path = Path(request.workflow)
    workflow = read(path)
    if request.emulate:
        workflow = emulation.emulated(workflow, request.time_scale)
    elif request.time_scale != 1.0 and not request.settings.pools:
        raise BadInput("--time-scale goes with --emulate", hint="commands take the time that they take")
    return submission_of(
        workflow, path.parent, request.settings, owner=request.owner, workflow_class=request.workflow_class
    )


# What a job of a class may say for itself; everything else is the class's.
OWN = (
    "name", "env", "policies", "attributes", "tags", "max_failed_tasks", "priority", "deadline", "budget", "inputs",
    "pools", "fleet", "planner", "confidence",
)  # fmt: skip


def instance_of(found: Mapping[str, Any], request: Request) -> Submission:
    """Another job of a class (as `GET /v1/classes/NAME` describes it), with deadline, budget and files of its own."""
    name, first = found["class"], found["spec"]
    refuse_other_sources(request)
    if request.emulate:
        raise BadInput("--emulate goes with --workflow", hint="emulate the workflow that defines the class")
    for field in Settings.__struct_fields__:
        if field not in OWN and getattr(request.settings, field) not in (None, [], {}):
            raise BadInput(
                f"'{field}' is the same for all jobs of class '{name}'", hint=f"its own are: {', '.join(OWN)}"
            )
    said = {"deadline_s": None, "budget_microusd": None, **spec_fields(request.settings)}
    spec = decode(msgspec.json.encode(first), f"class '{name}'")
    for field in ("env", "policies", "attributes", "tags"):
        said[field] = {**getattr(spec, field), **said[field]}
    files, uploads = _own_files(spec, request.settings, name)
    spec = msgspec.structs.replace(
        spec,
        **{field: value for field, value in said.items() if field != "outputs"},
        name=request.settings.name or spec.name,
        owner=request.owner,
        files=files,
        like=found["job"],
        key="",
    )
    check(spec, f"class '{name}'")
    return Submission(
        spec, found["tasks"], [], uploads, hashlib.sha256(identity_of(spec, request.settings)).hexdigest()
    )


def _own_files(spec: JobSpec, settings: Settings, name: str) -> tuple[list[InputFile], dict[str, Path]]:
    """The files of a class with those that were given instead."""
    inputs, uploads = read_inputs(placed(settings, Path()).inputs, "the command line")
    own = {file.name: file for file in inputs}
    known = [file.name for file in spec.files]
    for file in own:
        if file not in known:
            hint = f"its files are: {', '.join(known)}" if known else "it takes none"
            raise BadInput(f"class '{name}' takes no file '{file}' from outside", hint=hint)
    return [own.get(file.name, file) for file in spec.files], uploads


def refuse_other_sources(request: Request) -> None:
    others = {
        "a list of tasks": request.tasks,
        "--csv": request.csv,
        "--range": request.range,
        "--file": request.job_file,
    }
    given = [
        name for name, value in {**others, "a command": request.command, "--stdin": request.stdin}.items() if value
    ]
    if given:
        raise BadInput(f"a workflow does not go with {given[0]}", hint="its file says what its tasks are")


def submission_of(
    workflow: WorkflowSpec, base: Path, settings: Settings, *, owner: str = "", workflow_class: str = ""
) -> Submission:
    """The workflow, ready to be sent. Files that no task makes are looked for below `base`."""
    if settings.stdin is not None or settings.outputs or settings.command:
        raise BadInput(f"{workflow.source}: each task has a command, standard input and outputs of its own")
    settings = placed(settings, Path())
    draft = JobSpec(name="draft", **spec_fields(settings))
    inputs, uploads = read_inputs(settings.inputs, workflow.source)
    order, classes = _in_order_of_class(workflow, draft)
    rows = _Rows(workflow, base, order, staged=draft.cwd is None)
    parameters = from_tasks(((row, classes[at][1]) for at, row in enumerate(rows)), workflow.source)
    spec = msgspec.structs.replace(
        draft,
        name=settings.name or _name(workflow),
        owner=owner,
        inputs=inputs,
        source=parameters.source,
        classes=list(dict.fromkeys(needs for needs, number in classes if number)),
        files=list(rows.files.values()),
        workflow_class=workflow_class,
        spread=workflow.spread if draft.spread is None else draft.spread,
    )
    check(spec, workflow.source)
    shape = _shape(workflow, order)
    digest = hashlib.sha256(identity_of(spec, settings) + parameters.digest.encode() + shape.key.encode()).hexdigest()
    remote = [file for file in spec.files if file.url]
    spec, unmeasured = with_sizes(spec, remote, parameters.count)
    return Submission(
        spec, parameters.count, parameters.chunks, uploads | rows.uploads, digest, shape, _estimates(workflow, order),
        unmeasured=unmeasured, remote=remote,
    )  # fmt: skip


def _name(workflow: WorkflowSpec) -> str:
    name = workflow.name.strip()[:200]
    return f"workflow-{name}" if name.isdecimal() or name == "last" else name or "workflow"


def _in_order_of_class(workflow: WorkflowSpec, job: JobSpec) -> tuple[list[int], list[tuple[TaskClass, int]]]:
    """The tasks with those of equal needs side by side, since a chunk is of one class; and needs and class of each."""
    default = job.task_classes()[0]
    numbers = {default: 0}
    # Run times of a kind with one task help no other task, and each class costs time whenever a host asks.
    kinds = Counter(task.task_class for task in workflow.tasks)
    named = {kind for kind, tasks in kinds.most_common(MOST_KINDS) if tasks > 1}
    needs = [_needs(task, default, workflow, named) for task in workflow.tasks]
    for each in needs:
        numbers.setdefault(each, len(numbers))
    order = sorted(range(len(needs)), key=lambda task: numbers[needs[task]])
    return order, [(needs[task], numbers[needs[task]]) for task in order]


def _needs(task: TaskSpec, default: TaskClass, workflow: WorkflowSpec, named: Set[str]) -> TaskClass:
    own: dict[str, object] = {"name": task.task_class} if task.task_class in named else {}
    if task.cores != 1:
        own["cpus"] = float(task.cores)
    if task.memory_bytes and not workflow.recorded:
        own["memory"] = Memory(task.memory_bytes)
    if task.resources:
        both = {**dict(default.resources), **dict(task.resources)}
        own["resources"] = tuple(sorted((name, amount) for name, amount in both.items() if amount))
    if task.nodes is not None:
        own["nodes"] = task.nodes
    if task.wall_s is not None:
        own["wall_s"] = task.wall_s
    if task.max_failures is not None:
        own["max_failures"] = task.max_failures
    needs = msgspec.structs.replace(default, **own)
    check_needs(needs, f"{workflow.source}: {task.place}")
    return needs


def _estimates(workflow: WorkflowSpec, order: list[int]) -> bytes:
    """How long each task takes by the file; nothing unless it says so for every task."""
    seconds = [workflow.tasks[old].runtime_s for old in order]
    return array("f", [value for value in seconds if value is not None]).tobytes() if None not in seconds else b""


def _shape(workflow: WorkflowSpec, order: list[int]) -> graphs.Graph:
    """The graph with its tasks renumbered."""
    number = array("I", bytes(4 * len(order)))
    for new, old in enumerate(order):
        number[old] = new
    children = workflow.graph.child_rows()
    offsets, flat = array("I", [0]), array("I")
    for old in order:
        flat.extend(sorted(number[child] for child in children[old]))
        offsets.append(len(flat))
    return graphs.Graph(offsets, flat)


class _Rows:
    """The tasks as rows, in order; gathers the files from outside on the way. `staged`: files are brought and taken."""

    def __init__(self, workflow: WorkflowSpec, base: Path, order: list[int], staged: bool) -> None:
        self._workflow, self._base, self._order, self._staged = workflow, base, order, staged
        self._number = {old: new for new, old in enumerate(order)}
        self._makers: dict[str, list[int]] = {}
        for index, task in enumerate(workflow.tasks):
            for name in task.outputs:
                self._makers.setdefault(name, []).append(index)
        self._parents: list[list[int]] | None = None
        self._brought: dict[str, list[tuple[str, int]]] = {}
        self.files: dict[str, InputFile] = {}
        self.uploads: dict[str, Path] = {}

    def __iter__(self) -> Iterator[TaskRow]:
        for index in self._order:
            yield self._row(index, self._workflow.tasks[index])

    def _row(self, index: int, task: TaskSpec) -> TaskRow:
        where = f"{self._workflow.source}: {task.place}"
        if not task.command:
            hint = "try: --emulate, which sleeps as long as it ran" if self._workflow.recorded else "give it a command"
            raise BadInput(f"{where} has no command", hint=hint)
        for name in (*task.outputs, *(name for name in task.inputs if not name.startswith("/"))):
            check_relative(name, f"{where}: file")
        check_files([], list(task.outputs), where)
        row = TaskRow(
            argv=list(task.command),
            env=dict(task.env) or None,
            stdin=task.stdin,
            outputs=list(task.outputs) or None,
            name=task.id,
            takes=self._takes(index, task, where) or None,
        )
        check_texts([*row.argv, *(row.env or {}), *(row.env or {}).values(), row.stdin or "", task.id], where)
        return row

    def _takes(self, index: int, task: TaskSpec, where: str) -> list[tuple[str, int]]:
        """What is brought before the task starts. A path from the root is taken to be there on every host."""
        if not self._staged:
            return []
        taken = []
        for name in dict.fromkeys(task.inputs):
            if not name.startswith("/"):
                maker = self._maker(index, name)
                taken += self._bring(name, where) if maker is None else [(name, self._number[maker])]
        program = task.command[0]
        if "/" in program and not program.startswith("/") and program not in task.inputs:
            name = os.path.normpath(program)
            if not name.startswith("..") and name not in task.inputs and (self._base / name).is_file():
                taken += self._bring(name, where)
        return taken

    def _maker(self, index: int, name: str) -> int | None:
        """The task whose version of a file this one reads; of several makers the nearest before it."""
        makers = [maker for maker in self._makers.get(name, ()) if maker != index]
        if len(makers) == 1 and index not in self._makers[name]:
            return makers[0]
        return next((before for before in self._before(index) if before in makers), None) if makers else None

    def _before(self, index: int) -> Iterator[int]:
        if self._parents is None:
            self._parents = self._workflow.graph.parent_rows()
        seen, to_see = {index}, [index]
        for at in to_see:  # grows while we walk it
            for parent in self._parents[at]:
                if parent not in seen:
                    seen.add(parent)
                    to_see.append(parent)
                    yield parent

    def _bring(self, name: str, where: str) -> list[tuple[str, int]]:
        """A file from outside, or all in a directory: it must be there now, and goes along with the job."""
        known = self._brought.get(name)
        if known is not None:
            return known
        path = self._base / name
        if not path.exists():
            hint = "put it there; or try the workflow without its programs and files: --emulate"
            raise BadInput(f"{where} reads '{name}', and there is no file {path}", hint=hint)
        inputs, uploads = read_inputs([f"{name}={path}"], where)
        self.files |= {file.name: file for file in inputs}
        self.uploads |= uploads
        self._brought[name] = [(file.name, OUTSIDE) for file in inputs]
        return self._brought[name]
