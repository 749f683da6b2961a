"""What `windfall --help` and a command without arguments print."""

from __future__ import annotations

import json
import re

import click
import pytest

from tests.support.commands.command import windfall
from windfall import __version__
from windfall.cli import COMMANDS, SECTIONS, cli
from windfall.cli.help import REST
from windfall.cli.run.command import run as run_command
from windfall.cli.run.command import submit as submit_command


@pytest.fixture
def typed(monkeypatch, capsys):
    return lambda *arguments: windfall(monkeypatch, capsys, *arguments)


# `windfall simulate` alone names the scenarios that are ready to run.
GROUPS = [
    name for name in COMMANDS
    if name != "simulate"
    and isinstance(command := cli.get_command(click.Context(cli), name), click.Group) and command.no_args_is_help
]  # fmt: skip


def test_windfall_alone_prints_its_help(typed):
    ended = typed()
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("Usage: windfall [OPTIONS] COMMAND")


def test_there_are_groups_of_commands():
    assert {"host", "pool", "token", "policy", "timeout", "workflow", "site", "place", "bench"} <= set(GROUPS)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_of_commands_alone_prints_its_help(group, typed):
    ended = typed(group)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"Usage: windfall {group} ") and "\nCommands:\n" in ended.out


def test_commands_are_listed_once_in_sections(typed):
    lines = typed("--help").out.splitlines()
    for section, table in SECTIONS.items():
        at = lines.index(f"{section}:")
        assert [line.split()[0] for line in lines[at + 1 : at + 1 + len(table)]] == list(table)


@pytest.mark.parametrize("command", [run_command, submit_command], ids=["run", "submit"])
def test_every_option_of_a_command_of_tasks_is_in_a_section(command):
    help_text = command.get_help(click.Context(command, info_name="run"))
    assert REST not in help_text
    assert [line for line in help_text.splitlines() if re.fullmatch(r"[A-Z][A-Za-z ]+:", line)] == [
        f"{section}:" for section in command.sections
    ]


def test_the_help_of_run_tells_defaults(typed):
    text = " ".join(typed("run", "--help").out.split())
    defaults = {
        "--cpus N": "1",
        "--wall TIME": "no limit",
        "--budget USD": "no limit",
        "--deadline TIME": "none",
        "--confidence P": "0.95",
        "--max-losses N": "20",
    }
    for option, default in defaults.items():
        assert re.search(rf"{option} [^\[]*\[default: {re.escape(default)}\]", text), option


def test_version_names_windfall_and_python(typed):
    assert typed("version").out.startswith(f"windfall {__version__} (Python 3.")
    assert json.loads(typed("version", "--json").out)["version"] == __version__
