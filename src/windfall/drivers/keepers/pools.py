"""The keeper of the pools: tells the engine what they have, and carries out what it asks. Touches pools, by threads.

Quick pools share one loop (as in the simulator): ask for what is wished, then count what there is, so that nothing is
counted while it is being asked for. A pool with a longer interval has a loop of its own and delays no other. Requests
go out at once; counting obeys the pool's interval, and a count that fails is repeated less and less often.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from windfall.core.decisions import PoolSettled
from windfall.core.events import AnyEvent, PoolRemoved, PoolsConfigured, PoolSwitched
from windfall.core.records import Record
from windfall.core.state.hosts.pools import ENDING, PoolRules
from windfall.core.supply import modes
from windfall.core.wishes import AskWish, wishes
from windfall.drivers import asking
from windfall.drivers.keepers.answers import guarded
from windfall.drivers.keepers.supply import OrderedWorkers, Schedule, WorkerSource
from windfall.drivers.keepers.waiting import pause
from windfall.drivers.realtime import Realtime
from windfall.pools.contract import PoolError, Told

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
        self._schedules: dict[str, Schedule] = {}
        self._uncounted: set[str] = set()
        """Pools that were asked for workers and not listed since: one that cannot start should soon be known."""
        self._threads = ThreadPoolExecutor(32, thread_name_prefix="pool")
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
        for name in names:
            self._listen(name, changed)
        what = f"the keeper of pool {', '.join(names)}"
        self._tasks.append(self._driver.background(self._keep(names, changed), what, ends=True))

    def _listen(self, name: str, changed: asyncio.Event) -> None:
        """A pool that is told of changes by its provider passes them on."""
        source, loop = self.sources[name], asyncio.get_running_loop()
        if isinstance(source, OrderedWorkers) and isinstance(source.pool, Told):

            def noticed() -> None:
                self._schedule(name).noticed()
                changed.set()

            def from_a_thread() -> None:
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                    loop.call_soon_threadsafe(noticed)

            source.pool.watch(from_a_thread)

    def _schedule(self, name: str) -> Schedule:
        if name not in self._schedules:
            loop = asyncio.get_running_loop()
            self._schedules[name] = Schedule(lambda: self.sources[name].interval_s, loop.time)
        return self._schedules[name]

    async def add(self, rules: PoolRules, source: WorkerSource | None) -> None:
        """A pool that comes while the server runs, or new rules of one that is there."""
        self._rules = [*(other for other in self._rules if other.name != rules.name), rules]
        await self._driver.submit([PoolsConfigured(self._driver.clock(), self._rules)])
        if source is None:
            return
        is_new = rules.name not in self.sources
        self.sources[rules.name] = source
        self._schedules.pop(rules.name, None)
        if not self._begun:
            self._begin()
        elif is_new:
            self._keep_also([rules.name])

    async def remove(self, name: str) -> str:
        """Remove a pool that has no worker left; why it cannot be removed otherwise."""
        decided = (await self._driver.submit([PoolRemoved(self._driver.clock(), name)]))[0].decided
        assert isinstance(decided, PoolSettled)
        if not decided.refused:
            self._rules = [rules for rules in self._rules if rules.name != name]
            source = self.sources.pop(name, None)
            self._schedules.pop(name, None)
            if isinstance(source, OrderedWorkers):
                await self._call(guarded, source.pool.close)
        return decided.refused

    async def stop(self, leave: bool = False) -> None:
        """End the workers; call it while the server still takes their reports on their tasks.

        `leave`: let them go on; another server of this state will find them.
        """
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        sources, self.sources = self.sources, {}
        if not leave:
            await asyncio.gather(*(self._call(source.stop, STOP_GRACE_S) for source in sources.values()))
        self._threads.shutdown()

    def _committed(self, records: list[Record]) -> None:
        for pool, _ in self._driver.state.supply.asked.values():
            if pool in self._changed:
                self._changed[pool].set()
        for record in records:
            if isinstance(record.event, PoolSwitched) and record.event.pool in self._changed:
                self._changed[record.event.pool].set()

    async def _keep(self, names: list[str], changed: asyncio.Event) -> None:
        while names := [name for name in names if name in self.sources]:
            try:
                if not self._driver.trouble:
                    await self._turn(names)
            except Exception:
                log.exception("pool %s could not be looked after; trying again", ", ".join(names))
            wait_s = min((self._wait_s(name) for name in names if name in self.sources), default=0.0)
            await pause(changed, max(0.05, wait_s))

    def _wait_s(self, name: str) -> float:
        left_s = self._schedule(name).wait_s
        soon = name in self._uncounted or name in self._driver.state.supply.modes
        return left_s if soon or not self._is_quick(name) else max(left_s, asking.EVERY_S)

    async def _turn(self, names: list[str]) -> None:
        """Ask for what is wished at once; count what there is where the pool may be listed again."""
        await self._driver.settled()
        await asyncio.gather(*(self._ask_all(name) for name in names))
        await self._count([name for name in names if name in self.sources and not self._schedule(name).wait_s])

    async def look(self, names: list[str] | None = None) -> None:
        """Ask the pools for what is wished for, then report what they have, in their order."""
        names = [*self.sources] if names is None else names
        await self._driver.settled()
        await asyncio.gather(*(self._ask_all(name) for name in names))
        await self._count(names)

    async def _count(self, names: list[str]) -> None:
        listed = await asyncio.gather(*(self._call(self.sources[name].list) for name in names))
        for name, workers in zip(names, listed, strict=True):
            await self._report(name, workers)

    async def _ask_all(self, name: str) -> None:
        """Ask a pool for what is wished for."""
        for ask in [ask for ask in wishes(self._driver.state).asks if ask.pool == name]:
            if ask.number in self._driver.state.supply.asked:  # else it has been withdrawn
                self._uncounted.add(name)
                await self._ask(ask)

    async def _report(self, name: str, workers: list[asking.PoolWorker] | PoolError) -> None:
        if name not in self.sources:
            return  # it was removed meanwhile
        now = self._driver.clock()
        first = self._schedule(name).answered(workers)
        self._uncounted.discard(name)
        if isinstance(workers, PoolError):
            if first:
                log.warning("pool %s cannot be listed: %s", name, workers.error)
            await self._submit([asking.unlisted(name, workers.error, now)])
            return
        await self._submit(asking.stillborn(self._driver.state, name, workers, now))
        await self._submit(asking.ended(self._driver.state, name, workers, now))
        await self._submit(asking.counted(self._driver.state, name, workers, now))
        if name in self.sources:
            await self._end_what_shall(name, workers)

    async def _end_what_shall(self, name: str, workers: list[asking.PoolWorker]) -> None:
        """Stop what an operator wants to end, until it is gone; a pool that is being removed goes with the last."""
        state = self._driver.state
        living = [worker.host for worker in workers if worker.alive]
        for host, gently in modes.to_end(state, name, living):
            await self._call(self.sources[name].end, host, gently)
        if not living and modes.mode_of(state, name) == ENDING and not modes.living(state, name):
            await self.remove(name)

    async def _ask(self, ask: AskWish) -> None:
        started = await self._call(partial(self.sources[ask.pool].start, ask))
        await self._submit([asking.answered(ask, started, self._driver.clock())])

    async def _submit(self, events: list[AnyEvent]) -> None:
        if events:
            await self._driver.submit(events)

    async def _call(self, call: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *args))
