"""What a wrong command line is answered: one sentence, and what to type instead. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches

import click

ELSEWHERE = {
    "--jobs": "--slots", "-j": "--slots", "--retries": "--max-failures", "--timeout": "--wall", "--time": "--wall",
    "--mem": "--memory", "--cores": "--cpus", "--threads": "--cpus", "--workdir": "--cwd", "--tasks": "--range",
    "--array": "--range", "--dryrun": "--dry-run", "--ncpus": "--cpus", "--workers": "--slots",
    "--cpus-per-task": "--cpus", "--halt": "--max-failed-tasks",
}  # fmt: skip
"""What options of other programs (GNU parallel, HyperQueue, Slurm) are called here."""
INSTEAD = {
    "-a": "windfall run list.txt -- COMMAND {}",
    "--arg-file": "windfall run list.txt -- COMMAND {}",
    "--each-line": "windfall run list.txt -- COMMAND {}",
    "--from-json": "windfall run tasks.jsonl",
    "--joblog": "windfall joblog last, after the run",
    "--results": "windfall results last --download DIR, after the run",
    "--resume-failed": "windfall retry last --failed",
    "--retry-failed": "windfall retry last --failed",
    "--header": "windfall run --csv FILE -- COMMAND {column}",
    "--colsep": "windfall run --csv FILE -- COMMAND {column}",
    "--tail": "windfall logs JOB TASK | tail",
}
"""What to type for options of other programs that have no counterpart here."""
COMMANDS_ELSEWHERE = {
    "job": "status", "jobs": "status", "list": "status", "ls": "status", "ps": "status", "q": "status",
    "queue": "status", "progress": "status", "top": "status", "info": "status", "show": "status",
    "history": "status", "kill": "cancel", "rm": "cancel", "stop": "cancel", "delete": "forget", "clean": "forget",
    "output": "logs", "cat": "logs", "resume": "run --resume last", "pause": "change last --pause",
    "retry-failed": "retry last --failed", "workers": "host list", "nodes": "host list", "hosts": "host list",
    "dashboard": "console", "ui": "console", "exec": "run", "start": "run",
}  # fmt: skip
"""What commands of other programs (HyperQueue, HTCondor, SkyPilot, Docker) are called here."""
_ALIKE = 0.75
"""Similarity from which an option is suggested for one that does not exist; 0.6 suggests --token for --json."""


def usage_message(error: click.ClickException) -> str:
    """Click's complaint in our form: what, and in a second line where to look."""
    context = getattr(error, "ctx", None)
    if isinstance(error, click.NoSuchOption) and context:
        message, see = _no_such_option(error.option_name, context.command)
        return f"{message}\n  {see or f'see: {context.command_path} --help'}"
    message = _plain(" ".join(error.format_message().split()))
    if isinstance(error, click.BadOptionUsage) and not context:
        return f"{message}\n  write a value behind {error.option_name}"
    return f"{message}\n  see: {context.command_path} --help" if context else message


def _no_such_option(name: str, command: click.Command) -> tuple[str, str]:
    """The complaint, and what to type if that is known."""
    message = f"No such option '{name}'"
    ours = ELSEWHERE.get(name, "")
    if any(ours in parameter.opts for parameter in command.params):
        return f"{message}: here it is called {ours}.", ""
    if name == "--state" and any(each.metavar in ("STATE", "[STATE]") for each in command.params):
        return f"{message}: here the state is an argument.", ""
    if name in INSTEAD:
        return f"{message}.", f"type: {INSTEAD[name]}"
    near = get_close_matches(name, [one for each in command.params for one in each.opts], n=2, cutoff=_ALIKE)
    if near:
        return f"{message}.{did_you_mean(near)}", ""
    return f"{message}.", ""


def _plain(message: str) -> str:
    """Without the names that Click gives to kinds of numbers."""
    message = re.sub(r"is not a valid integer( range)?\.", "is not a whole number.", message)
    message = re.sub(r"is not a valid float( range)?\.", "is not a number.", message)
    return re.sub(r"is not in the range (\S+)\.", lambda found: f"is not {_bounds(found[1])}.", message)


def _bounds(text: str) -> str:
    """`1<=x<=4096` in words."""
    found = re.fullmatch(r"(?:([^<]+)(<=?))?x(?:(<=?|>=?)(.+))?", text)
    if found is None:
        return f"in the range {text}"
    low, strictly_above, sign, bound = found.groups()
    words = [f"{'at least' if strictly_above == '<=' else 'more than'} {low}"] if low else []
    names = {"<=": "at most", "<": "less than", ">=": "at least", ">": "more than"}
    words += [f"{names[sign]} {bound}"] if sign else []
    return " and ".join(words)


def did_you_mean(near: Iterable[str]) -> str:
    """` Did you mean 'a' or 'b'?`; nothing if there is nothing near."""
    named = " or ".join(f"'{name}'" for name in near)
    return f" Did you mean {named}?" if named else ""


def unknown_command(typed: str, known: Collection[str]) -> str:
    """The complaint about a command that does not exist, with what it may be called here."""
    ours = COMMANDS_ELSEWHERE.get(typed, "")
    if ours.partition(" ")[0] in known:  # not in a group of its own, as in `windfall token ls`
        return f"no command '{typed}': here it is called '{ours}'."
    return f"no command '{typed}'.{did_you_mean(near_commands(typed, known))}"


def near_commands(typed: str, known: Iterable[str]) -> list[str]:
    """Commands that begin as typed, else the one most like it."""
    names = sorted(known)
    return [name for name in names if len(typed) > 1 and name.startswith(typed)] or get_close_matches(typed, names, n=1)
