"""The pools of a running server: those of its file and those added to its state. Touches providers, by its keepers.

Opens them, starts the keepers, and passes on what an operator says of them; what follows from that the engine decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from windfall.core.events import PoolAdded, PoolSwitched
from windfall.core.state.hosts.pools import ENDING, AddedPool
from windfall.core.supply import modes
from windfall.drivers.keepers.machines import MachineKeeper
from windfall.drivers.keepers.plans import PlanKeeper
from windfall.drivers.keepers.pools import PoolKeeper
from windfall.drivers.keepers.supply import OrderedWorkers
from windfall.errors import BadInput, WindfallError
from windfall.pools.config import read_pool
from windfall.pools.contract import Pool
from windfall.pools.kinds import INSTANCES, MACHINES, Front, Place, PoolConfig
from windfall.pools.site import site_rules
from windfall.server.service import NotFound, Service
from windfall.server.sites.keeper import SiteKeeper

log = logging.getLogger(__name__)
Json = dict[str, Any]


class PoolBusy(WindfallError):
    """Something of the pool is still there, or a pool of this name is."""

    code = "pool-busy"


class PoolAdmin:
    """What `windfall pool add`, `pause`, `resume`, `drain` and `remove` reach. `place_of` says where workers report."""

    def __init__(self, service: Service, configured: list[PoolConfig], place_of: Callable[[PoolConfig], Place]) -> None:
        self._service, self._driver, self._place_of = service, service.driver, place_of
        self._in_file = {pool.name for pool in configured}
        self.configs = {pool.name: pool for pool in configured}
        self._fronts: dict[str, Front] = {}
        self.keeper: PoolKeeper | None = None
        self.planning = PlanKeeper(service.driver)
        self._adding = asyncio.Lock()  # opening takes time, in which the same name could be added again

    async def begin(self) -> None:
        """Open all pools and start their keepers."""
        self._take_over_added()
        service, pools = self._service, [*self.configs.values()]
        service.owned = SiteKeeper(self._driver, [site_rules(pool) for pool in pools if pool.of.gives == INSTANCES])
        rules_of_sites, site_pools = await service.owned.begin()
        rules = [pool.rules for pool in pools if pool.of.gives not in (INSTANCES, MACHINES)]
        providers = {pool.name: await self._reopened(pool) for pool in pools}
        self._fronts = {pool.name: front for pool in pools if (front := await self._refronted(pool)) is not None}
        self._mount()
        sources = {
            pool.name: OrderedWorkers(pool.name, pool.slots, provider)
            for pool in pools
            if pool.of.gives != MACHINES and (provider := providers[pool.name]) is not None
        }
        service.asked = self.keeper = PoolKeeper(self._driver, [*rules, *rules_of_sites], {**sources, **site_pools})
        await self.keeper.start()
        service.owned.start(self.keeper)
        clouds = {
            pool.name: provider
            for pool in pools
            if pool.of.gives == MACHINES and (provider := providers[pool.name]) is not None
        }
        if clouds:
            await self._rent(clouds)

    def _take_over_added(self) -> None:
        """Pools that were added to this state; one of the file has precedence over one of its name."""
        for added in self._driver.state.supply.added.values():
            if added.name in self.configs:
                log.warning("pool %s was added to this state; the one of the file is used", added.name)
                continue
            try:
                self.configs[added.name] = _config(added)
            except BadInput as error:
                log.warning("pool %s, which was added to this state, cannot be used: %s", added.name, error)

    async def _opened(self, pool: PoolConfig) -> Pool | None:
        """The provider of a pool. It may ask the network, so a thread opens it."""
        if pool.of.open is None:
            return None
        return await asyncio.to_thread(pool.of.open, pool, self._place_of(pool))

    async def _fronted(self, pool: PoolConfig) -> Front | None:
        """The application that the hosts of a pool talk to, if they have one of their own."""
        if pool.of.front is None:
            return None
        front = await asyncio.to_thread(pool.of.front, pool, self._place_of(pool), self._service)
        if any(other.path == front.path and name != pool.name for name, other in self._fronts.items()):
            raise BadInput(f"pool '{pool.name}': the path {front.path} belongs to another pool")
        return front

    async def _refronted(self, pool: PoolConfig) -> Front | None:
        try:
            return await self._fronted(pool)
        except BadInput as error:
            if pool.name in self._in_file:
                raise
            log.warning("pool %s, which was added to this state, cannot be used: %s", pool.name, error)
            return None

    def front(self, name: str) -> Front:
        """The front of a pool; NotFound if it has none."""
        self.require(name)
        if name not in self._fronts:
            raise NotFound(f"pool '{name}' has no front", hint="volunteers' pools have one: windfall boinc enable")
        return self._fronts[name]

    def _mount(self) -> None:
        self._service.fronts = {front.path: front for front in self._fronts.values()}

    async def _reopened(self, pool: PoolConfig) -> Pool | None:
        """The same at the start of a server: a pool that was added to the state and fails does not keep it down."""
        try:
            return await self._opened(pool)
        except BadInput as error:
            if pool.name in self._in_file:
                raise
            log.warning("pool %s, which was added to this state, cannot be used: %s", pool.name, error)
            return None

    async def _rent(self, clouds: dict[str, Pool]) -> None:
        """Begin to keep rented machines and the plans that rent them."""
        self._service.rented = MachineKeeper(self._driver, clouds)
        await self._service.rented.start()
        await self.planning.start()

    # --- what an operator says ---

    def _forget_removed(self) -> None:
        added = self._driver.state.supply.added
        self.configs = {name: pool for name, pool in self.configs.items() if name in self._in_file or name in added}

    def require(self, name: str) -> None:
        """NotFound if there is no such pool; sites are pools, too."""
        self._forget_removed()
        if name not in self.configs and name not in self._driver.state.supply.pools:
            raise NotFound(f"there is no pool '{name}'", hint="see them: windfall pool list", code="no-such-pool")

    def is_added(self, name: str) -> bool:
        return name in self._driver.state.supply.added and name not in self._in_file

    async def add(self, entries: list[Json], base: str) -> list[str]:
        """Check all of them, then write them down and open them. Their names."""
        async with self._adding:
            return await self._add(entries, base)

    async def _add(self, entries: list[Json], base: str) -> list[str]:
        added = [AddedPool(str(entry.get("name", "")), msgspec.json.encode(entry).decode(), base) for entry in entries]
        configs = [_config(one) for one in added]
        self._forget_removed()
        for config in configs:
            known = config.name in self.configs or config.name in self._driver.state.supply.pools
            if known or [other.name for other in configs].count(config.name) > 1:
                hint = f"take it away first (windfall pool remove {config.name}), or give this one another name"
                raise PoolBusy(f"there is a pool '{config.name}' already", hint=hint, code="pool-exists")
            if config.of.gives == INSTANCES:
                raise BadInput(f"pool '{config.name}' is a site", hint="make it by: windfall site create")
        # Opened before anything is written down: what cannot be opened is not added.
        providers = [await self._opened(config) for config in configs]
        fronts = [await self._fronted(config) for config in configs]
        for config, one, provider, front in zip(configs, added, providers, fronts, strict=True):
            await self._driver.submit([PoolAdded(self._driver.clock(), one.name, one.entry, one.base)])
            await self._keep(config, provider)
            if front is not None:
                self._fronts[config.name] = front
        self._mount()
        return [config.name for config in configs]

    async def _keep(self, pool: PoolConfig, provider: Pool | None) -> None:
        self.configs[pool.name] = pool
        if pool.of.gives != MACHINES:
            assert self.keeper is not None
            source = None if provider is None else OrderedWorkers(pool.name, pool.slots, provider)
            await self.keeper.add(pool.rules, source)
        elif provider is not None and self._service.rented is None:
            await self._rent({pool.name: provider})
        elif provider is not None and self._service.rented is not None:
            await self._service.rented.add(pool.name, provider)

    async def switch(self, name: str, mode: str, reason: str) -> None:
        self.require(name)
        await self._driver.submit([PoolSwitched(self._driver.clock(), name, mode, reason)])

    async def remove(self, name: str, now: bool, wait_s: float) -> str:
        """Take a pool away; what of it is still there if that takes longer than `wait_s`."""
        self.require(name)
        if not self.is_added(name):
            hint = f"take it out of the file and restart, or: windfall pool drain {name}"
            raise BadInput(f"pool '{name}' stands in the server's pools.toml", hint=hint, code="pool-in-file")
        left = modes.living(self._driver.state, name)
        if left and not now:
            hint = f"let them finish: windfall pool drain {name}   or end them: windfall pool remove {name} --now"
            raise PoolBusy(f"pool '{name}' is in use: {left}", hint=hint)
        if now:
            await self._driver.submit([PoolSwitched(self._driver.clock(), name, ENDING, "it is being removed")])
        if not left:
            await self._removed(name)
        supply = self._driver.state.supply
        await self._service.change(lambda: name not in supply.added, wait_s)
        return "" if name not in supply.added else modes.living(self._driver.state, name) or "its provider is asked"

    async def _removed(self, name: str) -> None:
        self._fronts.pop(name, None)
        self._mount()
        rented = self._service.rented
        if rented is not None and name in rented.pools:
            await rented.remove(name)
        elif self.keeper is not None:
            await self.keeper.remove(name)


def _config(added: AddedPool) -> PoolConfig:
    return read_pool(msgspec.json.decode(added.entry), "pool", Path(added.base))
