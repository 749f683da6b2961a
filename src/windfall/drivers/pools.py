"""The keeper of the pools: tells the engine what they have, and carries out what it asks. Touches pools, by threads.

Quick pools share one loop (as in the simulator): ask for what is wished, then count what there is, so that nothing is
counted while it is being asked for. A pool with a longer interval has a loop of its own and delays no other. Requests
go out at once; counting obeys the pool's interval, and a count that fails is repeated less and less often.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from windfall.core.events import AnyEvent, PoolsConfigured
from windfall.core.records import Record
from windfall.core.state.pools import PoolRules
from windfall.core.wishes import AskWish, wishes
from windfall.drivers import asking
from windfall.drivers.realtime import Realtime
from windfall.drivers.supply import Backoff, WorkerSource
from windfall.pools.contract import PoolError

log = logging.getLogger(__name__)

T = TypeVar("T")

STOP_GRACE_S = 2.0
"""Tasks that run when the server stops may finish within this time; then they are handed back."""


class PoolKeeper:
    """Keeps the pools of one server. `sources` are those that can be asked for workers, by name."""

    def __init__(self, driver: Realtime, rules: list[PoolRules], sources: Mapping[str, WorkerSource]) -> None:
        self._driver = driver
        self._rules = rules
        self.sources = dict(sources)
        self._changed: dict[str, asyncio.Event] = {}
        self._backoff = {name: Backoff(source.interval_s) for name, source in self.sources.items()}
        self._threads = ThreadPoolExecutor(32, thread_name_prefix="pool")
        self._count_at: defaultdict[str, float] = defaultdict(float)
        """When each pool may be listed again, by the loop's clock."""
        self._tasks: list[asyncio.Task[None]] = []
        self._begun = False

    async def start(self) -> None:
        if not self._rules and not self._driver.state.supply.pools:
            return
        await self._driver.submit([PoolsConfigured(self._driver.clock(), self._rules)])
        if self.sources:
            self._begin()

    def _begin(self) -> None:
        self._driver.on_commit.append(self._committed)
        self._begun = True
        if quick := [name for name in self.sources if self._is_quick(name)]:
            self._keep_also(quick)
        for name in self.sources:
            if not self._is_quick(name):
                self._keep_also([name])

    def _is_quick(self, name: str) -> bool:
        return self.sources[name].interval_s <= asking.EVERY_S

    def _keep_also(self, names: list[str]) -> None:
        changed = asyncio.Event()
        self._changed |= dict.fromkeys(names, changed)
        what = f"the keeper of pool {', '.join(names)}"
        self._tasks.append(self._driver.background(self._keep(names, changed), what))

    async def add(self, rules: PoolRules, source: WorkerSource) -> None:
        """A pool that comes while the server runs, or new rules of one that is there."""
        self._rules = [*(other for other in self._rules if other.name != rules.name), rules]
        await self._driver.submit([PoolsConfigured(self._driver.clock(), self._rules)])
        is_new = rules.name not in self.sources
        self.sources[rules.name], self._backoff[rules.name] = source, Backoff(source.interval_s)
        if not self._begun:
            self._begin()
        elif is_new:
            self._keep_also([rules.name])

    async def stop(self) -> None:
        """Let the workers go; best while the server still hears them say what becomes of their tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        sources, self.sources = self.sources, {}
        await asyncio.gather(*(self._call(source.stop, STOP_GRACE_S) for source in sources.values()))
        self._threads.shutdown()

    def _committed(self, records: list[Record]) -> None:
        for pool, _ in self._driver.state.supply.asked.values():
            if pool in self._changed:
                self._changed[pool].set()

    async def _keep(self, names: list[str], changed: asyncio.Event) -> None:
        while True:
            try:
                if not self._driver.trouble:
                    await self.look(names)
            except Exception:
                log.exception("pool %s could not be looked after; trying again", ", ".join(names))
            now = asyncio.get_running_loop().time()
            wait_s = asking.EVERY_S if self._is_quick(names[0]) else max(0.05, self._count_at[names[0]] - now)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), wait_s)
            changed.clear()

    async def look(self, names: list[str] | None = None) -> None:
        """Ask the pools for what is wished for, then report what they have, in their order.

        What was just asked for is counted at once: a worker that cannot start is soon known.
        """
        names = [*self.sources] if names is None else names
        await self._driver.settled()
        asked = await asyncio.gather(*(self._ask_all(name) for name in names))
        due = [name for name, some in zip(names, asked, strict=True) if some or self._is_due(name)]
        listed = await asyncio.gather(*(self._call(self.sources[name].list) for name in due))
        for name, workers in zip(due, listed, strict=True):
            await self._report(name, workers)

    async def _ask_all(self, name: str) -> bool:
        """Ask a pool for what is wished for; whether there was anything."""
        asks = [ask for ask in wishes(self._driver.state).asks if ask.pool == name]
        for ask in asks:
            await self._ask(ask)
        return bool(asks)

    def _is_due(self, name: str) -> bool:
        if self._is_quick(name) and not self._backoff[name].failing:
            return True
        return asyncio.get_running_loop().time() >= self._count_at[name]

    async def _report(self, name: str, workers: list[asking.PoolWorker] | PoolError) -> None:
        now, backoff = self._driver.clock(), self._backoff[name]
        first = backoff.note(failed=isinstance(workers, PoolError))
        self._count_at[name] = asyncio.get_running_loop().time() + backoff.wait_s
        if isinstance(workers, PoolError):
            if first:
                log.warning("pool %s cannot be listed: %s", name, workers.error)
            await self._submit([asking.unlisted(name, workers.error, now)])
            return
        await self._submit(asking.stillborn(self._driver.state, name, workers, now))
        await self._submit(asking.counted(self._driver.state, name, workers, now))

    async def _ask(self, ask: AskWish) -> None:
        started = await self._call(partial(self.sources[ask.pool].start, ask))
        await self._submit([asking.answered(ask, started, self._driver.clock())])

    async def _submit(self, events: list[AnyEvent]) -> None:
        if events:
            await self._driver.submit(events)

    async def _call(self, call: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *args))
