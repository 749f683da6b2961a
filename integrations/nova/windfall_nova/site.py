"""Hosts and servers as placement counts them, kept between requests: OPIE's two states. Touches nothing.

The caller reads placement and hands over what changed; both states (with and without preemptible servers) are those
of `windfall.placement.Site`, which is changed and not rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from windfall.placement import Host, Instance, Site

Amounts = Mapping[str, int]


class Inventory(Struct, frozen=True):
    """What a provider has of one resource class. `capacity` is (total - reserved) x allocation ratio, rounded down."""

    capacity: int
    max_unit: int
    step_size: int = 1

    @classmethod
    def of(cls, row: Mapping[str, float]) -> Inventory:
        capacity = int((row["total"] - row.get("reserved", 0)) * row.get("allocation_ratio", 1.0))
        return cls(max(0, capacity), int(row.get("max_unit", capacity)), int(row.get("step_size", 1)))


class Provider(Struct, frozen=True):
    """One compute node in placement: inventories by resource class, amounts by consumer."""

    uuid: str
    generation: int
    inventories: Mapping[str, Inventory]
    consumers: Mapping[str, Amounts]

    def free(self, resource: str) -> int:
        used = sum(amounts.get(resource, 0) for amounts in self.consumers.values())
        return self.inventories[resource].capacity - used

    def may_hold(self, need: Amounts) -> bool:
        """Whether one server of this size is allowed here at all."""
        return all(
            name in self.inventories
            and amount <= self.inventories[name].max_unit
            and amount % self.inventories[name].step_size == 0
            for name, amount in need.items()
        )


class Server(Struct, frozen=True):
    """What is known of a consumer. `victim`: preemptible, and in a state in which it can be evicted."""

    uuid: str
    victim: bool = False
    started_t: float = 0.0
    checkpoint_t: float = 0.0
    price_usd_per_h: float | None = None
    group: str = ""


class KeptSite:
    """All providers with their consumers, and the `Site` made of them. Not safe for threads: callers hold a lock."""

    def __init__(self) -> None:
        self.providers: dict[str, Provider] = {}
        self.servers: dict[str, Server] = {}
        self._site: Site | None = None

    def unknown(self, providers: Iterable[Provider]) -> list[str]:
        """Consumers that nothing is known of yet."""
        return [uuid for one in providers for uuid in one.consumers if uuid not in self.servers]

    def learn(self, servers: Iterable[Server]) -> None:
        """Facts of consumers: at once, also of those that are placed already."""
        for server in servers:
            if self.servers.get(server.uuid) == server:
                continue
            self.servers[server.uuid] = server
            if self._site is not None and server.uuid in self._site.instances:
                self._site = None

    def put(self, provider: Provider, now_t: float) -> None:
        """A provider as it is now; only what changed is changed in the site."""
        before = self.providers.get(provider.uuid)
        self.providers[provider.uuid] = provider
        if before is None or before.inventories != provider.inventories:
            self._site = None
        if self._site is None:
            return
        for uuid, amounts in before.consumers.items() if before else ():
            if provider.consumers.get(uuid) != amounts and uuid in self._site.instances:
                self._site.remove(uuid)
        for uuid, amounts in provider.consumers.items():
            if uuid not in self._site.instances:
                if self._overfull(provider):
                    self._site = None
                    return
                self._site.boot(provider.uuid, self._instance(uuid, amounts, now_t), now_t)

    def drop(self, uuids: Iterable[str]) -> None:
        """Providers that are gone."""
        for uuid in uuids:
            if self.providers.pop(uuid, None) is not None:
                self._site = None

    def forget_unused(self) -> None:
        """Servers that no provider counts any more."""
        used = {uuid for provider in self.providers.values() for uuid in provider.consumers}
        for uuid in [uuid for uuid in self.servers if uuid not in used]:
            del self.servers[uuid]

    def site(self, now_t: float) -> Site:
        if self._site is None:
            self._site = Site([self._host(provider, now_t) for provider in self.providers.values()], now_t)
        return self._site

    def victims_on(self, uuid: str) -> Sequence[str]:
        return [one for one in self.providers[uuid].consumers if self.servers.get(one, Server(one)).victim]

    def _overfull(self, provider: Provider) -> bool:
        """An operator may shrink a host below what runs there."""
        return any(provider.free(name) < 0 for name in provider.inventories)

    def _host(self, provider: Provider, now_t: float) -> Host:
        capacity = {name: inventory.capacity for name, inventory in provider.inventories.items()}
        placed = tuple(self._instance(uuid, amounts, now_t) for uuid, amounts in provider.consumers.items())
        return Host(provider.uuid, capacity, placed)

    def _instance(self, uuid: str, amounts: Amounts, now_t: float) -> Instance:
        server = self.servers.get(uuid, Server(uuid))
        run_s = max(0.0, now_t - server.started_t) if server.started_t else 0.0
        saved_s = max(0.0, server.checkpoint_t - server.started_t) if server.checkpoint_t else 0.0
        return Instance(
            uuid, server.victim, run_s, dict(amounts), server.price_usd_per_h, None, min(saved_s, run_s), server.group
        )
