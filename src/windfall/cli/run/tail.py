"""The output of a job's tasks while they run, line by line: `windfall run --tail`. Touches standard output and error.

Lines of one task are written together, each with the task in front, and never half a line before its task has ended.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from types import TracebackType

from windfall.client import Job, Task
from windfall.errors import WindfallError

_LOOK_S = 0.5
_WATCHED = 64
"""Running tasks whose output is asked for while they run; that of others comes when they end."""
_LAST_WORDS_S = 5.0


class Tail:
    """Writes what the tasks of a job write, from now on. Use as a context."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._began_s = time.time()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._at: dict[int, tuple[int, int, int]] = {}  # task -> attempt, bytes of stdout and of stderr written
        self._names: dict[int, str] = {}
        self._threads = [
            threading.Thread(target=self._quietly, args=(target,), name=f"windfall-tail-{number}", daemon=True)
            for number, target in enumerate((self._ended, self._running))
        ]

    def __enter__(self) -> Tail:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            # The job has ended, or is paused: what its tasks wrote last is on its way.
            self._threads[0].join(_LAST_WORDS_S)
        self._stopped.set()

    def _quietly(self, target: object) -> None:
        # The server may end before we do; the code that follows the job reports that.
        with contextlib.suppress(WindfallError, OSError, ValueError):
            target()  # type: ignore[operator]

    def _ended(self) -> None:
        for task in self._job.as_completed():
            if self._stopped.is_set():
                return
            if (task.end_s or self._began_s) >= self._began_s:
                self._finish(task)

    def _finish(self, task: Task) -> None:
        with self._lock:
            attempt, stdout_at, stderr_at = self._at.pop(task.task, (task.attempt, 0, 0))
            stdout, stderr = task.stdout_bytes, task.stderr_bytes
            if attempt == task.attempt and (stdout_at or stderr_at):
                rest = self._job.output(task.task, stdout_from=stdout_at, stderr_from=stderr_at)
                stdout, stderr = rest["stdout"], rest["stderr"]
            self._write(task.name or str(task.task), stdout, stderr)

    def _running(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            for row, _ in zip(self._job.tasks("running"), range(_WATCHED), strict=False):
                self._look(row["task"], row.get("name") or str(row["task"]))

    def _look(self, task: int, name: str) -> None:
        with self._lock:
            attempt, stdout_at, stderr_at = self._at.get(task, (0, 0, 0))
            part = self._job.output(task, stdout_from=stdout_at, stderr_from=stderr_at)
            if part["ended"]:
                return
            if part["attempt"] != attempt:
                attempt, stdout_at, stderr_at = part["attempt"], 0, 0
                part = self._job.output(task)
            stdout, stderr = _whole_lines(part["stdout"]), _whole_lines(part["stderr"])
            self._at[task] = (attempt, part["stdout_at"] + len(stdout), part["stderr_at"] + len(stderr))
            self._write(name, stdout, stderr)

    def _write(self, name: str, stdout: bytes, stderr: bytes) -> None:
        for data, stream in ((stdout, sys.stdout), (stderr, sys.stderr)):
            if data:
                lines = data.decode(errors="replace").splitlines()
                stream.write("".join(f"{name} | {line}\n" for line in lines))
                stream.flush()


def _whole_lines(data: bytes) -> bytes:
    return data[: data.rfind(b"\n") + 1]
