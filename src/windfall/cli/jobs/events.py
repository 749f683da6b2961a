"""`windfall events`: the log, record by record. Touches the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import msgspec

from windfall.cli.options import STAY_S, Place, json_option, staying_place_options
from windfall.cli.show.output import moment, plural, print_json
from windfall.core.decisions import VERDICT_NAMES, WHY_NAMES
from windfall.units import show_duration
from windfall.wire.messages import CAUSES

Json = dict[str, Any]
_SHOWN_CHARS = 200
_SHOWN_PIECES = 4


@click.command()
@click.argument("job", required=False)
@click.option("--follow", is_flag=True, help="Stay, and print what comes.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="SEQ", help="Only records behind this one.")
@staying_place_options
@json_option
def events(job: str | None, follow: bool, after: int, place: Place, as_json: bool) -> None:
    """Print what happened and what was decided on it, as it is kept in the log; of one job or of all.

    \b
    Examples:
      windfall events last
      windfall events --follow --json | jq .type
    """
    with place.open(patience_s=STAY_S if follow else 0.0) as client:
        reference = None if job is None else client.job(job).id
        for event in client.events(after, reference, follow):
            if as_json:
                print_json(event)
            else:
                click.echo(line_of(event))


def line_of(event: Json) -> str:
    """One record in one line: in words where there are some for it, else as it is kept."""
    job = f"job {event['job']}" if event["job"] else ""
    words = WORDS.get(event["event"]["type"], _as_kept)
    line = f"{event['seq']:>7}  {moment(event['t'])}  {event['type']:<16} {job:<8} "
    return (line + words(event["event"], event["decided"] or {}, event["t"]))[:_SHOWN_CHARS].rstrip()


def _as_kept(event: Json, decided: Json, t: float) -> str:
    said = _short({key: value for key, value in event.items() if key not in ("type", "job")})
    follows = _short({key: value for key, value in decided.items() if key != "type"})
    return said + (f" -> {follows}" if follows else "")


def _short(value: Json) -> str:
    kept = {key: item for key, item in value.items() if item not in (None, "", [], {}, False)}
    return msgspec.json.encode(kept).decode() if kept else ""


def _host_asked(event: Json, decided: Json, t: float) -> str:
    found = [f"{event['host']} leaves: {event['leaving']}" if event["leaving"] else event["host"]]
    if decided["refused"]:
        return f"{event['host']} refused: {decided['refused']}"
    # What changes the way of a job or a host stands before what is handed out, which may be long.
    for job, tail in decided["tails"]:
        found.append(f"job {job} {'enters' if tail else 'leaves'} its tail")
    if decided["probation"]:
        until, reason = decided["probation"]
        found.append(f"on probation for {show_duration(until - t)}: {reason}")
    if decided["lost"]:
        found.append(f"loses {plural(len(decided['lost']), 'attempt')}")
    found += [_piece(piece) for piece in decided["assigned"][:_SHOWN_PIECES]]
    if len(decided["assigned"]) > _SHOWN_PIECES:
        found.append(f"and {len(decided['assigned']) - _SHOWN_PIECES} more")
    if decided["cancel"]:
        found.append(f"drops {plural(len(decided['cancel']), 'attempt')}")
    return "; ".join(found)


def _piece(piece: Json) -> str:
    last = piece["first"] + piece["count"] - 1
    tasks = f"{piece['job']}.{piece['first']}" + (f"-{last}" if piece["count"] > 1 else "")
    return f"gets {tasks} ({WHY_NAMES[piece['why']]})"


def _results(event: Json, decided: Json, t: float) -> str:
    pairs = list(zip(event["results"], decided["verdicts"], strict=True))
    told = [
        f"{result['job']}.{result['task']}#{result['attempt']} {CAUSES[result['cause']]}: {VERDICT_NAMES[verdict]}"
        for result, verdict in pairs[:_SHOWN_PIECES]
    ]
    more = f"; and {len(pairs) - _SHOWN_PIECES} more" if len(pairs) > _SHOWN_PIECES else ""
    return f"{event['host']}: " + "; ".join(told) + more


def _overlay(event: Json, decided: Json, t: float) -> str:
    return "; ".join(
        f"asks {plural(ask['count'], 'worker')} of {ask['pool']}: {ask['because']}" for ask in decided["asks"]
    )


def _pool_answered(event: Json, decided: Json, t: float) -> str:
    workers = plural(event["count"], "worker")
    return f"{event['pool']}: {workers} refused: {event['error']}" if event["error"] else f"{event['pool']}: {workers}"


WORDS: dict[str, Callable[[Json, Json, float], str]] = {
    "HostAsked": _host_asked,
    "ResultsReported": _results,
    "OverlayDue": _overlay,
    "PoolAnswered": _pool_answered,
}
"""Records that people read most, in words."""
