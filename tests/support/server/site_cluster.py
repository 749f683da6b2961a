"""A real site: a server, agents that offer two cores each, and what a person types. Real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.server.cluster import WINDFALL, Cluster, cluster
from windfall.core.records import Record, decode_record
from windfall.store import open_store


class SiteCluster:
    """A server with a site, and agents that offer two cores each."""

    def __init__(self, running: Cluster) -> None:
        self.cluster = running
        self.client = running.client()

    def __getattr__(self, name: str):
        return getattr(self.cluster, name)

    def create(self, grace_s: float, *more: str) -> None:
        self.typed("create", "lab", "--instance-vcpu", "1", "--instance-ram", "1000", "--grace", f"{grace_s:g}s", *more)

    def start_agent(self, name: str, *more: str, as_file: bool = False) -> None:
        """As a command, or as the one file that the server serves."""
        command = [*WINDFALL, "site", "agent"]
        if as_file:
            (self.directory / "worker.pyz").write_bytes(self.client.transport.request("GET", "/worker.pyz"))
            command = [sys.executable, "-I", str(self.directory / "worker.pyz"), "--site", "lab"]
        command += ["--server", self.url, "--name", self.full(name), "--vcpu", "2", "--ram", "2000"]
        command += ["--dir", str(self.directory), *more]
        self.workers[name] = self._spawn(command, f"agent-{name}.log", {"WINDFALL_TOKEN": self.token})

    def stop(self) -> None:
        """Agents first: they take their leave of a server that is there."""
        for process in self.workers.values():
            process.send_signal(signal.SIGTERM)
        for process in self.workers.values():
            process.wait(30)
        self.stop_server()

    def full(self, name: str) -> str:
        """Names of hosts are locked on a machine: other tests may run beside this one."""
        return f"{name}-{self.port}"

    def typed(self, *arguments: str, code: int = 0) -> dict:
        """`windfall site ...` as a person types it, and its JSON."""
        words = list(arguments)
        at = words.index("--") if "--" in words else len(words)
        words[at:at] = ["--json", "--server", self.url, "--token", self.token]
        done = subprocess.run([*WINDFALL, "site", *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    def site(self) -> dict:
        return self.client.transport.get("/v1/sites/lab")

    def request(self, name: str) -> dict:
        return self.client.transport.get(f"/v1/site/requests/{name}")

    def ask(self, vcpu: float, *command: str) -> str:
        """The same by HTTP; the name of the request."""
        body = {"resources": {"vcpu": vcpu, "ram_mb": 500}, "command": list(command)}
        return self.client.transport.post("/v1/site/requests", body)["name"]

    def until(self, holds: Callable[[], bool], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, (self.site(), self.logs())
            time.sleep(0.05)

    def until_ended(self, *names: str) -> list[dict]:
        self.until(lambda: all(self.request(name)["state"] == "ended" for name in names))
        return [self.request(name) for name in names]

    def until_full(self, workers: int) -> None:
        """This many workers run, and each of them has a task."""
        self.until(lambda: sum(host["held"] > 0 for host in self.client.hosts() if host["state"] == "live") == workers)

    def logs(self) -> str:
        return "\n".join(path.read_text()[-1500:] for path in self.directory.glob("*.log"))

    def records(self) -> list[Record]:
        """The whole log. The server must be stopped."""
        store = open_store(self.state)
        try:
            found: list[Record] = []
            while rows := store.records(found[-1].seq if found else 0, 1000):
                found += [decode_record(row.data) for row in rows]
            return found
        finally:
            store.close()


@contextmanager
def site_cluster(directory: Path) -> Iterator[SiteCluster]:
    """A server without a site yet; agents and server end with the context."""
    with cluster(directory, lease_s=6.0) as running:
        running.start_server()
        site = SiteCluster(running)
        yield site
        site.stop()
