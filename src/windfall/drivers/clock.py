"""The live clock: Unix time that never steps. Touches the system's clocks."""

from __future__ import annotations

import time


class SteadyClock:
    """Unix time when it was made, and from then on the monotonic clock: a step of the system's clock changes nothing.

    `not_before` is the last time in the log; a clock that was set back between two runs goes on from there.
    """

    def __init__(self, not_before: float = 0.0) -> None:
        self._offset = max(time.time(), not_before) - time.monotonic()

    def __call__(self) -> float:
        return time.monotonic() + self._offset
