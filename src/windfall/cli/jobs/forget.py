"""`windfall forget`: jobs that have ended are removed from a server. Touches the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from windfall.cli.options import Place, json_option, place_options
from windfall.cli.show.output import plural, print_json
from windfall.client.results import ENDED
from windfall.errors import BadInput

if TYPE_CHECKING:
    from windfall.client import Client, Job


@click.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@place_options
@json_option
def forget(jobs: tuple[str, ...], yes: bool, place: Place, as_json: bool) -> None:
    """Remove jobs that have ended, with their tasks, outputs and results. This cannot be undone.

    Files that were uploaded or made stay on the server. A job that rented machines is kept for its bill.

    \b
    Examples:
      windfall forget trial --yes
      windfall forget trial draft --yes --json
    """
    with place.open() as client:
        found = _found(client, jobs)
        if not yes:
            _ask(list(found.values()))
        for job in found.values():
            job.forget()
            if not as_json:
                click.echo(f"job {job.id} '{job.name}' is forgotten")
    if as_json:
        print_json({"forgotten": list(found)})


def _found(client: Client, names: tuple[str, ...]) -> dict[int, Job]:
    """The jobs by number, each once: all of them are looked at before the first is forgotten."""
    found = {job.id: job for job in (client.job(name) for name in names)}
    for job in found.values():
        if (state := job.status()["state"]) not in ENDED:
            hint = f"try: windfall wait {job.id}, or windfall cancel {job.id}"
            raise BadInput(f"job {job.id} '{job.name}' has not ended: it is {state}", hint=hint)
    return found


def _ask(jobs: list[Job]) -> None:
    if not sys.stdin.isatty():
        raise BadInput("nobody can be asked whether to forget", hint="try: windfall forget JOB --yes")
    called = ", ".join(f"{job.id} '{job.name}'" for job in jobs)
    click.confirm(f"Forget {plural(len(jobs), 'job')} with all results: {called}?", abort=True, err=True)
