"""One attempt in the hands of a runner: its job's settings, its process, its limits, its output. Touches processes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

from windfall.worker.running import system
from windfall.worker.running.containers import Container
from windfall.worker.running.window import OutputWindow


class Spec:
    """Settings common to the tasks of a job, prepared once."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.cwd: str | None = fields["cwd"]
        self.inputs: list[tuple[str, str, int]] = fields["inputs"]
        self.outputs: list[str] = fields["outputs"]
        self.wall_s: float | None = fields["wall_s"]
        self.memory_bytes: int | None = fields["memory_bytes"]
        self.grace_s: float = fields["grace_s"]
        self.cap_bytes: int = fields["output_cap_bytes"]
        self.env = {os.fsencode(k): os.fsencode(v) for k, v in {**os.environ, **fields["env"]}.items()}
        self.env.pop(b"WINDFALL_TOKEN", None)
        self.env[b"WINDFALL_JOB"] = str(fields["job"]).encode()
        self.env[b"WINDFALL_HOST"] = os.fsencode(fields["host"])
        self.notice_signal = _signal_named(self.env.get(b"WINDFALL_NOTICE_SIGNAL", b"TERM").decode(errors="replace"))
        self.checkpoints: str | None = fields["checkpoints"]
        paths = (fields["checkpoints"], fields.get("node_file"))
        self.places = [os.path.dirname(path) for path in paths if path is not None]
        """Folders beside its own that a task uses."""
        if fields["checkpoint_s"] is not None:
            self.env[b"WINDFALL_CHECKPOINT_EVERY_S"] = f"{fields['checkpoint_s']:g}".encode()
        self.programs: dict[str, str] = {}
        self.isolation: dict[str, Any] | None = fields.get("isolation")
        settings = fields.get("container")
        self.container = Container(settings) if settings else None
        if self.container is not None:
            self.memory_bytes = None  # the engine limits it: its own memory does not count
        self.own_variables = [*fields["env"], "WINDFALL_JOB", "WINDFALL_HOST", "WINDFALL_TASK", "WINDFALL_ATTEMPT"]


def _signal_named(name: str) -> int:
    name = name.upper()
    name = name[3:] if name.startswith("SIG") else name
    return getattr(signal, f"SIG{name}", signal.SIGTERM) if name in ("TERM", "USR1", "USR2", "INT") else signal.SIGTERM


class NotStarted(Exception):
    """The attempt could not be started: its cause and one line of text."""

    def __init__(self, cause: str, text: str) -> None:
        super().__init__(text)
        self.cause = cause
        self.text = text


class Attempt:
    """One running process: its limits, how it is to end, and its output."""

    __slots__ = (
        "cause", "cpu_s", "deadline_s", "exit_code", "ident", "kill_at_s", "pid", "rss_bytes", "run_s", "spec",
        "started_s", "text", "watched", "windows",
    )  # fmt: skip

    def __init__(self, ident: int, pid: int, spec: Spec) -> None:
        self.ident = ident
        self.pid = pid
        self.spec = spec
        self.started_s = started_s = time.monotonic()
        self.deadline_s = started_s + spec.wall_s if spec.wall_s else None
        # Created when there is output: most short tasks write little or nothing.
        self.windows: list[OutputWindow | None] = [None, None]
        self.cause: str | None = None
        self.text = ""
        self.kill_at_s: float | None = None
        self.watched = False

    def ended(self, status: int, usage: Any) -> None:
        self.run_s = time.monotonic() - self.started_s
        self.exit_code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.rss_bytes = usage.ru_maxrss * 1024

    def window(self, which: int) -> OutputWindow:
        window = self.windows[which]
        if window is None:
            window = self.windows[which] = OutputWindow(self.spec.cap_bytes)
        return window

    def output(self, which: int) -> tuple[bytes, int]:
        """The kept part of a stream, and how many bytes were dropped."""
        window = self.windows[which]
        return (window.value(), window.dropped_bytes) if window else (b"", 0)

    def end(self, cause: str, text: str, grace_s: float, signum: int = signal.SIGTERM) -> None:
        """Ask it to stop; after the grace time it is killed. The first cause stays."""
        if self.cause is None:
            self.cause, self.text = cause, text
        now_s = time.monotonic()
        if grace_s <= 0:
            signum = signal.SIGKILL
        if self.kill_at_s is None or now_s + grace_s < self.kill_at_s:
            self.kill_at_s = now_s + grace_s
            self.signal(signum)

    def was_frozen(self, seconds: float) -> None:
        """Shift the deadlines of the attempt by the time that it was frozen."""
        self.started_s += seconds
        if self.deadline_s is not None:
            self.deadline_s += seconds
        if self.kill_at_s is not None:
            self.kill_at_s += seconds

    def signal(self, signum: int) -> None:
        if self.spec.isolation is not None and signum != signal.SIGKILL:
            # The sandbox stays until the task has ended: without it the task would have no time to.
            for pid in system.family(self.pid):
                if pid != self.pid:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signum)
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signum)
