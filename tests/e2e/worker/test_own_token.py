"""What a task of an ordinary worker, under the same account, can read of its worker's token and secret."""

from __future__ import annotations

import subprocess
import sys

from tests.support.server.fake_server import TOKEN, FakeServer
from tests.support.server.worker_process import worker

LOOK = """
import os, pathlib, sys
words = [word.encode() for word in sys.argv[2:]]
def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""
lines = [path for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")
         if b"windfall.worker" in read(path) and b"--server" in read(path)]
files = [path for path in pathlib.Path(sys.argv[1]).rglob("*") if path.is_file()]
print(sorted({word.decode() for word in words for path in (*lines, *files) if word in read(path)}
             | {word.decode() for word in words for value in os.environb.values() if word in value}))
print(len(lines) > 0, [path.name for path in files if path.name in ("secret", "token")])
"""


def found_by_a_task(server: FakeServer, folder: str) -> list[str]:
    """What a task finds of the token, in command lines and files; and the files that are there by name."""
    # It is put together by the task itself: its own command line must not hold it.
    script = f"import sys; sys.argv[2:] = ['ses' + 'ame']\n{LOOK}"
    key = server.add(server.job(), [sys.executable, "-c", script, folder])
    return server.result(key)["stdout"].decode().splitlines()


def test_a_task_finds_neither_the_token_nor_the_secret_of_a_worker_that_forgets_them(tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN)
    with (
        FakeServer() as server,
        worker(server.url, tmp_path, "--token-file", str(file), "--forget-token-file", WINDFALL_TOKEN=""),
    ):
        assert found_by_a_task(server, str(tmp_path)) == ["[]", "True []"]
    assert not file.exists()


def test_a_task_can_read_the_file_of_a_token_that_the_user_keeps(tmp_path):
    """The other side of the same sentence of docs/explanation/security.md."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    with FakeServer() as server, worker(server.url, tmp_path, "--token-file", str(file), WINDFALL_TOKEN=""):
        assert found_by_a_task(server, str(tmp_path)) == [f"['{TOKEN}']", "True ['token', 'secret']"]


def test_a_token_on_the_command_line_is_overwritten(tmp_path):
    with FakeServer() as server, worker(server.url, tmp_path, "--token", TOKEN, WINDFALL_TOKEN=""):
        assert found_by_a_task(server, str(tmp_path))[0] == "[]"


def test_a_file_that_was_not_named_cannot_be_forgotten():
    command = [sys.executable, "-m", "windfall.worker", "--server", "http://x", "--token", "t", "--forget-token-file"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2 and "goes with --token-file" in done.stderr
