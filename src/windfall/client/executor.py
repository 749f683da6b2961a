"""A `concurrent.futures.Executor` whose calls are tasks of one job. Two threads: one sends calls, one fetches results.

A call is pickled where it is submitted, so that what cannot be sent fails there. Whatever has gathered while a request
was under way travels in the next one: the more calls a second, the larger the chunks; no call waits for a timer.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import _base
from concurrent.futures.process import _process_chunk
from functools import partial
from typing import Any

import msgspec

from windfall.bags.params import from_calls
from windfall.client.results import Task
from windfall.client.submitting.calls import Calls
from windfall.client.submitting.making import call_spec
from windfall.client.submitting.sending import send_chunks
from windfall.client.transport import Frame, Transport
from windfall.errors import Unreachable, WindfallError

_POLL_S = 25.0
_GATHER = 4096
_RUNNING_FOR_S = 0.2
"""How long an answer to "which tasks run?" is taken for true."""


class Future(concurrent.futures.Future):  # type: ignore[type-arg]
    """As in the standard library, and awaitable. `task` is the number of its task, once the call has been sent.

    It can be cancelled while it runs, too; awaiting it in a task that is cancelled cancels it.
    """

    task: int | None = None
    _owner: Executor | None = None

    def __repr__(self) -> str:
        return f"<Future of task {'not sent yet' if self.task is None else self.task}: {self._how()}>"

    def _repr_html_(self) -> str:
        from windfall.client.showing.notebook import future_html

        return future_html(repr(self), self._how())

    def _how(self) -> str:
        """In words, without asking the server."""
        if self.cancelled() or not self.done():
            return "cancelled" if self.cancelled() else "pending"
        error = self.exception()
        return "done" if error is None else f"raised {type(error).__name__}"

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self).__await__()

    def running(self) -> bool:
        """Does a host have it, and no result of it is here? The server is asked at most every 0.2 s."""
        if self.done() or self.task is None or self._owner is None:
            return False
        return self._owner.runs(self.task) and not self.done()

    def cancel(self) -> bool:
        if self.done():
            return self.cancelled()
        if not super().cancel():
            return False
        with self._condition:
            first = self._state == _base.CANCELLED
            if first:
                self.set_running_or_notify_cancel()
        if first and self._owner is not None:
            self._owner.forget(self)
        return True


class Executor(concurrent.futures.Executor):
    """Made by `Client.executor`."""

    def __init__(
        self, transport: Transport, calls: Calls, name: str, settings: dict[str, Any], check: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._calls = calls
        self._check = check
        self._spec = call_spec(name, settings, streaming=True)
        self.job: int = transport.post("/v1/jobs", {"spec": msgspec.to_builtins(self._spec), "count": 0})["job"]
        self._news = threading.Condition()
        # Guarded by _news:
        self._waiting: deque[tuple[Future, bytes]] = deque()
        self._to_cancel: list[int] = []
        self._shut = False
        self._broken: WindfallError | None = None
        self._sent = 0
        self._sender_sleeps = False
        self._futures: dict[int, Future] = {}
        self._open = 0  # submitted and not ended
        self._threads: list[threading.Thread] = []
        self._running: frozenset[int] = frozenset()
        self._running_until_s = 0.0

    # -- the interface of the standard library -----------------------------------------------------------------------

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        payload = self._calls.payload(function, args, kwargs)
        future = Future()
        future._owner = self
        with self._news:
            if self._broken is not None:
                raise self._broken
            if self._shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._waiting.append((future, payload))
            self._open += 1
            if self._sender_sleeps:
                self._news.notify()
            if not self._threads:
                self._start()
        return future

    def map(
        self, function: Callable[..., Any], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[Any]:
        """As in the standard library: `chunksize` items make one call."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if chunksize == 1:
            return super().map(function, *iterables, timeout=timeout)
        items = zip(*iterables, strict=False)
        chunks = iter(lambda: tuple(itertools.islice(items, chunksize)), ())
        # The standard library's own: the far side needs nothing of ours to unpickle it.
        results = super().map(partial(_process_chunk, function), chunks, timeout=timeout)
        return itertools.chain.from_iterable(results)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._news:
            self._shut = True
            pending = [future for future, _ in self._waiting] if cancel_futures else []
            self._news.notify()
        if cancel_futures:
            for future in [*pending, *self._futures.values()]:
                future.cancel()
        if not self._threads:
            self._seal()
        elif wait:
            for thread in self._threads:
                thread.join()

    def __repr__(self) -> str:
        how = "broken" if self._broken else "shut down" if self._shut else "open"
        return f"<Executor {self._spec.name!r}, job {self.job}: {how}, {self._open:,} calls not ended>"

    def runs(self, task: int) -> bool:
        """Does a host have this task? False if the server cannot be asked."""
        if time.monotonic() >= self._running_until_s:
            with contextlib.suppress(WindfallError):
                self._running = self._ask_running()
            self._running_until_s = time.monotonic() + _RUNNING_FOR_S
        return task in self._running

    def _ask_running(self) -> frozenset[int]:
        found: list[int] = []
        after: int | None = 0
        while after is not None:
            answer = self._transport.get(f"/v1/jobs/{self.job}/tasks", state="running", after=after, limit=5000)
            found += [row["task"] for row in answer["tasks"]]
            after = answer["next"]
        return frozenset(found)

    @property
    def is_over(self) -> bool:
        """Was it shut down, and has everything ended since?"""
        return self._shut and bool(self._threads) and not any(thread.is_alive() for thread in self._threads)

    def abandon(self) -> None:
        """The client goes: what has no result yet will have none, and the job takes no more calls."""
        with self._news:
            alive = any(thread.is_alive() for thread in self._threads)
            if self._shut and not alive:
                return
            self._shut = True
        if alive:
            self._break(Unreachable("the client was closed before this call had ended"))
        # A job that was never sealed would wait for more calls for ever.
        self._transport.patience_s = 0.0
        with contextlib.suppress(WindfallError):
            self._seal()

    # -- threads -----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        for target in (self._send, self._fetch):
            thread = threading.Thread(target=target, name=f"windfall-{target.__name__[1:]}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def forget(self, future: Future) -> None:
        """A future was cancelled: so is its task, if it has one. Called by `Future.cancel`."""
        with self._news:
            self._open -= 1
            if future.task is not None and self._futures.pop(future.task, None) is not None:
                self._to_cancel.append(future.task)
                self._news.notify()

    def _send(self) -> None:
        try:
            while True:
                with self._news:
                    while not self._waiting and not self._to_cancel and not self._shut:
                        self._sender_sleeps = True
                        self._news.wait()
                        self._sender_sleeps = False
                    batch = self._number([self._waiting.popleft() for _ in range(min(_GATHER, len(self._waiting)))])
                    cancel, self._to_cancel = self._to_cancel, []
                    last = self._shut and not self._waiting and not batch
                if self._broken is not None:
                    return
                if cancel:
                    self._transport.post(f"/v1/jobs/{self.job}/cancel", {"tasks": cancel, "reason": "cancelled here"})
                if batch:
                    first = self._sent - len(batch)
                    send_chunks(self._transport, self.job, from_calls((payload for _, payload in batch), first))
                elif last and not cancel:
                    self._seal()
                    return
        except WindfallError as error:
            self._break(error)

    def _number(self, batch: list[tuple[Future, bytes]]) -> list[tuple[Future, bytes]]:
        """Make tasks of calls; what was cancelled before never becomes one. Called with `_news` held."""
        batch = [item for item in batch if not item[0].cancelled()]
        for task, (future, _) in enumerate(batch, self._sent):
            future.task = task
            self._futures[task] = future
        self._sent += len(batch)
        return batch

    def _seal(self) -> None:
        self._transport.post(f"/v1/jobs/{self.job}/seal")

    def _fetch(self) -> None:
        position = 0
        try:
            while not self._finished():
                frame = self._transport.frame(
                    f"/v1/jobs/{self.job}/completed", after=position, limit=5000, wait_s=_POLL_S
                )
                self._take(frame)
                position = frame.header["position"]
                if frame.header["finished"]:
                    break
                if not frame.header["rows"]:
                    self._check()
            if self._futures:
                self._break(WindfallError(f"job {self.job} has ended, and this call has no result", code="no-result"))
        except WindfallError as error:
            self._break(error)

    def _finished(self) -> bool:
        with self._news:
            return self._broken is not None or (self._shut and self._open == 0 and not self._waiting)

    def _take(self, frame: Frame) -> None:
        ended = 0
        for row in frame.header["rows"]:
            stdout, stderr, value = frame.take(row[8]), frame.take(row[9]), frame.take(row[10])
            future = self._futures.pop(row[0], None)
            if future is None:
                continue
            ended += _resolve(future, row, stdout, stderr, value)
        with self._news:
            self._open -= ended

    def _break(self, error: WindfallError) -> None:
        """Fail every future that still waits: no more results will come."""
        with self._news:
            self._broken = self._broken or error
            waiting, self._waiting = self._waiting, deque()
            self._open = 0
            self._news.notify()
        for future in [*(future for future, _ in waiting), *self._futures.values()]:
            if not future.done() and future.set_running_or_notify_cancel():
                future.set_exception(error)
        self._futures.clear()


def _resolve(future: Future, row: list[Any], stdout: memoryview, stderr: memoryview, value: memoryview) -> int:
    """Give a future its end. 0 if it was cancelled meanwhile."""
    if row[1] == "cancelled":
        future.cancel()  # somebody cancelled the task; `forget` counts it
        return 0
    if future.done() or not future.set_running_or_notify_cancel():
        return 0
    result: Any = None
    problem: BaseException | None = None
    try:
        if row[1] == "done":
            result = pickle.loads(value)[1]
        else:
            problem = Task(row, bytes(stdout), bytes(stderr), bytes(value)).error
    except Exception as error:  # whatever unpickling a foreign value may raise
        problem = error
    if problem is None:
        future.set_result(result)
    else:
        future.set_exception(problem)
    return 1
