"""`windfall state`: copy, back up, restore, check and repair a state. Touches the terminal and the states named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from windfall.cli.options import json_option
from windfall.cli.show.output import busy, note, plural, print_json
from windfall.client.local.server import state_location
from windfall.errors import Kind, WindfallError
from windfall.loading import loading
from windfall.units import show_bytes

if TYPE_CHECKING:
    from windfall.upkeep.checking import Findings

state_option = click.option(
    "--state",
    metavar="STATE",
    help="A directory, or postgresql://USER@HOST/DATABASE.  [env: WINDFALL_STATE; default: .windfall]",
)


blobs_option = click.option(
    "--blobs", default="", metavar="URL", help="Keep the copy's files of jobs in s3://BUCKET/PREFIX, gs:// or az://."
)


class NotWhole(WindfallError):
    """A check found something wrong."""

    kind = Kind.OURS
    code = "state-not-whole"
    exit_code = 1


@click.group()
def state() -> None:
    """The state of a server: a directory (SQLite) or a PostgreSQL database."""


@state.command()
@click.argument("source", metavar="A")
@click.argument("target", metavar="B")
@blobs_option
@json_option
def copy(source: str, target: str, blobs: str, as_json: bool) -> None:
    """Copy the state A to a new place B: another directory, or from SQLite to PostgreSQL and back.

    A and B are directories or postgresql://USER@HOST/DATABASE. No server may run on A. The copy is compared row by row,
    and its log is replayed. Files of jobs are copied into B, wherever A keeps them, or to the object store of --blobs.
    """
    _copy(source, target, as_json, "go on with it: windfall server --state {}", blobs)


@state.command()
@click.argument("target", metavar="DIR")
@state_option
@json_option
def backup(target: str, state: str | None, as_json: bool) -> None:
    """Copy a state to the new directory DIR, while a server runs on it or not.

    The backup is the state as it was at one moment, with all files. It is a state itself: windfall status --state DIR.
    """
    _copy(state, target, as_json, "bring it back: windfall state restore {}", in_use=True)


@state.command()
@click.argument("source", metavar="BACKUP")
@state_option
@blobs_option
@json_option
def restore(source: str, state: str | None, blobs: str, as_json: bool) -> None:
    """Bring a backup back, to a place where no state is."""
    _copy(source, state, as_json, "workers that were told of more since then are told again", blobs)


@state.command()
@click.argument("place", metavar="[STATE]", required=False)
@click.option("--files", is_flag=True, help="Read every file of jobs, too, and compare its hash.")
@json_option
def check(place: str | None, files: bool, as_json: bool) -> None:
    """Look whether a state is whole. A server may run on it; nothing is written.

    Every record's sum is computed, the log is replayed and compared with the snapshots, and every job must have its
    specification, its tasks, and the files of results that count. Exit code 1 if something is wrong.
    """
    with loading():
        from windfall.store.view import open_view
        from windfall.upkeep.checking import check as check_view
    location = state_location(place)
    view = open_view(location)
    try:
        with busy("replaying"):
            found = check_view(view, files)
    finally:
        view.close()
    if as_json:
        print_json({"state": str(location), "whole": not found.problems, **_fields(found)})
    else:
        _tell(found)
    if found.problems:
        hint = f"restore a backup, or keep what is sound: windfall state repair {location} NEW"
        if as_json:
            raise click.exceptions.Exit(1)
        raise NotWhole(f"{location} is not whole: {plural(len(found.problems), 'problem')}", hint=hint)
    if not as_json:
        click.echo(f"{location} is whole")


@state.command()
@click.argument("source", metavar="STATE")
@click.argument("target", metavar="NEW")
@json_option
def repair(source: str, target: str, as_json: bool) -> None:
    """Write what is sound in a damaged state to a new place, and say what was dropped.

    The log is kept as far as it can be followed. The damaged state stays as it is. No server may run on it.
    """
    with loading():
        from windfall.upkeep.repairing import repair as repair_state
    damaged, new = state_location(source), state_location(target)
    with busy("reading"):
        repaired = repair_state(damaged, new)
    if as_json:
        told = {"last_seq": repaired.last_seq, "dropped": repaired.dropped, "check": _fields(repaired.findings)}
        print_json({"state": str(new), **told})
        return
    for line in repaired.dropped:
        click.echo(f"dropped: {line}")
    for line in repaired.findings.problems:
        click.echo(f"still wrong: {line}")
    what = plural(len(repaired.dropped), "thing") if repaired.dropped else "nothing"
    click.echo(f"{new} holds what was sound, up to record {repaired.last_seq}; {what} dropped")
    note(f"  {damaged} is as it was.  try: windfall status --state {new}")


def _fields(found: Findings) -> dict[str, Any]:
    return msgspec.structs.asdict(found)


def _tell(found: Findings) -> None:
    click.echo(f"  {plural(found.records, 'record')}, {found.replayed} of them replayed; {plural(found.jobs, 'job')}")
    click.echo(f"  {plural(found.blobs, 'file')} of {show_bytes(found.blob_bytes)}")
    if found.compared:
        click.echo(f"  the replay led to the snapshots {', '.join(map(str, found.compared))}")
    for line in found.notes:
        note(f"  {line}")
    for line in found.problems:
        click.echo(f"  wrong: {line}")


def _copy(
    source: str | None, target: str | None, as_json: bool, then: str, blobs: str = "", in_use: bool = False
) -> None:
    """Copy a state to a new place and say what was found. `then` may name that place; `in_use`: a server may run."""
    with loading():
        from windfall.upkeep import copying
    origin, new = state_location(source), state_location(target)
    with busy("copying"):
        copied = copying.copy(origin, new) if in_use else copying.move(origin, new, blobs)
    found = copied.findings
    if as_json:
        print_json({"from": str(origin), "state": str(new), "rows": copied.rows, "check": _fields(found)})
    else:
        click.echo(f"{origin} is copied to {new}")
        _tell(found)
    if found.problems:
        hint = f"keep what is sound: windfall state repair {origin} NEW"
        raise NotWhole(f"{origin} itself is not whole: {plural(len(found.problems), 'problem')}", hint=hint)
    if not as_json:
        note(f"  {then.format(new)}")
