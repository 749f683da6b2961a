"""The tasks of a bag as columns: forty bytes a task, whether it has started or not. Pure.

A task that has not started is not an object; a million of them are eleven arrays.
"""

from __future__ import annotations

from msgspec import Struct, field

from windfall.core.state.saving import Bytes, Doubles, Ints, Numbers, SignedShorts

WAITING, HELD, DONE, FAILED, CANCELLED = range(5)
STATE_NAMES = ("waiting", "running", "done", "failed", "cancelled")
"""What people call the states. `HELD` is running or waiting in a host's own queue."""

NO_EXIT = -32768


class Columns(Struct, array_like=True):
    """Parallel arrays, one entry a task; `attempt` is the attempt that `host` ... `cause` speak of.

    Counters have 32 bits: attempts that cost no budget (returned ones, replicas) are not bounded by one.
    """

    state: Bytes = field(default_factory=Bytes)
    attempts: Ints = field(default_factory=Ints)
    """Attempts handed out so far."""
    attempt: Ints = field(default_factory=Ints)
    failures: Ints = field(default_factory=Ints)
    losses: Ints = field(default_factory=Ints)
    host: Ints = field(default_factory=Ints)
    start: Doubles = field(default_factory=Doubles)
    end: Doubles = field(default_factory=Doubles)
    exit: SignedShorts = field(default_factory=SignedShorts)
    cause: Bytes = field(default_factory=Bytes)
    order: Ints = field(default_factory=Ints)
    """Not one a task: tasks in the order in which they ended; one that ends again after a retry stands here twice."""
    segments: list[tuple[int, int]] = field(default_factory=list)
    """(first task, class), ascending; a class may come back."""

    def __len__(self) -> int:
        return len(self.state)

    def grow(self, count: int, klass: int = 0) -> None:
        """Add `count` waiting tasks of a class. Zero bytes are the right first value of every column."""
        if not self.segments or self.segments[-1][1] != klass:
            self.segments.append((len(self.state), klass))
        for name in TASK_COLUMNS:
            column: Numbers = getattr(self, name)
            column.frombytes(bytes(column.itemsize * count))

    def class_of(self, task: int) -> int:
        if len(self.segments) == 1:
            return self.segments[0][1]
        low, high = 0, len(self.segments)
        while high - low > 1:
            middle = (low + high) // 2
            if self.segments[middle][0] <= task:
                low = middle
            else:
                high = middle
        return self.segments[low][1]


TASK_COLUMNS = tuple(name for name in Columns.__struct_fields__ if name not in ("order", "segments"))
