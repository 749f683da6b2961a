"""Tasks in a sandbox, with the real bubblewrap. A fake server, a real worker."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cloudpickle
import pytest

from tests.support.server.fake_server import TOKEN, FakeServer
from tests.support.server.worker_process import worker
from windfall.worker.running import isolation


def missing() -> str:
    try:
        isolation.check()
    except isolation.Unavailable as error:
        return str(error)
    return ""


if os.environ.get("CI") == "true" and not shutil.which(isolation.PROGRAM):
    raise AssertionError("bubblewrap is missing: tools/system.sh installs it")
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with FakeServer() as made:
        yield made


@pytest.fixture(scope="module")
def folder(server: FakeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("isolated")
    with worker(server.url, made, "--slots", "1", "--isolate"):
        yield made


@pytest.fixture
def run(server: FakeServer, folder: Path) -> Any:
    def run_it(command: str, payload: bytes = b"", **spec: Any) -> dict[str, Any]:
        return server.result(server.add(server.job(**spec), ["sh", "-c", command], payload), 60.0)

    return run_it


def test_a_task_has_its_files_and_nothing_of_the_worker(run, server, folder):
    sha256 = server.blob(b"from outside\n")
    # What lies below /tmp and is needed: the task's own directory, and Python where this checkout is there.
    needed = "|".join(sorted({Path(path).parts[2] for path in (folder, *isolation.below_tmp())}))
    result = run(
        f'cat; cat in.txt; echo out > made.txt; test "$PWD" = "$WINDFALL_DIR" && echo same; '
        f"find {folder} -name secret -o -name spool; ls /tmp | grep -vxE '{needed}'; ls /proc | grep -c '^[0-9]'",
        b"stdin ",
        inputs=[["in.txt", sha256, 13, 0o644]], outputs=["made.txt"],
    )  # fmt: skip
    assert (result["cause"], result["exit"]) == ("done", 0), result
    said = result["stdout"].decode().splitlines()
    assert said[:2] == ["stdin from outside", "same"] and len(said) == 3 and int(said[2]) < 12, said
    assert [name for name, *_ in result["outputs"]] == ["made.txt"]


def test_the_system_is_read_only_and_there_is_no_network(run):
    result = run("touch /etc/x /usr/x 2>/dev/null; test ! -e /etc/x && echo kept; tail -n +3 /proc/net/dev | wc -l")
    assert result["stdout"].split() == [b"kept", b"1"], result  # the loopback device alone


@pytest.mark.skipif(not os.access("/run", os.W_OK), reason="no socket can be made in /run")
def test_services_of_the_host_are_not_reached_by_their_sockets(run):
    """One of a container engine makes root of whoever may connect to it, and no network is needed for that."""
    with TemporaryDirectory(dir="/run") as place, socket.socket(socket.AF_UNIX) as service:
        service.bind(f"{place}/socket")
        service.listen()
        script = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('reached')"
        result = run(f'{sys.executable} -c "{script}" {place}/socket; ls /run | wc -l')
    assert result["stdout"].split() == [b"0"], result
    assert b"FileNotFoundError" in result["stderr"], result


def test_exit_codes_come_out_and_programs_that_are_not_there_are_told(run, server):
    assert (run("exit 7")["cause"], run("exit 7")["exit"]) == ("exit", 7)
    missing = server.result(server.add(server.job(), ["no-such-program"]), 60.0)
    assert missing["cause"] == "no-command"


def test_a_task_has_its_grace_time(run):
    result = run("trap 'echo last words; exit 3' TERM; sleep 600 & wait", wall_s=1.5, grace_s=30.0)
    assert result["cause"] == "time" and result["stdout"] == b"last words\n", result


def test_python_calls_run_in_a_sandbox_too(server, folder):
    sha256 = server.blob(b"input")

    def look(place: str) -> tuple[list[str], bytes, int]:
        import os

        found = [name for _, _, names in os.walk(place) for name in names if name in ("secret", "token")]
        with open("in.txt", "rb") as file:
            return found, file.read(), sum(entry.name.isdigit() for entry in os.scandir("/proc"))

    job = server.job(kind="call", inputs=[["in.txt", sha256, 5, 0o644]])
    result = server.result(server.call(job, look, str(folder)), 60.0)
    assert result["cause"] == "done", result
    good, (found, content, processes) = cloudpickle.loads(result["value"])
    assert good and (found, content) == ([], b"input") and processes < 12


def test_memory_is_limited_as_outside(server, folder):
    program = "import sys; x = b'x' * (1 << 33); print(len(x))"
    result = server.result(server.add(server.job(memory_bytes=100 << 20), [sys.executable, "-c", program]), 60.0)
    assert result["cause"] in ("oom", "exit") and not result["stdout"], result


def test_a_task_reads_nothing_of_a_server_whose_token_its_worker_uses(tmp_path):
    with TemporaryDirectory(dir="/var/tmp") as made, FakeServer() as server:  # not in /tmp: that is hidden anyway
        look_into(Path(made), tmp_path, server)


def look_into(state: Path, tmp_path: Path, server: FakeServer) -> None:
    (state / "token").write_text(TOKEN)
    (state / "windfall.db").write_text("with the key of tokens")
    with worker(server.url, tmp_path, "--isolate", "--token-file", str(state / "token"), WINDFALL_TOKEN=""):
        key = server.add(server.job(), ["sh", "-c", f"cat {state}/* 2>/dev/null | wc -c; test -e {state}/windfall.db"])
        result = server.result(key, 60.0)
    assert (result["cause"], result["exit"], result["stdout"].split()) == ("exit", 1, [b"0"]), result
