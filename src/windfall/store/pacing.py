"""The parts of a snapshot, and the pace at which they are written beside commits. Touches the clock only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from threading import Event

SLICE_BYTES = 512 << 10
"""A commit waits for at most one of these. With 8 MB commits took twice as long, and the snapshot no less."""
PACE_BYTES_S = 32e6
"""Of a snapshot beside commits. Without a pace it had the disk to itself for a second, and nine of ten exchanges took
7.8 ms or less instead of 1.6; with it, 1.6 ms."""


def parts_of(data: bytes | memoryview, hurry: Event | None) -> Iterator[memoryview]:
    """The data in slices, at the pace of a snapshot until `hurry` is set; None: at once."""
    view = memoryview(data)
    slices = (view[at : at + SLICE_BYTES] for at in range(0, len(view), SLICE_BYTES))
    return slices if hurry is None else paced(slices, hurry)


def paced(
    slices: Iterable[memoryview], hurry: Event, clock: Callable[[], float] = time.monotonic
) -> Iterator[memoryview]:
    """The slices, each when those before have been written and `PACE_BYTES_S` allows; at once when `hurry` is set."""
    began_s, sent = clock(), 0
    for piece in slices:
        hurry.wait(max(0.0, began_s + sent / PACE_BYTES_S - clock()))
        yield piece
        sent += len(piece)
