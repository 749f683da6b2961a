"""Sites of a running server: their preemptible instances as pools of the overlay, and the silence of their agents.

Touches the driver only: orders reach hosts by the answers to their agents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import TimeoutError as TooLate
from typing import Any, TypeVar

from windfall.core.decisions import SiteSettled
from windfall.core.events import InstancesWanted, SiteCreated
from windfall.core.sites.instances import SiteRules
from windfall.core.state.hosts.pools import PoolRules
from windfall.core.wishes import AskWish
from windfall.drivers import asking
from windfall.drivers.asking import PoolWorker, Started
from windfall.drivers.keepers.pools import PoolKeeper
from windfall.drivers.keepers.supply import WorkerSource
from windfall.drivers.realtime import Realtime

ANSWER_S = 30.0
T = TypeVar("T")
Workers = list[PoolWorker]  # `list` is also the name of a method of pools


class SitePool:
    """The preemptible instances of a site, as the overlay asks for them."""

    interval_s = 2.0

    def __init__(self, name: str, driver: Realtime, loop: asyncio.AbstractEventLoop) -> None:
        self._name, self._driver, self._loop = name, driver, loop
        self._reported: set[int] = set()

    def start(self, ask: AskWish) -> Started:
        return self._on_loop(self._want(ask.count), Started([], "the server did not come to it"))

    def list(self) -> Workers:
        return self._on_loop(self._look(), [])

    def end(self, host: str, gently: bool) -> None:
        """Nothing: a worker that is drained ends its instance, and one that is placed is heard of soon."""

    def stop(self, grace_s: float) -> None:
        """Nothing: instances belong to their hosts' agents, and outlive a server that is restarted."""

    def _on_loop(self, work: Coroutine[Any, Any, T], otherwise: T) -> T:
        """The state belongs to the loop; this is called from a thread."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_S)
        except (TooLate, RuntimeError):
            work.close()
            return otherwise

    async def _want(self, count: int) -> Started:
        decided = (await self._driver.submit([InstancesWanted(self._driver.clock(), self._name, count)]))[0].decided
        assert isinstance(decided, SiteSettled)
        return asking.placed(self._driver.state.sites[self._name], decided)

    async def _look(self) -> Workers:
        return asking.instances(self._driver.state.sites[self._name], self._reported)


class SiteKeeper:
    """Keeps the sites of one server. `configured` are those of its pools.toml; others were made while it ran."""

    def __init__(self, driver: Realtime, configured: list[SiteRules]) -> None:
        self._driver = driver
        self._configured = configured
        self._pools: PoolKeeper | None = None

    async def begin(self) -> tuple[list[PoolRules], dict[str, WorkerSource]]:
        """Make the configured sites known; all sites as pools."""
        for rules in self._configured:
            known = self._driver.state.sites.get(rules.name)
            if known is None or known.rules != rules:
                await self._driver.submit([SiteCreated(self._driver.clock(), rules)])
        sites = self._driver.state.sites
        return [site.rules.pool for site in sites.values()], {name: self._pool(name) for name in sites}

    def start(self, pools: PoolKeeper) -> None:
        self._pools = pools

    async def create(self, rules: SiteRules) -> None:
        """A site is made, or gets new rules, while the server runs."""
        await self._driver.submit([SiteCreated(self._driver.clock(), rules)])
        if self._pools is not None:
            await self._pools.add(rules.pool, self._pool(rules.name))

    def _pool(self, name: str) -> SitePool:
        return SitePool(name, self._driver, asyncio.get_running_loop())
