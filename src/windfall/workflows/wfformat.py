"""WfCommons WfFormat 1.5: a recorded workflow with its run times. Touches nothing; takes the text."""

from __future__ import annotations

import re

import msgspec

from windfall.bounds import BROKEN
from windfall.errors import BadInput
from windfall.workflows.spec import TaskSpec, WorkflowSpec, checked

_NUMBER_AT_THE_END = re.compile(r"([_-](ID)?\d+)+$")
HINT = "the format is described at https://wfcommons.org/format"


class _Command(msgspec.Struct):
    program: str = ""
    arguments: list[str] = []


class _File(msgspec.Struct, rename={"size_bytes": "sizeInBytes"}):
    id: str
    size_bytes: float | None = None


class _Task(msgspec.Struct, rename={"inputs": "inputFiles", "outputs": "outputFiles"}):
    id: str
    name: str = ""
    parents: list[str] = []
    children: list[str] = []
    inputs: list[str] | None = None
    outputs: list[str] | None = None


class _Specification(msgspec.Struct):
    tasks: list[_Task]
    files: list[_File] | None = None


class _Run(msgspec.Struct, rename={"runtime_s": "runtimeInSeconds", "cores": "coreCount", "memory": "memoryInBytes"}):
    id: str
    runtime_s: float | None = None
    cores: float | None = None
    memory: float | None = None
    command: _Command | None = None


class _Execution(msgspec.Struct):
    tasks: list[_Run] = []


class _Workflow(msgspec.Struct):
    specification: _Specification
    execution: _Execution | None = None


class _Document(msgspec.Struct):
    workflow: _Workflow
    name: str = "workflow"


def parse(text: bytes, source: str) -> WorkflowSpec:
    try:
        document = msgspec.json.decode(text, type=_Document)
    except msgspec.ValidationError as error:
        raise BadInput(f"{source}: not WfFormat 1.5: {_where(error)}", hint=HINT) from None
    except BROKEN as error:
        raise BadInput(f"{source}: not JSON: {error}", hint=HINT) from None
    specification = document.workflow.specification
    execution = document.workflow.execution or _Execution()
    runs = {run.id: run for run in execution.tasks}
    tasks = [_task(i, task, runs.get(task.id), source) for i, task in enumerate(specification.tasks)]
    _check_children(specification.tasks, source)
    parents_too = _with_children(tasks, specification.tasks)
    files = None if specification.files is None else [file.id for file in specification.files]
    found = checked(document.name, source, parents_too, files)
    sizes = {file.id: int(file.size_bytes or 0) for file in specification.files or ()}
    return msgspec.structs.replace(found, file_bytes=sizes, recorded=True)


def _task(i: int, task: _Task, run: _Run | None, source: str) -> TaskSpec:
    place = f"workflow.specification.tasks[{i}] '{task.id}'"
    run = run or _Run(task.id)
    for field, value in (("runtimeInSeconds", run.runtime_s), ("memoryInBytes", run.memory), ("coreCount", run.cores)):
        if value is not None and not 0 <= value < 1e18:
            raise BadInput(f"{source}: {place}: execution {field} is {value}", hint="it must be a number from 0 up")
    command = run.command or _Command()
    return TaskSpec(
        id=task.id,
        place=place,
        task_class=class_of(task.name or task.id),
        command=(command.program, *command.arguments) if command.program else (),
        after=tuple(task.parents),
        inputs=tuple(task.inputs or ()),
        outputs=tuple(task.outputs or ()),
        cores=max(1, round(run.cores or 1)),
        memory_bytes=int(run.memory or 0),
        runtime_s=run.runtime_s,
    )


def class_of(name: str) -> str:
    """The class of a task by its name: 'mProject_ID0000012' and 'blastall_000007' are an mProject and a blastall."""
    return _NUMBER_AT_THE_END.sub("", name) or name


def _check_children(tasks: list[_Task], source: str) -> None:
    known = {task.id for task in tasks}
    for i, task in enumerate(tasks):
        for child in task.children:
            if child not in known:
                place = f"workflow.specification.tasks[{i}] '{task.id}'"
                raise BadInput(f"{source}: {place}: its child '{child}' is no task of this workflow", hint=HINT)


def _with_children(tasks: list[TaskSpec], raw: list[_Task]) -> list[TaskSpec]:
    """The format says every edge twice; a file that says it once is understood as well."""
    after: dict[str, list[str]] = {task.id: list(task.after) for task in tasks}
    for task in raw:
        for child in task.children:
            if task.id not in after[child]:
                after[child].append(task.id)
    return [msgspec.structs.replace(task, after=tuple(after[task.id])) for task in tasks]


def _where(error: msgspec.ValidationError) -> str:
    text = str(error)
    return text.replace(" - at `$.", " (at `") + ")" if " - at `$." in text else text
