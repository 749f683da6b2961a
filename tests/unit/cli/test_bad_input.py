"""Bad input: one or two lines that say where, what and what next; exit code 2 or 3; nothing was started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands.command import Ended, windfall
from tests.support.server.stub_server import StubServer, error
from windfall.cli import COMMANDS


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Commands typed in an empty directory, with no server known."""
    monkeypatch.chdir(tmp_path)
    for name in ("WINDFALL_SERVER", "WINDFALL_TOKEN", "WINDFALL_STATE"):
        monkeypatch.delenv(name, raising=False)
    return lambda *arguments, stdin=b"": windfall(monkeypatch, capsys, *arguments, stdin=stdin)


def refused(ended: Ended, *words: str) -> None:
    assert ended.is_short_error(2), ended
    assert not Path(".windfall").exists(), "something was started"
    for word in words:
        assert word in ended.err, ended.err


FILES = {
    "empty.txt": b"",
    "blank.txt": b"\n   \n# only a remark\n",
    "runs.csv": b"x,seed\n1,2\n",
    "short.csv": b"x,seed\n1,2\n3\n",
    "twice.csv": b"x,x\n1,2\n",
    "head.csv": b"x,seed\n",
    "latin.txt": b"echo ok\necho caf\xe9\n",
    "nul.txt": b"echo ok\necho a\0b\n",
    "long.txt": b"echo ok\necho " + b"x" * 10_000_000 + b"\n",
    "quote.txt": b"echo 'never closed\n",
    "type.toml": b'[job]\ncommand = "echo {}"\nrange = "1-3"\ncpus = "two"\n',
    "broken.toml": b"[job\n",
    "unknown.toml": b'[job]\ncomand = "echo {}"\n',
}
FILE_CASES = [
    (["empty.txt"], ["empty.txt holds no tasks"]),
    (["blank.txt"], ["blank.txt holds no tasks"]),
    (["missing.txt"], ["missing.txt: no such file"]),
    (["."], ["is a directory"]),
    (["--csv", "runs.csv", "--", "./fit", "{sed}"], ["no column 'sed'", "did you mean {seed}?"]),
    (["--csv", "runs.csv", "--", "./fit"], ["uses no column of runs.csv"]),
    (["--csv", "runs.csv"], ["no command", "--"]),
    (["--csv", "short.csv", "--", "echo", "{x}"], ["short.csv line 3"]),
    (["--csv", "twice.csv", "--", "echo", "{x}"], ["two columns are named 'x'"]),
    (["--csv", "head.csv", "--", "echo", "{x}"], ["head.csv holds no tasks"]),
    (["latin.txt"], ["latin.txt line 2 is not UTF-8", "iconv"]),
    (["nul.txt"], ["nul.txt line 2 contains a NUL byte"]),
    (["long.txt"], ["long.txt line 2", "1,048,576"]),
    (["quote.txt"], ["quote.txt line 1", "not closed"]),
    (["-f", "type.toml"], ["type.toml line 4", "cpus must be a number"]),
    (["-f", "broken.toml"], ["broken.toml is not TOML"]),
    (["-f", "unknown.toml"], ["unknown.toml line 2", "did you mean 'command'?"]),
    (["--range", "1-3", "--input", "missing.dat", "--", "cat", "{}"], ["missing.dat: no such file"]),
]


@pytest.mark.parametrize("command", ["run", "submit"])
@pytest.mark.parametrize(("arguments", "words"), FILE_CASES, ids=lambda case: " ".join(case)[:40])
def test_a_bad_file_is_refused(run, command, arguments, words):
    for name in {name for name in FILES if name in arguments}:
        Path(name).write_bytes(FILES[name])
    refused(run(command, *arguments), *words)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_refused(run):
    Path("secret.txt").write_text("echo\n")
    Path("secret.txt").chmod(0)
    refused(run("run", "secret.txt"), "may not be read")


def test_bytes_of_a_pipe_that_are_no_text_are_refused_with_a_pipe_to_convert_them(run):
    ended = run("run", "--stdin", "--", "echo", "{}", stdin=b"caf\xe9\n")
    refused(ended, "standard input line 1 is not UTF-8", "| iconv -f latin1 -t utf-8 | windfall run --stdin")


