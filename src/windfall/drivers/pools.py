"""The keeper of the pools: tells the engine what they have, and carries out what it asks. Touches pools, by threads.

One look after the other: count what is there, decide, ask, report. So nothing is counted while it is being asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from windfall.core.events import AnyEvent, PoolsConfigured, Record
from windfall.core.state.pools import PoolRules
from windfall.core.wishes import AskWish, wishes
from windfall.drivers import asking
from windfall.drivers.realtime import Realtime
from windfall.pools.contract import Pool, PoolWorker

log = logging.getLogger(__name__)

T = TypeVar("T")

STOP_GRACE_S = 2.0
"""What runs on clients when the server stops may finish within this time; then it is handed back."""


class PoolKeeper:
    """Keeps the pools of one server. `providers` are those that can be asked, by name."""

    def __init__(self, driver: Realtime, rules: list[PoolRules], providers: Mapping[str, Pool]) -> None:
        self._driver = driver
        self._rules = rules
        self._providers = dict(providers)
        self._changed = asyncio.Event()
        self._threads = ThreadPoolExecutor(max(1, len(providers)), thread_name_prefix="pool")
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if not self._rules and not self._driver.state.supply.pools:
            return
        await self._driver.submit([PoolsConfigured(self._driver.clock(), self._rules)])
        if self._providers:
            self._begin()

    def _begin(self) -> None:
        self._driver.on_commit.append(self._committed)
        self._task = self._driver.background(self._keep(), "the keeper of pools")

    async def add(self, rules: PoolRules, provider: Pool) -> None:
        """A pool that comes while the server runs, or new rules of one that is there."""
        self._rules = [*(other for other in self._rules if other.name != rules.name), rules]
        await self._driver.submit([PoolsConfigured(self._driver.clock(), self._rules)])
        self._providers[rules.name] = provider
        if self._task is None:
            self._begin()

    async def stop(self) -> None:
        """Let the clients go; best while the server still hears them say what becomes of their tasks."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        providers, self._providers = self._providers, {}
        await asyncio.gather(*(self._call(pool.stop, STOP_GRACE_S) for pool in providers.values()))
        self._threads.shutdown()

    def _committed(self, records: list[Record]) -> None:
        if self._driver.state.supply.asked:
            self._changed.set()

    async def _keep(self) -> None:
        while True:
            try:
                if not self._driver.trouble:
                    await self.look()
            except Exception:
                log.exception("the pools could not be looked after; trying again")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), asking.EVERY_S)
            self._changed.clear()

    async def look(self) -> None:
        """Ask for what is wished for, then tell what there is: so nothing is counted while it is being asked for."""
        await self._driver.settled()
        asks: dict[str, list[AskWish]] = {name: [] for name in self._providers}
        for ask in wishes(self._driver.state).asks:
            if ask.pool in asks:
                asks[ask.pool].append(ask)
        await asyncio.gather(*(self._ask_all(mine) for mine in asks.values()))
        listed = await asyncio.gather(*(self._call(self._providers[name].list) for name in asks))
        for name, workers in zip(asks, listed, strict=True):
            await self._report(name, workers)

    async def _ask_all(self, asks: list[AskWish]) -> None:
        for ask in asks:
            await self._ask(ask)

    async def _report(self, name: str, workers: list[PoolWorker]) -> None:
        state, now = self._driver.state, self._driver.clock()
        await self._submit(asking.stillborn(state, name, workers, now))
        await self._submit(asking.counted(state, name, workers, now))

    async def _ask(self, ask: AskWish) -> None:
        started = await self._call(partial(self._providers[ask.pool].start, ask.count))
        await self._submit([asking.answered(ask, started, self._driver.clock())])

    async def _submit(self, events: list[AnyEvent]) -> None:
        if events:
            await self._driver.submit(events)

    async def _call(self, call: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *args))
