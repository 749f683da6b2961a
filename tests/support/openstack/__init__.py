"""An OpenStack for tests: a real Nova in a process of its own (integrations/nova), and a hypervisor that runs its
servers as processes. Nothing outlives the block `with nova_cloud(folder) as cloud:`."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ec2.hypervisor import Hypervisor
from tests.support.server.cluster import free_port

ROOT = Path(__file__).parents[3]
IMAGE = "155d900f-4e14-4e4c-a73d-069cbf4541e6"
"""One of the images that Nova's fixture has."""
Json = dict[str, Any]


def python_of_nova() -> Path:
    """The Python of the environment with Nova; the test is skipped where there is none, also in CI."""
    if os.environ.get("WINDFALL_TEST_NOVA") != "1":
        pytest.skip("tests against a real OpenStack Nova run in `make test-nova`")
    asked = subprocess.run(["sh", str(ROOT / "tools" / "nova.sh"), "--check"], capture_output=True, text=True)
    if asked.returncode:
        pytest.skip(asked.stderr.strip())
    return Path(asked.stdout.strip()) / "venv" / "bin" / "python"


def environment_of_nova() -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "integrations" / "nova")])
    return {**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}


class NovaCloud:
    """One cloud, and what a pool must be told. `url` is that of all its services."""

    def __init__(self, url: str, hypervisor: Hypervisor, folder: Path) -> None:
        self.url, self.hypervisor, self.folder = url, hypervisor, folder

    def environment(self, user: str = "alice") -> dict[str, str]:
        return {
            "OS_AUTH_URL": f"{self.url}/identity/v3", "OS_USERNAME": user, "OS_PASSWORD": "x", "OS_PROJECT_NAME": user,
            "OS_USER_DOMAIN_NAME": "Default", "OS_PROJECT_DOMAIN_NAME": "Default", "OS_REGION_NAME": "here",
        }  # fmt: skip

    def settings(self, **other: object) -> Json:
        """Fields of a [[pool]] of kind `openstack` here, quick enough for tests."""
        return {
            "account": "root",  # none is made on the host of the tests
            "prices": {"normal": 0.05}, "preemptible_prices": {"spare": 0.01}, "image": IMAGE, "networks": ["none"],
            "folder": str(self.folder / "machines"), "python": sys.executable, "interval": 0.5, "boot": 5.0, **other,
        }  # fmt: skip

    def call(self, method: str, path: str, body: Json | None = None, user: str = "admin") -> Json:
        """The compute API as the operator."""
        request = urllib.request.Request(
            f"{self.url}/compute/v2.1{path}",
            None if body is None else json.dumps(body).encode(),
            {"X-Auth-Token": user, "Content-Type": "application/json", "OpenStack-API-Version": "compute 2.79"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            data = answer.read()
        found: Json = json.loads(data) if data else {}
        return found

    def test(self, what: str, **arguments: Any) -> Any:
        """What only tests may do (windfall_nova.cloud.serve)."""
        request = urllib.request.Request(f"{self.url}/test/{what}", json.dumps(arguments).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read())["found"]

    def servers(self) -> list[Json]:
        found: list[Json] = self.call("GET", "/servers/detail?all_tenants=1")["servers"]
        return found

    def boot(self, name: str, flavor: str) -> str:
        """A server of somebody else."""
        made = {"name": name, "flavorRef": flavor, "imageRef": IMAGE, "networks": "none"}
        return str(self.call("POST", "/servers", {"server": made}, user="bob")["server"]["id"])


class Bridge:
    """Runs the user data of servers that are active, and ends what is off or gone; a guest that shuts down is off."""

    def __init__(self, cloud: NovaCloud) -> None:
        self._cloud, self._closed = cloud, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        cloud.hypervisor.on_shutdown = self._off

    def __enter__(self) -> Bridge:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._closed.wait(0.2):
            with contextlib.suppress(OSError, KeyError, ValueError):
                self._look()

    def _look(self) -> None:
        hypervisor = self._cloud.hypervisor
        rows = {row["id"]: row for row in self._cloud.servers()}
        for id, row in rows.items():
            data = row.get("OS-EXT-SRV-ATTR:user_data")
            if row["status"] == "ACTIVE" and id not in hypervisor.instances and data:
                hypervisor.boot(id, base64.b64decode(data).decode())
        for id, instance in [*hypervisor.instances.items()]:
            if not instance.ended and (id not in rows or rows[id]["status"] == "SHUTOFF"):
                hypervisor.kill(id)

    def _off(self, id: str) -> None:
        with contextlib.suppress(OSError):
            self._cloud.test("console", uuid=id, text=self._cloud.hypervisor.console(id))
            self._cloud.test("off", uuid=id)


@contextlib.contextmanager
def nova_process(folder: Path, hosts: int = 2, vcpus: int = 8, grace: float = 0.0) -> Iterator[str]:
    """A Nova with computes; its address."""
    port = free_port()
    command = [str(python_of_nova()), "-m", "windfall_nova.cloud.serve", "--port", str(port), "--hosts", str(hosts)]
    command += ["--vcpus", str(vcpus), "--grace", str(grace)]
    with open(folder / "nova.log", "wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment_of_nova(), cwd=folder
        )
    assert process.stdout is not None and process.stdin is not None
    drain = None
    try:
        for line in process.stdout:
            if line.strip() == b"ready":
                break
        else:
            raise AssertionError((folder / "nova.log").read_text()[-3000:])
        drain = threading.Thread(target=process.stdout.read, daemon=True)
        drain.start()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        if drain is not None:
            drain.join(30)
        process.stdout.close()
        process.stdin.close()


@contextlib.contextmanager
def cloud_on(url: str, folder: Path) -> Iterator[NovaCloud]:
    """A cloud on a running Nova, which is emptied first; openstacksdk in this process uses it."""
    folder.mkdir(parents=True, exist_ok=True)
    with Hypervisor(folder / "hypervisor") as hypervisor:
        cloud = NovaCloud(url, hypervisor, folder)
        cloud.test("clear")
        before = {key: os.environ.get(key) for key in cloud.environment()}
        os.environ.update(cloud.environment())
        try:
            with Bridge(cloud):
                yield cloud
        finally:
            for key, value in before.items():
                os.environ.pop(key) if value is None else os.environ.__setitem__(key, value)


def until(condition: Any, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.2)