OPTION_CASES = [
    ([], ["does not say what the tasks are", "| windfall run --stdin -- "]),
    (["--range", "1-5", "--", "echo {} | wc -c"], ["the command is one word", "-- sh -c 'echo {} | wc -c'"]),
    (["--range", "1-5", "--", "./prog {}"], ["the command is one word", "try: -- ./prog {} "]),
    (["a.txt", "b.txt"], ["one list of tasks", "--"]),
    (["--range", "1-5"], ["no command"]),
    (["--range", "1-5", "--"], ["nothing stands behind --"]),
    (["--range", "1-5", "--", "echo", "{foo}"], ["unknown placeholder {foo}"]),
    (["--range", "-5-3", "--", "echo"], ["begins at 0 or more"]),
    (["--range", "5-3", "--", "echo"], ["reversed", "3-5"]),
    (["--range", "one", "--", "echo"], ["no range"]),
    (["--range", "0-999999999999", "--", "echo"], ["more than 100,000,000"]),
    (["--stdin", "--", "echo"], ["standard input holds no tasks"]),
    (["--range", "1-3", "--csv", "x.csv", "--", "echo"], ["2 sources"]),
    (["--memory", "lots", "--range", "1-3", "--", "echo"], ["'lots' is no size"]),
    (["--wall", "soon", "--range", "1-3", "--", "echo"], ["'soon' is no duration"]),
    (["--deadline", "0", "--range", "1-3", "--", "echo"], ["is not in the future"]),
    (["--deadline", "2020-12-01 18:00", "--range", "1-3", "--", "echo"], ["is in the past", "2h30m"]),
    (["--deadline", "18:00h", "--range", "1-3", "--", "echo"], ["is no clock time", "tomorrow 6:00"]),
    (["--wall", "2:00", "--range", "1-3", "--", "echo"], ["is a clock time, and a duration is needed"]),
    (["--budget", "-1", "--range", "1-3", "--", "echo"], ["no amount of dollars"]),
    (["--cpus", "0", "--range", "1-3", "--", "echo"], ["cpus must be more than 0"]),
    (["--cpus", "few", "--range", "1-3", "--", "echo"], ["--cpus"]),
    (["--max-failures", "0", "--range", "1-3", "--", "echo"], ["max_failures must be 1"]),
    (["--image", "", "--range", "1-3", "--", "echo"], ["image: the name is empty"]),
    (["--image", "x y", "--range", "1-3", "--", "echo"], ["image 'x y' is no name of an image"]),
    (["--gpus", "1", "--resource", "gpus=2", "--range", "1-3", "--", "echo"], ["say the same"]),
    (["--env", "NOT_SET_HERE", "--range", "1-3", "--", "echo"], ["there is no such variable here"]),
    (["--tag", "x", "--range", "1-3", "--", "echo"], ["--tag NAME=VALUE"]),
    (["--output", "../x", "--range", "1-3", "--", "echo"], ["relative path without '..'"]),
    (["--output", "/etc/passwd", "--range", "1-3", "--", "echo"], ["relative path"]),
    (["--name", "17", "--range", "1-3", "--", "echo"], ["taken for a job's number"]),
    (["--name", "x" * 300, "--range", "1-3", "--", "echo"], ["1 to 200"]),
    (["--policy", "Foo=1", "--range", "1-3", "--", "echo"], ["no 'Foo'"]),
    (["--require", "Host.Memory >", "--range", "1-3", "--", "echo"], ["JobRequirements"]),
    (["--server", "http://x", "--state", "y", "--range", "1-3", "--", "echo"], ["two places"]),
    (["--server", "gopher://x", "--range", "1-3", "--", "echo"], ["no server's address"]),
    (["--no-such-option"], ["--no-such-option", "--help"]),
]


@pytest.mark.parametrize("command", ["run", "submit"])
@pytest.mark.parametrize(("arguments", "words"), OPTION_CASES, ids=lambda case: " ".join(case)[:40])
def test_a_bad_option_is_refused(run, command, arguments, words):
    refused(run(command, *arguments), *words)


