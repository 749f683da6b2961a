"""The tasks of a bag as columns: forty bytes a task, whether it has started or not. Pure.

A task that has not started is not an object; a million of them are ten arrays.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

WAITING, HELD, DONE, FAILED, CANCELLED = range(5)
STATE_NAMES = ("waiting", "running", "done", "failed", "cancelled")
"""What people call the states. `HELD` is running or waiting in a host's own queue."""

NO_HOST = 0
NO_EXIT = -32768

# Column name -> type code of `array`. `attempt` is the attempt that `host` ... `cause` speak of, `attempts` the number
# given out so far. Counters have 32 bits: attempts that cost no budget (returned, replicas) are not bounded by one.
LAYOUT = {
    "state": "B",
    "attempts": "I",
    "attempt": "I",
    "failures": "I",
    "losses": "I",
    "host": "I",
    "start": "d",
    "end": "d",
    "exit": "h",
    "cause": "B",
}

_NARROWER = {1: "B", 2: "H"}
"""Bytes an entry -> type code of the counters in older snapshots."""


class Columns:
    """Parallel arrays, one entry a task."""

    __slots__ = tuple(LAYOUT)

    state: array[int]
    attempts: array[int]
    attempt: array[int]
    failures: array[int]
    losses: array[int]
    host: array[int]
    start: array[float]
    end: array[float]
    exit: array[int]
    cause: array[int]

    def __init__(self) -> None:
        for name, code in LAYOUT.items():
            setattr(self, name, array(code))

    def __len__(self) -> int:
        return len(self.state)

    def grow(self, count: int) -> None:
        """Add `count` waiting tasks. Zero bytes are the right first value of every column."""
        for name in LAYOUT:
            column: array[int] = getattr(self, name)
            column.frombytes(bytes(column.itemsize * count))

    def save(self) -> list[bytes]:
        """The columns as bytes, in the order of the layout."""
        return [getattr(self, name).tobytes() for name in LAYOUT]

    @classmethod
    def load(cls, saved: Sequence[bytes | memoryview]) -> Columns:
        """The columns of a snapshot, also of one whose counters had fewer bits."""
        columns = cls()
        tasks = len(saved[0])
        for name, data in zip(LAYOUT, saved, strict=True):
            width = len(data) // tasks if tasks else 0
            column = getattr(columns, name)
            if tasks and width < column.itemsize:
                column.fromlist(array(_NARROWER[width], bytes(data)).tolist())
            else:
                column.frombytes(data)
        return columns
