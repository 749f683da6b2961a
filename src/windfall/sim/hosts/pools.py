"""Pools of a simulated world that start workers on request, and their keeper. Touches nothing.

The engine says how many workers to ask of which pool (`core.wishes`). A pool answers, its workers come after their wait
in the queue, and leave when they have had no work for a while. What the keeper reports, and when, is what the keeper of
a live server reports (`drivers.asking`).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Protocol

from windfall.core.events import PoolsConfigured
from windfall.core.state.hosts.pools import PoolRules
from windfall.core.wishes import Wishes, wishes
from windfall.drivers import asking
from windfall.drivers.asking import PoolWorker, Started
from windfall.sim.hosts.host import Ground, Host

if TYPE_CHECKING:
    from windfall.sim.world import World

Workers = list[PoolWorker]
NO_CAPACITY = "no capacity"


class SimulatedPool(Protocol):
    """A pool that can be asked: the contract of a live one, without its end."""

    def start(self, count: int) -> Started: ...
    def list(self) -> Workers: ...


class AskedPool:
    """The hosts of one pool, started on request: every worker is a new host in the lowest free place."""

    def __init__(self, world: World, ground: Ground) -> None:
        self._world, self._ground = world, ground
        self._free = list(range(ground.pool.hosts))
        heapify(self._free)
        self._hosts: dict[int, Host] = {}
        self._started: dict[int, Host] = {}
        """By place: workers on their way or there."""
        self._ended: Workers = []

    def start(self, count: int) -> Started:
        started = Started()
        for _ in range(count):
            if not self._free:
                started.error = f"all {self._ground.pool.hosts} hosts are taken"
                break
            host = self._request()
            if host is None:
                self._ground.books.refused += 1
                started.error = NO_CAPACITY
            else:
                started.hosts.append(host.name)
        return started

    def _request(self) -> Host | None:
        """A worker that comes after its wait; None if the provider refuses it."""
        world, ground, place = self._world, self._ground, self._free[0]
        host = self._hosts.get(place)
        if host is None:
            host = self._hosts[place] = Host(ground, place)
            world.hosts.append(host)
        if ground.pool.refusals and ground.refuses(host):
            return None
        ground.describe(host)
        host.rented_s, here_s, gone_s = ground.next_stay(host, world.driver.now)
        if here_s == inf:
            return None
        heappop(self._free)
        self._started[place] = host
        world.driver.at(here_s, world.come_to_stay, host, gone_s)
        return host

    def list(self) -> Workers:
        ended, self._ended = self._ended, []
        return [*(PoolWorker(host.name) for host in self._started.values()), *ended]

    def left(self, host: Host) -> None:
        """A worker has ended: its place is free again."""
        del self._started[host.index]
        heappush(self._free, host.index)
        self._ended.append(PoolWorker(host.name, alive=False))


class PoolKeeper:
    """Keeps the pools of one world. `rules` are those of all pools, also of those whose hosts come by themselves."""

    def __init__(self, world: World) -> None:
        self._world, self._driver = world, world.driver
        self.rules: list[PoolRules] = []
        self.pools: dict[str, SimulatedPool] = {}
        self._under_way: set[int] = set()
        """Numbers of requests for which a look is due."""
        self._turn = 0
        """Of the next look: one that was scheduled before it is not made."""

    def open(self) -> None:
        """Tell the engine the rules, as a server does when it starts."""
        self._driver.submit(PoolsConfigured(self._driver.now, self.rules))

    def carry_out(self, wanted: Wishes) -> None:
        """Look at once if something is wished for that is not under way."""
        if any(ask.number not in self._under_way for ask in wanted.asks):
            self._under_way = {ask.number for ask in wanted.asks}
            self._look_at(self._driver.now)

    def _look_at(self, t: float) -> None:
        self._turn += 1
        self._driver.at(t, self._look, self._turn)

    def _look(self, turn: int) -> None:
        """Ask for what is wished for, then count; again every few seconds while workers are on their way."""
        if turn != self._turn:
            return
        now, reachable_t = self._driver.now, self._world.cut_off_until
        if now < reachable_t:
            self._look_at(reachable_t)
            return
        asks = wishes(self._driver.state).asks
        for ask in (ask for name in self.pools for ask in asks if ask.pool == name):
            started = self.pools[ask.pool].start(ask.count)
            self._driver.submit(asking.answered(ask, started, now))
        for name in self.pools:
            self._count(name)
        if any(pool.queued for pool in self._driver.state.supply.pools.values()):
            self._look_at(now + asking.EVERY_S)

    def _count(self, name: str) -> None:
        workers = self.pools[name].list()
        for report in (asking.stillborn, asking.counted):
            for event in report(self._driver.state, name, workers, self._driver.now):
                self._driver.submit(event)


def rules_of(ground: Ground) -> PoolRules:
    """A pool of the scenario as the operator of a server would write it down."""
    pool = ground.pool
    if not pool.on_demand:
        return PoolRules(pool.name, "simulated", slots=pool.slots, joins_itself=True)
    # The price of an hour: pools are compared by it, whatever their billing cycle.
    price_usd = pool.price_usd * 3600 / pool.cycle_s if pool.price_usd else 0.0
    return PoolRules(pool.name, "simulated", pool.hosts, pool.slots, price_usd, pool.per_minute)