@pytest.mark.parametrize(
    ("typed", "ours"),
    [("-j", "--slots"), ("--jobs", "--slots"), ("--timeout", "--wall"), ("--retries", "--max-failures")],
)
def test_an_option_of_another_program_is_named_as_it_is_called_here(run, typed, ours):
    refused(run("run", typed, "4", "--range", "1-2", "--", "echo"), f"'{typed}': here it is called {ours}")


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        (["--joblog", "x"], "type: windfall joblog last, after the run"),
        (["-a", "list.txt"], "type: windfall run list.txt -- COMMAND {}"),
        (["--resume-failed"], "type: windfall retry last --failed"),
    ],
)
def test_an_option_of_another_program_that_is_not_here_has_a_command_instead(run, typed, instead):
    refused(run("run", *typed, "--range", "1-2", "--", "echo"), f"No such option '{typed[0]}'", instead)


def test_values_behind_three_colons_are_said_to_come_by_standard_input(run):
    refused(run("run", "echo", ":::", "a", "b"), "one list of tasks, not 4", "windfall run --stdin -- echo {}")


def test_only_options_that_are_alike_are_suggested(run):
    assert "Did you mean" not in run("joblog", "last", "--json").err
    refused(run("run", "--dedline", "2h", "--range", "1-2", "--", "echo"), "Did you mean '--deadline'?")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["--slots", "200%"], "'200%' is not a whole number"),
        (["--slots", "0"], "0 is not at least 1 and at most 4096"),
        (["--cpus", "few"], "'few' is not a number"),
    ],
)
def test_a_wrong_number_is_told_without_the_words_of_programmers(run, option, words):
    refused(run("run", *option, "--range", "1-2", "--", "echo"), words)


@pytest.mark.parametrize("value", ["95", "0", "1", "nan"])
def test_a_confidence_that_is_no_share_is_refused_where_a_job_is_changed(run, value):
    refused(run("change", "last", "--confidence", value), f"--confidence {value}: a share between 0 and 1")


def test_an_option_without_its_value_says_what_is_missing(run):
    refused(run("results", "last", "--csv"), "Option '--csv' requires an argument", "write a value behind --csv")


def test_all_commands_that_begin_as_typed_are_suggested(run):
    refused(run("stat"), "Did you mean 'state' or 'status'?")
    refused(run("runn"), "Did you mean 'run'?")


def test_a_state_that_is_given_as_an_option_where_it_is_an_argument_is_said_to_be_one(run):
    for command in ("check", "repair"):
        refused(run("state", command, "--state", "here"), "'--state': here the state is an argument")


@pytest.mark.parametrize(
    "address", [".", "[31m", "http://[::1", "a..b:7272", "x" * 300, "x:", "ftp://x", "http://me:pw@x"]
)
def test_what_is_no_address_of_a_server_is_refused(run, address):
    refused(run("status", "--server", address), "is no server's address", "as in http://head-node:7272")


def test_a_file_that_is_nested_too_deep_is_refused(run):
    Path("deep.json").write_text('{"unknown": ' + "[" * 5000 + "]" * 5000 + "}")
    refused(run("workflow", "check", "deep.json"), "deep.json: not JSON")
    refused(run("market", "import", "deep.json", "--offer", "spot", "--of", "cloud"), "deep.json: ")
    Path("deep.toml").write_text("x = " + "[" * 5000 + "]" * 5000)
    refused(run("run", "-f", "deep.toml"), "nested too deep")


DIGITS = "1" * 5000


@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        ("job.toml", f'[job]\ncommand = "echo {{}}"\nrange = "1-3"\npriority = {DIGITS}', ["run", "-f", "job.toml"]),
        ("job.toml", f'[job]\ncommand = "echo {{}}"\nrange = "1-{DIGITS}"', ["run", "-f", "job.toml"]),
        ("pools.toml", f"[[pool]]\nslots = {DIGITS}", ["server", "--pools", "pools.toml"]),
        ("my.toml", f"[[pool]]\nhosts = {DIGITS}", ["simulate", "my.toml"]),
        ("flow.toml", f"[[task]]\ncpus = {DIGITS}", ["workflow", "check", "flow.toml"]),
        ("job.sh", f"#!/bin/sh\n#SBATCH --array=1-{DIGITS}\ntrue", ["import", "sbatch", "job.sh"]),
        ("host.json", f'{{"Memory": {DIGITS}}}', ["policy", "test", "--bag", "bag.toml", "--host", "host.json"]),
        ("none", "", ["server", "--listen", f"127.0.0.1:{DIGITS}"]),
        ("none", "", ["run", "--range", f"1-{DIGITS}", "--", "echo", "{}"]),
    ],
)
def test_a_number_of_thousands_of_digits_is_refused(run, name, text, command):
    Path("bag.toml").write_text('[job]\ncommand = "true"\n[job.policies]\nRank = "Host.Memory"')
    Path(name).write_text(text)
    refused(run(*command), "thousands of digits")


