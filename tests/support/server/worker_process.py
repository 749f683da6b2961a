"""A real worker process against a fake server, and a look at what it leaves behind. Touches processes, one folder."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import windfall
from tests.support.server.fake_server import TOKEN
from windfall.pools.starting.workerfile import worker_pyz
from windfall.worker.running import system

SOURCE = str(Path(windfall.__file__).parent.parent)


class Worker:
    """One worker; `as_file` runs the shipped file instead of the package."""

    def __init__(self, url: str, folder: Path, *options: str, as_file: bool = False, **env: str) -> None:
        command = [sys.executable, "-m", "windfall.worker"]
        if as_file:
            path = folder / "worker.pyz"
            path.write_bytes(worker_pyz())
            command = [sys.executable, "-I", str(path)]
        options = ("--server", url, "--dir", str(folder / "worker"), "--name", folder.name, *options)
        clean = {key: value for key, value in os.environ.items() if not key.startswith("WINDFALL_")}
        self.process = subprocess.Popen(
            [*command, *options],
            env={**clean, "PYTHONPATH": SOURCE, "WINDFALL_TOKEN": TOKEN, **env},
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def runners(self) -> list[int]:
        return system.children(self.pid)

    def family(self) -> list[int]:
        return system.family(self.pid)

    def end(self, signum: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; the exit code and what it said."""
        self.process.send_signal(signum)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        said = self.process.communicate(timeout=30)[1]
        return self.process.returncode, said


@contextlib.contextmanager
def worker(url: str, folder: Path, *options: str, as_file: bool = False, **env: str) -> Iterator[Worker]:
    """A worker that is gone afterwards, whatever the test did."""
    started = Worker(url, folder, *options, as_file=as_file, **env)
    try:
        yield started
    finally:
        family = started.family() if started.process.poll() is None else []
        started.process.kill()
        started.process.communicate()
        until_gone(family)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def until_gone(pids: list[int], patience_s: float = 15.0) -> None:
    end_s = time.monotonic() + patience_s
    while left := [pid for pid in pids if alive(pid)]:
        assert time.monotonic() < end_s, f"processes stayed behind: {left}"
        time.sleep(0.01)


def until_written(path: Path, patience_s: float = 30.0) -> str:
    """The text of a file that a task writes, once it is there."""
    end_s = time.monotonic() + patience_s
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < end_s, f"{path} was not written"
        time.sleep(0.01)
    return path.read_text()
