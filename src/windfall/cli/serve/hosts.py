"""`windfall host`: list, block and drain hosts. Touches the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click

from windfall.api.answers import HostRow, OneHost
from windfall.cli.options import Place, json_option, place_options
from windfall.cli.show.output import plural, print_json, print_table
from windfall.units import parse_duration, show_duration

Json = dict[str, Any]


@click.group()
def host() -> None:
    """Hosts: where workers run.

    \b
    Examples:
      windfall host list
      windfall host block node7 --reason "disk full" --for 1h
    """


@host.command("list")
@place_options
@json_option
def list_(place: Place, as_json: bool) -> None:
    """List the hosts that have asked for work.

    Those that left long ago are forgotten (windfall server --retain host-age=90d); what they did is told as a sum.
    """
    with place.open() as client:
        answer = client.all_hosts()
    hosts, forgotten = answer["hosts"], answer.get("forgotten", [])
    if as_json:
        print_json({"hosts": hosts, "forgotten": forgotten})
        return
    if not hosts and not forgotten:
        click.echo("no host has asked for work yet.  try: windfall worker --server URL --token T")
    else:
        print_table(
            ["host", "state", "slots", "held", "done", "failed", "lost", "seen", "remark"],
            (
                [
                    row["host"],
                    _state(row),
                    row["slots"],
                    row["held"],
                    row["done"],
                    row["failed"],
                    row["lost"],
                    f"{show_duration(row['seen_s_ago'])} ago",
                    _remark(row),
                ]
                for row in hosts
            ),
        )
    for row in forgotten:
        said = f"{row['done']} tasks done, {row['failed']} failed, {row['lost']} lost"
        click.echo(f"forgotten, of pool {row['pool'] or 'others'}: {plural(row['hosts'], 'host')} with {said}")


def _state(row: HostRow) -> str:
    marks = [name for name, holds in (("blocked", row["blocked"]), ("draining", row["draining"])) if holds]
    marks += ["probation"] if row["probation_until"] is not None else []
    return f"{row['state']} ({', '.join(marks)})" if marks else str(row["state"])


def _remark(row: HostRow) -> str:
    """Why it gets nothing, or left."""
    if row["blocked"]:
        return str(row["blocked"])
    if row["probation_until"] is not None:
        left_s = row["probation_until"] - time.time()
        return f"{row['suspicion']}; " + (f"next test in {show_duration(left_s)}" if left_s > 0 else "a test is due")
    return f"left: {row['left']}" if row["left"] else ""


def _of_host(function: Callable[..., None]) -> click.Command:
    """A command of `windfall host` that takes the name of a host and no option of its own."""
    return host.command()(click.argument("name")(place_options(json_option(function))))


def _tell(place: Place, name: str, order: str, **fields: Any) -> OneHost:
    with place.open() as client:
        return client.tell_host(name, order, **fields)


@_of_host
def info(name: str, place: Place, as_json: bool) -> None:
    """Show one host: what it is, what it holds, how well it has done."""
    with place.open() as client:
        _show(client.host(name), as_json)


@host.command()
@click.argument("name")
@click.option("--reason", default="blocked by hand", metavar="TEXT", help="Shown in lists and events.")
@click.option("--for", "for_", metavar="TIME", help="Unblock after this time.  [default: by hand]")
@place_options
@json_option
def block(name: str, reason: str, for_: str | None, place: Place, as_json: bool) -> None:
    """Give a host no more tasks; running ones finish."""
    for_s = None if for_ is None else parse_duration(for_, "--for")
    row = _tell(place, name, "block", reason=reason, for_s=for_s)
    until = f"for {show_duration(for_s)}" if for_s is not None else f"until windfall host unblock {name}"
    _answer(row, f"host {row['host']} gets no more tasks {until}; {_held(row)}", as_json)


@_of_host
def unblock(name: str, place: Place, as_json: bool) -> None:
    """Give a host tasks again."""
    row = _tell(place, name, "unblock")
    _answer(row, f"host {row['host']} gets tasks again", as_json)


@_of_host
def drain(name: str, place: Place, as_json: bool) -> None:
    """Let a host finish its tasks; then its worker ends."""
    row = _tell(place, name, "drain")
    _answer(row, f"host {row['host']} gets no more tasks, and its worker ends; {_held(row)}", as_json)


def _held(row: OneHost) -> str:
    """What becomes of the tasks that a host has."""
    return f"{plural(row['held'], 'task')} that it has will be finished first" if row["held"] else "it has none now"


def _answer(row: OneHost, sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(row)
    else:
        click.echo(sentence)


def _show(row: OneHost, as_json: bool) -> None:
    if as_json:
        print_json(row)
        return
    click.echo(f"host {row['host']}: {_state(row)}")
    for key, value in row.items():
        if key == "ad":
            for name, part in row["ad"].items():
                click.echo(f"  ad.{name:<14} {part}")
        elif key not in ("host", "state") and value not in (None, "", [], False):
            click.echo(f"  {key:<17} {value}")