def test_a_workflow_whose_map_makes_more_tasks_than_memory_holds_is_refused(run):
    for numbers in ('a = "1-99999999999"', 'a = "1-30000", b = "1-30000"'):
        Path("flow.toml").write_text(f'[[task]]\nname = "x"\ncommand = "true"\nmap = {{ {numbers} }}')
        refused(run("workflow", "check", "flow.toml"), "at most 1,000,000")


def test_a_task_of_a_workflow_that_is_no_table_is_refused(run):
    Path("flow.toml").write_text('task = [{ name = "x", command = "true" }, 1.5]')
    refused(run("workflow", "check", "flow.toml"), "task[1]: it must be a table of names and values")


@pytest.mark.parametrize("data", ["[1e999]", "[1]"])
def test_a_trace_of_an_emulated_cloud_that_has_no_end_is_refused(run, data):
    Path("trace.json").write_text(f'{{"metadata": {{"gap_seconds": 1e-320}}, "data": {data}}}')
    offer = 'name = "spot"\nmarket = "spot"\nprice_usd = 1\ncycle_s = 1\nlag_s = 1\nlaw = { trace = "trace.json" }'
    Path("pools.toml").write_text(f'[[pool]]\nname = "cloud"\nkind = "emulated"\n[[pool.offer]]\n{offer}')
    refused(run("server", "--pools", "pools.toml", "--listen", "127.0.0.1:0"), "trace.json")


def test_a_name_that_no_file_can_have_is_refused(run):
    refused(run("state", "restore", "x" * 300), "File name too long")


OTHER_CASES = [
    ["runn"],
    ["wait", "--until", "later"],
    ["wait", "--timeout", "soon"],
    ["retry", "last"],
    ["change", "last"],
    ["token", "create"],
    ["token", "create", "--role", "king"],
    ["tasks", "last", "--state", "happy"],
    ["server", "--listen", "here:there"],
    ["server", "--lease", "0"],
    ["server", "--tls-cert", "missing.pem"],
    ["run", "--slots", "0", "--range", "1-2", "--", "echo"],
    ["run", "--resume", "last", "--range", "1-2", "--", "echo"],
]


@pytest.mark.parametrize("arguments", OTHER_CASES, ids=" ".join)
def test_a_bad_word_is_refused(run, arguments):
    refused(run(*arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["wait"],
        ["tasks"],
        ["logs"],
        ["results"],
        ["events"],
        ["retry", "last", "--failed"],
        ["cancel", "last"],
        ["change", "last", "--pause"],
        ["host", "list"],
        ["token", "list"],
        ["run", "--resume", "last"],
    ],
    ids=" ".join,
)
def test_looking_where_nothing_is_kept_is_exit_code_3_and_makes_no_directory(run, arguments):
    ended = run(*arguments)
    assert ended.is_short_error(3), ended
    assert "no server is known" in ended.err
    assert not Path(".windfall").exists()


@pytest.mark.parametrize("arguments", [["status"], ["submit", "--range", "1-3", "--", "echo"], ["wait", "last"]])
def test_an_unreachable_server_is_exit_code_3_and_is_named(run, arguments):
    ended = run(arguments[0], "--server", "http://127.0.0.1:1", *arguments[1:])
    assert ended.is_short_error(3), ended
    assert "http://127.0.0.1:1" in ended.err


