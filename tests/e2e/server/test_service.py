"""A server as a service: what the service manager hears of it, and whether it could start."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.clouds.cloud_server import until
from tests.support.commands.pages import blocks
from tests.support.server.cluster import free_port
from windfall.client import Client

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "examples" / "systemd" / "windfall.service"
PAGE = ROOT / "docs" / "howto" / "service.md"
SERVER = [str(Path(sys.executable).parent / "windfall"), "server", "--listen", "127.0.0.1:0"]


@pytest.fixture
def manager(tmp_path):
    """A socket like that of systemd."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(60)
        yield sock


def windfall(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SERVER, *words], capture_output=True, text=True, timeout=120, check=False)


def test_a_server_says_that_it_is_ready_alive_and_stopping(manager, tmp_path):
    env = {**os.environ, "NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "30000000"}
    server = subprocess.Popen([*SERVER, "--state", str(tmp_path / "s")], env=env, stdout=subprocess.DEVNULL)
    try:
        assert manager.recv(1000) == b"READY=1"
        assert b"WATCHDOG=1" in manager.recv(1000)
        refused = windfall("--check", "--state", str(tmp_path / "s"))
        assert refused.returncode == 2 and "is in use" in refused.stdout
        server.terminate()
        assert manager.recv(1000) == b"STOPPING=1"
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.wait()
    checked = windfall("--check", "--state", str(tmp_path / "s"), "--limit", "body=1M")
    assert checked.returncode == 0 and "records and 1 tokens" in checked.stdout, checked
    beyond = windfall("--check", "--state", str(tmp_path / "s"), "--listen", "0.0.0.0:0")
    assert beyond.returncode == 2 and "windfall token create" in beyond.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")
def test_systemd_finds_nothing_wrong_with_the_unit():
    # The manual page is installed with the package, if at all.
    said = subprocess.run(["systemd-analyze", "verify", "--man=no", str(UNIT)], capture_output=True, text=True)
    assert (said.returncode, said.stderr) == (0, "")


class Service:
    """The unit in another folder and on another port, carried out as systemd would."""

    def __init__(self, folder: Path, manager: socket.socket) -> None:
        self.folder, self.port = folder, free_port()
        self.rules = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
        env = {name: value for name, value in os.environ.items() if not name.startswith("WINDFALL_")}
        self.env = {**env, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"}
        watched = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": f"{int(self.rules['WatchdogSec']) * 10**6}"}
        self.managed = {**self.env, **watched}
        (folder / "log").mkdir()

    def here(self, text: str) -> str:
        text = text.replace("/var/lib/windfall", str(self.folder / "state"))
        return text.replace("/var/log/windfall", str(self.folder / "log")).replace(
            "0.0.0.0:7272", f"0.0.0.0:{self.port}"
        )

    def typed(self, line: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", "-c", self.here(line)]
        return subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=120)

    def start(self) -> subprocess.Popen[bytes]:
        before = self.typed(self.rules["ExecStartPre"])
        assert before.returncode == 0, before.stdout + before.stderr
        words = shlex.split(self.here(self.rules["ExecStart"]))
        return subprocess.Popen(words, cwd=self.folder, env=self.managed, stdout=subprocess.DEVNULL)


def test_the_page_on_services_can_be_typed_along(manager, tmp_path):
    account, token, enable, status = blocks(PAGE, "sh")[0].splitlines()
    assert account.startswith("sudo useradd") and status == "systemctl status windfall"
    service = Service(tmp_path, manager)
    # A server that no host may join would not start: the page makes a token first.
    assert service.typed(service.rules["ExecStartPre"]).returncode == 2
    (tmp_path / "state").mkdir(exist_ok=True)  # the home of the account
    made = service.typed(token.removeprefix("sudo -u windfall "))
    assert made.returncode == 0, made.stderr
    assert enable == "sudo systemctl enable --now windfall"
    server = service.start()
    try:
        assert manager.recv(1000) == b"READY=1"
        second = service.typed(service.rules["ExecStart"])
        assert str(second.returncode) == service.rules["RestartPreventExitStatus"], second.stderr
        url = f"http://127.0.0.1:{service.port}"
        worker = subprocess.Popen(
            ["windfall", "worker", "--server", url, "--token-file", "worker.token", "--name", f"w{service.port}"],
            cwd=tmp_path, env=service.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            with Client(url, (tmp_path / "state" / "token").read_text().strip()) as client:
                until(lambda: [row["state"] for row in client.hosts()] == ["live"])
        finally:
            worker.terminate()
            worker.wait(60)
        server.terminate()
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.wait()
    assert (tmp_path / "log" / "server.log").is_file()
