"""A real server and real workers as processes, to be killed at will, and a recount of what came of it."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from windfall.client import Client
from windfall.core.decisions import ACCEPTED, ResultsJudged
from windfall.core.events import ResultsReported
from windfall.core.records import decode_record
from windfall.store import open_store
from windfall.store.location import StateLocation

WINDFALL = [sys.executable, "-m", "windfall"]
PORTS, FIRST_PORT = 1_500, 28_000
"""Ports of each process of tests: above those that Slurm and Kubernetes look for, and for three processes below those
that the system gives to connections."""
_ports = itertools.count(os.getpid() % PORTS)


def free_port() -> int:
    """A port that no other test is given: another server may answer on one that the system has just called free."""
    first = FIRST_PORT + PORTS * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    for _ in range(PORTS):
        port = first + next(_ports) % PORTS
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no port from {first} on is free")


class Cluster:
    """Processes of one test, on one state directory and one port."""

    def __init__(
        self, directory: Path, lease_s: float = 2.0, server_env: dict[str, str] | None = None, database: str = ""
    ) -> None:
        """`database`: the URL of a state in PostgreSQL; files of the server are in `state` all the same."""
        self.directory = directory
        self.state = directory / "state"
        self.where = database or str(self.state)
        self.lease_s = lease_s
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.server: subprocess.Popen[bytes] | None = None
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.server_env = (server_env or {}) | ({"XDG_STATE_HOME": str(self.state)} if database else {})
        self.clients: list[Client] = []
        self.patience_s = 30.0
        """Seconds for a server to start."""

    # --- the server ---

    def start_server(self, *extra: str) -> None:
        command = [*WINDFALL, "server", "--listen", f"127.0.0.1:{self.port}", "--state", self.where]
        command += ["--lease", str(self.lease_s), *extra]
        self.server = self._spawn(command, "server.log", self.server_env)
        self.await_server()

    def await_server(self) -> None:
        """Until /healthz answers."""
        import http.client

        end = time.monotonic() + self.patience_s
        while time.monotonic() < end:
            assert self.server is not None
            if self.server.poll() is not None:
                raise AssertionError(f"the server ended: {(self.directory / 'server.log').read_text()[-2000:]}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
                with contextlib.closing(connection):
                    connection.request("GET", "/healthz")
                    if connection.getresponse().status == 200:
                        return
            time.sleep(0.02)
        raise AssertionError("the server does not answer")

    def kill_server(self) -> None:
        assert self.server is not None
        self.server.kill()
        self.server.wait()

    def stop_server(self) -> None:
        if self.server is not None and self.server.poll() is None:
            self.server.send_signal(signal.SIGTERM)
            self.server.wait(30)

    @property
    def token(self) -> str:
        own = [self.state / "token", *self.state.glob("windfall/*/token")]
        return next(path for path in own if path.exists()).read_text().strip()

    def client(self, url: str = "") -> Client:
        self.clients.append(Client(url or self.url, self.token, patience_s=300.0))
        return self.clients[-1]

    # --- workers ---

    def start_worker(
        self, name: str, slots: int = 2, url: str = "", extra: tuple[str, ...] = (), env: dict[str, str] | None = None
    ) -> None:
        command = [*WINDFALL, "worker", "--server", url or self.url, "--slots", str(slots), "--name", name]
        command += ["--dir", str(self.directory / name), *extra]
        self.workers[name] = self._spawn(command, f"{name}.log", {"WINDFALL_TOKEN": self.token, **(env or {})})

    def _spawn(self, command: list[str], log: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
        with open(self.directory / log, "ab") as file:
            # Names of workers are taken per host, by locks among temporary files: tests side by side have their own.
            apart = {"TMPDIR": str(self.directory.parent)}
            return subprocess.Popen(command, stdout=file, stderr=file, env=os.environ | apart | env)

    def kill_worker(self, name: str) -> None:
        self.workers[name].kill()
        self.workers[name].wait()

    def close(self) -> None:
        for client in self.clients:
            client.close()
        # Workers first: a goodbye to a server that is gone takes its time.
        for processes in ([*self.workers.values()], [self.server]):
            running = [process for process in processes if process is not None]
            for process in running:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
            for process in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()
                process.wait()

    # --- the recount ---

    @property
    def location(self) -> StateLocation:
        return StateLocation(self.state, "" if self.where == str(self.state) else self.where)

    def accepted(self) -> Counter[tuple[int, int]]:
        """How often each task's result was accepted, counted from the log alone. The server must be stopped."""
        return accepted_in(self.where, take_over=self.where != str(self.state))


@contextlib.contextmanager
def cluster(directory: Path, **options: object) -> Iterator[Cluster]:
    made = Cluster(directory, **options)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        made.close()


def accepted_in(state: str | Path, take_over: bool = False) -> Counter[tuple[int, int]]:
    """How often each task's result was accepted, counted from the log of a state alone."""
    counts: Counter[tuple[int, int]] = Counter()
    store = open_store(state, take_over=take_over)
    try:
        after = 0
        while rows := store.records(after, 1000):
            for row in rows:
                record = decode_record(row.data)
                if isinstance(record.event, ResultsReported) and isinstance(record.decided, ResultsJudged):
                    for result, verdict in zip(record.event.results, record.decided.verdicts, strict=True):
                        counts[result.job, result.task] += verdict == ACCEPTED
            after = rows[-1].seq
    finally:
        store.close()
    return counts
