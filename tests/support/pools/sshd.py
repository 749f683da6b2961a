"""A real sshd on a loopback port with keys of its own, and an ssh configuration that finds it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import Struct

SSHD = "/usr/sbin/sshd"


class Sshd(Struct):
    """Where it listens, and the configuration file in which `node1`, `node2`, `far` and `refused` are its hosts."""

    port: int
    config: Path
    home: Path
    """Folder for whatever the tests leave on the host."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def behind(inner: Sshd, gate: Sshd, config: Path) -> None:
    """Write a configuration in which `inside` is a host of `inner`, reached only through `gate`."""
    own = inner.config.read_text().split("Host node1 node2\n")[1].split("\n\n")[0]
    door = gate.config.read_text().split("Host node1 node2\n")[1].split("\n\n")[0]
    config.write_text(f"Host gate\n{door}\n\nHost inside\n{own}\n  ProxyJump gate\n")


@contextmanager
def sshd(folder: Path) -> Iterator[Sshd]:
    """Serve logins of the user who runs the tests; skips where there is no sshd."""
    if not Path(SSHD).exists() or shutil.which("ssh") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("openssh-server is missing: sh tools/system.sh")
        pytest.skip("openssh-server is missing: sh tools/system.sh installs it")
    folder.mkdir(mode=0o700)
    for name in ("host", "id", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    shutil.copy(folder / "id.pub", folder / "authorized_keys")
    port = _free_port()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile {folder}/sshd.pid\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
        "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nPrintMotd no\nMaxSessions 50\n"
        "MaxStartups 50:30:200\nAllowTcpForwarding yes\n"
    )
    common = f"  HostName 127.0.0.1\n  Port {port}\n  UserKnownHostsFile {folder}/known_hosts\n  IdentitiesOnly yes\n"
    own = f"{common}  IdentityFile {folder}/id\n"
    (folder / "config").write_text(
        f"Host node1 node2\n{own}\nHost far\n{own}  ProxyJump node1\n\n"
        f"Host refused\n{common}  IdentityFile {folder}/stranger\n\n"
        f"Host unknown\n  HostName 127.0.0.1\n  Port {port}\n  UserKnownHostsFile {folder}/empty\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True) if os.getuid() == 0 else None
    with open(folder / "log", "w") as log:
        process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
    try:
        _await(port, process, folder / "log")
        yield Sshd(port, folder / "config", folder / "home")
    finally:
        process.terminate()
        process.wait(10)


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 30.0
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    pytest.fail(f"sshd did not start: {log.read_text()}")
