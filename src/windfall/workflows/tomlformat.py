"""workflow.toml: tasks with `after`, files and `map` over parameters. Touches nothing; takes the text.

name = "fit"
[[task]]
name = "prepare"
command = ["./prepare", "raw.csv"]
inputs = ["raw.csv"]
outputs = ["clean.csv"]
[[task]]
name = "fit-{seed}"
map = { seed = [1, 2, 3] }
command = ["./fit", "--seed", "{seed}", "clean.csv"]
inputs = ["clean.csv"]
outputs = ["fit-{seed}.json"]
[[task]]
name = "merge"
command = ["./merge"]
after = ["fit-*"]
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import msgspec

from windfall.bags.scripts import guard
from windfall.bags.shell import argv_of, has_shell_words, is_balanced, needs_shell, split
from windfall.bags.spec import bad_field
from windfall.bounds import MAX_SPREAD
from windfall.errors import BadInput
from windfall.resources import GPUS
from windfall.units import parse_bytes, parse_duration
from windfall.workflows.spec import TaskSpec, WorkflowSpec, checked, gathered

_HOLE = re.compile(r"\{(\w+)\}")
_BRACES = re.compile(r"\{(\{\w+\})\}|\{(\w+)\}")
"""A literal in doubled braces, or a placeholder."""
_HEADER = re.compile(r"\s*\[\[\s*task\s*\]\]")
Value = str | int | float


class _Task(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    name: str
    command: str | list[str] = ""
    after: str | list[str] = []
    inputs: list[str] = []
    outputs: list[str] = []
    map: dict[str, list[Value] | str] = {}
    cpus: int | None = None
    memory: str | int = 0
    gpus: float | None = None
    nodes: int | None = None
    resources: dict[str, float] = {}
    estimate: str | int | float | None = None
    env: dict[str, Value] = {}
    stdin: str | None = None
    wall: str | int | float | None = None
    max_failures: int | None = None
    task_class: str = msgspec.field(default="", name="class")
    cores: int | None = None
    """The older name of `cpus`."""
    runtime_s: float | None = None
    """The older name of `estimate`, in seconds."""


MAX_MAPPED = 1_000_000
"""Tasks that one `map` makes: all are in memory before the workflow is sent."""
_FIELDS = [field.encode_name for field in msgspec.structs.fields(_Task)]
_ELSEWHERE = {
    "each": "map", "foreach": "map", "matrix": "map", "cmd": "command", "run": "command", "shell": "command",
    "script": "command", "needs": "after", "parents": "after", "depends": "after", "depends_on": "after",
    "threads": "cpus", "mem": "memory", "retries": "max_failures", "timeout": "wall",
}  # fmt: skip
"""What other formats call a field."""


def parse(text: bytes, source: str, exists: Callable[[str], bool]) -> WorkflowSpec:
    """The workflow of a TOML text; `exists` says whether a file that no task makes is there to be read."""
    try:
        document = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{source}: not TOML: {error}", hint="see examples/workflows/fit.toml") from None
    unknown = set(document) - {"name", "files", "spread", "task"}
    if unknown:
        raise BadInput(f"{source}: unknown field '{min(unknown)}'", hint="fields: name, files, spread, [[task]]")
    tables = document.get("task", [])
    if not isinstance(tables, list):
        raise BadInput(f"{source}: 'task' is not a list of tables", hint="write [[task]], with two brackets")
    places = _places(text.decode(), len(tables))
    tasks = [task for table, place in zip(tables, places, strict=True) for task in _expand(table, place, source)]
    tasks = gathered(tasks, source)
    outside = {name for task in tasks for name in task.inputs if exists(name)}
    _one_maker_each(tasks, source)
    name = document.get("name", "workflow")
    found = checked(str(name), source, tasks, outside | {str(file) for file in document.get("files", [])})
    return msgspec.structs.replace(found, spread=_spread(document.get("spread"), source))


def _spread(said: Any, source: str) -> float | None:
    if said is None:
        return None
    if isinstance(said, bool) or not isinstance(said, int | float) or not 0 <= said <= MAX_SPREAD:
        hint = f"a number from 0 (estimates are exact) to {MAX_SPREAD:g}, as in 0.15"
        raise BadInput(f"{source}: spread is {said!r}", hint=hint)
    return float(said)


def _places(text: str, count: int) -> list[str]:
    """Where each task stands: its line, where the headers tell, and its number."""
    lines = [line for line, row in enumerate(text.split("\n"), 1) if _HEADER.match(row)]
    known = len(lines) == count
    return [f"line {lines[i]}, task[{i}]" if known else f"task[{i}]" for i in range(count)]


def _expand(table: Any, place: str, source: str) -> list[TaskSpec]:
    if isinstance(table, dict) and isinstance(table.get("name"), str):
        place += f" '{table['name']}'"
    try:
        task = msgspec.convert(table, _Task)
    except msgspec.ValidationError as error:
        wrong = bad_field(error, f"{source}: {place}")
        unknown = [field for field in table if field not in _FIELDS] if isinstance(table, dict) else []
        near = [_ELSEWHERE.get(field) or next(iter(get_close_matches(field, _FIELDS, n=1)), "") for field in unknown]
        hint = f"did you mean '{near[0]}'?" if near and near[0] else "fields: " + ", ".join(_FIELDS)
        raise BadInput(wrong.message, hint=hint if unknown else wrong.hint) from None
    _check_numbers(task, place, source)
    columns = {key: _values(value, key, place, source) for key, value in task.map.items()}
    if (count := math.prod(map(len, columns.values()))) > MAX_MAPPED:
        raise BadInput(f"{source}: {place}: map makes {count:,} tasks", hint=f"at most {MAX_MAPPED:,}")
    rows = [dict(zip(columns, row, strict=True)) for row in itertools.product(*columns.values())]
    return [_one(task, row, place, source) for row in rows]


def _check_numbers(task: _Task, place: str, source: str) -> None:
    for name, older in (("cpus", "cores"), ("estimate", "runtime_s")):
        if getattr(task, name) is not None and getattr(task, older) is not None:
            hint = f"leave {older} out: it is the older name of {name}"
            raise BadInput(f"{source}: {place}: {name} and {older} say the same", hint=hint)
    if _cpus(task) < 1:
        name = "cpus" if task.cpus is not None else "cores"
        raise BadInput(f"{source}: {place}: {name} is {_cpus(task)}", hint="it must be at least 1")
    if task.runtime_s is not None and not 0 <= task.runtime_s < 1e12:
        raise BadInput(f"{source}: {place}: runtime_s is {task.runtime_s}", hint="it must be seconds from 0 up")
    if task.max_failures is not None and task.max_failures < 1:
        hint = "attempts that may fail: 1 (no second one) or more"
        raise BadInput(f"{source}: {place}: max_failures is {task.max_failures}", hint=hint)


def _cpus(task: _Task) -> int:
    if task.cpus is not None:
        return task.cpus
    return 1 if task.cores is None else task.cores


def _estimate_s(task: _Task, where: str) -> float | None:
    return task.runtime_s if task.estimate is None else parse_duration(task.estimate, f"{where}: estimate")


def _values(value: list[Value] | str, key: str, place: str, source: str) -> list[Value]:
    """A list as it stands, or a range 'A-B' as on the command line."""
    if isinstance(value, list):
        return value
    ends = re.fullmatch(r"(-?\d+)-(-?\d+)", value)
    if ends is None or int(ends[1]) > int(ends[2]):
        hint = 'give a list, map = { x = [1, 2] }, or a range, map = { x = "1-100" }'
        raise BadInput(f"{source}: {place}: map.{key} is '{value}'", hint=hint)
    if int(ends[2]) - int(ends[1]) >= MAX_MAPPED:
        raise BadInput(f"{source}: {place}: map.{key} is '{value}'", hint=f"at most {MAX_MAPPED:,} tasks")
    return list(range(int(ends[1]), int(ends[2]) + 1))


def _one(task: _Task, row: dict[str, Value], place: str, source: str) -> TaskSpec:
    def fill(text: str, field: str) -> str:
        def value(hole: re.Match[str]) -> str:
            if hole[1] is not None:
                return hole[1]
            if hole[2] not in row:
                hint = f"its parameters are: {', '.join(row)}; {{{{{hole[2]}}}}} is a literal {{{hole[2]}}}"
                raise BadInput(f"{source}: {place}: {field} uses {{{hole[2]}}}, not in its map", hint=hint)
            return str(row[hole[2]])

        return _BRACES.sub(value, text) if row else text

    words, scripts = _words(task, f"{source}: {place}"), dict[str, str]()
    if row:
        # What a map puts into a script of `sh -c` is data, as in a bag.
        words, scripts, _ = guard(words, row.__contains__)
    after = [task.after] if isinstance(task.after, str) else task.after
    name = fill(task.name, "name")
    return TaskSpec(
        id=name,
        place=f"{place} ({name})" if row else place,
        task_class=task.task_class or _HOLE.sub("", task.name).strip("-_. ") or task.name,
        command=tuple(fill(word, "command") for word in words),
        after=tuple(fill(parent, "after") for parent in after),
        inputs=tuple(fill(file, "inputs") for file in task.inputs),
        outputs=tuple(fill(file, "outputs") for file in task.outputs),
        cores=_cpus(task),
        memory_bytes=parse_bytes(task.memory, f"{source}: {place}: memory") if task.memory else 0,
        resources=tuple(sorted((task.resources | ({} if task.gpus is None else {GPUS: task.gpus})).items())),
        nodes=task.nodes,
        runtime_s=_estimate_s(task, f"{source}: {place}"),
        env={key: fill(str(value), f"env.{key}") for key, value in {**task.env, **scripts}.items()},
        stdin=None if task.stdin is None else fill(task.stdin, "stdin"),
        wall_s=None if task.wall is None else parse_duration(task.wall, f"{source}: {place}: wall"),
        max_failures=task.max_failures,
    )


def _words(task: _Task, where: str) -> list[str]:
    """The command as words. One without parameters may use a shell, as a line of a tasks.txt may."""
    if isinstance(task.command, list):
        return task.command
    if not is_balanced(task.command) and not needs_shell(task.command):
        raise BadInput(f"{where}: a quote is not closed in the command: {task.command[:80]}")
    if not task.map:
        return argv_of(task.command) if task.command.strip() else []
    if has_shell_words(task.command):
        hint = """write it as: command = ["sh", "-c", "... {x} ..."]"""
        raise BadInput(f"{where}: a command with parameters is not given to a shell: {task.command[:80]}", hint=hint)
    return split(task.command)


def _one_maker_each(tasks: list[TaskSpec], source: str) -> None:
    maker: dict[str, TaskSpec] = {}
    for task in tasks:
        for name in task.outputs:
            if name in maker:
                message = f"{source}: {task.place} makes '{name}', and so does {maker[name].place}"
                raise BadInput(message, hint="every file has one maker; give the outputs different names")
            maker[name] = task
