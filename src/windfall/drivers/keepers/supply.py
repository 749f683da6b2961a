"""Workers for the keeper of pools: orders made from requests. Touches pools."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from windfall.core.wishes import AskWish
from windfall.drivers.asking import PoolWorker, Started
from windfall.drivers.keepers.answers import guarded, listed, started, started_many
from windfall.pools.contract import (
    ENDED,
    FAILED,
    RELEASED,
    TAKEN,
    TRANSIENT,
    Order,
    Pool,
    PoolError,
    Seen,
    StartsMany,
    gap_s,
)

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 300.0
_POLL_S = 0.1
_END_S = 15.0
_STOPS = PoolError("the server stops", TRANSIENT)


Workers = list[PoolWorker]  # `list` is also the name of a method
Rows = list[Seen]
Ids = list[str]


class WorkerSource(Protocol):
    """Where the keeper of pools gets workers: from a provider (`OrderedWorkers`), or as instances of a site."""

    @property
    def interval_s(self) -> float: ...

    def start(self, ask: AskWish) -> Started: ...

    def end(self, host: str, gently: bool) -> None:
        """Stop the worker of this name; gently: when it has done what it holds."""
        ...

    def list(self) -> Workers | PoolError:
        """All living workers, and, once, those that have ended since the last call."""
        ...

    def stop(self, grace_s: float) -> None:
        """The server stops: end all workers; tasks may finish within `grace_s`, then they are handed back."""
        ...


class Backoff:
    """How long to wait for the next call: the pool's interval, doubled with each failure in a row.

    A pool may change its interval at any time, and an error may say when to come back.
    """

    def __init__(self, interval_s: Callable[[], float]) -> None:
        self._interval, self._failures, self._retry_after_s = interval_s, 0, 0.0

    def note(self, failed: bool, retry_after_s: float = 0.0) -> bool:
        """Remember how a call went; True if it is the first failure of a row."""
        self._failures = self._failures + 1 if failed else 0
        self._retry_after_s = retry_after_s if failed else 0.0
        return self._failures == 1

    @property
    def failing(self) -> bool:
        return self._failures > 0

    @property
    def wait_s(self) -> float:
        # Longer intervals than the bound are the pool's own wish, and so is the time that an error names.
        interval_s = self._interval()
        doubled = max(interval_s, 0.5) * 2.0 ** min(self._failures, 16) if self._failures else interval_s
        return max(interval_s, min(doubled, LONGEST_WAIT_S), self._retry_after_s)


_NOTICE_GAP_S = 0.2
"""Seconds between two lists although the pool has been told of more changes in between."""


class Schedule:
    """When a pool may be listed, by a clock: not before its interval, its back-off or what it asked for has passed."""

    def __init__(self, interval_s: Callable[[], float], clock: Callable[[], float]) -> None:
        self._backoff, self._clock = Backoff(interval_s), clock
        self._listed_t = self._at = -math.inf

    @property
    def failing(self) -> bool:
        return self._backoff.failing

    @property
    def wait_s(self) -> float:
        """Seconds until it may be listed again."""
        return max(0.0, self._at - self._clock())

    def answered(self, answer: object) -> bool:
        """It has been listed, or has refused an order: True if this is the first failure of a row."""
        failed = isinstance(answer, PoolError)
        first = self._backoff.note(failed, answer.retry_after_s if isinstance(answer, PoolError) else 0.0)
        self._listed_t = self._clock()
        self._at = self._listed_t + self._backoff.wait_s
        return first

    def noticed(self) -> None:
        """The pool was told that something has changed: it may be listed soon."""
        if not self._backoff.failing:
            self._at = min(self._at, max(self._clock(), self._listed_t + _NOTICE_GAP_S))


def trial_host(pool: str, word: str) -> str:
    """The name of a worker that is started on trial (`windfall pool doctor`)."""
    return f"{pool}-doctor-{word}"


def is_trial(pool: str, host: str) -> bool:
    """Whether a worker is there on trial: no plan and no request has ordered it. It ends when it finds no work."""
    return host.startswith(trial_host(pool, ""))


class OrderedWorkers:
    """A provider as a source of workers. Worker i of request n has the name POOL-n-i, also if the request is
    repeated.
    """

    def __init__(self, name: str, slots: int, pool: Pool) -> None:
        self.name, self._slots, self.pool = name, slots, pool
        self._reported: set[str] = set()
        self._ids: dict[str, list[str]] = {}
        """Ids of the living workers by name: as last listed, and those ordered since."""
        self._lock = threading.Lock()  # a pool is called from one thread at a time
        self._called_t = -math.inf
        self._stops = False

    @property
    def interval_s(self) -> float:
        return self.pool.interval_s

    # --- one call ---

    def order(self, order: Order) -> str | PoolError:
        with self._lock:
            if self._stops:
                return _STOPS
            self._keep_apart()
            return self._ordered(order, started(self.pool, order))

    def _ordered(self, order: Order, answer: str | PoolError) -> str | PoolError:
        if isinstance(answer, str) and answer not in self._ids.setdefault(order.host, []):
            self._ids[order.host].append(answer)
        return answer

    def rows(self) -> Rows | PoolError:
        with self._lock:
            return listed(self.pool)

    def end_id(self, id: str, gently: bool) -> PoolError | None:
        with self._lock:
            self._keep_apart()
            return guarded(self.pool.stop, id, gently)

    def _keep_apart(self) -> None:
        """Two calls of `start` or `stop` are as far apart as the pool wants them."""
        time.sleep(max(0.0, self._called_t + gap_s(self.pool) - time.monotonic()))
        self._called_t = time.monotonic()

    # --- what the keeper asks for ---

    def start(self, ask: AskWish) -> Started:
        asked = Started()
        names = [f"{self.name}-{ask.number}-{index}" for index in range(1, ask.count + 1)]
        for order, answer in self._answers([Order(name, ask.slots or self._slots) for name in names]):
            if isinstance(answer, PoolError):
                asked.error = answer.error or f"pool {self.name}: {answer.kind} error"
            else:
                asked.hosts.append(order.host)
        return asked

    def _answers(self, orders: list[Order]) -> Iterator[tuple[Order, str | PoolError]]:
        """All in one call where the pool can; else one by one, up to the first error."""
        if len(orders) > 1 and isinstance(self.pool, StartsMany):
            with self._lock:
                self._keep_apart()
                answers = [_STOPS] * len(orders) if self._stops else started_many(self.pool, orders)
            for order, answer in zip(orders, answers, strict=True):
                yield order, self._ordered(order, answer)
            return
        for order in orders:
            answer = self.order(order)
            yield order, answer
            if isinstance(answer, PoolError):
                return

    def list(self) -> Workers | PoolError:
        rows = self.rows()
        if isinstance(rows, PoolError):
            return rows
        # Of a worker that was started twice, the row that lives counts.
        ended_first = sorted(rows, key=lambda row: row.phase != ENDED)
        mine = {row.host: row for row in ended_first if row.host is not None}
        self._note(rows)
        self._reported &= mine.keys()
        ended = [host for host, row in mine.items() if row.phase == ENDED and host not in self._reported]
        self._reported.update(ended)
        for host in ended:
            if mine[host].cause == TAKEN:
                log.warning("pool %s: %s", self.name, mine[host].about or f"{host} was taken away")
        living = [PoolWorker(host) for host, row in mine.items() if row.phase != ENDED]
        self._reported.difference_update(worker.host for worker in living)  # one may be started again under its name
        return living + [
            PoolWorker(host, False, _error(mine[host]), mine[host].cause == RELEASED, for_good=True) for host in ended
        ]

    def _note(self, rows: Rows) -> None:
        self._ids = {}
        for row in rows:
            if row.host is not None and row.phase != ENDED:
                self._ids.setdefault(row.host, []).append(row.id)

    def end(self, host: str, gently: bool) -> None:
        for id in self._ids.get(host, ()):
            self.end_id(id, gently)

    def stop(self, grace_s: float) -> None:
        """End all workers, and start none any more: a thread may be in the middle of starting several."""
        self._stops = True
        if self._end(True, grace_s) and self._end(False, _END_S):
            log.warning("workers of pool %s could not be ended; without work they end by themselves", self.name)
        guarded(self.pool.close)

    def _end(self, gently: bool, seconds: float) -> bool:
        """Stop all, again and again; True if some are left when the time is over."""
        until = time.monotonic() + seconds
        left = self._living()
        while left:
            for id in left:
                self.end_id(id, gently)
            time.sleep(max(_POLL_S, min(self.interval_s / 4, until - time.monotonic())))
            left = self._living()
            if time.monotonic() >= until:
                break
        return bool(left)

    def _living(self) -> Ids:
        """Ids of what lives. If that cannot be listed, of what lived when it could be, and what was ordered since."""
        rows = self.rows()
        if not isinstance(rows, PoolError):
            self._note(rows)
        return [id for ids in self._ids.values() for id in ids]


def _error(row: Seen) -> str:
    return row.about or ("it failed" if row.cause == FAILED else "")
