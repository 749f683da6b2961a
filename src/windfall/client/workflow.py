"""A workflow built in Python: tasks, maps over parameters, what waits for what. Touches the files sent along.

wf = client.workflow(deadline="4h")
a = wf.task("./prep")
b = wf.map("./step {i}", range(100), after=a)
job = wf.submit()
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from windfall.bags.params import from_values
from windfall.bags.scripts import guard
from windfall.bags.settings import Needs, amounts_of, words
from windfall.bags.shell import argv_of, has_shell_words
from windfall.bags.template import Scope, compile_texts
from windfall.client.job import Job
from windfall.client.local.server import here
from windfall.client.submitting.making import settings_of
from windfall.errors import BadInput
from windfall.units import parse_bytes, parse_duration
from windfall.workflows.spec import TaskSpec, checked, gathered
from windfall.workflows.submission import submission_of

if TYPE_CHECKING:
    from windfall.client.client import Client

_NAME = re.compile(r"(?<!\{)\{([A-Za-z_]\w*)\}(?!\})")


class Step:
    """A task of a workflow that is being built; other tasks may wait for it or read its outputs."""

    def __init__(self, name: str, outputs: tuple[str, ...]) -> None:
        self.name = name
        self.outputs = outputs

    def __repr__(self) -> str:
        return f"<Step {self.name!r}>"


Steps = list[Step]
After = Step | str | Iterable["Step | str | Iterable[Any]"]
Files = Step | str | Iterable["Step | str | Iterable[Any]"]


class Workflow:
    """Tasks and what they wait for. Nothing is sent before `submit`, which refuses cycles and files that no task makes.

    If any task declares files, each task runs in a directory of its own, with its inputs brought there; else, on this
    host, all of them run here.
    """

    def __init__(self, client: Client, settings: Mapping[str, Any], workflow_class: str = "") -> None:
        self._client = client
        self._settings = dict(settings)
        self._class = workflow_class
        self._tasks: list[TaskSpec] = []
        self._taken: set[str] = set()
        self._used: dict[str, int] = {}
        settings_of(self._settings)

    def __len__(self) -> int:
        return len(self._tasks)

    def __repr__(self) -> str:
        name = self._settings.get("name") or "workflow"
        return f"<Workflow {name!r}: {len(self)} task{'s' * (len(self) != 1)}, not submitted>"

    def task(
        self,
        command: str | Sequence[str],
        *,
        name: str | None = None,
        after: After = (),
        inputs: Files = (),
        outputs: Iterable[str] | str = (),
        **needs: Any,
    ) -> Step:
        """One task. `after`: steps or names to wait for. `inputs`: files, or steps whose outputs it takes;
        `fit-*.json` gathers every output of other tasks that matches.

        `needs`: cpus, memory, gpus, resources, nodes, wall, env, stdin, max_failures.
        """
        _refuse_call(command)
        argv = argv_of(command) if isinstance(command, str) else list(command)
        return self._add(argv, name or self._free(self._base(argv)), after, inputs, _texts(outputs), needs)

    def map(
        self,
        command: str | Sequence[str],
        items: Iterable[Any],
        *,
        name: str | None = None,
        after: After = (),
        inputs: Files = (),
        outputs: Iterable[str] | str = (),
        **needs: Any,
    ) -> Steps:
        """One task per item: values for `{}` or the one name that is used, dicts for several.

        Placeholders are filled in `command`, `name`, `inputs` and `outputs`.
        """
        _refuse_call(command)
        if isinstance(command, str) and has_shell_words(command):
            raise BadInput(
                f"a command with parameters is not given to a shell: {command[:80]}",
                hint="""try: ["sh", "-c", "your | command with $1", "sh", "{x}"]""",
            )
        rows = list(items)
        template, scripts, _ = guard(
            words(command if isinstance(command, str) else list(command), "map"), _is_placeholder(rows)
        )
        takes, makes = _files(inputs), _texts(outputs)
        pattern = name or self._free(self._base(template)) + "-{#}"
        texts = [pattern, *takes, *makes, *template, *scripts.values()]
        ends = (1, 1 + len(takes), 1 + len(takes) + len(makes), len(texts) - len(scripts))
        made = []
        for filled in _filled(texts, rows):
            own = (filled[ends[0] : ends[1]], filled[ends[1] : ends[2]])
            values = dict(zip(scripts, filled[ends[3] :], strict=True))
            need = {**needs, "env": {**needs.get("env", {}), **values}} if values else needs
            made.append(self._add(filled[ends[2] : ends[3]], filled[0], after, own[0], tuple(own[1]), need))
        return made

    def submit(self, **settings: Any) -> Job:
        """Check it whole, send it, and return its job. `settings` add to those that the workflow was made with."""
        said = {**self._settings, **settings}
        late = {name: bool(said.pop(name, False)) for name in ("reject", "accept_late")}
        declared = any(task.inputs or task.outputs for task in self._tasks)
        if self._client.is_local and not declared:
            said.setdefault("cwd", str(here()))
        base = here()
        known = [name for task in self._tasks for name in task.inputs if (base / name).exists()]
        name = str(said.pop("name", None) or "workflow")
        spec = checked(name, "workflow", gathered(self._tasks, "workflow"), known)
        bag = submission_of(spec, Path(base), settings_of(said), workflow_class=self._class)
        bag.spec = msgspec.structs.replace(bag.spec, key=f"python-{secrets.token_hex(12)}")
        sent = self._client.send_told(bag, late)
        return Job(self._client.transport, sent.job, bag.spec.name, check=self._client.check, admission=sent.admission)

    def _add(
        self, argv: list[str], name: str, after: After, inputs: Files, outputs: tuple[str, ...], needs: dict[str, Any]
    ) -> Step:
        place = f"task '{name}'"
        own = _needs(needs, place)
        self._taken.add(name)
        self._tasks.append(
            TaskSpec(
                id=name,
                place=place,
                task_class=self._base(argv),
                command=tuple(argv),
                after=tuple(dict.fromkeys(_names(after))),
                inputs=tuple(dict.fromkeys(_files(inputs))),
                outputs=outputs,
                cores=int(own.cpus or 1),
                memory_bytes=0 if own.memory is None else parse_bytes(own.memory, f"{place}: memory"),
                resources=tuple(sorted(amounts_of(own).items())),
                nodes=own.nodes,
                env={key: str(value) for key, value in own.env.items()},
                stdin=own.stdin,
                wall_s=None if own.wall is None else parse_duration(own.wall, f"{place}: wall"),
                max_failures=own.max_failures,
            )
        )
        return Step(name, outputs)

    def _base(self, argv: Sequence[str]) -> str:
        return PurePosixPath(argv[0]).name or "task" if argv else "task"

    def _free(self, base: str) -> str:
        """The name of the program, with a number if that was used already."""
        while True:
            count = self._used[base] = self._used.get(base, 0) + 1
            name = base if count == 1 else f"{base}.{count}"
            if name not in self._taken:
                return name


_NEEDS = ("cpus", "memory", "gpus", "resources", "nodes", "wall", "env", "stdin", "max_failures")


def _needs(given: dict[str, Any], place: str) -> Needs:
    for name in given:
        if name not in _NEEDS:
            raise BadInput(f"{place}: unknown setting '{name}'", hint=f"known are: {', '.join(_NEEDS)}")
    return Needs(**given)


def _refuse_call(command: Any) -> None:
    if callable(command):
        raise BadInput(
            "a task of a workflow is a command, not a function",
            hint="write it into a script; or submit functions as a bag: client.submit(function, params=[...])",
        )


def _texts(given: Iterable[str] | str) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(map(str, given))


def _names(after: Any) -> list[str]:
    if isinstance(after, Step):
        return [after.name]
    return [after] if isinstance(after, str) else [name for each in after for name in _names(each)]


def _files(inputs: Any) -> list[str]:
    if isinstance(inputs, Step):
        return list(inputs.outputs)
    return [str(inputs)] if isinstance(inputs, str | Path) else [name for each in inputs for name in _files(each)]


def _is_placeholder(rows: list[Any]) -> Callable[[str], bool]:
    """What may be filled in: the keys of dicts, or `{}` and any name for values, and the number."""
    if rows and isinstance(rows[0], Mapping):
        return lambda inner: inner in rows[0] or inner == "#"
    return lambda inner: inner in ("", "#") or inner.isidentifier()


def _filled(texts: list[str], items: Iterable[Any]) -> Iterable[list[str]]:
    """The texts of each item, its placeholders filled in."""
    rows = list(items)
    if not rows:
        raise BadInput("map over no items", hint="Nothing was started.")
    if not isinstance(rows[0], Mapping):
        used = list(dict.fromkeys(found for text in texts for found in _NAME.findall(text)))
        if len(used) > 1:
            raise BadInput(f"map uses {{{used[0]}}} and {{{used[1]}}}", hint="give dicts: [{'a': 1, 'b': 2}, ...]")
        key = used[0] if used else "item"
        texts = [re.sub(r"(?<!\{)\{\}(?!\})", f"{{{key}}}", text) for text in texts]
        rows = [{key: row} for row in rows]
    parameters = from_values(rows, "items")
    template = compile_texts(texts, Scope(parameters.source.columns, where="items"), "map")
    columns = parameters.source.columns
    for index, row in enumerate(rows):
        yield template.fill(index, [_text(row[column]) for column in columns])


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
