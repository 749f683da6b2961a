"""A thread that notices when the event loop stands still, which nothing on the loop can, and measures how long it takes
to answer. Touches threads.

Counts its own ticks and not the clock: a process that was stopped (SIGSTOP, a suspended host) has not hung.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from time import monotonic

from windfall.drivers.timings import Timings

log = logging.getLogger(__name__)

LIMIT_S = 60.0
"""Seconds without a turn of the loop after which it counts as hung; copying a large state takes a few."""
TICK_S = 1.0


class Watchdog:
    """Calls `on_hang`, once and from its own thread, if `loop` does not run for `limit_s` seconds."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_hang: Callable[[], None],
        limit_s: float = LIMIT_S,
        tick_s: float = TICK_S,
        answers: Timings | None = None,
    ) -> None:
        self._loop, self._on_hang = loop, on_hang
        self._limit_s, self._tick_s = limit_s, tick_s
        self._answers_in = Timings() if answers is None else answers
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Does not wait for the thread: it ends within a tick."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(self._tick_s):
            ran = threading.Event()
            try:
                self._loop.call_soon_threadsafe(self._ran, ran, monotonic())
            except RuntimeError:  # the loop is closed
                return
            if not self._answers(ran):
                if not self._stopped.is_set():
                    log.critical("the event loop has not run for %g s: something on it waits or works", self._limit_s)
                    self._on_hang()
                return

    def _ran(self, ran: threading.Event, asked_s: float) -> None:
        """On the loop."""
        self._answers_in.add(monotonic() - asked_s)
        ran.set()

    def _answers(self, ran: threading.Event) -> bool:
        """False: the loop hangs, or this watchdog is stopped. A loop that was closed meanwhile does not hang."""
        ticks = 0
        while not ran.wait(self._tick_s) and not self._loop.is_closed():
            ticks += 1
            if self._stopped.is_set() or ticks * self._tick_s >= self._limit_s:
                return False
        return True
