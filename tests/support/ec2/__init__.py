"""An EC2 for tests: moto's HTTP server, a proxy that adds what moto lacks, and a hypervisor that runs the instances.

`with ec2_cloud(folder) as cloud:` gives all three. `cloud.environment` is what a server process needs to use it,
`cloud.pool(...)` a [[pool]] for a pools.toml. Nothing outlives the block.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ec2.hypervisor import Hypervisor
from tests.support.ec2.proxy import Ec2Proxy
from tests.support.server.cluster import free_port

IMAGE = "ami-03cf127a"
"""One of the images that moto knows, for x86_64."""
ZONE_A, ZONE_B = "us-east-1a", "us-east-1b"


class Cloud:
    """The three of them, and what a pool must be told."""

    def __init__(self, proxy: Ec2Proxy, hypervisor: Hypervisor, folder: Path) -> None:
        self.proxy, self.hypervisor, self.folder = proxy, hypervisor, folder
        self.credentials = folder / "credentials"
        self.use_key("AKIAFIRST")

    def use_key(self, key: str) -> None:
        """Write an access key where the AWS libraries look for it."""
        self.credentials.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {key.lower()}\n")

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_SHARED_CREDENTIALS_FILE": str(self.credentials), "AWS_CONFIG_FILE": str(self.folder / "config"),
            "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        }  # fmt: skip

    def settings(self, **other: object) -> dict[str, object]:
        """Fields of a [[pool]] of kind `ec2` that rents here, quick enough for tests."""
        return {
            "regions": ["us-east-1"], "zones": [ZONE_A, ZONE_B], "types": ["c5.large"], "image": IMAGE,
            "account": "root",  # none is made on the host of the tests
            "endpoint": self.proxy.url, "folder": str(self.folder / "machines"), "python": sys.executable,
            "interval": 0.25, "prices_every": 0.5, "notices_every": 0.25, "boot": 1.0, "minimum": 0.0,
            "calls_per_s": 200.0, **other,
        }  # fmt: skip

    def pool(self, name: str = "cloud", limit: int = 4, **other: object) -> str:
        """The same as the text of a pools.toml."""
        lines = [f"{key} = {toml(value)}" for key, value in self.settings(**other).items()]
        return "\n".join(["[[pool]]", f'name = "{name}"', 'kind = "ec2"', f"limit = {limit}", *lines, ""])


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{key}" = {toml(each)}' for key, each in value.items()) + " }"
    return str(value).replace("'", '"') if not isinstance(value, str) else f'"{value}"'


@contextlib.contextmanager
def moto_server(folder: Path) -> Iterator[int]:
    """moto's server as a process of its own; its port."""
    try:
        import moto.server  # noqa: F401
    except ImportError:
        if os.environ.get("CI"):
            raise
        pytest.skip("moto's server is missing: make .venv/.installed")
    port = free_port()
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "MOTO_EC2_LOAD_DEFAULT_AMIS": "true"}
    with open(folder / "moto.log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=log, stderr=log, env=environment,
        )  # fmt: skip
    try:
        _await(process, port, folder / "moto.log")
        yield port
    finally:
        process.kill()
        process.wait()


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + 60.0
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()[-2000:]
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/moto-api/")
            connection.getresponse().read()
            connection.close()
            return
        time.sleep(0.05)
    raise AssertionError("moto's server does not answer")


@contextlib.contextmanager
def cloud_on(port: int, folder: Path) -> Iterator[Cloud]:
    """A cloud of its own on a running moto server, which is emptied first."""
    folder.mkdir(parents=True, exist_ok=True)
    with Hypervisor(folder / "hypervisor") as hypervisor, Ec2Proxy(port, hypervisor) as proxy:
        proxy.reset()
        yield Cloud(proxy, hypervisor, folder)


@contextlib.contextmanager
def ec2_cloud(folder: Path) -> Iterator[Cloud]:
    folder.mkdir(parents=True, exist_ok=True)
    with moto_server(folder) as port, cloud_on(port, folder) as cloud:
        yield cloud
