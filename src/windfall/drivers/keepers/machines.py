"""The keeper of rented machines: compares the machines that should exist with those that the provider shows.

It remembers nothing between two comparisons, so it may be interrupted at any time. An order is repeated until it is
answered (the provider starts it once, by its number), a machine that shall end is stopped until it has ended, and what
the provider shows is reported to the engine. Touches pools, by threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from msgspec import Struct, field

from windfall.core import events as ev
from windfall.core.decisions import PoolSettled
from windfall.core.records import Record
from windfall.core.state.hosts.pools import ENDING
from windfall.core.state.renting.fleet import GIVEN_UP, MachineState, awake_since
from windfall.core.state.state import State
from windfall.core.supply import modes
from windfall.core.wishes import wishes
from windfall.drivers.asking import LAST_WORDS_CHARS
from windfall.drivers.keepers.answers import guarded, likely_t, listed, started
from windfall.drivers.keepers.market import market_news
from windfall.drivers.keepers.supply import Schedule, is_trial
from windfall.drivers.keepers.waiting import pause
from windfall.drivers.realtime import Realtime
from windfall.pools.contract import (
    ENDED,
    HIBERNATED,
    RUNNING,
    TRANSIENT,
    Dated,
    Order,
    Pool,
    PoolError,
    Seen,
    Told,
    gap_s,
)

log = logging.getLogger(__name__)

_ORDERS = (ev.PlanProposed, ev.TimerFired, ev.PoolSwitched)
"""Events after which machines may have to be ordered or given back at once."""

T = TypeVar("T")


class Findings(Struct):
    """What one look at a provider has shown: events for the engine, machines to end that it believes ended."""

    events: list[ev.AnyEvent] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)
    """By the names of our hosts, of all that have not ended."""
    told: set[str] = field(default_factory=set)
    """Those that were stopped since this was seen."""
    is_old: bool = False
    """It has been acted upon: what was ordered since is not in it."""


def compare(
    state: State, pool: str, shown: list[Seen], now: float, asked_t: float, billed_from_t: Mapping[str, float]
) -> Findings:
    """What the engine does not know yet; `asked_t` is when the provider was asked for `shown`.

    `billed_from_t`: by id, for machines whose order was never answered; where it is not told, from the order on.
    """
    found = Findings()
    strangers: list[tuple[str, str]] = []
    ours = {machine.host_name: machine for machine in _machines(state, pool)}
    known = {machine.id for machine in ours.values()}
    # Of two under one name, the one that was answered for is ours, and the other one is forgotten.
    for seen in sorted(shown, key=lambda seen: (seen.id not in known, seen.phase == ENDED)):
        if seen.host is None:
            strangers.append((seen.id, seen.about))
            continue
        if seen.phase != ENDED:
            found.ids.setdefault(seen.host, seen.id)
        machine = ours.pop(seen.host, None)
        if machine is not None and machine.there:
            if not machine.id:  # the answer to our order was lost
                at = billed_from_t.get(seen.id, machine.requested_t)
                found.events.append(ev.MachineStarted(now, machine.number, seen.id, at))
            found.events += _news(machine, seen, now, asked_t)
        elif seen.phase != ENDED and not is_trial(pool, seen.host):
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
    since_t = likely_t(seen.since_t, machine.requested_t, now, now)
    if seen.phase == ENDED:
        return [ev.MachineEnded(now, number, since_t, seen.cause, seen.about[:LAST_WORDS_CHARS])]
    if seen.phase == HIBERNATED and machine.phase != HIBERNATED and asked_t > awake_since(machine):
        # It has woken since: a provider that still names the hibernation before must not pause the bill twice.
        woke_t = machine.sleeps[-1][1] if machine.sleeps else None
        news.append(ev.MachineHibernated(now, number, since_t if woke_t is None else max(since_t, woke_t)))
    elif seen.phase == RUNNING and machine.phase == HIBERNATED:
        news.append(ev.MachineResumed(now, number, since_t))
    if seen.taken_at_t is not None and seen.taken_at_t != machine.noticed_t:
        news.append(ev.MachineNoticed(now, number, seen.taken_at_t))
    return news


class MachineKeeper:
    """Keeps the machines of one server; `pools` are those that rent them, by name."""

    def __init__(self, driver: Realtime, pools: Mapping[str, Pool], every_s: float | None = None) -> None:
        self._driver = driver
        self.pools = dict(pools)
        self._every_s = every_s
        self._schedules: dict[str, Schedule] = {}
        self._found: dict[str, Findings] = {}
        """What each provider showed last."""
        self._called_t: dict[str, float] = {}
        self._changed = {name: asyncio.Event() for name in self.pools}
        self._threads = ThreadPoolExecutor(16, thread_name_prefix="machines")
        self._refused: dict[str, str] = {}
        """Why each offer was refused last: the same reason is logged once."""
        self._tasks: list[asyncio.Task[None]] = []
        self._under_way: set[asyncio.Future[Any]] = set()
        """Calls of pools: a thread cannot be cancelled, so neither are they."""

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
        for name in self.pools:
            self._keep_also(name)

    def _keep_also(self, name: str) -> None:
        self._listen(name)
        what = f"the keeper of machines of {name}"
        self._tasks.append(self._driver.background(self._keep(name), what, ends=True))

    def _listen(self, name: str) -> None:
        """A pool that is told of changes by its provider passes them on."""
        pool, loop, changed = self.pools[name], asyncio.get_running_loop(), self._changed[name]
        if isinstance(pool, Told):

            def noticed() -> None:
                self._schedule(name).noticed()
                changed.set()

            def from_a_thread() -> None:
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                    loop.call_soon_threadsafe(noticed)

            pool.watch(from_a_thread)

    def _schedule(self, name: str) -> Schedule:
        if name not in self._schedules:
            pool, every_s = self.pools[name], self._every_s
            interval = (lambda: pool.interval_s) if every_s is None else (lambda: every_s)
            self._schedules[name] = Schedule(interval, asyncio.get_running_loop().time)
        return self._schedules[name]

    async def add(self, name: str, pool: Pool) -> None:
        """A pool that comes while the server runs."""
        self.pools[name], self._changed[name] = pool, asyncio.Event()
        await self._driver.submit([ev.OffersConfigured(self._driver.clock(), name, list(pool.offers))])
        self._keep_also(name)

    async def remove(self, name: str) -> str:
        """Remove a pool that has no machine left; why it cannot be removed otherwise."""
        decided = (await self._driver.submit([ev.PoolRemoved(self._driver.clock(), name)]))[0].decided
        assert isinstance(decided, PoolSettled)
        pool = None if decided.refused else self.pools.pop(name, None)
        if pool is not None:  # else it has been removed twice at once
            self._changed.pop(name).set()
            self._schedules.pop(name, None)
            await self._call(pool.close)
        return decided.refused

    async def stop(self, release: bool = False) -> None:
        """Machines go on, unless they are to be released: then each one that is ours is stopped, and that is told."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # What a call that is under way starts must be listed below, so it is waited for.
        await asyncio.gather(*self._under_way, return_exceptions=True)
        for name, pool in self.pools.items():
            if release:
                await self._release(name, pool)
            await self._call(pool.close)
        self.pools = {}
        self._threads.shutdown()

    async def _release(self, name: str, pool: Pool) -> None:
        found = await self._find(name, pool)
        # What cannot be listed is not believed to be gone: the machines that were answered for are stopped.
        known = [machine.id for machine in _machines(self._driver.state, name) if machine.id]
        for id in [*found.ids.values()] if found is not None else known:
            await self._call(pool.stop, id)
        left = await self._find(name, pool)
        if left is not None:
            ordered = [machine for machine in _machines(self._driver.state, name) if not machine.id]
            for machine in ordered:
                if machine.host_name not in left.ids:
                    await self._give_up(machine)

    def _committed(self, records: list[Record]) -> None:
        wanted = wishes(self._driver.state)
        machines = self._driver.state.fleet.machines
        for pool in {machines[number].offer.pool for number in (*wanted.order, *wanted.end)}:
            if pool in self._changed and any(isinstance(record.event, _ORDERS) for record in records):
                self._changed[pool].set()

    async def _keep(self, name: str) -> None:
        changed = self._changed[name]
        while self._changed.get(name) is changed:
            try:
                if not self._driver.trouble:
                    await self._turn(name)
            except Exception:
                if self._changed.get(name) is changed:  # else it was removed meanwhile, and nothing is left to do
                    log.exception("the machines of pool %s could not be looked after; trying again", name)
            if self._changed.get(name) is changed:
                await pause(changed, max(0.02, self._schedule(name).wait_s))

    async def _turn(self, name: str) -> None:
        """Look if the pool may be listed again; else carry out what is new by what it showed last."""
        schedule, found = self._schedule(name), self._found.get(name)
        if not schedule.wait_s:
            await self.look(name)
        elif found is not None and not schedule.failing:
            await self._carry_out(name, found)

    async def look(self, name: str) -> None:
        """Tell what there is, then order and stop what is decided and durable."""
        found = await self._find(name, self.pools[name])
        self._found.pop(name, None)
        if found is None:
            return
        await self._carry_out(name, found)
        self._found[name] = found
        found.is_old = True
        if modes.mode_of(self._driver.state, name) == ENDING and not found.ids:
            await self.remove(name)

    async def _carry_out(self, name: str, found: Findings) -> None:
        pool, wanted = self.pools[name], wishes(self._driver.state)
        ordered, ending = self._mine(name, wanted.order), self._mine(name, wanted.end)
        await self._driver.settled()
        for id in found.forgotten if not found.is_old else ():
            await self._spaced(name, pool.stop, id)
        for machine in ending:
            await self._stop(name, machine, found)
        for machine in ordered:
            if not await self._order(name, pool, machine):
                break  # the others would fare no better now; they are ordered after a while

    def _mine(self, pool: str, numbers: Collection[int]) -> list[MachineState]:
        machines = self._driver.state.fleet.machines
        return [machines[number] for number in numbers if machines[number].offer.pool == pool]

    async def _find(self, name: str, pool: Pool) -> Findings | None:
        """What there is, told to the engine; None if the provider cannot say: then nothing has changed."""
        asked_t = self._driver.clock()
        shown = await self._in_thread(listed, pool)
        if self._schedule(name).answered(shown) and isinstance(shown, PoolError):
            log.warning("the machines of pool %s cannot be listed (%s error): %s", name, shown.kind, shown.error)
        if isinstance(shown, PoolError):
            return None
        billed_from_t = await self._billing_starts(name, pool, shown)
        found = compare(self._driver.state, name, shown, self._driver.clock(), asked_t, billed_from_t)
        found.events += market_news(self._driver.state, name, pool, self._driver.clock())
        if found.events:
            await self._driver.submit(found.events)
        return found

    async def _order(self, name: str, pool: Pool, machine: MachineState) -> bool:
        """Order a machine; whether the provider has answered for good."""
        at = self._driver.clock()
        order = Order(machine.host_name, machine.offer.cores, machine.number, machine.offer)
        answer = await self._spaced(name, started, pool, order)
        now = self._driver.clock()
        if isinstance(answer, PoolError) and answer.kind == TRANSIENT:
            # The order stays wished for, and is repeated under the same name.
            if self._schedule(name).answered(answer):
                log.warning("pool %s cannot start a machine: %s", name, answer.error)
            return False
        if isinstance(answer, PoolError):
            # Whatever the reason, the same order would be refused again at once: its offer is left alone for a while.
            if self._refused.get(machine.offer.key) != answer.error:
                log.warning("pool %s refuses %s (%s error): %s", name, machine.offer.name, answer.kind, answer.error)
            self._refused[machine.offer.key] = answer.error
            await self._driver.submit([ev.MachineRefused(now, machine.number, answer.error)])
        else:
            self._refused.pop(machine.offer.key, None)
            at = await self._billed_from_t(pool, answer, at)
            await self._driver.submit([ev.MachineStarted(now, machine.number, answer, at)])
        return True

    async def _billing_starts(self, name: str, pool: Pool, shown: list[Seen]) -> dict[str, float]:
        """From when on the machines are billed whose order was never answered, by id."""
        lost = {machine.host_name: machine for machine in _machines(self._driver.state, name) if not machine.id}
        found = [(seen.id, lost[seen.host]) for seen in shown if seen.host in lost]
        return {id: await self._billed_from_t(pool, id, machine.requested_t) for id, machine in found}

    async def _billed_from_t(self, pool: Pool, id: str, ordered_t: float) -> float:
        """What the provider says, unless that is far from the time since our order."""
        told_t = await self._call(pool.billed_from_t, id) if isinstance(pool, Dated) else None
        return likely_t(told_t, ordered_t, self._driver.clock(), ordered_t)

    async def _stop(self, name: str, machine: MachineState, found: Findings) -> None:
        """Stop a machine, once for each list that shows it; give up one that nobody has ordered."""
        id = found.ids.get(machine.host_name) or (machine.id if found.is_old else "")
        if id:
            if id not in found.told:
                found.told.add(id)
                await self._spaced(name, self.pools[name].stop, id)
        elif not machine.id and not found.is_old:
            await self._give_up(machine)

    async def _give_up(self, machine: MachineState) -> None:
        """Of an order that the provider has not got: it is never carried out."""
        await self._driver.submit([ev.MachineRefused(self._driver.clock(), machine.number, GIVEN_UP, False)])

    async def _spaced(self, name: str, call: Callable[..., T], *args: object) -> T | PoolError:
        """Call `start` or `stop` as far from the last such call as the pool wants."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._called_t.get(name, -math.inf) + gap_s(self.pools[name]) - loop.time()))
        self._called_t[name] = loop.time()
        return await self._call(call, *args)

    async def _call(self, call: Callable[..., T], *args: object) -> T | PoolError:
        return await self._in_thread(guarded, call, *args)

    async def _in_thread(self, call: Callable[..., T], *args: object) -> T:
        under_way = asyncio.get_running_loop().run_in_executor(self._threads, call, *args)
        self._under_way.add(under_way)
        under_way.add_done_callback(self._under_way.discard)
        return await asyncio.shield(under_way)