@pytest.mark.parametrize(
    "command", [["run", "--range", "1-3"], ["server", "--listen", "127.0.0.1:0"], ["token", "create", "--role", "read"]]
)
@pytest.mark.parametrize("state", ["a-file", "a-file/below", "/proc/nowhere"])
def test_a_state_directory_that_cannot_be_is_refused(run, command, state):
    Path("a-file").touch()
    behind = ["--", "echo"] if command[0] == "run" else []
    ended = run(*command, "--state", state, *behind)
    assert ended.is_short_error(2), ended
    assert "name another" in ended.err


def test_a_state_directory_that_was_named_goes_before_the_environment_and_the_error_says_so(run, monkeypatch):
    monkeypatch.setenv("WINDFALL_SERVER", "http://127.0.0.1:1")
    ended = run("status", "--state", "elsewhere")
    assert ended.is_short_error(3), ended
    assert "elsewhere holds no jobs" in ended.err
    assert "WINDFALL_SERVER" not in ended.err


def test_the_server_of_the_environment_is_used(run, monkeypatch):
    monkeypatch.setenv("WINDFALL_SERVER", "http://127.0.0.1:1")
    assert "http://127.0.0.1:1" in run("status").err


@pytest.mark.parametrize(
    ("command", "rest"),
    [(["status"], []), (["submit"], ["--range", "1-3", "--", "echo"]), (["token", "list"], [])],
    ids=["status", "submit", "token"],
)
def test_a_wrong_token_is_exit_code_3(run, command, rest):
    answer = error(401, "bad-token", "the server does not know this token", "make one")
    with StubServer(lambda method, path, body: (200, b"{}") if path == "/healthz" else answer) as server:
        ended = run(*command, "--server", server.url, "--token", "x", *rest)
    assert ended.is_short_error(3), ended
    assert "does not know this token" in ended.err


def test_a_directory_that_is_gone_is_said(run, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    ended = run("run", "--range", "1-3", "--", "echo")
    assert ended.is_short_error(2), ended
    monkeypatch.chdir(tmp_path)


def test_every_command_has_help_that_fits_a_terminal(run):
    for name in COMMANDS:
        if name == "worker":
            continue  # argparse's, tested with the worker
        ended = run(name, "--help")
        assert ended.code == 0, ended
        assert ended.out.startswith("Usage: windfall"), ended.out
        assert max(map(len, ended.out.splitlines())) <= 120


def test_the_list_of_commands_has_one_line_for_each(run):
    ended = run("--help")
    assert ended.code == 0
    for name, (_, _, line) in COMMANDS.items():
        assert name in ended.out
        assert len(line) <= 70, f"{name}: {line}"


def test_commands_that_only_talk_to_a_server_do_not_load_numpy():
    names = ["status", "run", "logs", "events", "host", "token", "change", "explain"]
    modules = ", ".join(sorted({COMMANDS[name][0] for name in names}))
    script = f"import sys, {modules}; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["out", "--key", "out/k"], ["--key out/k lies in out", "elsewhere"]),
        (["file", "--key", "k"], ["file: File exists", "FOLDER"]),
        (["out", "--key", "file/k"], ["file: File exists", "--key"]),
        (["out", "--key", "file"], ["file holds no signing key"]),
        (["out", "--key", "k", "--rotate"], ["the signing key is not here: k"]),
        (["out", "--key", "k", "--rotate", "--launcher", "file"], ["--rotate", "--launcher"]),
        (["out", "--key", "k", "--launcher", "empty"], ["--launcher empty is empty"]),
        (["out", "--key", "k", "--launcher", "none"], ["'none' does not exist"]),
    ],
)
def test_boinc_sign_says_what_it_cannot_sign(run, words, said):
    Path("file").write_text("text")
    Path("empty").touch()
    refused(run("boinc", "sign", *words), *said)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["jobs"], "no command 'jobs': here it is called 'status'"),
        (["resume", "last"], "here it is called 'run --resume last'"),
        (["token", "ls"], "Did you mean 'list'?"),
        (["run", "--each-line", "x.txt"], "type: windfall run list.txt -- COMMAND {}"),
        (["run", "--results", "out", "x.txt"], "type: windfall results last --download DIR"),
    ],
    ids=lambda case: " ".join(case)[:40],
)
def test_commands_and_options_of_other_programs_are_answered_with_ours(run, typed, words):
    ended = run(*typed)
    refused(ended, words)
    assert typed[0] != "token" or "status" not in ended.err
