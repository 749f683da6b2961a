"""Every page of help ends with two examples at least, and every one of them can be typed."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from tests.support.commands.command import windfall
from windfall.cli import cli
from windfall.cli.examples import EXAMPLES
from windfall.cli.topics import TOPICS

ELSEWHERE = {("worker",), ("site", "agent")}
"""Their options are read by the worker's own parser, which ships without click."""


def pages() -> dict[tuple[str, ...], click.Context]:
    found: dict[tuple[str, ...], click.Context] = {}

    def gather(words: tuple[str, ...], context: click.Context) -> None:
        found[words] = context
        if isinstance(context.command, click.Group):
            for name in context.command.list_commands(context):
                inner = context.command.get_command(context, name)
                assert inner is not None
                gather((*words, name), click.Context(inner, info_name=name, parent=context))

    gather((), click.Context(cli, info_name="windfall"))
    return found


PAGES = pages()


def examples_of(words: tuple[str, ...]) -> list[str]:
    text = PAGES[words].get_help()
    _, found, tail = text.rpartition("\n  Examples:\n") if words or "\n  Examples:\n" in text else ("", "", "")
    assert found, text[-300:]
    return [line.strip() for line in tail.splitlines() if line.strip()]


@pytest.mark.parametrize("words", [w for w in sorted(PAGES) if w not in ELSEWHERE], ids=lambda w: " ".join(w) or "-")
def test_a_page_of_help_ends_with_two_examples_that_can_be_typed(words):
    typed = examples_of(words)
    assert len(typed) >= 2, typed
    for line in typed:
        parse(line)


def parse(line: str) -> None:
    """Read the options of an example as if it were typed, without running it. A remark stands behind three spaces."""
    command = re.split(r"\s{3,}", line)[0]
    for part in re.split(r"\s(?:&&|\|)\s", re.sub(r"\s>\s*\S+$", "", command)):
        part = re.sub(r"\s>\s*\S+$", "", part).strip()
        if part.startswith("windfall "):
            parse_words(shlex.split(part)[1:])


def parse_words(arguments: list[str]) -> None:
    context = cli.make_context("windfall", list(arguments))
    while isinstance(context.command, click.Group) and (context._protected_args or context.args):
        name, command, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None
        context = command.make_context(name, rest, parent=context)


def test_the_table_names_only_commands_that_there_are():
    assert [name for name in EXAMPLES if tuple(name.split()) not in PAGES] == []


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_fits_on_a_screen_and_its_commands_can_be_typed(monkeypatch, capsys, topic):
    ended = windfall(monkeypatch, capsys, "help", topic)
    assert ended.code == 0 and len(ended.out.splitlines()) <= 24
    assert max(map(len, ended.out.splitlines())) <= 110
    for line in ended.out.splitlines():
        if line.startswith("  windfall ") and "URL" not in line:
            parse(line.strip().split(" || ")[0])


def test_help_names_its_topics_and_shows_pages_of_commands(monkeypatch, capsys):
    assert all(topic in windfall(monkeypatch, capsys, "help").out for topic in TOPICS)
    assert "Usage: windfall host list" in windfall(monkeypatch, capsys, "help", "host", "list").out
    assert windfall(monkeypatch, capsys, "help", "nonsense").is_short_error(2)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_a_shell(monkeypatch, capsys, shell):
    monkeypatch.setenv("_WINDFALL_COMPLETE", f"{shell}_source")
    ended = windfall(monkeypatch, capsys)
    assert ended.code == 0 and "_WINDFALL_COMPLETE" in ended.out
