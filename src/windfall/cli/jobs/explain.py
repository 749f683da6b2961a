"""`windfall explain`: why a job or a task is where it is, as the code that decides tells it. Touches the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click

from windfall.cli.options import Place, find_task, json_option, place_options, task_name
from windfall.cli.show.money import cost_words, fleet_words, reason_words, refusals
from windfall.cli.show.output import moment, plural, print_json
from windfall.cli.show.summary import print_groups, print_next
from windfall.client.results import cause_text
from windfall.escaping import visible
from windfall.units import show_bytes, show_duration, show_usd

Json = dict[str, Any]
_MOST_TRIES = 3
_MOST_CHARS = 120
_MOST_MACHINES, _MOST_JOBS = 5, 6
NEVER_RAN = ("no-command", "no-cwd", "inputs", "bad-task")
"""Causes of attempts whose program was never started."""


@click.command()
@click.argument("reference", metavar="JOB[.TASK]")
@click.argument("task", type=task_name, required=False)
@place_options
@json_option
def explain(reference: str, task: int | str | None, place: Place, as_json: bool) -> None:
    """Say why a job or a task waits: which hosts there are, what keeps each away, and what to change.

    Of a task that has been sent out it tells the story: each attempt, where, why there, and why again. Of a job that
    rents machines it tells why this money: what its plans did and why, what they rejected and at which price; in a
    fleet, which jobs share its machines and why.

    \b
    Examples:
      windfall explain fit
      windfall explain fit.1822
    """
    with place.open() as client:
        job, number = find_task(client, reference, task)
        told: Json = {**job.explain(number)}
        command = "" if number is None or as_json else job.command(number)
        idle = client.is_idle and told.get("waiting") is not None
        no_server = client.is_idle
        url = client.transport.url
        if number is None and told["state"] == "failed":
            status = job.status()
            told |= {"tasks": status["tasks"], "stopped": status["stopped"], "failures": job.groups()}
    if idle and told["waiting"].get("blocked_by"):
        told["waiting"]["try"] = [f"{text} && windfall run --resume {job.id}" for text in told["waiting"]["try"]]
    elif idle:
        told["waiting"]["try"] = [f"windfall run --resume {job.id}{place.words}", *told["waiting"]["try"]]
    elif waiting := told.get("waiting"):
        waiting["try"] = [text.replace("--server URL ", f"--server {url} ") for text in waiting["try"]]
    if as_json:
        print_json(told)
        return
    for line in lines(told, command):
        click.echo(line)
    if groups := told.get("failures"):
        print_groups(groups, more=f"windfall tasks {job.id} --group-by cause{place.words}")
        print_next(job.id, groups, place, no_server)


def lines(told: Json, command: str = "") -> list[str]:
    """The document in words; `command` is that of the task which it is about."""
    job = f"job {told['job']} '{told['name']}'"
    if told["task"] is None:
        waiting = told.get("waiting")
        if waiting is None:
            ended = [f"{job} has ended: {told['state']}.", *_why_failed(told)]
            return [*ended, *_blocked(told), *memory_lines(told), *money_lines(told)]
        head = f"{job} {'waits' if waiting['waits'] and not told.get('running') else 'is ' + told['state']}."
        written = [f"    {name} = {text}" for name, text in told["policies"].items()]
        policies = ["  its policies:", *written] if written else []
        return [head, *waiting_lines(waiting), *policies, *memory_lines(told), *money_lines(told)]
    found = [f"task {told.get('task_name') or told['task']} of {job} {_standing(told)}."]
    if command:
        found.append(f"  its command: {visible(command)}")
    if "waiting" in told:
        found += waiting_lines(told["waiting"])
    if told["story"]:
        found += ["  its story:", *(f"    {_step(step)}" for step in told["story"])]
    return found


def _why_failed(told: Json) -> list[str]:
    """How many tasks failed, and what stopped the job before its end."""
    if not (tasks := told.get("tasks")):
        return []
    others = [f"{tasks[name]:,} {name}" for name in ("done", "cancelled") if tasks[name]]
    found = [
        f"  {tasks['failed']:,} of {plural(tasks['total'], 'task')} failed" + "".join(f", {o}" for o in others) + "."
    ]
    return found + [f"  stopped early: {told['stopped']}."] * bool(told.get("stopped"))


ENDED = ("done", "failed", "cancelled")
NOT_BEGUN = "not begun"
"""How workers begin to say why they give an attempt back that had not begun."""
SAID_OF_OWNER = {"JobRetried": "told to try again", "JobCancelled": "cancelled"}
"""Steps of a story that are what an owner asked for, by their names in JSON."""


def memory_lines(told: Json) -> list[str]:
    """Requests for memory that are far beyond what tasks take, and what to change."""
    found = []
    for row in told.get("memory", []):
        if row["because"]:
            name = f"class {row['class']}: " if row["class"] else ""
            found.append(f"  {name}{row['because']}.")
            found += [f"  try: {row['try']}"] if row["try"] and told["state"] not in ENDED else []
    return found


def _blocked(told: Json) -> list[str]:
    blocked = told.get("blocked")
    if not blocked:
        return []
    return [f"  {plural(blocked['tasks'], 'task')} blocked by {blocked['by']}.", f"  try: {blocked['try']}"]


def _standing(told: Json) -> str:
    if told["state"] == "running":
        return f"runs on {', '.join(told['running_on'])}" + (f": {told['because']}" if told.get("because") else "")
    if told["state"] == "waiting":
        return "is blocked" if told["waiting"].get("blocked_by") else "waits"
    ended = "has failed" if told["state"] == "failed" else f"is {told['state']}"
    return ended + (f" {told['because']}" if told.get("because") else "")


def waiting_lines(waiting: Json) -> list[str]:
    """Which hosts there are, what excludes how many of them, the nearest miss, what to try."""
    found = [f"  {waiting['because']}" + (":" if waiting["reasons"] else ".")]
    width = max((len(reason["clause"]) for reason in waiting["reasons"]), default=0)
    for reason in waiting["reasons"]:
        found.append(f"  {reason['hosts']:>4}  {reason['clause']:<{width}}   {reason['detail']}".rstrip())
    only = waiting["reasons"][0] if len(waiting["reasons"]) == 1 else None
    if waiting.get("nearest") and not (only and only["hosts"] == 1 and only["detail"] in waiting["nearest"]):
        found.append(f"  nearest miss: {waiting['nearest']}")
    found += [f"  pool {pool['pool']}: {pool['what']}" for pool in waiting["pools"]]
    found += [f"  try: {text}" for text in waiting["try"][:_MOST_TRIES]]
    return found


def money_lines(told: Json) -> list[str]:
    """Why a job costs what it costs: its last plans, their reasons, their alternatives with prices, and refusals."""
    money, plan = told.get("money"), told.get("plan")
    if not money or not plan:
        return []
    found = [f"  {cost_words(money)}; {fleet_words(money['machines'])}"]
    found.append(f"  {plural(plan['plans'], 'plan')} by {plan['planner']}; the last that did something, newest first:")
    for each in told.get("last_plans", []):
        found += [f"    {line}" for line in plan_lines(each)]
    found += sharing_lines(told.get("sharing", []))
    for row in told.get("strangers", []):
        found.append(f"  pool {row['pool']}: machine {row['id']} is not one of this server's: {row['about']}")
    return found


def sharing_lines(machines: Sequence[Mapping[str, Any]]) -> list[str]:
    """The machines of its fleet on which a job ran, which jobs share each, and why."""
    found = []
    for row in machines[:_MOST_MACHINES]:
        jobs = ", ".join(str(part["job"]) for part in row["jobs"])
        alone = len(row["jobs"]) == 1
        found.append(f"  m{row['machine']} ({row['offer']}): job{'s' * (not alone)} {jobs}")
        found += [f"          {text}" for text in row["because"][:_MOST_JOBS]]
        if len(row["because"]) > _MOST_JOBS:
            found.append(f"          and {len(row['because']) - _MOST_JOBS} more jobs")
    if len(machines) > _MOST_MACHINES:
        found.append(f"  and {plural(len(machines) - _MOST_MACHINES, 'machine')} more (--json)")
    return found


def plan_lines(plan: Json) -> list[str]:
    """One plan: what it did, why, what was refused, and what else it could have done at which price."""
    started = Counter(row["offer"] for row in plan["started"])
    did = [f"started {count} {offer}" for offer, count in started.items()]
    did += [f"gave back {', '.join(f'm{number}' for number in plan['stopped'])}"] * bool(plan["stopped"])
    did += [f"moved {plural(len(plan['moved']), 'task')} from hibernated machines"] * bool(plan["moved"])
    expected = f"; expected {show_usd(plan['cost_usd'])} in all" if plan["cost_usd"] is not None else ""
    expected += f", done about {moment(plan['finish_s'])}" if plan["finish_s"] is not None else ""
    found = [f"{moment(plan['t'])}  {', '.join(did) or 'nothing was done'}{expected}"]
    for text in map(reason_words, plan["because"]):
        # What was done stands in the first line; "rent 2 machines: the cheapest way" says it with its reason.
        found.append(f"          {'' if text.startswith(('rent ', 'safe ')) else 'because '}{text}")
    found += [f"          for comparison, {other['what']}: {show_usd(other['cost_usd'])}" for other in plan["rejected"]]
    found += [f"          refused: {text}" for text in refusals(plan["refused"])]
    return found + ([f"          {plan['error']}"] if plan["error"] else [])


def _step(step: Json) -> str:
    when = f"{moment(step['t'])}  "
    attempt = f"attempt {step['attempt']} " if "attempt" in step else ""
    if step["what"] == "sent":
        timeout = f" (timeout {show_duration(step['deadline'] - step['t'])})" if step["deadline"] else ""
        return f"{when}{attempt}sent to {step['host']}: {step['why']}{timeout}"
    if step["what"] == "given up":
        return f"{when}{attempt}given up: {step['why']}; {step['then']}"
    if "cause" in step:
        return f"{when}{attempt}on {step['host']}: {_ended(step)}; {step['what']}"
    return f"{when}{SAID_OF_OWNER.get(step['what'], step['what'])}" + (
        f": {step['reason']}" if step.get("reason") else ""
    )


def _ended(step: Json) -> str:
    """How an attempt ended: `exit code 3 after 12.3 s ("singular matrix")`, `program not found ...: ./fit: No such
    file or directory`."""
    took = show_duration(step["run_s"])
    if step["cause"] == "time":
        return f"killed after its {took} limit"
    if step["cause"] == "preempted" and step.get("text", "").startswith(NOT_BEGUN):
        return f"given back, {step['text']}"
    # An attempt that ended with the process that started its worker was not timed.
    untimed = step["cause"] in NEVER_RAN or (step["cause"] == "preempted" and not step["run_s"])
    peak = f", peak {show_bytes(step['rss_bytes'])}" if step.get("rss_bytes") else ""
    said = cause_text(step["cause"], step["exit_code"]) + ("" if untimed else f" after {took}{peak}")
    text, last_line = step.get("text") or "", step.get("last_line") or ""
    if step["cause"] not in ("done", "exit", "signal") and text:
        said += f": {text}"
    return said + (f' ("{last_line[:_MOST_CHARS]}")' if last_line and step["cause"] != "done" else "")
