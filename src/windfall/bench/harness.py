"""Shared by the benchmarks of the live system: server and worker processes, rounds, a table. Touches processes.

Each benchmark alternates rounds of Windfall and of its floor or peer, and reports medians and their ratio: on a shared
machine only the ratio is meaningful.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, TypeVar

import click

from windfall.client import Client
from windfall.errors import WindfallError

PYTHON = sys.executable


class Live:
    """A server process on a state directory of its own, and workers beside it.

    Each has a process group of its own: Ctrl-C is for the benchmark. A worker whose server the same Ctrl-C had ended
    would wait for it to come back.
    """

    def __init__(self, state: Path) -> None:
        self.state = state
        self.processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def start_server(self) -> float:
        """Start or restart the server; return the seconds until it serves."""
        began = time.perf_counter()
        (self.state / "server.json").unlink(missing_ok=True)
        command = [PYTHON, "-m", "windfall", "server", "--listen", "127.0.0.1:0", "--state", str(self.state)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, process_group=0)
        self.processes.insert(0, server)
        while not (self.state / "server.json").exists():
            if server.poll() is not None:
                text = server.stderr.read().decode() if server.stderr else ""
                raise WindfallError(f"the server ended: {text[-500:]}")
            time.sleep(0.002)
        self.url = json.loads((self.state / "server.json").read_text())["url"]
        return time.perf_counter() - began

    @property
    def server(self) -> subprocess.Popen[bytes]:
        return self.processes[0]

    @property
    def token(self) -> str:
        return (self.state / "token").read_text().strip()

    def start_worker(self, slots: int) -> None:
        command = [PYTHON, "-m", "windfall", "worker", "--server", self.url, "--slots", str(slots)]
        env = os.environ | {"WINDFALL_TOKEN": self.token}
        log = subprocess.DEVNULL
        directory = ["--dir", str(self.state / "worker")]
        worker = subprocess.Popen([*command, *directory], stdout=log, stderr=log, env=env, process_group=0)
        self.processes.append(worker)

    def client(self) -> Client:
        return Client(self.url, self.token)

    def await_hosts(self, count: int = 1) -> None:
        client = self.client()
        while len(client.transport.get("/v1/hosts")["hosts"]) < count:
            time.sleep(0.02)
        client.close()

    def cpu_s(self) -> dict[str, float]:
        """Processor seconds so far of the server, the worker, its runners, and the tasks that have ended."""
        worker = self.processes[-1].pid
        runners = Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
        spent = [cpu_of(int(pid)) for pid in runners]
        return {
            "server": cpu_of(self.server.pid)[0],
            "worker": cpu_of(worker)[0],
            "runners": sum(own for own, _ in spent),
            "tasks": sum(children for _, children in spent),
        }

    def resident_bytes(self) -> int:
        return self._memory_bytes("VmRSS")

    def peak_bytes(self) -> int:
        return self._memory_bytes("VmHWM")

    def _memory_bytes(self, field: str) -> int:
        status = Path(f"/proc/{self.server.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(field))

    def kill_server(self) -> None:
        self.server.kill()
        self._await_end()

    def stop_server(self) -> None:
        """End the server in good order: it takes a snapshot."""
        self.server.terminate()
        self._await_end()

    def _await_end(self) -> None:
        """Forgets the server only once it has ended: `close` waits for it if Ctrl-C comes before."""
        self.server.communicate()
        del self.processes[0]

    def close(self) -> None:
        """End the workers, then the server: it takes what they still have to say."""
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def cpu_of(pid: int) -> tuple[float, float]:
    """Processor seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system, children_user, children_system = (int(word) for word in fields[11:15])
    per_s = os.sysconf("SC_CLK_TCK")
    return (user + system) / per_s, (children_user + children_system) / per_s


def thread_cpu_s(pid: int) -> float:
    """Processor seconds of the threads of a process that run now, to the microsecond: for short turns."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def cpu_of_family(pid: int) -> float:
    """Processor seconds of a process and of its descendants that have not ended."""
    try:
        threads = Path(f"/proc/{pid}/task").iterdir()
        children = {child for thread in threads for child in (thread / "children").read_text().split()}
        return cpu_of(pid)[0] + sum(cpu_of_family(int(child)) for child in children)
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return 0.0


@contextmanager
def live(slots: int = 0) -> Iterator[Live]:
    with tempfile.TemporaryDirectory(prefix="windfall-bench-") as directory:
        running = Live(Path(directory))
        try:
            running.start_server()
            if slots:
                running.start_worker(slots)
                running.await_hosts()
            yield running
        finally:
            running.close()


def interleaved(rounds: int, ours: Callable[[], float], peer: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Rates of both, in alternating rounds, so that a slow phase of the machine affects both. Round 1 warms up."""
    ours(), peer()
    mine, theirs = [], []
    for number in range(rounds):
        show(f"round {number + 1} of {rounds}")
        theirs.append(peer())
        mine.append(ours())
    show("")
    return mine, theirs


T = TypeVar("T")


def apart(work: Callable[..., T], *args: Any) -> T:
    """Call it in a process of its own: memory belongs to a process, and one run must not warm up the next.

    The process never sees Ctrl-C, not even while its interpreter starts: we end it.
    """
    spawn = multiprocessing.get_context("spawn")
    resource_tracker.ensure_running()  # first: it lets Ctrl-C through again once it has started
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with spawn.Pool(1) as pool:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return pool.apply(work, args)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` in a thread: Ctrl-C cancels the coroutine, and is not raised in the midst of any of its tasks."""
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = []

    async def main() -> T:
        task = asyncio.create_task(coroutine)
        running.append((asyncio.get_running_loop(), task))
        return await task

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(lambda: asyncio.run(main()))
        try:
            return future.result()
        except BaseException:
            for loop, task in running:
                if not future.done():
                    loop.call_soon_threadsafe(task.cancel)
            raise


def show(text: str) -> None:
    """Progress on a terminal, nothing in a pipe."""
    if sys.stderr.isatty():
        click.echo(f"\r\033[K{text}", nl=False, err=True)


def ratio_report(
    name: str, unit: str, goal: float, peer: str, mine: list[float], theirs: list[float]
) -> dict[str, Any]:
    ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
    return {
        "bench": name,
        "unit": unit,
        "ours": statistics.median(mine),
        "peer": statistics.median(theirs),
        "peer_is": peer,
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "goal": goal,
    }


def report(document: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(document))
        return
    for key, value in document.items():
        if isinstance(value, float):
            value = f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"
        elif isinstance(value, list):
            value = ", ".join(f"{item:,.2f}" if isinstance(item, float) else str(item) for item in value)
        click.echo(f"  {key:<28} {value}")
