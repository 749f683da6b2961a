"""Commands that stay for long end cleanly: signals once, twice and thrice, a server that vanishes, a full disk.

One or two lines, the right exit code, no traceback, and nothing is lost. Commands that answer at once are tried in
tests/unit/cli/test_exits.py, states that cannot be used in tests/e2e/server/test_state_trouble.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from tests.support.commands.typed import WINDFALL, Ended, Shell

INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
AT_ONCE = "windfall: stopped at once; what was acknowledged is kept"


@pytest.fixture
def shell(tmp_path):
    made = Shell(tmp_path)
    yield made
    made.close()


def is_clean(ended: Ended, code: int) -> bool:
    return ended.code == code and "Traceback" not in ended.err and 1 <= len(ended.err.splitlines()) <= 2


def started(shell: Shell, *arguments: str, mark: str):
    """A command that has come as far as making the file `mark`."""
    process = shell.start(*arguments)
    shell.eventually((shell.directory / mark).exists)
    return process


SLOW = """touch began-"$1"; trap '' TERM; sleep 60"""
"""A task that stays, and that SIGTERM does not end."""


@pytest.mark.parametrize(
    ("signals", "code"),
    [
        ([TERM, TERM], 143),
        ([INT, INT, INT], 130),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in [([TERM], 143), ([HUP], 129), ([INT, INT], 130)]),
    ],
    ids=lambda value: "+".join(number.name for number in value) if isinstance(value, list) else "",
)
def test_a_run_that_is_told_to_stop_ends_in_time_and_goes_on_later(shell, signals, code):
    process = started(
        shell, "run", "--range", "1-2", "--slots", "1", "--", "sh", "-c", SLOW, "sh", "{}", mark="began-1"
    )
    ended = shell.finish(process, *signals)
    assert ended.code == code, ended
    assert "Traceback" not in ended.err and len(ended.err.splitlines()) <= 2, ended
    assert AT_ONCE in ended.err or "Continue: the same command again" in ended.err, ended
    assert shell.windfall("status", "last", "--json").document["tasks"]["total"] == 2


@pytest.fixture
def server(shell):
    """A server that runs nothing, with one job of one task that no host takes."""
    process = shell.start("server", "--listen", "127.0.0.1:0", "--json")
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["url"]
    shell.windfall("submit", "--range", "1-1", "--", "true")
    yield process, url
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


@pytest.mark.parametrize(
    "number", [HUP, *(pytest.param(n, marks=pytest.mark.slow) for n in (TERM, INT))], ids=lambda number: number.name
)
def test_a_server_that_is_told_to_stop_says_that_everything_is_kept(shell, server, number):
    ended = shell.finish(server[0], number)
    assert (ended.code, ended.err) == (0, "windfall: the server has stopped; everything is kept\n")


STAYING = [
    ["wait", "last"],
    ["status", "last", "--watch"],
    ["logs", "last", "-f"],
    ["events", "--follow"],
]


def staying(shell: Shell, typed: list[list[str]]) -> list[subprocess.Popen[str]]:
    commands = [shell.start(*arguments) for arguments in typed]
    for command in commands:
        # Each has loaded its modules and asks the server when it has a socket open.
        shell.eventually(lambda command=command: _has_socket(command.pid))
    return commands


def _has_socket(pid: int) -> bool:
    found = subprocess.run(["ls", "-l", f"/proc/{pid}/fd"], capture_output=True, text=True, check=False)
    return "socket:" in found.stdout


@pytest.mark.parametrize(
    ("number", "code"), [(TERM, 143), pytest.param(INT, 130, marks=pytest.mark.slow)], ids=["SIGTERM", "SIGINT"]
)
def test_commands_that_stay_leave_with_one_line(shell, server, number, code):
    for command in staying(shell, STAYING):
        ended = shell.finish(command, number, between_s=0.0)
        assert is_clean(ended, code), (command.args, ended)


def test_commands_that_stay_say_that_their_server_has_gone(shell, server):
    commands = staying(shell, STAYING)
    server[0].kill()
    server[0].wait()
    shell.started.remove(server[0])
    for command in commands:
        ended = shell.finish(command)
        assert ended.code == 3, (command.args, ended)
        assert "no server runs" in ended.err and "Traceback" not in ended.err, (command.args, ended)


def test_commands_that_stay_with_a_server_elsewhere_do_not_wait_for_its_return_unless_told(shell, server):
    process, url = server
    shell.env["WINDFALL_TOKEN"] = (shell.directory / ".windfall" / "token").read_text().strip()
    elsewhere = ["--server", url, "--patience", "1s"]
    commands = staying(shell, [[*typed, *elsewhere] for typed in STAYING])
    commands += staying(shell, [["run", *elsewhere, "--range", "1-1", "--", "true"]])
    process.kill()
    process.wait()
    shell.started.remove(process)
    for command in commands:
        ended = shell.finish(command)
        assert is_clean(ended, 3) and "no server answers at" in ended.err, (command.args, ended)


def test_a_run_whose_reader_goes_away_keeps_its_exit_code(shell):
    command = [*WINDFALL, "run", "--range", "1-1", "--max-failures", "1", "--", "false"]
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        ended = subprocess.run(
            command, cwd=shell.directory, env=shell.env, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (ended.returncode, ended.stderr) == (1, "")


def test_a_run_whose_output_is_full_says_so(shell):
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [*WINDFALL, "run", "--range", "1-1", "--", "true"],
            cwd=shell.directory, env=shell.env, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert ended.returncode == 74
    assert ended.stderr == "windfall: standard output cannot be written: No space left on device\n"


def test_swapped_certificate_and_key_are_refused_in_two_lines(shell):
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=x"]
    made += ["-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(["openssl", *made], cwd=shell.directory, check=True, capture_output=True)
    ended = shell.windfall("server", "--listen", "127.0.0.1:0", "--tls-cert", "key.pem", "--tls-key", "cert.pem")
    assert (ended.code, ended.err.splitlines()[1:]) == (2, ["  they seem to be swapped"]), ended


def test_a_job_without_hosts_is_explained_with_the_address_of_its_server(shell, server):
    said = shell.windfall("explain", "last").out
    assert f"try: windfall worker --server {server[1]} --token-file FILE   on any host\n" in said
