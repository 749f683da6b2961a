"""Every command ends cleanly: told by a signal, with a closed or full output, without its server.

One or two lines, the right exit code, no traceback. Each command runs in this process; a signal comes when its work
begins. The commands that stay for long are tried as processes in tests/e2e/commands/test_long_exits.py.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

import click
import pytest

from tests.support.commands.command import windfall
from windfall.cli import COMMANDS, cli, exits
from windfall.cli.exits import OUTPUT_LOST

LEAVES: dict[tuple[str, ...], click.Command] = {}
"""Every command that does something, by the words that name it: `run`, `host list`."""


def gather(words: tuple[str, ...], command: click.Command) -> None:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            gather((*words, name), found)
    else:
        LEAVES[words] = command


gather((), cli)
every_command = pytest.mark.parametrize("words", sorted(LEAVES), ids=" ".join)


def test_every_command_of_the_table_is_tried():
    assert {words[0] for words in LEAVES} == set(COMMANDS)


def arguments_of(words: tuple[str, ...]) -> list[str]:
    """The least that a command takes: a word for each argument that must be there, a value for each such option."""
    found: list[str] = []
    for parameter in LEAVES[words].params:
        if not parameter.required:
            continue
        kind = parameter.type
        value = str(next(iter(kind.choices))) if isinstance(kind, click.Choice) else "1"
        found += [value] if isinstance(parameter, click.Argument) else [parameter.opts[0], value]
    return found


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("WINDFALL_SERVER", "WINDFALL_STATE", "WINDFALL_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@every_command
@pytest.mark.parametrize(
    ("number", "code", "line"),
    [
        (signal.SIGTERM, 143, "windfall: terminated\n"),
        (signal.SIGHUP, 129, "windfall: terminated\n"),
        (signal.SIGINT, 130, "windfall: interrupted\n"),
    ],
    ids=["SIGTERM", "SIGHUP", "SIGINT"],
)
def test_a_signal_ends_a_command_with_one_line(here, monkeypatch, capsys, words, number, code, line):
    command = LEAVES[words]

    def told_to_stop(context: click.Context) -> None:
        os.kill(os.getpid(), number)
        signal.sigtimedwait([], 5)  # the handler runs before this returns
        raise AssertionError("the signal was not heard")

    monkeypatch.setattr(command, "invoke", told_to_stop)
    ended = windfall(monkeypatch, capsys, *words, *arguments_of(words))
    assert (ended.code, ended.out, ended.err) == (code, "", line)


@every_command
def test_help_to_a_full_disk_says_so_and_is_no_success(here, monkeypatch, capsys, words):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        ended = windfall(monkeypatch, capsys, *words, "--help")
    assert ended.code == OUTPUT_LOST
    assert ended.err == "windfall: standard output cannot be written: No space left on device\n"


@every_command
def test_help_to_a_reader_who_went_away_is_quiet(here, monkeypatch, capsys, words):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        ended = windfall(monkeypatch, capsys, *words, "--help")
    assert (ended.code, ended.err) == (0, "")


def takes_a_server(command: click.Command) -> bool:
    return any("--server" in parameter.opts for parameter in command.params)


@pytest.fixture
def closed_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.parametrize("words", [w for w in sorted(LEAVES) if takes_a_server(LEAVES[w])], ids=" ".join)
def test_without_its_server_a_command_says_so_at_once(here, monkeypatch, capsys, closed_port, words):
    more = {"run": ["--range", "1-2", "--", "true"], "submit": ["--range", "1-2", "--", "true"],
            "change": ["--pause"], "retry": ["--failed"], "plan": ["1"], "forget": ["1"],
            "fleet change": ["--budget", "30/h"]}.get(" ".join(words), [])  # fmt: skip
    given = [] if words[0] == "plan" else arguments_of(words)
    server = f"http://127.0.0.1:{closed_port}"
    ended = windfall(monkeypatch, capsys, *words, *given, "--server", server, *more)
    if ended.code != 2 or words[0] not in ("site", "place", "timeout", "market", "archive"):
        assert ended.is_short_error(3), ended


def test_an_ignored_signal_stays_ignored(monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with exits.good_order():
            os.kill(os.getpid(), signal.SIGHUP)  # nohup
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_sigterm_ends_the_process_at_once(monkeypatch):
    ended = []
    monkeypatch.setattr(exits, "end_at_once", ended.append)
    with exits.good_order(), pytest.raises(exits.Terminated):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.sigtimedwait([], 5)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.sigtimedwait([], 0.001)
    assert ended == [signal.SIGTERM]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_whose_exception_nobody_can_catch_is_heard_all_the_same(number):
    class Busy:
        def __del__(self) -> None:
            os.kill(os.getpid(), number)
            for _ in range(1000):
                pass  # the handler runs here, and Python drops what it raises

    wanted = KeyboardInterrupt if number == signal.SIGINT else exits.Terminated
    with pytest.raises(wanted), exits.good_order():
        Busy()
        signal.sigtimedwait([], 30.0)


WRITES = {
    "--out": "x.svg", "--plot": "x.svg", "--parquet": "x.parquet", "--report": "x.html", "--log": "x.ndjson",
    "--download": "x",
}  # fmt: skip
"""Options that name what a command writes, with a name that would do elsewhere."""
WRITERS = [
    (words, option)
    for words in sorted(LEAVES)
    for option in sorted({opt for each in LEAVES[words].params for opt in each.opts} & set(WRITES))
]


@pytest.mark.parametrize(("words", "option"), [*WRITERS, (("results",), "--csv")])
def test_what_cannot_be_written_is_refused_before_anything_is_done(words, option, tmp_path, here, monkeypatch, capsys):
    monkeypatch.setattr(LEAVES[words], "callback", lambda **_: pytest.fail("it went to work"))
    (tmp_path / "file").write_text("kept")
    unwritable = f"file/{WRITES.get(option, 'x.csv')}"
    result = windfall(monkeypatch, capsys, *words, *arguments_of(words), option, unwritable)
    assert result.is_short_error(2) and "file/x" in result.err and "a file is in the place" in result.err
    assert [each.name for each in tmp_path.iterdir()] == ["file"] and (tmp_path / "file").read_text() == "kept"
