"""The worker of a local server: started early, told later where its server is, replaced if it is killed.

Touches processes. A worker needs about as long to load as a server does, so the two load side by side.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from windfall.errors import WindfallError

_GRACE_S = 6.0
_QUICK_DEATH_S = 2.0
_QUICK_DEATHS = 5
"""Workers killed in a row, and the seconds each may have lived: the next one would be killed, too."""


class LocalWorker:
    """A worker on this host, with its files in the state directory."""

    def __init__(self, directory: Path, slots: int | None, env: dict[str, str]) -> None:
        self._directory = directory
        self._slots = slots
        self._env = env
        self._address: tuple[str, str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._stopped = False
        self._ended = threading.Event()

    @property
    def works(self) -> bool:
        """Has it been told where its server is?"""
        return self._address is not None

    def prepare(self) -> None:
        """Start it. It loads, and waits for an address. OSError if it cannot be started."""
        started: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()

        def keep() -> None:
            # "Parent" means the thread that started it (prctl): so this one stays for as long as a worker does.
            try:
                process = self._process = self._spawn()
            except OSError as error:
                started.put(error)
                return
            started.put(None)
            self._replace_killed(process)
            self._ended.set()

        threading.Thread(target=keep, name="windfall-worker", daemon=True).start()
        if error := started.get():
            raise error

    def begin(self, url: str, token: str) -> None:
        """Let it work for a server."""
        if self._process is None:
            try:
                self.prepare()
            except OSError as error:
                raise WindfallError(f"the local worker could not be started: {error}") from None
        with self._lock:
            self._address = (url, token)
            self._tell()

    def _spawn(self) -> subprocess.Popen[bytes]:
        # The address comes by its standard input, and the token with it: `ps` and tasks do not see it.
        command = [sys.executable, "-m", "windfall.worker", "--server", "-", "--die-with-parent"]
        command += ["--dir", str(self._directory / "worker")]
        command += ["--slots", str(self._slots)] if self._slots else []
        with open(self._directory / "worker.log", "ab", opener=_private) as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={name: value for name, value in {**os.environ, **self._env}.items() if name != "WINDFALL_TOKEN"},
                # A Ctrl-C at the terminal is ours to answer; the worker is told what to do.
                start_new_session=True,
            )

    def _tell(self) -> None:
        if self._process is None or self._address is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it is gone: the next one is told
            self._process.stdin.write("\n".join([*self._address, ""]).encode())
            self._process.stdin.close()

    def _replace_killed(self, worker: subprocess.Popen[bytes]) -> None:
        """A worker that was killed is followed by another; one that ended by itself had its reason (`problem`)."""
        quick_deaths, began_s = 0, time.monotonic()
        while worker.wait() < 0 and not self._stopped:
            lived_s = time.monotonic() - began_s
            quick_deaths = quick_deaths + 1 if lived_s < _QUICK_DEATH_S else 0
            if quick_deaths >= _QUICK_DEATHS:
                return
            time.sleep(0.1 * 2**quick_deaths)
            with self._lock:
                if self._stopped:
                    return
                began_s = time.monotonic()
                worker = self._process = self._spawn()
                self._tell()

    @property
    def problem(self) -> WindfallError | None:
        """Why the worker is not running, if it should be and is not."""
        if not self._ended.is_set() or self._stopped:
            return None
        log = self._directory / "worker.log"
        try:
            last = log.read_text(errors="replace").strip().splitlines()[-1]
        except (OSError, IndexError):
            last = "it left no word"
        return WindfallError(f"the local worker ended: {last}", hint=f"its log: {log}")

    def stop(self, *, now: bool = False) -> None:
        """End it (`now`: with what it runs, at once)."""
        with self._lock:
            self._stopped = True
            process = self._process
        if process is None or self._ended.is_set():
            return
        # One that was never told of a server has nothing to hand back.
        process.send_signal(signal.SIGTERM if self.works else signal.SIGKILL)
        if now and not self._ended.wait(0.05):
            # A second SIGTERM: do not wait for what runs.
            process.send_signal(signal.SIGTERM)
        if not self._ended.wait(_GRACE_S):
            process.kill()
            self._ended.wait()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
