"""From a task's index to what a worker needs to run it. Pure: chunks come through a function that is passed in."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import msgspec

from windfall.bags.chunks import decode
from windfall.bags.shell import argv_of
from windfall.bags.spec import JobSpec, TaskClass, TaskRow
from windfall.bags.template import Scope, Template, compile_texts

_CACHED_CHUNKS = 8


class Head(Protocol):
    """A chunk in a job's index: `windfall.store.contract.ChunkHead` is one."""

    @property
    def first(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def klass(self) -> int: ...
    @property
    def codec(self) -> str: ...


class Rendered(NamedTuple):
    """The task's part of a row in the exchange: argv (None for a call), attachment, and what differs from the job."""

    argv: list[str] | None
    payload: bytes
    overrides: dict[str, Any] | None


def scope_of(spec: JobSpec, where: str = "") -> Scope:
    """What placeholders of this job may stand for. Commands that are lines or whole tasks have only their number."""
    parameters = bool(spec.command)
    single = parameters and spec.source.kind in ("lines", "range")
    return Scope(spec.source.columns if parameters else (), single=single, where=where)


def job_spec_for_worker(spec: JobSpec) -> dict[str, Any]:
    """The job as the exchange describes it (docs/reference/protocol.md)."""
    return {
        "kind": spec.kind,
        "name": spec.name,
        "env": spec.env,
        "cwd": spec.cwd,
        "inputs": [file.row for file in spec.inputs],
        "outputs": spec.outputs,
        "wall_s": spec.wall_s,
        "memory_bytes": spec.memory.of_attempt(1) if spec.memory else None,
        "cpus": spec.cpus,
        "grace_s": spec.grace_s,
        "output_cap_bytes": spec.output_cap_bytes,
        "python": spec.python,
        **({"pin": True} if spec.pin else {}),
        **({"image": spec.image} if spec.image else {}),
        **({"checkpoint_s": spec.checkpoint_s} if spec.checkpoint_s is not None else {}),
    }


class Rows:
    """The parameters of tasks, chunk by chunk; keeps the few chunks that were used last. Jobs of a class share one.

    `heads`: the chunks in order. `fetch(first)`: the data of one of them.
    """

    def __init__(self, heads: Iterable[Head] = (), fetch: Callable[[int], bytes] = lambda first: b"") -> None:
        self._fetch = fetch
        self._firsts: list[int] = []
        self._cache: OrderedDict[int, Sequence[Any]] = OrderedDict()
        self.heads: list[Head] = []
        self.first, self.end, self.klass = 0, 0, 0  # of the chunk used last
        self.current: Sequence[Any] = ()
        self.extend(heads)

    def extend(self, heads: Iterable[Head]) -> None:
        """More chunks, behind those known so far."""
        for head in heads:
            self.heads.append(head)
            self._firsts.append(head.first)

    def enter(self, index: int) -> None:
        """Make the chunk that holds a task the current one. IndexError if there is none."""
        position = bisect_right(self._firsts, index) - 1
        if position < 0 or index >= self._firsts[position] + self.heads[position].count:
            raise IndexError(index)
        head = self.heads[position]
        chunk = self._cache.get(head.first)
        if chunk is None:
            chunk = decode(head.codec, self._fetch(head.first), head.count)
            self._cache[head.first] = chunk
            if len(self._cache) > _CACHED_CHUNKS:
                self._cache.popitem(last=False)
        self._cache.move_to_end(head.first)
        self.current = chunk
        self.first, self.end, self.klass = head.first, head.first + head.count, head.klass


Made = Mapping[int, Mapping[str, list[Any]]]
"""Output files by the task that made them and by name: [name, sha256, size, mode]."""
NOT_THERE = "0" * 64
"""Stands for a file that is no longer kept: the task that takes it fails with a sentence that says so."""


class Renderer:
    """Renders the tasks of one job from its `rows`. `made(tasks)`: the files that tasks of a workflow have made."""

    def __init__(
        self, spec: JobSpec, rows: Rows | None = None, made: Callable[[list[int]], Made] = lambda tasks: {}
    ) -> None:
        self.spec = spec
        self.rows = rows or Rows()
        self._made = made
        self._files = {file.name: file.row for file in spec.files}
        self._classes = spec.task_classes()
        source = spec.source
        self._kind = source.kind
        self._range = (source.first, source.step, source.range_count) if source.kind == "range" else None
        scope = scope_of(spec)
        self._argv = compile_texts(spec.command, scope) if spec.command else None
        self._stdin = _template(spec.stdin, scope, "stdin")
        self._outputs = compile_texts(spec.outputs, scope, "outputs") if spec.outputs else None
        self._env = compile_texts(list(spec.task_env.values()), scope, "env") if spec.task_env else None
        self._cwd = _template(spec.task_cwd, scope, "cwd")
        own_outputs = self._outputs is not None and self._outputs.has_placeholders
        self._same_for_all = not (self._stdin or self._env or self._cwd or own_outputs)
        """Tasks differ in their command lines only."""

    @cached_property
    def spec_for_worker(self) -> msgspec.Raw:
        """The job as the exchange describes it, encoded once for all its tasks."""
        return msgspec.Raw(msgspec.json.encode(job_spec_for_worker(self.spec)))

    @cached_property
    def spec_bytes(self) -> int:
        return memoryview(self.spec_for_worker).nbytes

    def task(self, index: int, attempt: int = 1) -> Rendered:
        """What attempt `attempt` (from 1) of task `index` (from 0) runs."""
        parameter = self.parameter(index)
        overrides = self._own_needs(attempt)
        kind = self._kind
        if kind == "calls":
            return Rendered(None, parameter, overrides)
        if kind == "tasks":
            return self._whole_task(index, parameter, overrides)
        argv = argv_of(parameter) if self._argv is None else self._argv.fill(index, parameter)
        if self._same_for_all:
            return Rendered(argv, b"", overrides)
        payload = b"" if self._stdin is None else self._stdin.fill(index, parameter)[0].encode()
        own = self._own_place(index, parameter)
        if self._outputs is not None and self._outputs.has_placeholders:
            own["outputs"] = self._outputs.fill(index, parameter)
        return Rendered(argv, payload, {**(overrides or {}), **own} if own else overrides)

    def _own_place(self, index: int, parameter: Any) -> dict[str, Any]:
        """Environment and directory of a task, as far as they depend on its parameter."""
        own: dict[str, Any] = {}
        if self._env is not None:
            own["env"] = {
                **self.spec.env,
                **dict(zip(self.spec.task_env, self._env.fill(index, parameter), strict=True)),
            }
        if self._cwd is not None:
            own["cwd"] = self._cwd.fill(index, parameter)[0]
        return own

    def parameter(self, index: int) -> Any:
        """The line, the row, the number, the pickled call or the TaskRow of a task. IndexError if it has none."""
        if self._range is not None:
            first, step, count = self._range
            if not 0 <= index < count:
                raise IndexError(index)
            return str(first + index * step)
        rows = self.rows
        if not rows.first <= index < rows.end:
            rows.enter(index)
        return rows.current[index - rows.first]

    def name(self, index: int) -> str | None:
        """What a task is called, if it is one of a workflow."""
        return self.parameter(index).name if self.spec.source.kind == "tasks" else None

    def parameters(self, index: int) -> str | dict[str, str] | None:
        """A task's parameters for people: the text, the columns with their values, or None (a call, a whole task)."""
        if self.spec.source.kind in ("calls", "tasks"):
            return None
        parameter = self.parameter(index)
        return parameter if isinstance(parameter, str) else dict(zip(self.spec.source.columns, parameter, strict=True))

    def _own_needs(self, attempt: int) -> dict[str, Any] | None:
        """What the current chunk's class, or this attempt, needs beside what the job says."""
        klass = self.rows.klass
        needs: TaskClass = self._classes[klass]
        grown = needs.memory is not None and needs.memory.per_attempt and attempt > 1
        if klass == 0 and not grown:
            return None
        overrides: dict[str, Any] = {}
        if needs.memory != self.spec.memory or grown:
            overrides["memory_bytes"] = needs.memory.of_attempt(attempt) if needs.memory else None
        if needs.cpus != self.spec.cpus:
            overrides["cpus"] = needs.cpus
        if needs.wall_s != self.spec.wall_s:
            overrides["wall_s"] = needs.wall_s
        return overrides or None

    def _whole_task(self, index: int, row: TaskRow, overrides: dict[str, Any] | None) -> Rendered:
        changed = {**(overrides or {}), **self._own_place(index, None)}
        if row.env:
            changed["env"] = {**changed.get("env", self.spec.env), **row.env}
        if row.cwd is not None:
            changed["cwd"] = row.cwd
        if row.inputs or row.takes:
            files = (*self.spec.inputs, *(row.inputs or ()))
            changed["inputs"] = [file.row for file in files] + self._taken(row)
        outputs = self._outputs.fill(index, None) if self._outputs else []
        if row.outputs or (self._outputs and self._outputs.has_placeholders):
            changed["outputs"] = [*outputs, *(row.outputs or [])]
        stdin = row.stdin if row.stdin is not None else self._stdin.fill(index, None)[0] if self._stdin else ""
        return Rendered(row.argv, stdin.encode(), changed or None)

    def _taken(self, row: TaskRow) -> list[list[Any]]:
        """The files that a task of a workflow takes from outside and from the tasks before it."""
        if not row.takes:
            return []
        made = self._made(sorted({maker for _, maker in row.takes if maker >= 0}))
        found: dict[str, list[Any]] = {}
        for name, maker in row.takes:
            files = self._files if maker < 0 else made.get(maker, {})
            for file in named_files(files, name) or [[name, NOT_THERE, 0, 0o644]]:
                found[file[0]] = file
        return list(found.values())


def named_files(files: Mapping[str, list[Any]], name: str) -> list[list[Any]]:
    """The files that a name stands for: itself, all below a directory, or those of a pattern, as outputs are found."""
    if name in files:
        return [files[name]]
    below = name.rstrip("/") + "/"
    return [file for each, file in files.items() if each.startswith(below) or fnmatchcase(each, name)]


def _template(text: str | None, scope: Scope, what: str) -> Template | None:
    return None if text is None else compile_texts([text], scope, what)
