"""How a job ended: the screen, the document, the exit code. Touches standard output."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import click

from windfall.cli.options import Place
from windfall.cli.show.money import outcome, outcome_lines, over_budget_usd
from windfall.cli.show.output import columns_here, echo, plural, rate, worked_s
from windfall.client.results import cause_text
from windfall.units import show_duration

Json = dict[str, Any]
_WHY = 37
"""Columns of what a command is for."""
_WIDE = 1000
"""Columns where lines are not counted: a pipe or a file."""
INTERRUPTED = 130
_SHOWN_GROUPS = 5
_SHOWN_LINES = 3
_WORTH_SAYING_S = 1.0
_ADVICE = {
    "no-cwd": "make the directory on every host, or leave --cwd out: each task then has one of its own (--input FILE)",
    "quota": "write less, send outputs to a store (PATH=s3://...), or have the server take more (windfall server "
    "--limit job-blobs=SIZE); then windfall retry",
}
"""Cause -> what to do about it, where no output of the task would say so."""


def exit_code(status: Json) -> int:
    """0 done, 1 tasks failed (or were cancelled), 4 deadline or budget missed, 130 stopped on the way."""
    if status["state"] in ("failed", "cancelled"):
        return 1
    if (status.get("money") or {}).get("held_by_budget"):
        return 4
    if status["state"] != "done":
        return INTERRUPTED
    return 4 if missed_by_s(status) is not None or over_budget_usd(status.get("money")) else 0


def missed_by_s(status: Json) -> float | None:
    """How long after its deadline the last result came; None if there was no deadline or it was met."""
    if status["deadline_s"] is None:
        return None
    late_s = status["submitted_s"] + status["elapsed_s"] - status["deadline_s"]
    return late_s if late_s > 0 else None


def document(
    status: Json, groups: Sequence[Mapping[str, Any]], pools: Sequence[Mapping[str, Any]] | None = None
) -> Json:
    """What `windfall run --json` prints. A public contract: docs/reference/cli.md."""
    tasks = status["tasks"]
    return {
        "job": status["job"],
        "name": status["name"],
        "state": status["state"],
        "tasks": {name: tasks[name] for name in ("total", "done", "failed", "cancelled")},
        "attempts": status["attempts"],
        "elapsed_s": status["elapsed_s"],
        "down_s": status.get("down_s", 0.0),
        "submitted_s": status["submitted_s"],
        "finished_s": status["finished_s"],
        "mean_run_s": status["mean_run_s"],
        "waste": status["waste"],
        "stopped": status["stopped"],
        "deadline_s": status["deadline_s"],
        "missed_by_s": missed_by_s(status),
        "money": outcome(status),
        "failures": groups,
        "pools": pools or [],
    }


def print_summary(
    status: Json,
    groups: Sequence[Mapping[str, Any]],
    place: Place,
    *,
    resume: bool = False,
    pools: Sequence[Mapping[str, Any]] | None = None,
    about: Sequence[str] = (),
) -> None:
    """How a job ended, by pool if there were several, its failures, and commands to try.

    `resume`: no server is left that would continue it. `about`: lines that stand before the commands.
    """
    tasks, job = status["tasks"], status["job"]
    counts = [f"{tasks['done']:,} done"]
    counts += [f"{tasks[name]:,} {name}" for name in ("failed", "cancelled") if tasks[name]]
    blocked = (status.get("workflow") or {}).get("blocked", 0)
    rest = tasks["total"] - tasks["done"] - tasks["failed"] - tasks["cancelled"] - blocked
    counts += [f"{blocked:,} blocked"] if blocked else []
    counts += [f"{rest:,} to go"] if rest else []
    took_s = worked_s(status)
    speed = f" ({rate(tasks['done'] / took_s)})" if tasks["done"] > 1 and took_s > 0 else ""
    head = f"job {job} '{status['name']}'  {plural(tasks['total'], 'task')}: {', '.join(counts)}"
    again = status["attempts"] - status.get("parts", 0) - tasks["done"] - tasks["failed"] - tasks["cancelled"]
    extra = f"   {plural(again, 'extra attempt')}" if again > 0 and not rest else ""
    echo(f"{head}   in {show_duration(took_s)}{_down_words(status)}{speed}{extra}")
    if status["stopped"]:
        echo(f"  stopped early: {status['stopped']}")
    late_s = missed_by_s(status)
    if late_s is not None:
        echo(f"  the deadline was missed by {show_duration(late_s)}")
    for line in outcome_lines(status):
        echo(line)
    if len(pools or []) > 1:
        print_pools(pools or [])
    print_groups(groups, more=f"windfall tasks {job} --group-by cause{place.words}")
    for line in about:
        echo(line)
    if tasks["failed"]:
        print_next(job, groups, place, resume)


def print_pools(pools: Sequence[Mapping[str, Any]]) -> None:
    """One line for each pool: what it did, how fast, what was lost there, what it cost."""
    width = max(len(row["pool"]) for row in pools)
    for row in pools:
        parts = [f"{row['tasks_done']:,} done on {plural(row['hosts'], 'host')}"]
        parts += [rate(row["tasks_per_s"])] if row["tasks_per_s"] else []
        parts += [f"{plural(row['attempts_lost'], 'attempt')} lost"] if row["attempts_lost"] else []
        parts += [f"{plural(row['machines'], 'machine')} for ${row['cost_usd']:.4f}"] if row["machines"] else []
        click.echo(f"  {row['pool']:<{width}}  {', '.join(parts)}")


def _down_words(status: Json) -> str:
    down_s = float(status.get("down_s") or 0.0)
    return f" (and {show_duration(down_s)} stopped)" if down_s >= _WORTH_SAYING_S else ""


def print_groups(groups: Sequence[Mapping[str, Any]], limit: int = _SHOWN_GROUPS, more: str = "") -> None:
    """Failures by kind and message, those that stayed first, each with its last lines.

    At most `limit` final groups and as many that went on. Every kind is shown once before any is shown twice: a large
    kind with many messages hides none. `more`: a command that shows what was left out.
    """
    for final in (True, False):
        chosen = [group for group in groups if bool(group["final"]) is final]
        shown = every_kind_first(chosen, limit)
        for group in shown:
            _print_group(group)
        if left := len(chosen) - len(shown):
            count = sum(group["count"] for group in chosen) - sum(group["count"] for group in shown)
            click.echo(f"  and {count:,} in {plural(left, 'other group')}" + (f":   {more}" if more else ""))


def every_kind_first(groups: Sequence[Mapping[str, Any]], limit: int) -> list[Mapping[str, Any]]:
    """Up to `limit` groups: the largest of every kind (cause and exit code), then the largest others. Kinds together,
    the largest kind first."""
    kinds: dict[tuple[str, int | None], list[Mapping[str, Any]]] = {}
    # What was not compared is the rest of its kind, and comes behind those that it is more than.
    for group in sorted(groups, key=lambda group: (not group.get("compared", True), -group["count"])):
        kinds.setdefault((group["cause"], group["exit_code"]), []).append(group)
    first = [of_kind[0] for of_kind in kinds.values()]
    others = sorted((g for of_kind in kinds.values() for g in of_kind[1:]), key=lambda group: -group["count"])
    chosen = {id(group) for group in [*first, *others][:limit]}
    by_size = sorted(kinds.values(), key=lambda of_kind: -sum(group["count"] for group in of_kind))
    return [group for of_kind in by_size for group in of_kind if id(group) in chosen]


def _print_group(group: Mapping[str, Any]) -> None:
    tasks = ", ".join(map(str, (group.get("names") or group["tasks"])[:5])) + (", ..." if group["count"] > 5 else "")
    what = cause_text(group["cause"], group["exit_code"])
    if not group.get("compared", True):
        click.echo(f"  {group['count']:,} more failed: {what} (output not compared)   task {tasks}")
        return
    if group["final"]:
        echo(f"  {group['count']:,} failed: {what}   task {tasks}")
    else:
        echo(f"  {group['count']:,} failed at first and went on: {what}   task {tasks}")
    lines = (group["stderr_tail"] or group.get("text") or "").strip().splitlines() or [group["last_line"] or ""]
    shown = lines[-_SHOWN_LINES:] if group["final"] else lines[-1:]
    for line in shown:
        if line.strip() not in ("", what):
            echo(f"      | {line[:160]}")
    if group["final"] and (advice := _advice(group)):
        click.echo(f"      {advice}")


def _advice(group: Mapping[str, Any]) -> str:
    if group["cause"] == "no-command" and str(group.get("text")).endswith("Permission denied"):
        return "make it executable (chmod +x), or name what runs it: python3 FILE; then windfall retry"
    return _ADVICE.get(group["cause"], "")


def print_next(job: int, groups: Sequence[Mapping[str, Any]], place: Place, resume: bool) -> None:
    """Commands to try after a job of which tasks have failed."""
    where = place.words
    example = shlex.quote(str(next(((g.get("names") or g["tasks"])[0] for g in groups if g["final"]), 0)))
    go_on = f" && windfall run --resume {job}{where}" if resume else ""
    lines = [("go there", f"cd {shlex.quote(place.typed_in)}")] if place.typed_in else []
    lines += [
        ("output of a failed task", f"windfall logs {job} {example}{where}"),
        ("run the failed tasks again", f"windfall retry {job} --failed{where}{go_on}"),
        ("results of the other tasks", f"windfall results {job} --json{where}"),
    ]
    click.echo("what next:")
    narrow = (columns_here() or _WIDE) < 2 + _WHY + max(len(command) for _, command in lines)
    for why, command in lines:
        # A command is never broken: it is copied.
        click.echo(f"  {why}:\n    {command}" if narrow else f"  {why:<{_WHY}}{command}")
