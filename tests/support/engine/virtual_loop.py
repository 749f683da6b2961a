"""An event loop in virtual time: its clock jumps to the next scheduled call when nothing is left to do.

Calls that would run in threads run at once instead, so that a run is the same each time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from typing import Any, TypeVar

T = TypeVar("T")


class Stalled(Exception):
    """Nothing is scheduled and nothing is ready: waiting would never end."""


class JumpingSelector(selectors.DefaultSelector):
    """Waiting takes no time: the clock is moved on by as much."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise Stalled
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Begins at time 0."""

    def __init__(self) -> None:
        self._jumping = JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class QuickLoop(VirtualLoop):
    """The same for work that waits for no file: the operating system is never asked, and timers are cheap."""

    def __init__(self) -> None:
        super().__init__()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._made = 0

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._made += 1
        heappush(self._timers, (when, self._made, timer))
        return timer

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self._jumping.now + delay, callback, *args, context=context)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def _run_once(self) -> None:
        """One turn, in the order in which asyncio has it: timers that are due join what is ready, by time and age."""
        timers, ready = self._timers, self._ready  # type: ignore[attr-defined]
        while timers and timers[0][2]._cancelled:  # type: ignore[attr-defined]
            heappop(timers)
        if not ready:
            if not timers:
                raise Stalled
            self._jumping.now = max(self._jumping.now, timers[0][0])
        now = self._jumping.now
        while timers and timers[0][0] <= now:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end on a loop of its own, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
