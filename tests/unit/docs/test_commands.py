"""Every command line on every page names commands and options that exist. Whole pages are typed by e2e tests; this
looks at all of them, also at those that take hours or need a cluster.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from windfall.cli import cli

ROOT = Path(__file__).parents[3]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
BLOCK = re.compile(r"^ *```(?:sh|console|bash)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
ENDS = re.compile(r"\||&&?|;|\d?>>?|<|\)")


def lines(text):
    """The command lines of a page's blocks: behind `$ ` where the block has any, whole lines else."""
    for block in BLOCK.findall(text):
        block = re.sub(r"\\\n(> )?", " ", block)
        typed = [line.strip()[2:] for line in block.splitlines() if line.strip().startswith("$ ")]
        yield from typed or [line.strip() for line in block.splitlines()]


def calls(line):
    """The words behind each `windfall` of a line, up to a pipe, a redirection or the end."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return  # a quotation that goes on in the next line
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        if word == "windfall" and (not place or "=" in before or before in ("|", "&&", ";", "time", "windfall")):
            rest = words[place + 1 :]
            yield rest[: next((n for n, each in enumerate(rest) if ENDS.fullmatch(each)), len(rest))]


def unknown(words):
    """What the command line says that the program does not know; empty: nothing."""
    command, context = cli, click.Context(cli, info_name="windfall")
    while isinstance(command, click.Group) and words and (command.name == "simulate" or not words[0].startswith("-")):
        if command.name == "simulate" and words[0] not in command.commands:
            words = ["run", *words]  # what is no command of its own is a scenario
        below = command.get_command(context, words[0])
        if below is None:
            return "" if re.fullmatch(r"[A-Z]+|\.\.\.", words[0]) else f"no command {words[0]}"
        command, words = below, words[1:]
        context = click.Context(command, info_name=command.name, parent=context, **command.context_settings)
    try:
        command.make_parser(context).parse_args([word for word in words if word != "..."])
    except click.UsageError as error:
        return error.format_message()
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_command_lines_name_what_exists(page):
    said = [(line, unknown(words)) for line in lines(page.read_text()) for words in calls(line)]
    assert [(line, wrong) for line, wrong in said if wrong] == []


def test_a_wrong_command_or_option_is_found():
    assert [*calls("FOO=1 windfall run tasks.txt | grep x && windfall status > f")] == [
        ["run", "tasks.txt"],
        ["status"],
    ]
    assert unknown(["rum", "tasks.txt"]) == "no command rum"
    assert "--dedline" in unknown(["run", "--dedline", "2h", "--", "./fit"])
    assert unknown(["site", "create", "lab", "--instance-vcpu", "1"]) == ""
    assert len([words for page in PAGES for line in lines(page.read_text()) for words in calls(line)]) > 150
