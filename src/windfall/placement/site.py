"""The state of a site: what is free with everything counted (h_f) and with preemptible instances ignored (h_n). Pure.

Both states are kept as instances come and go and are never rebuilt for a request. Amounts are integers of 1/UNITS,
one row per resource and one column per host, so that a filter is one comparison per resource. Preemptible instances
lie in slots, one row per host, so that costs and bounds of many hosts are computed at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from windfall.numeric import Bools, Ints, np
from windfall.placement.evictions.costs import Preemptibles, micros
from windfall.placement.model import Host, Instance, to_units

FIRST_SLOTS = 4


class Placed(Struct, frozen=True):
    """An instance and where it runs. `slot` is -1 for a normal one."""

    instance: Instance
    host: int
    slot: int
    units: Ints


class Site:
    """Hosts and their instances. Mutable: `boot`, `remove`, `checkpoint`. `now_s` is always the caller's."""

    def __init__(self, hosts: Sequence[Host], now_s: float = 0.0) -> None:
        self.hosts = tuple(hosts)
        self.names = tuple(host.name for host in hosts)
        self.index = {name: h for h, name in enumerate(self.names)}
        self.resources = tuple(dict.fromkeys(name for host in hosts for name in host.capacity))
        self.tags = _masks([host.tags for host in hosts])
        self.aggregates = _masks([host.aggregates for host in hosts])
        self.capacity = np.array([self.units(host.capacity) for host in hosts], dtype=np.int64)
        self.capacity = np.ascontiguousarray(self.capacity.reshape(len(hosts), len(self.resources)).T)
        self.free_f = self.capacity.copy()
        self.free_n = self.capacity.copy()
        # Counts the changes of a host, so that caches can tell whether they are out of date.
        self.version = np.zeros(len(hosts), dtype=np.int64)
        self.instances: dict[str, Placed] = {}
        self.on_host: list[dict[str, None]] = [{} for _ in hosts]  # ids in order of arrival
        self.groups: dict[str, dict[int, int]] = {}  # group -> host -> members there
        self._make_slots(len(hosts), FIRST_SLOTS)
        for h, host in enumerate(hosts):
            for instance in host.instances:
                self._put(h, instance, self.units(instance.resources), now_s)

    def units(self, amounts: Mapping[str, float]) -> Ints:
        """Amounts by name as integers in the order of `resources`."""
        return np.array([to_units(amounts.get(name, 0)) for name in self.resources], dtype=np.int64)

    def boot(self, host: str, instance: Instance, now_s: float = 0.0) -> None:
        """Start an instance on a host that it fits on; victims must be removed before."""
        h = self.index[host]
        if instance.id in self.instances:
            raise ValueError(f"instance '{instance.id}' runs already")
        units = self.units(instance.resources)
        if bool(((units > 0) & (units > self.free_f[:, h])).any()):
            raise ValueError(f"host '{host}' has no room for '{instance.id}'")
        self._put(h, instance, units, now_s)

    def hold(self, host: str, instance: Instance, now_s: float = 0.0) -> None:
        """An instance that runs there already, also if the host now says that it has less room than that takes."""
        self._put(self.index[host], instance, self.units(instance.resources), now_s)

    def remove(self, identity: str) -> Instance:
        """Remove an instance that has ended or is evicted."""
        placed = self.instances.pop(identity)
        h = placed.host
        self.free_f[:, h] += placed.units
        if placed.slot < 0:
            self.free_n[:, h] += placed.units
        else:
            self.used[h, placed.slot] = False
            self.slot_ids[h][placed.slot] = ""
        del self.on_host[h][identity]
        group = placed.instance.group
        if group:
            members = self.groups[group]
            members[h] -= 1
            if not members[h]:
                del members[h]
        self.version[h] += 1
        return placed.instance

    def checkpoint(self, identity: str, now_s: float) -> None:
        """A preemptible instance has saved its work."""
        placed = self.instances[identity]
        if placed.slot >= 0:
            self.saved_us[placed.host, placed.slot] = micros(now_s)
            self.version[placed.host] += 1

    def preemptibles(self, rows: Ints | slice) -> Preemptibles:
        """The columns that costs read, for some hosts; unused slots hold leftovers (see `used`)."""
        return Preemptibles(self.start_us[rows], self.price_microusd_per_h[rows], self.saved_us[rows])

    def price_microusd_of(self, h: int, instance: Instance) -> int:
        """Micro-dollars per hour; an instance without a price pays its share of one dollar for the whole host."""
        if instance.price_usd_per_h is not None:
            return round(instance.price_usd_per_h * 1e6)
        capacity = self.hosts[h].capacity
        shares = (amount / capacity[name] for name, amount in instance.resources.items() if capacity.get(name))
        return round(max(shares, default=0.0) * 1e6)

    def _put(self, h: int, instance: Instance, units: Ints, now_s: float) -> None:
        self.free_f[:, h] -= units
        slot = -1
        if instance.preemptible:
            slot = self._free_slot(h)
            # Whole microseconds of run time before the subtraction: Unix time leaves a float no room for more.
            start_us = micros(now_s) - micros(instance.run_s)
            self.used[h, slot] = True
            self.size[:, h, slot] = units
            self.start_us[h, slot] = start_us
            self.saved_us[h, slot] = start_us + micros(instance.checkpoint_s)
            self.price_microusd_per_h[h, slot] = self.price_microusd_of(h, instance)
            self.slot_ids[h][slot] = instance.id
        else:
            self.free_n[:, h] -= units
        self.instances[instance.id] = Placed(instance, h, slot, units)
        self.on_host[h][instance.id] = None
        if instance.group:
            members = self.groups.setdefault(instance.group, {})
            members[h] = members.get(h, 0) + 1
        self.version[h] += 1

    def _make_slots(self, hosts: int, slots: int) -> None:
        self.used: Bools = np.zeros((hosts, slots), dtype=np.bool_)
        self.size: Ints = np.zeros((len(self.resources), hosts, slots), dtype=np.int64)
        self.start_us: Ints = np.zeros((hosts, slots), dtype=np.int64)
        self.saved_us: Ints = np.zeros((hosts, slots), dtype=np.int64)
        self.price_microusd_per_h: Ints = np.zeros((hosts, slots), dtype=np.int64)
        self.slot_ids: list[list[str]] = [[""] * slots for _ in range(hosts)]

    def _free_slot(self, h: int) -> int:
        slots = int(self.used.shape[1])
        for slot, identity in enumerate(self.slot_ids[h]):
            if not identity:
                return slot
        wider = ((0, 0), (0, slots))
        self.used = np.pad(self.used, wider)
        self.size = np.pad(self.size, ((0, 0), *wider))
        self.start_us = np.pad(self.start_us, wider)
        self.saved_us = np.pad(self.saved_us, wider)
        self.price_microusd_per_h = np.pad(self.price_microusd_per_h, wider)
        for ids in self.slot_ids:
            ids.extend([""] * slots)
        return slots


def _masks(labels: Sequence[Sequence[str]]) -> dict[str, Bools]:
    result: dict[str, Bools] = {}
    for h, names in enumerate(labels):
        for name in names:
            result.setdefault(name, np.zeros(len(labels), dtype=np.bool_))[h] = True
    return result
