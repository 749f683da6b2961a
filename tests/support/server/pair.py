"""A server and its standby as real processes on one PostgreSQL database.

Each is behind a proxy of its own to it, or both name the two places of a replicated one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.server import postgres
from tests.support.server.cluster import free_port
from tests.support.server.proxy import Proxy
from windfall.client import Client
from windfall.client.transport import Transport
from windfall.core.decisions import ACCEPTED, HostAnswered, ResultsJudged
from windfall.core.events import ResultsReported
from windfall.core.records import decode_record
from windfall.errors import WindfallError
from windfall.store import open_store

WINDFALL = [sys.executable, "-m", "windfall"]
CLOCK = Path(__file__).parent / "clock"


class Seat:
    """One of the two places where a server runs: its port, its way to the database, its clock, its files."""

    def __init__(self, directory: Path, name: str, proxy: Proxy, state: str) -> None:
        self.name = name
        self.directory = directory / name
        self.directory.mkdir()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.proxy, self.state = proxy, state
        self.clock = self.directory / "clock"
        self.process: subprocess.Popen[bytes] | None = None
        self.log = self.directory / "server.log"

    def start(self, *options: str, source: str = "") -> None:
        """`source`: the folder of another version of Windfall."""
        env = {
            **os.environ, "XDG_STATE_HOME": str(self.directory), "WINDFALL_TEST_CLOCK": str(self.clock),
            "PYTHONPATH": f"{CLOCK}:{source or os.environ.get('PYTHONPATH', '')}",
        }  # fmt: skip
        command = [*WINDFALL, "server", "--listen", f"127.0.0.1:{self.port}", "--state", self.state, *options]
        with open(self.log, "ab") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file, env=env)

    def jump(self, seconds: float) -> None:
        self.clock.write_text(str(seconds))

    def asked(self, path: str) -> bool:
        """Whether /healthz or /readyz answers well."""
        transport = Transport(self.url, timeout_s=2.0)
        try:
            transport.request("GET", path)
        except WindfallError:
            return False
        finally:
            transport.close()
        return True

    def ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def tell(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        self.stop()
        self.proxy.close()


def eventually(condition: object, seconds: float = 60.0, what: str = "") -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it never came to be: {what}"
        time.sleep(0.02)


class Pair:
    """Two seats, workers that know both, and a client."""

    def __init__(
        self, directory: Path, silence_s: float = 2.0, lease_s: float = 60.0, source: str = "", replicated: str = ""
    ) -> None:
        """`source`: the folder of another version of Windfall, which the first server is of. `replicated`: a database
        that is there already, at several places."""
        self.directory = directory
        self.options = ("--takeover-after", str(silence_s), "--lease", str(lease_s))
        self._stack = contextlib.ExitStack()
        port = free_port()
        if not replicated:
            server = self._stack.enter_context(postgres.server(port))
        self.database = replicated or postgres.new_database(server, "pair")
        self.seats = []
        for name in ("one", "two"):
            proxy = Proxy(port)
            through = f"postgresql://windfall@127.0.0.1:{proxy.port}/pair"
            self.seats.append(Seat(directory, name, proxy, replicated or through))
        self.workers: list[subprocess.Popen[bytes]] = []
        self.active, self.other = self.seats
        self.active.start(*self.options, source=source)
        eventually(lambda: self.active.asked("/readyz"), what="the first server is ready")
        self.token = next(self.active.directory.glob("windfall/*/token")).read_text().strip()
        self.start_standby()

    @property
    def urls(self) -> str:
        return ",".join(seat.url for seat in self.seats)

    def start_standby(self) -> None:
        self.other.start("--standby", *self.options)
        eventually(lambda: self.other.asked("/healthz"), what="the standby answers")

    def start_workers(self, number: int, slots: int = 2, source: str = "", archive: Path | None = None) -> None:
        """`source`: the folder of another version of Windfall. `archive`: a worker as a server ships it."""
        program = [*WINDFALL, "worker"] if archive is None else [sys.executable, str(archive)]
        for _ in range(number):
            name = f"w{len(self.workers)}"
            command = [*program, "--server", self.urls, "--slots", str(slots), "--name", name]
            command += ["--dir", str(self.directory / name)]
            env = {**os.environ, "WINDFALL_TOKEN": self.token, "TMPDIR": str(self.directory)}
            env |= {"PYTHONPATH": source} if source else {}
            with open(self.directory / f"{name}.log", "ab") as file:
                self.workers.append(subprocess.Popen(command, stdout=file, stderr=file, env=env))

    def client(self, patience_s: float = 120.0) -> Client:
        return self._stack.enter_context(contextlib.closing(Client(self.urls, self.token, patience_s=patience_s)))

    def taken_over(self, seconds: float = 60.0) -> None:
        """Wait until the standby is the server, and call it that."""
        eventually(lambda: self.other.asked("/readyz"), seconds, "the standby takes over")
        self.active, self.other = self.other, self.active

    def close(self) -> None:
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(20)
            worker.kill()
            worker.wait()
        for seat in self.seats:
            seat.close()
        self._stack.close()

    def recount(self) -> tuple[Counter[tuple[int, int]], Counter[tuple[int, int]], int]:
        """From the log alone: how often each task's result was accepted, and handed out; attempts given up as lost."""
        lost = 0
        accepted: Counter[tuple[int, int]] = Counter()
        handed: Counter[tuple[int, int]] = Counter()
        store = open_store(self.database, take_over=True)
        try:
            after = 0
            while rows := store.records(after, 1000):
                for row in rows:
                    record = decode_record(row.data)
                    event, decided = record.event, record.decided
                    if isinstance(event, ResultsReported) and isinstance(decided, ResultsJudged):
                        for result, verdict in zip(event.results, decided.verdicts, strict=True):
                            accepted[result.job, result.task] += verdict == ACCEPTED
                    lost += len(getattr(decided, "lost", ()))
                    if isinstance(decided, HostAnswered):
                        for given in decided.assigned:
                            handed.update((given.job, given.first + n) for n in range(given.count))
                after = rows[-1].seq
        finally:
            store.close()
        return accepted, handed, lost


@contextlib.contextmanager
def pair(directory: Path, silence_s: float = 2.0, source: str = "", replicated: str = "") -> Iterator[Pair]:
    made = Pair(directory, silence_s, source=source, replicated=replicated)
    try:
        yield made
    finally:
        made.close()
