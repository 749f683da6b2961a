"""A state in PostgreSQL, named by `--state postgresql://...`: real commands, a real database."""

from __future__ import annotations

import signal
import subprocess
import sys
from itertools import count
from urllib.parse import urlsplit

import pytest

from tests.support.commands.typed import Shell
from tests.support.server import postgres

PASSWORD = "open-sesame"
MARK = """
import pathlib, sys, time
pathlib.Path("began-" + sys.argv[1]).touch()
while int(sys.argv[1]) > 3 and not pathlib.Path("go").exists():
    time.sleep(0.02)
print(sys.argv[1])
"""
_names = count(1)


@pytest.fixture(scope="module")
def server():
    with postgres.server() as url:
        yield url


@pytest.fixture
def state(server):
    """The URL of a fresh database, with a password in it."""
    url = postgres.new_database(server, f"state_{next(_names)}")
    return url.replace("windfall@", f"windfall:{PASSWORD}@")


@pytest.fixture
def shell(tmp_path):
    (tmp_path / "here").mkdir()
    made = Shell(tmp_path / "here")
    made.env["XDG_STATE_HOME"] = str(tmp_path / "home")
    yield made
    made.close()


def marking(state):
    """A bag of twelve tasks that leave a file when they begin; all but three wait for a file `go`."""
    return ["run", "--state", state, "--range", "1-12", "--slots", "2", "--", sys.executable, "-c", MARK, "{}"]


def test_a_run_that_is_killed_goes_on_by_the_same_command_and_status_shows_it(shell, state):
    process = shell.start(*marking(state))
    shell.eventually(lambda: len(list(shell.directory.glob("began-*"))) >= 5)
    seen = shell.windfall("status", "--state", state, "--json").document["jobs"]
    assert [(job["job"], job["state"]) for job in seen] == [(1, "running")]
    shell.finish(process, signal.SIGKILL)

    shell.write("go", "")
    ended = shell.windfall(*marking(state))
    assert ended.code == 0, ended
    assert "going on with job 1" in ended.err
    assert "12 tasks: 12 done" in ended.out
    job = shell.windfall("status", "last", "--state", state, "--json").document
    assert (job["job"], job["tasks"]["done"]) == (1, 12)
    rows = shell.windfall("results", "last", "--state", state, "--json").lines
    assert [row["stdout"] for row in rows] == [f"{n}\n" for n in range(1, 13)]


def test_a_run_whose_connections_are_cut_again_and_again_loses_and_repeats_nothing(shell, state):
    import psycopg

    process = shell.start(*marking(state))
    with psycopg.connect(state, autocommit=True) as admin:
        for began in (3, 5, 5, 5):
            shell.eventually(lambda began=began: len(list(shell.directory.glob("began-*"))) >= began)
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND datname = current_database() AND application_name LIKE 'windfall%'"
            )
        shell.write("go", "")
    ended = shell.finish(process)
    assert ended.code == 0, ended
    assert "12 tasks: 12 done" in ended.out
    rows = shell.windfall("results", "last", "--state", state, "--json").lines
    assert sorted(row["task"] for row in rows) == list(range(12))


def test_nothing_is_made_where_the_command_is_typed_and_no_password_is_written_anywhere(shell, state):
    home = shell.directory.parent / "home"
    ran = shell.windfall("run", "--state", state, "--range", "1-2", "--", "echo", "{}")
    submitted = shell.windfall("submit", "--state", state, "--range", "1-2", "--", "echo", "{}")
    assert (ran.code, submitted.code) == (0, 0), (ran, submitted)
    assert list(shell.directory.iterdir()) == []
    said = "".join(ran[1:] + submitted[1:])
    assert "--state" in said
    assert PASSWORD not in said
    files = [path for path in home.rglob("*") if path.is_file()]
    assert files
    assert all(PASSWORD.encode() not in path.read_bytes() for path in files)
    assert all(path.stat().st_mode & 0o077 == 0 for path in home.glob("windfall/*"))


def test_a_server_on_a_database_is_found_by_commands_and_keeps_files_tokens_and_jobs(shell, state):
    shell.env["WINDFALL_STATE"] = state
    made = shell.windfall("token", "create", "--role", "worker", "--json").document
    process = shell.start("server", "--listen", "127.0.0.1:0", "--json")
    announced = process.stdout.readline()
    assert PASSWORD not in announced
    assert '"state":"postgresql://windfall@' in announced.replace(" ", "")
    shell.write("data.txt", "seven\n")
    assert (
        shell.windfall("submit", "--range", "1-2", "--input", "data.txt", "--", "sh", "-c", "cat data.txt", "{}").code
        == 0
    )
    assert len(shell.windfall("status", "--json").document["jobs"]) == 1
    second = shell.windfall("server", "--listen", "127.0.0.1:0")
    assert second.code == 2, second
    assert f"in use by process {process.pid} on " in second.err
    assert PASSWORD not in second.err
    stopped = shell.finish(process, signal.SIGTERM)
    assert stopped.code == 0, stopped
    assert PASSWORD not in stopped.err
    listed = shell.windfall("token", "list", "--json").document["tokens"]
    assert made["id"] in [token["id"] for token in listed]
    # Another host has no files of this state, and needs none.
    shell.env["XDG_STATE_HOME"] += "-elsewhere"
    ended = shell.windfall("run", "--resume", "last")
    assert ended.code == 0, ended
    assert [row["stdout"] for row in shell.windfall("results", "last", "--json").lines] == ["seven\n"] * 2


def test_python_takes_the_same_url(shell, state):
    lines = [
        "from windfall.client import Client",
        f"with Client(state={state!r}) as client:",
        "    job = client.submit('echo {}', [1, 2])",
        "    job.wait()",
        "    print([task.stdout for task in job.results()])",
    ]
    script = shell.write("main.py", "\n".join(lines))
    ended = subprocess.run(
        [sys.executable, script], cwd=shell.directory, env=shell.env, capture_output=True, text=True, timeout=90
    )
    assert ended.returncode == 0, ended
    assert ended.stdout == "['1\\n', '2\\n']\n"


def test_a_database_without_a_state_holds_no_jobs_and_stays_as_it_is(shell, state):
    import psycopg

    ended = shell.windfall("status", "--state", state)
    assert ended.code == 3, ended
    assert "holds no jobs" in ended.err
    assert PASSWORD not in ended.err
    with psycopg.connect(state) as connection:
        assert connection.execute("SELECT to_regclass('windfall.meta')").fetchone() == (None,)


@pytest.mark.parametrize(
    "command", [["status"], ["results", "last"], ["run", "--range", "1-2", "--", "true"], ["server"]], ids=" ".join
)
def test_a_database_that_is_not_there_is_two_lines_without_the_password(shell, state, command):
    name = urlsplit(state).path[1:]
    at = 1 if command[0] == "run" else len(command)
    words = [*command[:at], "--state", state.replace(name, "nosuch"), *command[at:]]
    ended = shell.windfall(*words)
    assert ended.code == 2, ended
    assert 'database "nosuch" does not exist' in ended.err
    assert len(ended.err.splitlines()) == 2
    assert PASSWORD not in ended.err


def test_a_log_in_a_database_can_be_replayed(shell, state):
    assert shell.windfall("run", "--state", state, "--range", "1-4", "--", "sleep", "0.05").code == 0
    ended = shell.windfall("simulate", "--replay", state, "--seeds", "1", "--json")
    assert ended.code == 0, ended
    assert PASSWORD not in ended.out
    fitted = shell.windfall("timeout", "fit", state, "--json")
    assert fitted.code == 0, fitted
    assert PASSWORD not in fitted.out
