"""`windfall status`, `wait`, `tasks`, `retry`, `cancel`: a thin layer over the client. Touches the terminal."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from windfall.api.answers import JobStatus, TaskRow
from windfall.cli.options import (
    STAY_S,
    Place,
    all_tasks,
    json_option,
    max_wait_option,
    place_options,
    place_options_beside_states,
    staying_place_options,
    task_names,
)
from windfall.cli.show.output import moment, note, plural, print_json, print_table, worked_s
from windfall.cli.show.summary import document, exit_code, print_groups, print_summary
from windfall.client.local.server import jobs_at_rest, state_location
from windfall.client.results import ENDED, cause_text
from windfall.errors import BadInput, Missed, Unreachable
from windfall.units import parse_duration, show_bytes, show_duration
from windfall.wire.messages import CAUSES

if TYPE_CHECKING:
    from windfall.client import Client, Job

Json = dict[str, Any]
STATES = ("waiting", "running", "done", "failed", "cancelled")


@click.command()
@click.argument("job", required=False)
@click.option("--watch", is_flag=True, help="Stay until the job has ended.")
@staying_place_options
@json_option
def status(job: str | None, watch: bool, place: Place, as_json: bool) -> None:
    """Show the jobs of a server, or one job (its number, its name, or last).

    \b
    Examples:
      windfall status
      windfall status last --watch
    """
    if not watch and _shown_at_rest(job, place, as_json):
        return
    with place.open(patience_s=STAY_S if watch else 0.0) as client:
        if job is None and watch:
            job = "last"
        if job is None:
            _print_jobs(client.jobs(), as_json, client.is_idle, place)
            return
        found = client.job(job)
        if watch:
            refuse_endless(client, found, place)
            last = _watched(client, found, place, as_json)
        else:
            last = _as_it_stands(found.status(), client.is_idle)
            if as_json:
                print_json(last)
        if not as_json:
            _print_status(found.groups() if last["causes"] or last["tasks"]["failed"] else [], last, place)


def _shown_at_rest(job: str | None, place: Place, as_json: bool) -> bool:
    """Show what the log says if no server runs, without starting one. False: that takes a server."""
    if place.address:
        return False
    resting = jobs_at_rest(state_location(place.state))
    if resting is None:
        return False
    if job is None:
        _print_jobs(resting.jobs(), as_json, True, place)
        return True
    last = _as_it_stands(resting.job(job), True)
    if as_json:
        print_json(last)
    elif last["causes"] or last["tasks"]["failed"]:
        return False  # grouping failures takes their output
    else:
        _print_status([], last, place)
    return True


def _as_it_stands(status: JobStatus, is_idle: bool) -> Json:
    """The status, and whether a server runs. Without one, no host is connected, whatever the log says."""
    return {**status, "server_runs": not is_idle, **({"hosts": 0, "slots": 0} if is_idle else {})}


def _watched(client: Client, job: Job, place: Place, as_json: bool) -> Json:
    """Follow a job; with JSON one line for each change. Unreachable (exit code 3) if its server goes meanwhile."""
    from windfall.cli.run.follow import statuses
    from windfall.cli.show.progress import Progress

    last: Json = {}
    with Progress(job) as progress:
        for last in statuses(job):
            refuse_endless(client, job, place, last)
            if as_json:
                print_json(last)
            else:
                progress.update(last)
    return last


def _print_jobs(listed: Sequence[JobStatus], as_json: bool, is_idle: bool, place: Place) -> None:
    jobs = [_as_it_stands(row, is_idle) for row in listed]
    if as_json:
        print_json({"jobs": jobs})
        return
    if not jobs:
        click.echo("no jobs yet.  try: windfall run --range 1-10 -- echo {}")
        return
    heads = ["job", "name", "state", "tasks", "done", "failed", "running", "submitted", "took"]
    paid = any(row["money"] for row in jobs)
    print_table([*heads, *["$"] * paid], ([*_job_cells(row), *[_dollars(row)] * paid] for row in jobs))
    left = [row for row in jobs if row["state"] in ("running", "paused")]
    if is_idle and left:
        stood = f"unfinished jobs are shown as of {moment(max(row['changed_s'] for row in left))}"
        click.echo(f"no server runs: {stood}.  continue: windfall run --resume {left[0]['job']}{place.words}")


def _job_cells(row: Json) -> list[Any]:
    tasks = row["tasks"]
    counts = [tasks["total"], tasks["done"], tasks["failed"], _running(row) if row["server_runs"] else 0]
    return [
        row["job"],
        row["name"][:30],
        row["state"] if row["server_runs"] or row["state"] != "running" else "stopped",
        *counts,
        moment(row["submitted_s"]),
        show_duration(worked_s(row)),
    ]


def _dollars(row: Json) -> str:
    return f"{row['money']['spent_usd']:.4f}" if row["money"] else "-"


def _print_status(groups: Sequence[Mapping[str, Any]], last: Json, place: Place) -> None:
    print_summary(last, groups, place, about=list(_standing(last, place)))


def _standing(last: Json, place: Place) -> Iterator[str]:
    """How a job stands: its memory, what runs and waits, and how to continue it."""
    if last.get("peak_memory_bytes"):
        yield f"  memory: {show_bytes(last['peak_memory_bytes'])} is the most that an attempt took"
    if last["state"] in ENDED:
        return
    resume = f"windfall run --resume {last['job']}{place.words}"
    if not last.get("server_runs", True):
        since = show_duration(max(0.0, time.time() - last["changed_s"]))
        then = f"{last['tasks']['running']:,} running, {_waiting(last)}"
        yield f"  no server runs; as of {moment(last['changed_s'])} ({since} ago): {then}"
        yield f"  continue: {resume}"
        return
    hosts = f"{plural(last['hosts'], 'host')} with {plural(last['slots'], 'slot')}"
    yield f"  {last['state']}: {_running(last):,} running, {_waiting(last)}; {hosts}"
    if last["state"] == "running" and not last["slots"]:
        yield f"  no host is connected: start a worker, or {resume}"
    if last["state"] == "paused":
        yield f"  continue: {resume}, or windfall change {last['job']} --unpause"


def _running(status: Json) -> int:
    """Tasks that run. A worker holds the next ones as well: those wait."""
    held: int = status["tasks"]["running"]
    return min(held, status["slots"]) if status["slots"] else held


def _waiting(status: Json) -> str:
    """What waits; in a workflow, for what."""
    waiting, workflow = status["tasks"]["waiting"], status["workflow"]
    waiting += status["tasks"]["running"] - _running(status)
    if not workflow:
        return f"{waiting:,} waiting"
    held, blocked = workflow["held"], workflow["blocked"]
    said = [f"{waiting - held:,} ready", f"{held - blocked:,} waiting for others"]
    return ", ".join(said + [f"{blocked:,} blocked"] * (blocked > 0))


def refuse_endless(client: Client, job: Job, place: Place, status: Json | None = None) -> None:
    """Unreachable if the job has not ended and no server runs it: waiting would never end."""
    if client.is_idle and (status or job.status())["state"] not in ENDED:
        raise Unreachable(
            f"job {job.id} '{job.name}' has not ended, and no server runs it",
            hint=f"try: windfall run --resume {job.id}{place.words}",
        )


@click.command()
@click.argument("job", default="last")
@click.option("--until", default="done", metavar="done|failed:N", help="Also stop when N tasks have failed.")
@click.option("--timeout", metavar="TIME", help="Give up after: 90s, 10m. Exit code 4.")
@max_wait_option
@staying_place_options
@json_option
def wait(job: str, until: str, timeout: str | None, max_wait_s: float | None, place: Place, as_json: bool) -> int:
    """Wait until a job has ended; the exit code says how: 0 done, 1 tasks failed, 4 deadline missed.

    \b
    Examples:
      windfall wait last --timeout 1h
      windfall wait sweep --until failed:1
    """
    from windfall.cli.run.follow import StuckWatch, statuses
    from windfall.cli.show.progress import Progress

    wanted = _failures_wanted(until)
    timeout_s = None if timeout is None else parse_duration(timeout, "--timeout")
    with place.open(patience_s=STAY_S) as client:
        found = client.job(job)
        refuse_endless(client, found, place)
        last: Json = {}
        with Progress(found) as progress:
            if not progress.is_seen and found.status()["state"] == "paused":
                note(
                    f"windfall: job {found.id} '{found.name}' is paused; continue: windfall change {found.id} --unpause"
                )
            watch = StuckWatch(found, progress, max_wait_s)
            for last in statuses(found, timeout_s=timeout_s):
                refuse_endless(client, found, place, last)
                watch.look(last)
                progress.update(last)
                if wanted is not None and last["tasks"]["failed"] >= wanted:
                    break
        groups = found.groups() if last["causes"] or last["tasks"]["failed"] else []
        if as_json:
            print_json(document(last, groups, found.pools()))
        else:
            print_summary(last, groups, place, pools=found.pools())
        if wanted is not None and last["tasks"]["failed"] >= wanted:
            return 1
        if last["state"] not in ENDED:
            raise Missed(f"job {found.id} '{found.name}' is {last['state']} after {timeout}", hint="the job continues")
        return exit_code(last)


def _failures_wanted(until: str) -> int | None:
    if until == "done":
        return None
    match = re.fullmatch(r"failed:([1-9]\d*)", until)
    if not match:
        raise BadInput(f"--until {until}: done or failed:N is expected", hint="as in: --until failed:1")
    return int(match[1])


@click.command()
@click.argument("job", default="last")
@click.argument("task", type=task_names, nargs=-1)
@click.option("--state", "wanted", type=click.Choice(STATES), help="Only tasks in this state.")
@click.option("--host", metavar="NAME", help="Only tasks that ran last on this host, or run there now.")
@click.option(
    "--cause", type=click.Choice(CAUSES), metavar="CAUSE",
    help="Only tasks whose last attempt ended by this cause: exit, signal, oom, time, lost, ...",
)  # fmt: skip
@click.option("--group-by", type=click.Choice(["cause"]), help="Failures grouped by cause.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Number of rows at most.  [default: all]")
@place_options_beside_states
@json_option
def tasks(
    job: str,
    task: tuple[list[int | str], ...],
    wanted: str | None,
    host: str | None,
    cause: str | None,
    group_by: str | None,
    limit: int | None,
    place: Place,
    as_json: bool,
) -> None:
    """List the tasks of a job (all, or as in 3,20-29), or its failures grouped by cause.

    --json prints one line per task.

    \b
    Examples:
      windfall tasks last --state failed
      windfall tasks last --cause oom
      windfall tasks last 20-29
      windfall tasks last --group-by cause
    """
    if group_by and (wanted or host or cause):
        raise BadInput(
            "--group-by counts all failures of the job",
            hint="try it without --state, --host and --cause",
        )
    with place.open() as client:
        found = client.job(job)
        if group_by:
            groups = found.groups()
            most = limit or len(groups)
            if as_json:
                print_json({"job": found.id, "groups": groups[:most]})
            elif groups:
                print_groups(groups, most)
            else:
                click.echo(f"job {found.id} '{found.name}': nothing has failed")
            return
        chosen = {found.number_of(each) for each in all_tasks(task)}
        _refuse_unknown(found, chosen)
        rows = islice(
            (row for row in found.tasks(wanted, host=host, cause=cause) if not chosen or row["task"] in chosen), limit
        )
        if as_json:
            for row in rows:
                print_json(row)
        else:
            shown = list(rows)
            _print_tasks(shown)
            if client.is_idle and any(row["end_s"] is None for row in shown):
                _say_as_of_when(found.status(), place)


def _say_as_of_when(status: JobStatus, place: Place) -> None:
    """Of a job that has not ended, while no server runs it."""
    if status["state"] not in ENDED:
        stood = f"tasks are shown as of {moment(status['changed_s'])}"
        click.echo(f"no server runs: {stood}.  continue: windfall run --resume {status['job']}{place.words}")


def _refuse_unknown(job: Job, tasks: set[int]) -> None:
    """Numbers of tasks that the job does not have; names have been looked up."""
    total = job.status()["tasks"]["total"] if tasks else 0
    if tasks and max(tasks) >= total:
        raise BadInput(
            f"there is no task '{max(tasks)}': job {job.id} has tasks 0 to {total - 1}",
            hint=f"list them: windfall tasks {job.id}",
        )


def _print_tasks(rows: list[TaskRow]) -> None:
    print_table(
        ["task", "state", "attempts", "host", "end", "took", "cause"],
        (
            [
                row.get("name") or row["task"],
                task_state(row),
                row["attempts"],
                ", ".join(row.get("hosts") or []) or row["host"] or "-",
                moment(row["end_s"]),
                show_duration(row["end_s"] - row["start_s"]) if row["end_s"] and row["start_s"] else "-",
                cause_text(row["cause"], row["exit_code"]) if row["cause"] else "-",
            ]
            for row in rows
        ),
    )


def task_state(row: Mapping[str, Any]) -> str:
    """The state of a task; of one that waits in a workflow, for what."""
    if row["state"] != "waiting" or not row.get("parents_left"):
        return str(row["state"])
    return "blocked" if row["blocked"] else f"waits for {row['parents_left']}"


@click.command()
@click.argument("job")
@click.argument("task", type=task_names, nargs=-1)
@click.option("--failed", is_flag=True, help="All that failed.")
@click.option("--cancelled", is_flag=True, help="All that were cancelled.")
@click.option("--memory", metavar="SIZE", help="Memory per task from now on.  [default: as before]")
@place_options
@json_option
def retry(
    job: str,
    task: tuple[list[int | str], ...],
    failed: bool,
    cancelled: bool,
    memory: str | None,
    place: Place,
    as_json: bool,
) -> None:
    """Try tasks again in place: same job, same numbers, new attempts.

    \b
    Examples:
      windfall retry last --failed
      windfall retry sweep 17 20-29 --memory 4G
    """
    if not (failed or cancelled or task):
        raise BadInput("retry what?", hint=f"try: windfall retry {job} --failed")
    with place.open() as client:
        found = client.job(job)
        count = found.retry(failed, tasks=all_tasks(task) or None, cancelled=cancelled, memory=memory)
        idle = client.is_idle
    if as_json:
        print_json({"job": found.id, "retried": count})
        return
    click.echo(f"job {found.id} '{found.name}': {plural(count, 'task')} will be tried again")
    if count and idle:
        note(f"no server runs it now.  try: windfall run --resume {found.id}{place.words}")


@click.command()
@click.argument("job")
@click.argument("task", type=task_names, nargs=-1)
@click.option("--reason", default="", metavar="TEXT", help="To be remembered.")
@place_options
@json_option
def cancel(job: str, task: tuple[list[int | str], ...], reason: str, place: Place, as_json: bool) -> None:
    """Cancel a job, or some of its tasks. Waiting tasks are dropped, running ones killed, ended ones kept.

    \b
    Examples:
      windfall cancel last
      windfall cancel sweep 17 20-29 --reason "wrong input"
    """
    with place.open() as client:
        found = client.job(job)
        count = found.cancel(all_tasks(task) or None, reason)
    if as_json:
        print_json({"job": found.id, "cancelled": count})
    else:
        nothing = "" if count else ": they have ended before" if task else ": it has ended before"
        click.echo(f"job {found.id} '{found.name}': {plural(count, 'task')} cancelled{nothing}")
