"""Results on their way to the server: gathered, sent with exchanges, kept on disk while it cannot be reached.

Touches the spool only. A result leaves the outbox when the exchange that carried it has been answered.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from typing import Any, NamedTuple

from windfall.wire import messages as m
from windfall.worker.running.window import shrink
from windfall.worker.transport.spool import Spool

MAX_ROWS = 2_000
START_LIMIT_BYTES = 8 << 20


class Result(NamedTuple):
    """How an attempt ended. `ended_s` is monotonic time (Unix time in the spool, which survives a reboot)."""

    job: Any
    task: Any
    attempt: int
    cause: str
    exit_code: int | None
    ended_s: float
    run_s: float
    cpu_s: float
    rss_bytes: int
    stdout: bytes
    stderr: bytes
    value: bytes
    more: dict[str, Any] | None

    @property
    def size_bytes(self) -> int:
        return len(self.stdout) + len(self.stderr) + len(self.value) + 200

    def row(self, now_s: float, version: int) -> list[Any]:
        cause = m.OUTPUTS if self.cause == m.QUOTA and version < 2 else self.cause
        return [
            self.job, self.task, self.attempt, cause, self.exit_code, round(max(0.0, now_s - self.ended_s), 6),
            round(self.run_s, 6), round(self.cpu_s, 6), self.rss_bytes,
            len(self.stdout), len(self.stderr), len(self.value), self.more,
        ]  # fmt: skip


class Outbox:
    """Results that are not acknowledged: waiting, or in the present exchange."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._waiting: deque[Result] = deque(_from_spool(Result(*record)) for record in spool.load())
        self._sent: list[Result] = []
        self._on_disk = len(self._waiting)
        self._unsaved: list[Result] = []
        self._limit_bytes = START_LIMIT_BYTES
        self._max_rows = MAX_ROWS

    def __len__(self) -> int:
        return len(self._waiting) + len(self._sent)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def waiting_keys(self) -> list[tuple[Any, Any, int]]:
        return [(result.job, result.task, result.attempt) for result in self._waiting]

    def add(self, result: Result) -> None:
        self._waiting.append(result)
        self._unsaved.append(result)

    def take(self) -> list[Result]:
        """The results of the next exchange."""
        assert not self._sent
        size = 0
        while self._waiting and len(self._sent) < self._max_rows:
            size += self._waiting[0].size_bytes
            if self._sent and size > self._limit_bytes:
                break
            self._sent.append(self._waiting.popleft())
        return self._sent

    def acknowledged(self) -> None:
        """The exchange has been answered: forget the results that it carried."""
        if self._unsaved:
            sent = set(map(id, self._sent))
            self._unsaved = [result for result in self._unsaved if id(result) not in sent]
        self._sent = []
        if self._on_disk and not self._waiting:
            self._spool.clear()
            self._on_disk = 0

    def put_back(self) -> None:
        """The exchange was not taken: its results go with the next one."""
        sent, self._sent = self._sent, []
        self._waiting.extendleft(reversed(sent))

    def too_large(self, limit_bytes: int | None) -> None:
        """The exchange was too large: put its results back and send fewer next time; cut a single large one."""
        sent, self._sent = self._sent, []
        if len(sent) > 1:
            self._max_rows = max(1, len(sent) // 2)
            if limit_bytes:
                self._limit_bytes = max(1_000, min(self._limit_bytes, limit_bytes // 2))
        elif sent:
            sent = [_cut(sent[0], min(limit_bytes or sent[0].size_bytes, sent[0].size_bytes) // 4)]
        self._waiting.extendleft(reversed(sent))

    def save(self) -> None:
        """Write the results to disk that are not there yet."""
        if self._unsaved:
            unsaved, self._unsaved = self._unsaved, []
            self._on_disk += len(unsaved)
            self._spool.save([tuple(_for_spool(result)) for result in unsaved])


def _for_spool(result: Result) -> Result:
    return result._replace(ended_s=time.time() - (time.monotonic() - result.ended_s))


def _from_spool(result: Result) -> Result:
    # A clock that was set back must not put the end into the future.
    return result._replace(ended_s=time.monotonic() - max(0.0, time.time() - result.ended_s))


def _cut(result: Result, cap_bytes: int) -> Result:
    stdout, dropped_out = shrink(result.stdout, cap_bytes)
    stderr, dropped_err = shrink(result.stderr, cap_bytes)
    more = dict(result.more or {})
    before = more.get("dropped", [0, 0])
    more["dropped"] = [before[0] + dropped_out, before[1] + dropped_err]
    result = result._replace(stdout=stdout, stderr=stderr, more=more)
    if len(result.value) <= cap_bytes:
        return result
    text = f"the value of {len(result.value):,} bytes is larger than the server takes; write it to a file instead"
    more["text"] = text
    return result._replace(cause=m.PYTHON, value=pickle.dumps((False, RuntimeError(text), text)), exit_code=None)
