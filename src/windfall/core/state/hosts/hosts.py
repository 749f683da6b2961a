"""Hosts as the engine knows them: what they said of themselves, what they hold, how they behaved. Pure data."""

from __future__ import annotations

from collections import Counter, OrderedDict
from itertools import chain, islice
from math import inf
from typing import Any

from msgspec import Struct, field

from windfall.core.decisions import Assigned, Units
from windfall.core.events import Key
from windfall.core.state.hosts.reliability import CREDIT_PER_S, Reliability
from windfall.quick import quickly_set

LIVE, UNKNOWN, GONE, HIBERNATED = "live", "unknown", "gone", "hibernated"
"""`HIBERNATED`: its machine is hibernated, so its lease stands still."""
OF_SERVER = -1
"""The index of a unit that is counted for the whole server."""


@quickly_set
class Session(Struct, array_like=True, gc=False):
    """The exchange with one boot of a worker: the number of the last one, and what it was answered.

    What is seldom there is a tuple: the empty one is always the same, an empty list would be one more for each host.
    """

    boot: str = ""
    n: int = 0
    assigned: list[Assigned] = field(default_factory=list)
    cancelled: tuple[Key, ...] = ()
    to_cancel: list[Key] = field(default_factory=list)
    """Attempts that it is told to drop at its next exchange."""
    handed_back: tuple[Key, ...] = ()
    """What the last answer asked it to return if it had not begun."""
    to_hand_back: list[Key] = field(default_factory=list)
    """Attempts that it is told to return at its next exchange, if they have not begun."""
    asked_back: dict[Key, None] = field(default_factory=dict)
    """What it holds and was ever asked to return: asked once, because what stays has begun."""
    asked_back_t: float | None = None
    """When it was last asked to return something."""
    to_join: tuple[Assigned, ...] = ()
    """Its part of a task that takes several hosts, which it is given at its next exchange."""
    to_begin: tuple[Key, ...] = ()
    """Attempts that it is told to begin at its next exchange: every host of the task holds its own."""
    begun: tuple[Key, ...] = ()
    """What the last answer told it to begin."""
    to_recall: bool = False
    """At its next exchange it is told to save what it runs and to end."""

    @property
    def has_news(self) -> bool:
        """Whether it is to be told something at its next exchange."""
        return bool(self.to_cancel or self.to_hand_back or self.to_join or self.to_begin or self.to_recall)


@quickly_set
class Times(Struct, array_like=True, gc=False):
    """`seen_t` runs the lease and is renewed by a server that starts; `heard_t` is when the host really asked last."""

    joined_t: float
    seen_t: float
    heard_t: float
    ad_t: float
    ad_version: int = 0


class Access(Struct, array_like=True, frozen=True, gc=False):
    """What an operator has said about the host, and how it shows that it is this host.

    Not changed but replaced: hosts of which nothing is said share one, or it would be one more object for each that is
    in no cache when its host asks.
    """

    draining: bool = False
    blocked: str = ""
    blocked_until: float | None = None
    secret: str = ""
    """The hash of its secret; empty for a worker that has none."""

    def is_blocked(self, t: float) -> bool:
        return bool(self.blocked) and (self.blocked_until is None or t < self.blocked_until)


NOTHING_SAID = Access()
NO_UNITS: dict[Key, Units] = {}
"""Shared by hosts without units, like `NOTHING_SAID`, and never changed."""


