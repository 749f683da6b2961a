"""`windfall joblog`: ended tasks in the format of GNU parallel's --joblog. Touches the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from windfall.cli.options import Place, place_options
from windfall.client.results import Task

COLUMNS = ("Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command")
NOT_FOUND = 127
"""What a shell says of a program that is not there."""
UNKNOWN = -1
"""Exitval of a task that ended without an exit code of its own: killed by us, or lost with its host."""


@click.command()
@click.argument("job", default="last")
@place_options
def joblog(job: str, place: Place) -> None:
    """Print the ended tasks of a job in the format of GNU parallel's --joblog, in the order of their ends.

    Seq counts tasks from 1. Receive is the size of the output files that were brought back.

    \b
    Examples:
      windfall joblog last > job.log
      windfall joblog sweep | awk '$7 != 0'
    """
    with place.open(patience_s=5.0) as client:
        found = client.job(job)
        commands = {task: command for task, command, _ in found.commands()}
        rows = found.results(wait=False)
        ended = sorted((task for task in rows if task.end_s is not None), key=lambda task: task.end_s)
    click.echo("\t".join(COLUMNS))
    for line in lines(ended, commands):
        click.echo(line)


def lines(ended: list[Task], commands: dict[int, str]) -> Iterator[str]:
    for task in ended:
        exit_value, signal = exit_and_signal(task)
        cells: list[Any] = [
            task.task + 1, task.host or ":", f"{task.start_s:.3f}", f"{task.end_s - task.start_s:10.3f}", 0,
            sum(output[2] for output in task.outputs), exit_value, signal, _one_line(commands.get(task.task, "")),
        ]  # fmt: skip
        yield "\t".join(map(str, cells))


def exit_and_signal(task: Task) -> tuple[int, int]:
    """Exit value and signal as GNU parallel writes them: one of them is not 0 if the task failed."""
    if task.ok:
        return 0, 0
    if task.cause == "signal":
        return 0, abs(task.exit_code or 9) % 128
    if task.cause == "no-command":
        return NOT_FOUND, 0
    return (task.exit_code if task.exit_code else UNKNOWN), 0


def _one_line(command: str) -> str:
    return command.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t") if "\n" in command else command
