"""Kinds of pools and their registry: the entry points of group `windfall.pools`. Touches the installed packages only.

A kind is one module with a `Kind`. Another package adds one by an entry point of its own; nothing else names it.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from windfall.core.state.hosts.pools import PoolRules
from windfall.errors import BadInput
from windfall.planning.offers import Offer
from windfall.pools.contract import Pool
from windfall.pools.starting.secrets import narrowed, ticket
from windfall.units import parse_duration

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from windfall.api.about import FrontAnswer, FrontVolunteer

GROUP = "windfall.pools"
WORKERS, MACHINES, INSTANCES, NOTHING = "workers", "machines", "instances", "nothing"
"""What a kind gives: workers when tasks wait, machines for plans, instances of a site, or nothing (workers come)."""


class Place(Struct, frozen=True):
    """Where workers find the server, and the folder for the pool's files."""

    url: str
    token_file: Path
    """Holds a token that lets a worker join this pool; readable by its owner only. The server renews it there: read it
    at every start."""
    directory: Path
    cafile: str = ""
    owner: str = ""
    """Id of the state: marks what this server has ordered."""
    outside_url: str = ""
    """The server as other hosts see it; empty if only this host reaches it."""

    def token_for(self, host: str) -> str:
        """The token of now, good for this host alone: what a worker beyond this machine is given. Raises OSError."""
        return narrowed(self.token_file.read_text(), host)

    def ticket_for(self, host: str) -> str:
        """The same for a place that tasks can read (user data, a mounted file): good for one enrolment of this host.

        The worker has to show a secret that no task can read (`--server -`). Raises OSError.
        """
        return ticket(self.token_file.read_text(), host)


class NoSettings(Struct, forbid_unknown_fields=True):
    """A kind without fields of its own."""


class PoolConfig(Struct):
    """One [[pool]] of a pools.toml: the fields that every kind has, and those of its kind in `settings`."""

    name: str
    kind: str = "local"
    limit: int | None = None
    """Most workers or machines; None: the kind's default."""
    slots: int = 1
    price: float = 0.0
    """Dollars per hour of one worker."""
    per_minute: float = 60.0
    idle_exit: str | float | None = None
    """Time without work after which a worker ends; None: the kind's default."""
    backlog: int | None = None
    """Most workers that may be pending at once; None: the kind's default, 0: no such limit."""
    least_slots: int | None = None
    """A worker may have fewer slots if less work waits, down to this; None: the kind's default, 0: all are alike."""
    unreachable_exit: str | float | None = None
    """Time without its server after which a worker ends, and its machine with it; None: the kind's default."""
    token_life: str | float | None = None
    """Time for which a token of its workers is good; renewed while they ask for work. None: the kind's default."""
    least_cpu: float | None = None
    """A worker ends when its tasks get less than this share of the processor time that they ask for; None: never."""
    settings: Any = None
    base: Path = Path()
    """Folder of the file: paths in it are relative to this folder."""

    @property
    def of(self) -> Kind:
        return kind_named(self.kind)

    @property
    def most(self) -> int:
        return self.of.limit if self.limit is None else self.limit

    @property
    def idle_exit_s(self) -> float:
        return parse_duration(self.of.idle_exit if self.idle_exit is None else self.idle_exit, "idle_exit")

    @property
    def unreachable_exit_s(self) -> float:
        given = self.of.unreachable_exit if self.unreachable_exit is None else self.unreachable_exit
        return parse_duration(given, "unreachable_exit")

    @property
    def token_life_s(self) -> float:
        return parse_duration(self.of.token_life if self.token_life is None else self.token_life, "token_life")

    @property
    def rules(self) -> PoolRules:
        joins_itself = self.of.gives == NOTHING
        backlog = self.of.backlog if self.backlog is None else self.backlog
        least_slots = self.of.least_slots if self.least_slots is None else self.least_slots
        return PoolRules(
            self.name, self.kind, self.most, self.slots, float(self.price), float(self.per_minute), joins_itself,
            backlog, min(least_slots, self.slots), *self.of.deadlines_s(self),
        )  # fmt: skip


def _no_check(pool: PoolConfig, where: str) -> None:
    pass


def _no_deadlines(pool: PoolConfig) -> tuple[float, float]:
    return 0.0, 0.0


class Front(Protocol):
    """An application below a path of the server's address."""

    path: str
    validators: dict[str, str]
    """Commands that judge results, by the names that jobs say."""
    pool: str

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...

    async def administer(self, what: str, body: Any) -> FrontAnswer:
        """Do what an operator says."""
        ...

    async def fingerprint(self, validator: str, stdout: bytes, files: list[tuple[str, str]]) -> str:
        """What a validator prints for a result of a trusted host, to compare with volunteers'; empty if nothing."""
        ...

    def volunteers(self) -> list[FrontVolunteer]:
        """Everybody who lends hosts: `account`, `name` (empty unless they agreed), `hosts`, `done`, `credit`."""
        ...


class Kind(Struct, frozen=True):
    """How pools of one kind are read, checked and opened."""

    gives: str
    settings: type[Struct] = NoSettings
    open: Callable[[PoolConfig, Place], Pool] | None = None
    """None if the server itself brings the workers, or nobody does."""
    check: Callable[[PoolConfig, str], None] = _no_check
    """BadInput says what is wrong with the settings; `where` names file and pool."""
    limit: int = 1
    idle_exit: str = "1m"
    backlog: int = 0
    least_slots: int = 0
    unreachable_exit: str = "1h"
    token_life: str = "1h"
    """Where workers may wait longer before they begin, a longer one, or `shipped.renew_token` while they wait."""
    deadlines_s: Callable[[PoolConfig], tuple[float, float]] = _no_deadlines
    """Of volunteers: how long an attempt may take while nothing was learned, and at least, in seconds."""
    front: Callable[[PoolConfig, Place, object], Front] | None = None
    """Makes the application that its hosts talk to in a protocol of their own; gets the service of the server."""
    offers: Callable[[PoolConfig], tuple[Offer, ...]] | None = None
    """What a pool that gives machines rents now, without opening it; BadInput says why that is not known."""


@cache
def _entries() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # only where a pool is named: a server without pools starts sooner

    return {entry.name: entry for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name)}


def kind_names() -> tuple[str, ...]:
    return tuple(_entries())


@cache
def kind_named(name: str) -> Kind:
    """The kind; BadInput if there is none of this name, or if it cannot be loaded."""
    entry = _entries().get(name)
    if entry is None:
        near = get_close_matches(name, kind_names(), n=1)
        hint = f'did you mean kind = "{near[0]}"?' if near else f"the kinds are: {', '.join(kind_names())}"
        if not kind_names():
            hint = "no kind is registered: install the package again (make .venv/.installed, or pip install)"
        raise BadInput(f"there is no kind '{name}'", hint=hint)
    try:
        kind = entry.load()
    except Exception as error:
        raise BadInput(f"kind '{name}' cannot be loaded: {error}", hint=f"it comes from {entry.value}") from None
    if not isinstance(kind, Kind):
        raise BadInput(f"kind '{name}' is not a windfall.pools.kinds.Kind", hint=f"it comes from {entry.value}")
    return kind


def kinds_with_field(field: str) -> list[str]:
    """Kinds whose settings have such a field."""
    found = []
    for name in kind_names():
        try:
            if field in kind_named(name).settings.__struct_fields__:
                found.append(name)
        except BadInput:
            continue
    return found
