"""A back end of joblib: batches of calls run on a server's hosts. Importing this module registers the name `windfall`.

    import joblib, windfall.joblib

    with joblib.parallel_backend("windfall"):  # or parallel_config(backend="windfall", memory="2G")
        joblib.Parallel()(joblib.delayed(f)(x) for x in xs)

Each call of `Parallel` is one job. Hosts need joblib, and the libraries of the functions that are called.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future as StandardFuture
from typing import TYPE_CHECKING, Any

from windfall.errors import BadInput

try:
    from joblib import register_parallel_backend
    from joblib._parallel_backends import AutoBatchingMixin, SequentialBackend, ThreadingBackend
    from joblib.parallel import ParallelBackendBase
except ImportError as error:
    raise BadInput("joblib is not installed", hint="try: pip install joblib") from error

if TYPE_CHECKING:
    from windfall.client import Client, Executor, Future

__all__ = ["WindfallBackend"]
Callback = Callable[[Any], None]


class WindfallBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """What `parallel_config(backend="windfall", ...)` makes of its keywords.

    client     whose server calls go to; without it, one `Client()` of this process
    workers    what `n_jobs=-1` stands for: the slots of the hosts that are there now, if not said
    settings   those of `Client.executor`: name, cpus, memory, wall, deadline, budget, max_failures, ...
    """

    supports_retrieve_callback = True  # results come by callback: `timeout` and `return_as="generator"` work
    supports_sharedmem = False
    uses_threads = False
    default_n_jobs = -1

    def __init__(
        self,
        client: Client | None = None,
        workers: int | None = None,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(nesting_level=nesting_level or 0, inner_max_num_threads=inner_max_num_threads)
        if workers is not None and workers < 1:
            raise BadInput(f"workers={workers}: there has to be one", hint="leave it out: the slots of all hosts")
        self._client = client
        self._workers = workers
        self._settings = {"name": "joblib", **settings}
        self._lock = threading.Lock()
        # Guarded by _lock:
        self._executor: Executor | None = None
        self._open_calls = 0  # calls of `Parallel` that have begun and not ended
        self._limit: int | None = None
        self._held: deque[tuple[Callable[[], Any], Callback | None]] = deque()
        self._out: set[StandardFuture[Any]] = set()

    def __reduce__(self) -> Any:
        raise TypeError("the back end 'windfall' stays where it was made; calls inside of calls run on their host")

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = _own_client()
        return self._client

    # -- the interface of joblib --------------------------------------------------------------------------------------

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many batches run at once: `n_jobs`, or for -1 all slots (for -2 one less, and so on)."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is not None and n_jobs > 0:
            return n_jobs
        return max(1, self._at_once() + 1 + (-1 if n_jobs is None else n_jobs))

    def configure(self, n_jobs: int = 1, parallel: Any = None, **ignored: Any) -> int:
        self.parallel = parallel
        at_once = self.effective_n_jobs(n_jobs)
        with self._lock:
            self._open_calls += 1
            # joblib hands out more than n_jobs batches, for workers that always have a next one.
            self._limit = n_jobs if n_jobs is not None and n_jobs > 0 else None
        return at_once

    def submit(self, func: Callable[[], Any], callback: Callback | None = None) -> Any:
        with self._lock:
            if self._limit is not None and len(self._out) >= self._limit:
                self._held.append((func, callback))
                return None
        return self._send(func, callback)

    def retrieve_result_callback(self, out: Future) -> Any:
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel what has not ended, on its host if it runs."""
        with self._lock:
            self._held.clear()
            out = list(self._out)
        for future in out:
            future.cancel()

    def terminate(self) -> None:
        with self._lock:
            self._open_calls = max(0, self._open_calls - 1)
            if self._open_calls:
                return
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)
        self.reset_batch_stats()

    def get_nested_backend(self) -> tuple[Any, int | None]:
        """`Parallel` inside a call: threads of its host if the call has several cores, else one after the other."""
        cpus = int(self._settings.get("cpus") or 1)
        level = (self.nesting_level or 0) + 1
        if cpus > 1:
            return ThreadingBackend(nesting_level=level), cpus
        return SequentialBackend(nesting_level=level), None

    # -- calls --------------------------------------------------------------------------------------------------------

    def _at_once(self) -> int:
        """Slots of the hosts that are there; at least the cores of this machine, because hosts may still come."""
        if self._workers is not None:
            return self._workers
        slots = sum(host["slots"] for host in self.client.hosts() if host["state"] == "live")
        return max(int(slots / float(self._settings.get("cpus") or 1)), os.cpu_count() or 1)

    def _send(self, func: Callable[[], Any], callback: Callback | None) -> Future:
        with self._lock:
            if self._executor is None:
                self._executor = self.client.executor(**self._settings)
            future = self._executor.submit(func)
            self._out.add(future)
        future.add_done_callback(self._ended)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def _ended(self, future: StandardFuture[Any]) -> None:
        with self._lock:
            self._out.discard(future)
            free = self._limit is None or len(self._out) < self._limit
            held = self._held.popleft() if self._held and free else None
        if held is None:
            return
        try:
            self._send(*held)
        except Exception as error:
            # Nobody is there to raise it to: `Parallel` waits for the callback.
            failed: StandardFuture[Any] = StandardFuture()
            failed.set_exception(error)
            if held[1] is not None:
                held[1](failed)


_making = threading.Lock()
_made: list[Client] = []


def _own_client() -> Client:
    """The client of back ends that name none; it ends with the process."""
    from windfall.client import Client

    with _making:
        if not _made:
            _made.append(Client())
        return _made[0]


register_parallel_backend("windfall", WindfallBackend)
