"""`windfall plan --fleet NAME`: what one more job, or one more every minute, would mean for a fleet. Touches the server
and the terminal; nothing is submitted."""

from __future__ import annotations

import time
from typing import Any

import click
import msgspec
from msgspec import Struct

from windfall.api.asking import Admission, Stream
from windfall.bags.outline import MOST_TASKS, Outline, outlined
from windfall.bags.settings import Settings
from windfall.bags.submission import Request, Submission, read_job
from windfall.cli.show.output import plural, print_json
from windfall.errors import BadInput, Missed
from windfall.units import parse_deadline, parse_duration, show_duration, show_usd

MOST_DEADLINES = 8
HINT = "as in: --what-if every=1m, or --what-if deadline=1h,2h,4h"


class Asked(Struct, kw_only=True):
    """What was typed."""

    fleet: str
    job: str | None
    workflow_file: str | None
    deadline: str | None
    estimate: str | None
    what_if: str | None
    as_json: bool
    place: Any


def plan_fleet(asked: Asked) -> None:
    """Ask the server, show its answers. Missed (exit code 4): the deadline would not be kept."""
    every_s, deadlines_s = _compared(asked.what_if)
    bag = _read(asked)
    outline = _outline(asked, bag)
    with asked.place.open() as client:
        asked_with = msgspec.structs.replace(outline, every_s=every_s)
        own = client.ask_fleet(asked.fleet, asked_with)
        others = [
            client.ask_fleet(asked.fleet, msgspec.structs.replace(outline, deadline_s=deadline_s))
            for deadline_s in deadlines_s
        ]
    if asked.as_json:
        print_json({"name": bag.spec.name, **own, "what_if": others})
    else:
        for line in lines(bag.spec.name, own, others, every_s):
            click.echo(line)
    if not own["holds"]:
        said = own["says"]
        raise Missed(said[0], hint="; ".join(said[1:]))


def _compared(what_if: str | None) -> tuple[float | None, list[float]]:
    """The seconds between two jobs of a stream, and deadlines to compare."""
    if what_if is None:
        return None, []
    key, _, values = what_if.partition("=")
    if key == "every" and values:
        every_s = parse_duration(values, "--what-if every")
        if every_s > 0:
            return every_s, []
    elif key == "deadline" and values:
        deadlines = [parse_duration(text, "--what-if deadline") for text in values.split(",")]
        if all(deadline_s > 0 for deadline_s in deadlines) and len(deadlines) <= MOST_DEADLINES:
            return None, deadlines
    raise BadInput(f"--what-if {what_if}: with --fleet it takes every=TIME or deadlines", hint=HINT)


def _read(asked: Asked) -> Submission:
    # The fleet is not read from the file: it is the one that was typed.
    settings = Settings(estimate=asked.estimate) if asked.estimate else Settings()
    if asked.workflow_file:
        from windfall.workflows.submission import read_workflow

        return read_workflow(Request(workflow=asked.workflow_file, settings=settings))
    assert asked.job is not None
    if asked.job.endswith(".toml"):
        return read_job(Request(job_file=asked.job, settings=settings))
    return read_job(Request(tasks=asked.job, settings=settings))


def _outline(asked: Asked, bag: Submission) -> Outline:
    deadline_s = bag.spec.deadline_s
    if asked.deadline:
        deadline_s = parse_deadline(asked.deadline, time.time(), field="--deadline").in_s
    if deadline_s is None:
        raise BadInput("a job in a fleet needs a deadline", hint="as in: --deadline 2h")
    spec = msgspec.structs.replace(bag.spec, deadline_s=deadline_s)
    outline = outlined(spec, bag.count, bag.chunks, bag.shape, bag.estimates)
    if outline is None and bag.count > MOST_TASKS:
        raise BadInput(f"{bag.count:,} tasks are too many to be laid out", hint=f"at most {MOST_TASKS:,}")
    if outline is None:
        raise BadInput("how long do the tasks take?", hint="as in: --estimate 5m")
    return outline


def lines(name: str, own: Admission, others: list[Admission], every_s: float | None) -> list[str]:
    """The answers in words."""
    found = [f"job '{name}', {plural(own['tasks'], 'task')}, in fleet '{own['fleet']}' beside its other jobs:"]
    found += _of_deadline(own)
    found += [line for other in others for line in _of_deadline(other)]
    stream = own["stream"]
    if stream is not None and every_s is not None:
        found += _of_stream(stream, every_s)
    return found


def _of_deadline(told: Admission) -> list[str]:
    done = "never" if told["finish_s"] is None else f"done about {show_duration(told['finish_s'])} from now"
    kept = "would be kept" if told["met"] else "would not be kept"
    late = f", {plural(told['others_late'], 'other job')} late" if told["others_late"] else ""
    over = f", {show_usd(told['over_budget_usd'])} over the budget" if told["over_budget_usd"] > 0 else ""
    cost = f"{show_usd(told['extra_usd'])} more"
    return [f"  deadline {show_duration(told['deadline_s'])}  {kept}, {done}; {cost}{late}{over}"]


def _of_stream(stream: Stream, every_s: float) -> list[str]:
    head = f"  one every {show_duration(every_s)}"
    if not stream["in_time"]:
        return [f"{head}  its deadline would not be kept on machines that are rented for it"]
    machines = ", ".join(f"{count:.1f} {offer}" for offer, count in stream["machines"].items())
    found = [
        f"{head}  {show_usd(stream['each_usd'])} a job; the fleet would cost about {show_usd(stream['after_usd'])} an "
        f"hour instead of {show_usd(stream['before_usd'])}, with {machines} on average"
    ]
    return found + [f"  the limit of {offer} is too small for that" for offer in stream["beyond_limits"]]
