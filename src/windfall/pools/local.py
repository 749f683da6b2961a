"""The pool of this host: starts `windfall worker` processes. Touches processes and one directory."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import signal
import subprocess
import sys
import time
from itertools import count as numbers
from pathlib import Path

from msgspec import Struct

from windfall.pools.contract import PoolWorker, Started

_LAST_WORDS_BYTES = 2000
_HAND_BACK_S = 5.0


class Place(Struct, frozen=True):
    """The server's address for workers, and the folder for their files."""

    url: str
    token_file: Path
    directory: Path
    cafile: str = ""


class LocalPool:
    """Workers on this host, each in a session and a directory of its own.

    They outlive a killed server: they ask its successor for work, or end by themselves without work.
    """

    def __init__(self, name: str, slots: int, place: Place, idle_exit_s: float = 60.0) -> None:
        self._name, self._slots, self._place, self._idle_exit_s = name, slots, place, idle_exit_s
        self._run = secrets.token_hex(2)  # a random part: names of an earlier run may still be in use
        self._numbers = numbers(1)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, count: int) -> Started:
        started = Started()
        for _ in range(count):
            host = f"{self._name}-{self._run}-{next(self._numbers)}"
            try:
                self._processes[host] = self._spawn(host)
            except OSError as error:
                started.error = f"a worker cannot be started: {error.strerror or error}"
                break
            started.hosts.append(host)
        return started

    def _spawn(self, host: str) -> subprocess.Popen[bytes]:
        place, folder = self._place, self._folder(host)
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "windfall.worker", "--server", place.url, "--name", host]
        command += ["--token-file", str(place.token_file), "--slots", str(self._slots), "--pool", self._name]
        command += ["--idle-exit", f"{self._idle_exit_s:g}", "--dir", str(folder)]
        command += ["--cafile", place.cafile] if place.cafile else []
        with open(folder / "worker.log", "ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=folder
            )

    def _folder(self, host: str) -> Path:
        return self._place.directory / host

    def list(self) -> list[PoolWorker]:
        found = []
        for host, process in list(self._processes.items()):
            code = process.poll()
            if code is None:
                found.append(PoolWorker(host))
                continue
            del self._processes[host]
            found.append(PoolWorker(host, alive=False, error="" if code == 0 else self._last_words(host, code)))
            shutil.rmtree(self._folder(host), ignore_errors=True)
        return found

    def _last_words(self, host: str, code: int) -> str:
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        try:
            text = (self._folder(host) / "worker.log").read_bytes()[-_LAST_WORDS_BYTES:].decode(errors="replace")
        except OSError:
            text = ""
        lines = text.strip().splitlines()
        return f"worker {host} ended with {how}" + (f": {lines[-1]}" if lines else "")

    def stop(self, grace_s: float = 10.0) -> None:
        # First signal: end after the running tasks. Second: hand them back. A worker that does not react is killed.
        for number, seconds in ((signal.SIGTERM, grace_s), (signal.SIGTERM, _HAND_BACK_S), (signal.SIGKILL, 5.0)):
            self._tell(number)
            self._await(seconds)
        for host in self._processes:
            shutil.rmtree(self._folder(host), ignore_errors=True)
        self._processes.clear()

    def _tell(self, number: int) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)

    def _await(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
