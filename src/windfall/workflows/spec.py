"""A workflow as its file describes it, and the checks every kind of file shares. Touches nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from windfall.errors import BadInput
from windfall.graph import CycleFound, Graph, from_edges
from windfall.planning.workflow.model import Workflow


class TaskSpec(Struct, frozen=True, kw_only=True):
    """One task. `after` and `inputs` both make it wait: for tasks by name, for files by the task that makes them."""

    id: str
    place: str  # where in the file, for errors: "tasks[3] 'merge'"
    task_class: str
    command: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    cores: int = 1
    memory_bytes: int = 0
    resources: tuple[tuple[str, float], ...] = ()
    nodes: int | None = None
    runtime_s: float | None = None
    env: dict[str, str] = {}
    stdin: str | None = None
    wall_s: float | None = None
    max_failures: int | None = None


class WorkflowSpec(Struct, frozen=True, eq=False):
    """A checked workflow: names are unique, every parent and every file exists, there is no cycle."""

    name: str
    source: str
    tasks: tuple[TaskSpec, ...]
    graph: Graph
    file_bytes: dict[str, int] = {}  # as recorded
    spread: float | None = None  # of the logarithm of run times, as its file says
    recorded: bool = False  # memory and cores are what a run was seen to use, not what its author asks for

    def for_planning(self) -> Workflow:
        """The columns a planner needs; a task without a run time is refused with its place."""
        for task in self.tasks:
            if task.runtime_s is None:
                raise BadInput(
                    f"{self.source}: {task.place} has no run time, and a plan needs one for every task",
                    hint="give runtime_s (workflow.toml) or execution.tasks[].runtimeInSeconds (WfFormat)",
                )
        return Workflow(
            name=self.name,
            ids=[task.id for task in self.tasks],
            classes=[task.task_class for task in self.tasks],
            runtime_s=[task.runtime_s or 0.0 for task in self.tasks],
            cores=[task.cores for task in self.tasks],
            memory_bytes=[task.memory_bytes for task in self.tasks],
            graph=self.graph,
            resources=[task.resources for task in self.tasks] if any(task.resources for task in self.tasks) else [],
            nodes=[task.nodes or 0 for task in self.tasks] if any(task.nodes for task in self.tasks) else [],
        )


def gathered(tasks: list[TaskSpec], source: str) -> list[TaskSpec]:
    """`after = ["fit-*"]` waits for every task of that pattern, itself excepted; `inputs = ["fit-*.json"]` takes every
    output of other tasks that matches, unless a task declares that very pattern as its output."""
    names = [task.id for task in tasks]
    makers = {name: task.id for task in tasks for name in task.outputs}
    spread: dict[str, tuple[str, ...]] = {}
    gathered: dict[str, tuple[str, ...]] = {}
    result = []
    for task in tasks:
        after: list[str] = []
        for parent in task.after:
            if "*" not in parent:
                after.append(parent)
                continue
            if parent not in spread:
                spread[parent] = tuple(name for name in names if fnmatchcase(name, parent))
            found = [name for name in spread[parent] if name != task.id]
            if not found:
                hint = "a pattern must match at least one other task"
                raise BadInput(f"{source}: {task.place}: no task matches after '{parent}'", hint=hint)
            after += found
        inputs: list[str] = []
        for pattern in task.inputs:
            if pattern in makers or not any(sign in pattern for sign in "*?["):
                inputs.append(pattern)
                continue
            if pattern not in gathered:
                gathered[pattern] = tuple(name for name in makers if fnmatchcase(name, pattern))
            inputs += [name for name in gathered[pattern] if makers[name] != task.id] or [pattern]
        result.append(replace(task, after=tuple(after), inputs=tuple(dict.fromkeys(inputs))))
    return result


def checked(name: str, source: str, tasks: Sequence[TaskSpec], known_files: Iterable[str] | None) -> WorkflowSpec:
    """The workflow, or BadInput with the place. `known_files` None: any file that no task makes is an outside input."""
    if not tasks:
        raise BadInput(f"{source}: the workflow has no tasks", hint="give it at least one; nothing was started")
    number = _numbers(source, tasks)
    edges = _edges_by_name(source, tasks, number)
    edges += _edges_by_file(source, tasks, None if known_files is None else set(known_files))
    try:
        graph = from_edges(len(tasks), edges)
    except CycleFound as cycle:
        names = [tasks[i].id for i in cycle.tasks]
        shown = " -> ".join([*names[:6], *(["..."] if len(names) > 6 else []), names[0]])
        raise BadInput(
            f"{source}: {tasks[cycle.tasks[0]].place} waits for itself: {shown}",
            hint="take one of these dependencies (after, parents, input files) away",
        ) from None
    return WorkflowSpec(name, source, tuple(tasks), graph)


def _numbers(source: str, tasks: Sequence[TaskSpec]) -> dict[str, int]:
    number: dict[str, int] = {}
    for i, task in enumerate(tasks):
        if task.id in number:
            raise BadInput(
                f"{source}: {task.place} has the same name as {tasks[number[task.id]].place}",
                hint="names must be unique within a workflow",
            )
        number[task.id] = i
    return number


def _edges_by_name(source: str, tasks: Sequence[TaskSpec], number: dict[str, int]) -> list[tuple[int, int]]:
    edges = []
    for i, task in enumerate(tasks):
        for parent in task.after:
            if parent not in number:
                near = get_close_matches(parent, number, n=1)
                raise BadInput(
                    f"{source}: {task.place} waits for '{parent}', and there is no such task",
                    hint=f"did you mean '{near[0]}'?" if near else "name a task of this workflow",
                )
            edges.append((number[parent], i))
    return edges


def _edges_by_file(source: str, tasks: Sequence[TaskSpec], known: set[str] | None) -> list[tuple[int, int]]:
    makers: dict[str, list[int]] = {}
    for i, task in enumerate(tasks):
        for name in task.outputs:
            makers.setdefault(name, []).append(i)
    edges = []
    for i, task in enumerate(tasks):
        for name in task.inputs:
            made_by = makers.get(name, [])
            if not made_by and known is not None and name not in known:
                raise BadInput(
                    f"{source}: {task.place} reads '{name}', which no task makes and which is not an input file",
                    hint="add it to the outputs of a task or to the workflow's files",
                )
            # A file that several tasks write, or that a task updates in place, says nothing about order by itself.
            if len(made_by) == 1 and made_by[0] != i:
                edges.append((made_by[0], i))
    return edges
