"""`windfall run --dry-run`: the command of every task, and nothing is started. Touches the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import click

from windfall.bags.rendering import Renderer, Rows
from windfall.bags.submission import Request, Submission
from windfall.cli.show.output import note, plural, print_json
from windfall.errors import BadInput

Json = dict[str, Any]


def show_commands(bag: Submission | Request | None, as_json: bool) -> None:
    """Print a command per task, in the order of their numbers; --json: a line with number, command and parameters."""
    if not isinstance(bag, Submission):
        raise BadInput("--dry-run shows tasks that have not been submitted", hint="try: windfall results JOB --json")
    for row in _rows(bag):
        if as_json:
            print_json(row)
        else:
            name = f"{row['name']} | " if "name" in row else ""
            click.echo(name + row["command"])
    if not as_json:
        note(f"{plural(bag.count, 'task')}; nothing was started")


def _rows(bag: Submission) -> Iterator[Json]:
    data = {chunk.first: chunk.data for chunk in bag.chunks}
    renderer = Renderer(bag.spec, Rows(bag.chunks, data.__getitem__))
    for task in range(bag.count):
        rendered, name, params = renderer.task(task), renderer.name(task), renderer.parameters(task)
        if isinstance(params, str) and not bag.spec.command:
            line, params = params, None  # a line of a list of commands, as it was written
        else:
            line = _line(rendered.argv or [], (rendered.overrides or {}).get("env") or {}, bag.spec.env)
        yield {"task": task, **({"name": name} if name else {}), "command": line, "params": params}


def _line(argv: list[str], env: Mapping[str, str], of_job: Mapping[str, str]) -> str:
    """The command as a shell would take it, behind the variables that only this task has."""
    own = [f"{name}={shlex.quote(value)}" for name, value in env.items() if of_job.get(name) != value]
    return " ".join([*own, shlex.join(argv)])
