"""A task that has ended, as a person handles it: its output, its value, its error. Pure."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from windfall.errors import WindfallError

if TYPE_CHECKING:
    from windfall.client.transport import Frame

ENDED = ("done", "failed", "cancelled")
"""The states of a job in which no task will run."""

_TEXTS = {
    "done": "done",
    "oom": "out of memory",
    "time": "killed after its time limit",
    "python": "the call raised",
    "outputs": "declared output missing",
    "inputs": "input not available",
    "no-command": "program not found or not executable",
    "no-cwd": "no such working directory",
    "preempted": "worker was stopped",
    "bad-task": "the server could not make its command",
    "disagreed": "volunteers came to different results",
    "quota": "more files than its job may have",
    "cancelled": "cancelled",
    "lost": "host vanished",
}


def cause_text(cause: str, exit_code: int | None = None) -> str:
    """Why an attempt ended, in a few words: `exit code 3`, `killed by SIGSEGV`, `out of memory`."""
    if cause == "exit":
        return f"exit code {exit_code}"
    if cause == "signal":
        return f"killed by {_signal_name(abs(exit_code or 0))}"
    return _TEXTS.get(cause, cause)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number - 128 if number > 128 else number).name
    except ValueError:
        return f"signal {number}"


class TaskFailed(WindfallError):
    """A task ended without a result: `task`, `cause` (as in docs/reference/protocol.md), `status` (its exit code)."""

    code = "task-failed"

    def __init__(self, message: str, *, task: int, cause: str, status: int | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.task = task
        self.cause = cause
        self.status = status


class Task:
    """A task that has ended. Its number is `task`, from 0; `params` is what was submitted, where it is known here."""

    __slots__ = (
        "attempt",
        "cause",
        "end_s",
        "exit_code",
        "host",
        "name",
        "outputs",
        "params",
        "start_s",
        "state",
        "stderr_bytes",
        "stdout_bytes",
        "stored",
        "task",
        "text",
        "value_bytes",
    )

    def __init__(self, row: list[Any], stdout: bytes, stderr: bytes, value: bytes, params: Any = None) -> None:
        self.task, self.state, self.attempt, self.exit_code, self.cause, self.host, self.start_s, self.end_s = row[:8]
        more = row[11] or {}
        self.name: str | None = row[12] if len(row) > 12 else None  # of a workflow's task
        self.outputs: list[list[Any]] = more.get("outputs") or []
        self.stored: list[list[Any]] = more.get("stored") or []  # [name, address, size, sha256] of outputs in stores
        self.text: str | None = more.get("text")  # one line of the worker on why it ended
        self.stdout_bytes, self.stderr_bytes, self.value_bytes = stdout, stderr, value
        self.params = params

    @property
    def ok(self) -> bool:
        return bool(self.state == "done")

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode(errors="replace")

    @property
    def is_call(self) -> bool:
        return bool(self.value_bytes)

    def result(self) -> Any:
        """What a call returned, or what a command wrote to its standard output. Raises what went wrong."""
        error = self.error
        if error is not None:
            raise error
        if not self.value_bytes:
            return self.stdout
        import pickle

        return pickle.loads(self.value_bytes)[1]

    @property
    def error(self) -> BaseException | None:
        """What went wrong: the exception that a call raised, else `TaskFailed`. None if nothing did."""
        if self.ok:
            return None
        if self.cause == "python" and self.value_bytes:
            import pickle

            from windfall.client.submitting.calls import raised

            return raised(pickle.loads(self.value_bytes))
        cause = self.cause or self.state
        lines = self.stderr.strip().splitlines()
        return TaskFailed(
            f"task {self.name or self.task}: {cause_text(cause, self.exit_code)}" + (f": {lines[-1]}" if lines else ""),
            task=self.task,
            cause=cause,
            status=self.exit_code,
        )

    def __repr__(self) -> str:
        end = "done" if self.ok else cause_text(self.cause or self.state, self.exit_code)
        took = f" in {self.end_s - self.start_s:.3g} s on {self.host}" if self.end_s and self.start_s else ""
        return f"<Task {self.name or self.task}: {end}{took}>"


def tasks_of(frame: Frame) -> Iterator[Task]:
    """The ended tasks of an answer, in its order."""
    for row in frame.header["rows"]:
        yield Task(row, bytes(frame.take(row[8])), bytes(frame.take(row[9])), bytes(frame.take(row[10])))