@quickly_set
class Host(Struct, array_like=True, gc=False):
    """Where a worker runs. There may be tens of thousands: they are kept small."""

    number: int
    name: str
    times: Times
    state: str = LIVE
    left: str = ""
    """Why it said goodbye, or was given up."""
    ad: dict[str, Any] = field(default_factory=dict)
    pool: str = "default"
    slots: int = 1
    memory_bytes: int = 0
    memory_held: int = 0
    held: dict[Key, None] = field(default_factory=dict)
    session: Session = field(default_factory=Session)
    access: Access = NOTHING_SAID
    record: Reliability = field(default_factory=Reliability)
    units: dict[Key, Units] = field(default_factory=lambda: NO_UNITS)
    """Units of resources that attempts have here: until the worker says that they have ended, or it has ended itself.

    An attempt that is cancelled or given up keeps its units until then, so that nobody else gets them meanwhile.
    """
    gang: Key | None = None
    """The attempt that has the whole host, as one of several or alone."""

    @property
    def resources(self) -> dict[str, int]:
        """How many units of each resource it has."""
        return self.ad.get("resources") or {}

    @property
    def owner(self) -> str:
        """The volunteer to whom it belongs; empty: it is trusted. In older logs a worker may have said anything."""
        owner = self.ad.get("owner")
        return owner if isinstance(owner, str) else ""

    @property
    def has_containers(self) -> bool:
        """Whether it has an engine for containers."""
        return bool(self.ad.get("containers"))

    @property
    def may_return(self) -> bool:
        """Whether it holds attempts that it has not begun and was never asked to return. Volunteers are not asked."""
        ahead, asked = len(self.held) - self.slots, self.session.asked_back
        if ahead <= 0 or self.state != LIVE or self.owner:
            return False
        return not asked or any(key not in asked for key in islice(reversed(self.held), ahead))

    def holding(self, told: list[Key]) -> frozenset[Key]:
        """What it holds: what it says, and its part of a task of several hosts that it has not been given yet."""
        return frozenset([*told, *((piece.job, piece.first, piece.attempt) for piece in self.session.to_join)])

    @classmethod
    def new(cls, number: int, name: str, t: float) -> Host:
        return cls(number, name, Times(t, t, t, t))

    def describe(self, ad: dict[str, Any] | None, slots: int, t: float) -> None:
        """Take over what the host says of itself; without an ad, only how many slots it has."""
        if ad is not None:
            self.ad, self.pool = ad, pool_of(ad)
            self.times.ad_version += 1
            self.times.ad_t = t
            self.memory_bytes = int(ad.get("memory_mb") or 0) * 1024 * 1024
        self.slots = slots


def pool_of(ad: dict[str, Any]) -> str:
    """The pool that a host belongs to, by what it says of itself."""
    return str(ad.get("pool") or "default")


class ToTell(dict[int, None]):
    """Hosts by number, and how often one was set or popped: a driver looks at them only when this has changed."""

    __slots__ = ("changes",)

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0

    def __setitem__(self, number: int, value: None) -> None:
        self.changes += 1
        super().__setitem__(number, value)

    def pop(self, number: int, default: Any = None) -> Any:
        self.changes += 1
        return super().pop(number, default)


class ForgottenHosts(Struct, array_like=True, gc=False):
    """What forgotten hosts have done together."""

    hosts: int = 0
    done: int = 0
    failed: int = 0
    lost: int = 0
    results: int = 0
    """Of volunteers: results that were accepted, or agreed with the one that was."""
    granted_s: float = 0.0
    """Of volunteers: processor seconds that were credited."""

    @property
    def credit(self) -> float:
        return self.granted_s * CREDIT_PER_S

    def add(self, record: Reliability) -> None:
        self.hosts += 1
        self.done += record.done
        self.failed += record.failed
        self.lost += record.lost
        self.results += record.results
        self.granted_s += record.granted_s


class SavedHosts(Struct, array_like=True):
    hosts: list[Host]
    live: list[int]
    unknown: list[int]
    next: int
    forgotten: dict[str, ForgottenHosts] = {}
    forgotten_by_owner: dict[str, ForgottenHosts] = {}


