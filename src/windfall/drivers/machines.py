"""The keeper of rented machines: compares the machines that should exist with those that the provider shows.

It remembers nothing between two comparisons, so it may be interrupted at any time. An order is repeated until it is
answered (the provider starts it once, by its number), a machine that shall end is stopped until it has ended, and what
the provider shows is reported to the engine. Touches pools, by threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from msgspec import Struct, field

from windfall.core import events as ev
from windfall.core.records import Record
from windfall.core.state.fleet import MachineState, awake_since
from windfall.core.state.state import State
from windfall.core.wishes import wishes
from windfall.drivers.market import market_news
from windfall.drivers.realtime import Realtime
from windfall.drivers.supply import Backoff, guarded
from windfall.pools.contract import ENDED, HIBERNATED, RUNNING, TRANSIENT, Order, Pool, PoolError, Seen

log = logging.getLogger(__name__)

_ORDERS = (ev.PlanProposed, ev.TimerFired)
"""Events after which machines may have to be ordered or given back at once."""

T = TypeVar("T")


class Findings(Struct):
    """What one look at a provider has shown: events for the engine, machines to end that it believes ended."""

    events: list[ev.AnyEvent] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)
    """By the names of our hosts, of all that have not ended."""


def compare(state: State, pool: str, shown: list[Seen], now: float, asked_t: float) -> Findings:
    """What the engine does not know yet; `asked_t` is when the provider was asked for `shown`."""
    found = Findings()
    strangers: list[tuple[str, str]] = []
    ours = {machine.host_name: machine for machine in _machines(state, pool)}
    for seen in shown:
        if seen.host is None:
            strangers.append((seen.id, seen.about))
            continue
        if seen.phase != ENDED:
            found.ids[seen.host] = seen.id
        machine = ours.pop(seen.host, None)
        if machine is not None and machine.there:
            found.events += _news(machine, seen, now, asked_t)
        elif seen.phase != ENDED:
            found.forgotten.append(seen.id)
            strangers.append((seen.id, f"ours, {seen.host}, forgotten; it is being stopped"))
    for machine in ours.values():
        if machine.there and machine.id:
            found.events.append(ev.MachineEnded(now, machine.number, now, ""))
    if strangers != [tuple(entry) for entry in state.fleet.strangers.get(pool, [])]:
        found.events.append(ev.StrangersSeen(now, pool, strangers))
    return found


def _machines(state: State, pool: str) -> list[MachineState]:
    return [machine for machine in state.fleet.there.values() if machine.offer.pool == pool]


def _news(machine: MachineState, seen: Seen, now: float, asked_t: float) -> list[ev.AnyEvent]:
    number, news = machine.number, list[ev.AnyEvent]()
    if not machine.id:
        # The answer to our order was lost with an earlier server. It is paid for from the order on.
        news.append(ev.MachineStarted(now, number, seen.id, machine.requested_t))
    if seen.phase == ENDED:
        return [*news, ev.MachineEnded(now, number, seen.since_t, seen.cause)]
    if seen.phase == HIBERNATED and machine.phase != HIBERNATED and asked_t > awake_since(machine):
        news.append(ev.MachineHibernated(now, number, seen.since_t))
    elif seen.phase == RUNNING and machine.phase == HIBERNATED:
        news.append(ev.MachineResumed(now, number, seen.since_t))
    if seen.taken_at_t is not None and seen.taken_at_t != machine.noticed_t:
        news.append(ev.MachineNoticed(now, number, seen.taken_at_t))
    return news


class MachineKeeper:
    """Keeps the machines of one server; `pools` are those that rent them, by name."""

    def __init__(self, driver: Realtime, pools: Mapping[str, Pool], every_s: float | None = None) -> None:
        self._driver = driver
        self.pools = dict(pools)
        self._backoff = {
            name: Backoff(pool.interval_s if every_s is None else every_s) for name, pool in self.pools.items()
        }
        self._changed = {name: asyncio.Event() for name in self.pools}
        self._threads = ThreadPoolExecutor(max(1, 2 * len(self.pools)), thread_name_prefix="machines")
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Say what can be rented, and begin to keep it. A pool that is configured no more rents nothing."""
        now, offers = self._driver.clock(), {name: list(pool.offers) for name, pool in self.pools.items()}
        offers |= {name: [] for name in self._driver.state.fleet.offers if name not in self.pools}
        changed = [(name, new) for name, new in offers.items() if self._driver.state.fleet.offers.get(name) != new]
        if changed:
            await self._driver.submit([ev.OffersConfigured(now, name, new) for name, new in changed])
        self._begin()

    def _begin(self) -> None:
        self._driver.on_commit.append(self._committed)
        self._tasks = [
            self._driver.background(self._keep(name), f"the keeper of machines of {name}") for name in self.pools
        ]

    async def stop(self, release: bool = False) -> None:
        """Machines go on, unless they are to be released: then each one that is ours is stopped, and that is told."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        pools, self.pools = self.pools, {}
        for name, pool in pools.items():
            if release:
                await self._release(name, pool)
            await self._call(pool.close)
        self._threads.shutdown()

    async def _release(self, name: str, pool: Pool) -> None:
        found = await self._find(name, pool)
        for id in found.ids.values() if found is not None else ():
            await self._call(pool.stop, id)
        await self._find(name, pool)

    def _committed(self, records: list[Record]) -> None:
        wanted = wishes(self._driver.state)
        machines = self._driver.state.fleet.machines
        for pool in {machines[number].offer.pool for number in (*wanted.order, *wanted.end)}:
            if pool in self._changed and any(isinstance(record.event, _ORDERS) for record in records):
                self._changed[pool].set()

    async def _keep(self, name: str) -> None:
        while True:
            try:
                if not self._driver.trouble:
                    await self.look(name)
            except Exception:
                log.exception("the machines of pool %s could not be looked after; trying again", name)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed[name].wait(), self._backoff[name].wait_s)
            self._changed[name].clear()

    async def look(self, name: str) -> None:
        """Tell what there is, then order and stop what is decided and durable."""
        pool = self.pools[name]
        found = await self._find(name, pool)
        if found is None:
            return
        wanted = wishes(self._driver.state)
        ordered, ending = self._mine(name, wanted.order), self._mine(name, wanted.end)
        await self._driver.settled()
        for id in found.forgotten:
            await self._call(pool.stop, id)
        for machine in ending:
            await self._stop(pool, machine, found.ids.get(machine.host_name))
        for machine in ordered:
            await self._order(name, pool, machine)

    def _mine(self, pool: str, numbers: Collection[int]) -> list[MachineState]:
        machines = self._driver.state.fleet.machines
        return [machines[number] for number in numbers if machines[number].offer.pool == pool]

    async def _find(self, name: str, pool: Pool) -> Findings | None:
        """What there is, told to the engine; None if the provider cannot say: then nothing has changed."""
        asked_t = self._driver.clock()
        shown = await self._call(pool.list)
        failed = isinstance(shown, PoolError)
        if self._backoff[name].note(failed) and isinstance(shown, PoolError):
            log.warning("the machines of pool %s cannot be listed (%s error): %s", name, shown.kind, shown.error)
        if isinstance(shown, PoolError):
            return None
        found = compare(self._driver.state, name, shown, self._driver.clock(), asked_t)
        found.events += market_news(self._driver.state, name, pool, self._driver.clock())
        if found.events:
            await self._driver.submit(found.events)
        return found

    async def _order(self, name: str, pool: Pool, machine: MachineState) -> None:
        at = self._driver.clock()
        order = Order(machine.host_name, machine.offer.cores, machine.number, machine.offer)
        answer = await self._call(pool.start, order)
        now = self._driver.clock()
        if isinstance(answer, PoolError) and answer.kind == TRANSIENT:
            # The order stays wished for, and is repeated under the same name.
            if self._backoff[name].note(True):
                log.warning("pool %s cannot start a machine: %s", name, answer.error)
        elif isinstance(answer, PoolError):
            await self._driver.submit([ev.MachineRefused(now, machine.number, answer.error, answer.is_capacity)])
        else:
            await self._driver.submit([ev.MachineStarted(now, machine.number, answer, at)])

    async def _stop(self, pool: Pool, machine: MachineState, id: str | None) -> None:
        if id is not None:
            await self._call(pool.stop, id)
            self._changed[machine.offer.pool].set()
        elif not machine.id:
            error = "given up before it was ordered"
            await self._driver.submit([ev.MachineRefused(self._driver.clock(), machine.number, error, False)])

    async def _call(self, call: Callable[..., T], *args: object) -> T | PoolError:
        return await asyncio.get_running_loop().run_in_executor(self._threads, guarded, call, *args)
