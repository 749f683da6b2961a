"""What machines and pods run, with a real server: user data as cloud-init runs it, and the command of a pod."""

from __future__ import annotations

import contextlib
import email
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from windfall.client import Client
from windfall.pools.config import read_pools
from windfall.pools.ec2.userdata import user_data
from windfall.pools.kubernetes.manifest import run_script
from windfall.pools.starting.process_tree import Tree
from windfall.pools.starting.secrets import ticket
from windfall.server import embedded
from windfall.wire import HOST_SECRET, OLDEST, VERSION, frames

HOST, ACCOUNT, PYTHON = "a-1-1", "nobody", "/usr/bin/python3"
LOOK = """
import os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
def reads(path):
    try:
        with open(path, "rb") as file:
            return bool(file.read(1)) or True
    except OSError:
        return False
own = os.getuid()
lines = pathlib.Path("/proc").glob("[0-9]*/cmdline")
workers = [path.parent for path in lines if path.read_bytes().split(bytes(1))[1:2] == [b"start.py"]]
print(own)
print(sorted(path.name for path in folder.iterdir() if path.is_file() and reads(path)))
print(len(workers) > 0, [name for worker in workers for name in ("environ", "mem", "fd/0") if reads(worker / name)])
print(os.access(folder, os.W_OK), os.access(folder / "worker.pyz", os.W_OK))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other accounts reach; those of pytest are closed to them."""
    made = Path(tempfile.mkdtemp(prefix="windfall-machine-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@contextlib.contextmanager
def booted(folder: Path, data: str) -> Iterator[None]:
    """The script of the user data as a process, until the power is off."""
    parts = [part for part in email.message_from_string(data).walk() if not part.is_multipart()]
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "shutdown").write_text("#!/bin/sh\n")
    (folder / "bin" / "shutdown").chmod(0o755)
    with open(folder / "console", "ab") as console:
        process = subprocess.Popen(
            ["/bin/sh", "-c", str(parts[1].get_payload())], stdin=subprocess.DEVNULL, stdout=console, stderr=console,
            env={"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}, start_new_session=True,
        )  # fmt: skip
    tree = Tree(process.pid)
    process.returncode = 0  # the tree waits for it
    try:
        yield
    finally:
        tree.kill()


def exchange(url: str, token: str, secret: str = "") -> tuple[int, str]:
    """Status and error of somebody who asks for work in the name of the host."""
    header = {
        "v": VERSION if secret else OLDEST,
        "host": HOST,
        "boot": "mine",
        "n": 1,
        "want": 1,
        "slots": 1,
        "ad": {"pool": "a"},
    }
    headers = {"Authorization": f"Bearer {token}"} | ({HOST_SECRET: secret} if secret else {})
    body = frames.join(json.dumps(header).encode(), [])
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/exchange", body, headers), timeout=30) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["error"]["code"]


def ran(client: Client, *argv: str) -> list[str]:
    job = client.submit(list(argv), [""])
    status = job.wait(timeout=60)
    assert status["tasks"]["done"] == 1, status
    return next(iter(job.results())).stdout.splitlines()


@pytest.mark.skipif(
    os.getuid() != 0 or not Path(PYTHON).exists(), reason="cloud-init is root, and needs the system's Python"
)
def test_a_task_of_a_rented_machine_reads_neither_the_secret_nor_the_memory_of_its_worker(tmp_path, folder):
    (tmp_path / "pools.toml").write_text('[[pool]]\nname = "a"\n')
    pools = read_pools(tmp_path / "pools.toml")
    with embedded.start(tmp_path / "state", lease_s=3.0, pools=pools) as server:
        once = ticket((tmp_path / "state" / "pool-tokens" / "a").read_text(), HOST)
        data = user_data(
            server=f"http://127.0.0.1:9,{server.url}", ticket=once, certificate="", folder=str(folder / HOST),
            python=PYTHON, account=ACCOUNT, patience_s=30.0,
            options=["--name", HOST, "--pool", "a", "--slots", "1"],
        )  # fmt: skip
        with Client(server.url, server.token) as client:
            client.tell_pool("a", "pause")  # it starts no worker of its own
            with booted(folder, data):
                found = ran(client, PYTHON, "-c", LOOK, str(folder / HOST))
                secret = (folder / HOST / "secret").read_text()
                assert found[0] == str(pwd.getpwnam(ACCOUNT).pw_uid)
                assert found[1:] == ["['start.py', 'worker.pyz']", "True []", "False False"]
                assert exchange(server.url, once) == exchange(server.url, once, "other") == (503, "host-in-use")
            left(client)
            assert exchange(server.url, once) == exchange(server.url, once, "other") == (403, "ticket-used")
            with booted(folder, data):
                assert ran(client, "echo", "again") == ["again "]
                assert (folder / HOST / "secret").read_text() == secret, "it is the same host after a stop"


def left(client: Client) -> None:
    """Wait until the server has given the host up."""
    until = time.monotonic() + 60.0
    while client.hosts()[0]["state"] != "gone" and time.monotonic() < until:
        time.sleep(0.2)
    assert client.hosts()[0]["state"] == "gone"


def test_a_pod_runs_tasks_and_its_mounted_ticket_helps_nobody_else(tmp_path):
    """`run.py` as the manifest calls it. The ticket stays in its file, as in a mounted Secret."""
    (tmp_path / "pools.toml").write_text('[[pool]]\nname = "a"\n')
    with embedded.start(tmp_path / "state", pools=read_pools(tmp_path / "pools.toml")) as server:
        given, work = tmp_path / "given", tmp_path / "work"
        given.mkdir()
        work.mkdir()
        once = ticket((tmp_path / "state" / "pool-tokens" / "a").read_text(), HOST)
        (given / "token").write_text(once)
        (given / "run.py").write_text(run_script())
        command = [sys.executable, str(given / "run.py"), "3600", server.url, str(given / "token"), "--dir", str(work)]
        command += ["--name", HOST, "--pool", "a", "--slots", "1"]
        with Client(server.url, server.token) as client:
            client.tell_pool("a", "pause")
            with subprocess.Popen(command, stdin=subprocess.DEVNULL) as pod:
                assert ran(client, "echo", "in a pod") == ["in a pod "]
                assert exchange(server.url, once) == exchange(server.url, once, "other") == (503, "host-in-use")
                pod.terminate()
            assert exchange(server.url, once) == exchange(server.url, once, "other") == (403, "ticket-used")
        assert list(work.rglob("secret*")) == [], "it was in memory alone"