class Hosts(dict[int, Host]):
    """All hosts by number, and the order in which they fell silent."""

    __slots__ = (
        "bundled",
        "by_name",
        "by_pool",
        "forget_beyond",
        "forget_t",
        "forgotten",
        "forgotten_by_owner",
        "live",
        "live_slots",
        "next",
        "sharing",
        "to_tell",
        "unknown",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.next = 1
        self.by_name: dict[str, Host] = {}
        self.live: OrderedDict[int, None] = OrderedDict()
        self.unknown: OrderedDict[int, None] = OrderedDict()
        """Both with the longest silent first, so that a look at the clock costs only what it finds."""
        self.live_slots = 0
        self.by_pool: Counter[str] = Counter()
        """Hosts that are there (live, or silent and not yet lost) by the name of their pool, configured or not."""
        self.to_tell = ToTell()
        """Hosts with something to cancel or to return: a driver wakes them if they wait for an answer."""
        self.bundled: dict[int, None] = {}
        """Live hosts with attempts that they have not begun and may be asked to return (`Host.may_return`)."""
        self.sharing: dict[int, None] = {}
        """Hosts with attempts that have something of what is counted for the whole server."""
        self.forget_t = inf
        """When to look for hosts to forget."""
        self.forget_beyond = 0
        """Look at once if more hosts than this have left, and more than are kept."""
        self.forgotten: dict[str, ForgottenHosts] = {}
        """By pool; those of too many pools are under the empty name."""
        self.forgotten_by_owner: dict[str, ForgottenHosts] = {}
        """By owner, of volunteers whose forgotten hosts have done something."""

    @property
    def away(self) -> int:
        """Hosts that have left, or whose machines hibernate."""
        return len(self) - len(self.live) - len(self.unknown)

    def forget(self, number: int, pool: str, owner: str | None) -> None:
        """Drop a host that has left, and add its record to the sums of this pool and this owner."""
        host = self.pop(number)
        del self.by_name[host.name]
        for book in (self.bundled, self.sharing, self.to_tell):
            book.pop(number, None)
        self.forgotten.setdefault(pool, ForgottenHosts()).add(host.record)
        if owner is not None:
            self.forgotten_by_owner.setdefault(owner, ForgottenHosts()).add(host.record)

    def add(self, host: Host) -> None:
        self[host.number] = host
        self.by_name[host.name] = host
        self.next = max(self.next, host.number + 1)

    def note_held(self, host: Host) -> None:
        """Keep `bundled` true to what the host holds and was asked for."""
        if host.may_return:
            self.bundled[host.number] = None
        else:
            self.bundled.pop(host.number, None)

    def give_units(self, host: Host, key: Key, units: Units) -> None:
        host.units = {**host.units, key: units}
        self._note_sharing(host)

    def free_units(self, host: Host, key: Key) -> None:
        """The attempt has ended there."""
        if host.units.pop(key, None) is not None:
            self._note_sharing(host)

    def free_all_units(self, host: Host, except_: frozenset[Key] = frozenset()) -> None:
        """The host runs none of what it was given, except these."""
        if host.units:
            host.units = {key: units for key, units in host.units.items() if key in except_}
            self._note_sharing(host)

    def _note_sharing(self, host: Host) -> None:
        if any(index == OF_SERVER for units in host.units.values() for _, index, _ in units):
            self.sharing[host.number] = None
        else:
            self.sharing.pop(host.number, None)

    def shared(self) -> Counter[str]:
        """Thousandths of what is counted for the whole server that attempts have.

        Attempts of a host that was given up do not count: whether they run is not known, and may never be.
        """
        found: Counter[str] = Counter()
        for number in self.sharing:
            host = self[number]
            if host.state != GONE:
                for name, index, amount in chain.from_iterable(host.units.values()):
                    found[name] += amount if index == OF_SERVER else 0
        return found

    def count_in_pool(self, pool: str, change: int) -> None:
        """A host of a pool came (1) or went (-1)."""
        self.by_pool[pool] += change
        if not self.by_pool[pool]:
            del self.by_pool[pool]

    def others_there(self, host: Host, t: float, lease_s: float) -> bool:
        """Whether another host could take a task over. A host may have vanished although its lease still runs."""
        for number in reversed(self.live):
            if number != host.number:
                other = self[number]
                return other.times.heard_t > t - lease_s / 2 or bool(other.owner)
        return False

    def saved(self) -> SavedHosts:
        return SavedHosts(
            list(self.values()), list(self.live), list(self.unknown), self.next,
            self.forgotten, self.forgotten_by_owner,
        )  # fmt: skip

    def restore(self, saved: SavedHosts) -> None:
        for host in saved.hosts:
            self.add(host)
            if host.access == NOTHING_SAID:
                host.access = NOTHING_SAID
            host.units = host.units or NO_UNITS
            if host.state == LIVE:
                self.live_slots += host.slots
            if host.state != GONE:
                self.count_in_pool(host.pool, 1)
            self.note_held(host)
            if host.units:
                self._note_sharing(host)
            if host.session.has_news:
                self.to_tell[host.number] = None
        self.live = OrderedDict.fromkeys(saved.live)
        self.unknown = OrderedDict.fromkeys(saved.unknown)
        self.next = saved.next
        # Not saved: a server that starts looks at once. What is due when follows from heartbeats, which the log loses.
        self.forget_t, self.forget_beyond = 0.0 if self.away else inf, 0
        self.forgotten, self.forgotten_by_owner = dict(saved.forgotten), dict(saved.forgotten_by_owner)
