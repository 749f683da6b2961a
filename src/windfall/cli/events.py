"""`windfall events`: the log, record by record. Touches the terminal."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from windfall.cli.options import Place, json_option, place_options
from windfall.cli.output import moment, print_json

_SHOWN_CHARS = 160


@click.command()
@click.argument("job", required=False)
@click.option("--follow", is_flag=True, help="Stay, and print what comes.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="SEQ", help="Only records behind this one.")
@place_options
@json_option
def events(job: str | None, follow: bool, after: int, place: Place, as_json: bool) -> None:
    """Print what happened and what was decided on it, as it is kept in the log; of one job or of all.

    \b
    Examples:
      windfall events last
      windfall events --follow --json | jq .type
    """
    with place.open(patience_s=60.0 if follow else 0.0) as client:
        reference = None if job is None else client.job(job).id
        for event in client.events(after, reference, follow):
            if as_json:
                print_json(event)
            else:
                click.echo(_line(event))


def _line(event: dict[str, Any]) -> str:
    job = f"job {event['job']}" if event["job"] else ""
    said = {key: value for key, value in event["event"].items() if key not in ("type", "job")}
    text = _short(said)
    decided = _short({key: value for key, value in (event["decided"] or {}).items() if key != "type"})
    line = f"{event['seq']:>7}  {moment(event['t'])}  {event['type']:<16} {job:<8} {text}"
    return (line + (f" -> {decided}" if decided else ""))[:_SHOWN_CHARS].rstrip()


def _short(value: dict[str, Any]) -> str:
    kept = {key: item for key, item in value.items() if item not in (None, "", [], {}, False)}
    return msgspec.json.encode(kept).decode() if kept else ""
