"""The reference of the command line names every option of the commands that it describes."""

from __future__ import annotations

import importlib
from pathlib import Path

import click
import pytest

from windfall.cli import COMMANDS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text()
DESCRIBED = ["run", "submit", "demo", "status", "wait", "tasks", "logs", "results", "events"]
DESCRIBED += ["retry", "cancel", "change", "host", "token", "plan", "cost", "explain", "market"]


def options_of(command: click.Command) -> set[str]:
    """The long names of a command's options, and of its subcommands'."""
    names = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    for inner in getattr(command, "commands", {}).values():
        names |= options_of(inner)
    return names


@pytest.mark.parametrize("name", DESCRIBED)
def test_every_option_is_in_the_reference(name):
    module, attribute, _ = COMMANDS[name]
    command = getattr(importlib.import_module(module), attribute)
    assert f"`{name}" in PAGE or f"windfall {name}" in PAGE
    assert [option for option in sorted(options_of(command)) if option not in PAGE] == []
