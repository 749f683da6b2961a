"""The kinds of pools as the contract suite sees them. A new kind registers a world, here or in a module of its own.

    @kind_of_pool("mine")
    @contextmanager
    def mine(directory: Path, url: str) -> Iterator[World]:
        open = lambda place, **fields: MyPool(PoolConfig("p", "mine", settings=..., **fields), place)
        yield World(open, directory, url)

`directory` is empty and of this test alone; `url` is a server that runs. `fields` are those that every pool has, as
`unreachable_exit`. A world of another module is found if that module stands in MODULES.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tests.support.clouds.misbehaving import MOODS, KeptPool, MisbehavingCloud
from tests.support.clouds.providers import STEADY, Account, FakeCloud, emulated
from tests.support.pools.sshd import sshd
from windfall.planning.offers import Offer
from windfall.pools.command import CommandPool, CommandSettings
from windfall.pools.contract import ENDED, Order, Pool, PoolError, Seen
from windfall.pools.kinds import Place, PoolConfig
from windfall.pools.local import LocalPool
from windfall.pools.ssh.pool import SshPool, SshSettings

EXAMPLES = Path(__file__).parents[3] / "examples" / "pools"
MODULES: tuple[str, ...] = (
    "tests.support.pools.slurm",
    "tests.support.ec2.world",
    "tests.support.pools.kubernetes_world",
    "tests.support.openstack.world",
)
"""Modules that register worlds of their own."""
Open = Callable[..., Pool]
Hosts = dict[str, dict[str, Any]]


class World:
    """A server whose workers come from one provider. `pool(owner=...)` is the provider as one server sees it."""

    def __init__(self, open: Open, directory: Path, url: str, offer: Offer | None = None) -> None:
        self._open, self._offer = open, offer
        token = directory / "state" / "token"
        self.place = Place(url, token, directory / "pool", owner="me")
        self._pools: list[Pool] = []
        self.hosts: Callable[[], Hosts] = dict
        """Live hosts of the server, by name."""

    def order(self, number: int) -> Order:
        if self._offer is None:
            return Order(f"p-{number}-1", 2)
        return Order(f"p-{number}-1", 2, number, self._offer)

    def pool(self, fields: dict[str, Any] | None = None, **place: object) -> Pool:
        self._pools.append(self._open(msgspec.structs.replace(self.place, **place), **(fields or {})))
        return self._pools[-1]

    def close(self) -> None:
        # First: a pool that is still open may start what another one has just ended.
        for pool in self._pools:
            pool.close()
        for owner in ("me", "somebody else"):
            last = self.pool(owner=owner)
            for row in rows(last):
                if row.host is not None and row.phase != ENDED:
                    until(lambda last=last, row=row: firmly_ended(last, row.id))  # type: ignore[misc]
            last.close()


class KindOfPool(Struct, frozen=True):
    """How a world is made, and which parts of the suite it takes part in."""

    world: Callable[[Path, str], AbstractContextManager[World]]
    works: bool = True
    """Its workers ask a server for work."""
    marks: tuple[Any, ...] = ()
    """Marks of pytest, as for a component that is not always there."""


KINDS: dict[str, KindOfPool] = {}


def kind_of_pool(name: str, works: bool = True, marks: tuple[Any, ...] = ()) -> Callable[[Any], Any]:
    """Have the contract suite run against this world."""

    def registered(world: Any) -> Any:
        KINDS[name] = KindOfPool(world, works, marks)
        return world

    return registered


def kinds_of_pools() -> dict[str, KindOfPool]:
    for module in MODULES:
        importlib.import_module(module)
    return KINDS


# --- what tests ask of a pool ---------------------------------------------------------------------------------------


def firmly_ended(pool: Pool, id: str) -> bool:
    pool.stop(id)
    return phase(pool, id) == ENDED


def rows(pool: Pool) -> list[Seen]:
    found = pool.list()
    assert not isinstance(found, PoolError), found
    return found


def phase(pool: Pool, id: str) -> str:
    return next((row.phase for row in rows(pool) if row.id == id), ENDED)


def one(pool: Pool, id: str) -> Seen:
    return next(row for row in rows(pool) if row.id == id)


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.1)


# --- the kinds ------------------------------------------------------------------------------------------------------


@kind_of_pool("local")
@contextmanager
def local(directory: Path, url: str) -> Iterator[World]:
    yield World(lambda place, **fields: LocalPool(PoolConfig("p", **fields), place), directory, url)


@kind_of_pool("command")
@contextmanager
def command(directory: Path, url: str) -> Iterator[World]:
    shutil.copy(EXAMPLES / "processes" / "pool.py", directory / "pool.py")
    script = (directory / "pool.py").read_text()
    assert "KEPT = " in script
    kept = [f"KEPT = pathlib.Path({str(directory / 'kept')!r})" if line.startswith("KEPT = ") else line
            for line in script.splitlines()]  # fmt: skip
    (directory / "pool.py").write_text("\n".join(kept))
    call = [sys.executable, "pool.py"]
    settings = CommandSettings([*call, "start"], [*call, "list"], [*call, "stop"], python=sys.executable, appears="0s")

    def open_(place: Place, **fields: Any) -> CommandPool:
        return CommandPool(PoolConfig("p", "command", settings=settings, base=directory, **fields), place)

    yield World(open_, directory, url)


@kind_of_pool("ssh")
@contextmanager
def ssh(directory: Path, url: str) -> Iterator[World]:
    with sshd(directory / "sshd") as server:
        settings = SshSettings(
            ["node1", "node2"], 2, str(server.config), folder=str(server.home), python=sys.executable
        )
        yield World(
            lambda place, **fields: SshPool(PoolConfig("p", "ssh", settings=settings, **fields), place), directory, url
        )


@kind_of_pool("emulated", works=False)
@contextmanager
def emulated_cloud(directory: Path, url: str) -> Iterator[World]:
    (directory / "cloud").mkdir()
    yield World(lambda place: emulated(directory / "cloud", place.owner), directory, url, STEADY)


@kind_of_pool("fake", works=False)
@contextmanager
def fake(directory: Path, url: str) -> Iterator[World]:
    account = Account()
    yield World(lambda place: FakeCloud(account, place.owner), directory, url, STEADY)


def misbehaving(moods: tuple[str, ...]) -> Callable[[Path, str], AbstractContextManager[World]]:
    """The fake as its keeper sees it, in these moods."""

    @contextmanager
    def made(directory: Path, url: str) -> Iterator[World]:
        account = Account()

        def open_(place: Place) -> KeptPool:
            return KeptPool(MisbehavingCloud(account, place.owner, moods))

        world = World(open_, directory, url, STEADY)
        yield world
        world.close()
        left = [id for id, (_, _, seen) in account.machines.items() if seen.phase != ENDED]
        assert left == [], "something is left behind"

    return made


for _mood in MOODS:
    kind_of_pool(f"fake that {_mood}", works=False)(misbehaving((_mood,)))
kind_of_pool("fake in every mood", works=False)(misbehaving(MOODS))
