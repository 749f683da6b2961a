"""A server as a service: what the service manager hears of it, and whether it could start."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

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
