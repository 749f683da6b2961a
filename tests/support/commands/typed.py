"""`windfall` typed in a directory, as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

WINDFALL = [sys.executable, "-m", "windfall"]


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Standard output as one JSON document."""
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as NDJSON."""
        return [json.loads(line) for line in self.out.splitlines()]


class Shell:
    """A directory in which commands are typed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.started: list[subprocess.Popen[str]] = []
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("WINDFALL_")}
        # Names of workers are taken per host, by locks among the temporary files: tests side by side have their own.
        self.env["TMPDIR"] = str(directory.parent)

    def write(self, name: str, text: str, mode: int = 0o644) -> Path:
        path = self.directory / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def windfall(self, *arguments: str, stdin: str | None = None) -> Ended:
        """Run a command to its end."""
        ended = subprocess.run(
            [*WINDFALL, *arguments],
            cwd=self.directory,
            env=self.env,
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=90,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command and leave it running."""
        process = subprocess.Popen(
            [*WINDFALL, *arguments],
            cwd=self.directory,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def eventually(self, condition: Callable[[], bool], seconds: float = 30.0) -> None:
        """Wait until something holds. If it never does, show how the commands stand."""
        end = time.monotonic() + seconds
        while not condition():
            ended = [process for process in self.started if process.poll() is not None]
            if ended or time.monotonic() > end:
                said = [(process.args, process.returncode, *process.communicate(timeout=5)) for process in ended]
                raise AssertionError(f"it never came to be; ended meanwhile: {said}")
            time.sleep(0.02)

    def close(self) -> None:
        """A test that failed leaves nothing running."""
        for process in self.started:
            process.kill()
            process.communicate()

    def finish(self, process: subprocess.Popen[str], *signals: signal.Signals, between_s: float = 0.3) -> Ended:
        """Send signals to a command, one after the other, and wait for its end."""
        for number in signals:
            process.send_signal(number)
            time.sleep(between_s)
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
            self.started.remove(process)
        return Ended(process.returncode, out, err)
