"""`windfall forget`: jobs that have ended are removed from a server. Touches the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from windfall.cli.options import Place, json_option, place_options
from windfall.cli.show.output import note, plural, print_json
from windfall.client.results import ENDED
from windfall.errors import BadInput
from windfall.units import parse_duration

if TYPE_CHECKING:
    from windfall.client import Client, Job


@click.command()
@click.argument("jobs", metavar="[JOB...]", nargs=-1)
@click.option("--older-than", metavar="TIME", help="All jobs that ended longer ago than this: 30d.")
@click.option("--keep", type=click.IntRange(0), metavar="N", help="All ended jobs but the N newest.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@place_options
@json_option
def forget(
    jobs: tuple[str, ...], older_than: str | None, keep: int | None, yes: bool, place: Place, as_json: bool
) -> None:
    """Remove jobs that have ended, with their tasks, outputs and results. This cannot be undone.

    Name them, or choose them by age and number: with both, a job goes only if both say so. Jobs that have not ended are
    never chosen. Files that no other job names are removed an hour later. A job that rented machines is kept for its
    bill.

    \b
    Examples:
      windfall forget trial --yes
      windfall forget trial draft --yes --json
      windfall forget --older-than 30d --keep 100 --yes
    """
    choosing = older_than is not None or keep is not None
    if bool(jobs) == choosing:
        raise BadInput("name the jobs, or choose them by age or number", hint="as in: windfall forget --older-than 30d")
    older_s = None if older_than is None else parse_duration(older_than, "--older-than")
    forgotten: list[int] = []
    kept: dict[int, str] = {}
    with place.open() as client:
        if choosing:
            numbers = chosen(client.jobs(), time.time(), older_s, keep)
            found = {number: client.job(number) for number in numbers}
        else:
            found = _found(client, jobs)
        if found and not yes:
            _ask(list(found.values()))
        for job in found.values():
            try:
                job.forget()
            except BadInput as error:
                if not choosing or error.code != "job-needed":
                    raise
                kept[job.id] = error.message
                continue
            forgotten.append(job.id)
            if not as_json:
                click.echo(f"job {job.id} '{job.name}' is forgotten")
    if as_json:
        print_json({"forgotten": forgotten, "kept": {str(job): why for job, why in kept.items()}})
        return
    for why in kept.values():
        note(f"windfall: kept: {why}")
    if not found:
        click.echo("nothing to forget: no ended job is that old")


def chosen(statuses: Sequence[Mapping[str, Any]], now_s: float, older_s: float | None, keep: int | None) -> list[int]:
    """Numbers of ended jobs to forget, the oldest first: those that ended before, and all but the newest `keep`."""
    ended = [row for row in statuses if row["state"] in ENDED and row["finished_s"] is not None]
    ended.sort(key=lambda row: (row["finished_s"], row["job"]))
    if keep is not None:
        ended = ended[: max(0, len(ended) - keep)]
    return [row["job"] for row in ended if older_s is None or now_s - row["finished_s"] > older_s]


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
