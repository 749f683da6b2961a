"""What every pool promises (windfall.pools.contract), held to by all kinds. A new kind is one more line in WORLDS."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.support.clouds import STEADY, Account, FakeCloud, emulated
from tests.support.sshd import sshd
from windfall.client import Client
from windfall.pools.command import CommandPool, CommandSettings
from windfall.pools.contract import ENDED, FAILED, RELEASED, RUNNING, Order, Pool, PoolError, Seen
from windfall.pools.kinds import Place, PoolConfig
from windfall.pools.local import LocalPool
from windfall.pools.ssh import SshPool, SshSettings
from windfall.server import embedded

EXAMPLES = Path(__file__).parents[2] / "examples" / "pools"
Open = Callable[[Place], Pool]


class World:
    """A server whose workers come from one provider. `pool(owner)` is the provider as one server sees it."""

    def __init__(self, open: Open, directory: Path, url: str, offer: bool = False) -> None:
        self._open, self._offer = open, offer
        token = directory / "state" / "token"
        self.place = Place(url, token, directory / "pool", owner="me")
        self._pools: list[Pool] = []

    def order(self, number: int) -> Order:
        return Order(f"p-{number}-1", 2, number, STEADY) if self._offer else Order(f"p-{number}-1", 2)

    def pool(self, **place: object) -> Pool:
        self._pools.append(self._open(msgspec.structs.replace(self.place, **place)))
        return self._pools[-1]

    def close(self) -> None:
        # First: a pool that is still open may start what another one has just ended.
        for pool in self._pools:
            pool.close()
        for owner in ("me", "somebody else"):
            last = self.pool(owner=owner)
            for row in rows(last):
                if row.host is not None and row.phase != ENDED:
                    until(lambda last=last, row=row: _firmly_ended(last, row.id))
            last.close()


def _firmly_ended(pool: Pool, id: str) -> bool:
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


# --- the providers --------------------------------------------------------------------------------------------------


@contextmanager
def local(directory: Path, url: str) -> Iterator[World]:
    yield World(lambda place: LocalPool("p", place), directory, url)


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
    yield World(lambda place: CommandPool(PoolConfig("p", settings=settings, base=directory), place), directory, url)


@contextmanager
def ssh(directory: Path, url: str) -> Iterator[World]:
    with sshd(directory / "sshd") as server:
        settings = SshSettings(
            ["node1", "node2"], 2, str(server.config), folder=str(server.home), python=sys.executable
        )
        yield World(lambda place: SshPool(PoolConfig("p", settings=settings), place), directory, url)


@contextmanager
def emulated_cloud(directory: Path, url: str) -> Iterator[World]:
    yield World(lambda place: emulated(directory / "cloud", place.owner), directory, url, offer=True)


@contextmanager
def fake(directory: Path, url: str) -> Iterator[World]:
    account = Account()
    yield World(lambda place: FakeCloud(account, place.owner), directory, url, offer=True)


WORKERS = {"local": local, "command": command, "ssh": ssh}
WORLDS = {**WORKERS, "emulated": emulated_cloud, "fake": fake}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("server")
    with embedded.start(directory / "state") as running:
        yield running, directory


@pytest.fixture(params=WORLDS)
def world(request, server, tmp_path):
    yield from _made(request.param, server, tmp_path)


@pytest.fixture(params=WORKERS)
def working(request, server, tmp_path):
    """Only kinds whose workers ask a server for work."""
    yield from _made(request.param, server, tmp_path)


def _made(kind: str, server, tmp_path: Path) -> Iterator[World]:
    running, directory = server
    (tmp_path / "state").mkdir()
    (tmp_path / "cloud").mkdir()
    shutil.copy(directory / "state" / "token", tmp_path / "state" / "token")
    with ExitStack() as stack:
        made = stack.enter_context(WORLDS[kind](tmp_path, running.url))
        stack.callback(made.close)
        made.hosts = lambda: _hosts(running)
        yield made


def _hosts(running) -> dict[str, dict]:
    with Client(running.url, running.token) as client:
        return {row["host"]: row for row in client.hosts() if row["state"] == "live"}


# --- all kinds ------------------------------------------------------------------------------------------------------


def test_an_order_becomes_a_worker_with_its_name(world):
    pool = world.pool()
    id = pool.start(world.order(1))
    assert isinstance(id, str)
    until(lambda: phase(pool, id) == RUNNING)
    assert [row.host for row in rows(pool)] == [world.order(1).host]


def test_what_is_ordered_twice_is_started_once(world):
    pool = world.pool()
    assert pool.start(world.order(2)) == pool.start(world.order(2))
    assert len(rows(pool)) == 1


def test_what_was_started_outlives_its_server_and_is_found_by_its_name(world):
    first = world.pool()
    id = first.start(world.order(3))
    until(lambda: phase(first, id) == RUNNING)
    first.close()
    second = world.pool()
    assert [(row.id, row.host, row.phase) for row in rows(second)] == [(id, world.order(3).host, RUNNING)]
    assert second.start(world.order(3)) == id and len(rows(second)) == 1


def test_one_that_is_stopped_ends_and_is_still_listed_and_is_not_started_again(world):
    pool = world.pool()
    id = pool.start(world.order(4))
    until(lambda: phase(pool, id) == RUNNING)
    pool.stop(id)
    until(lambda: _firmly_ended(pool, id))
    assert one(pool, id).cause == RELEASED
    assert pool.stop(id) is None and pool.stop("never-heard-of") is None
    assert pool.start(world.order(4)) == id and phase(pool, id) == ENDED


def test_what_somebody_else_has_started_is_not_ours(world):
    other = world.pool(owner="somebody else", directory=world.place.directory.with_name("theirs"))
    id = other.start(world.order(5))
    assert isinstance(id, str)
    mine = world.pool()
    assert [row for row in rows(mine) if row.host is not None] == []
    mine.stop(id)
    assert phase(other, id) != ENDED, "what is not ours is never touched"
    until(lambda: _firmly_ended(other, id))


def test_the_doctor_finds_nothing_wrong_with_a_pool_that_works(world):
    assert [check for check in world.pool().doctor() if check.error] == []


def test_a_pool_says_how_often_it_may_be_asked(world):
    assert world.pool().interval_s > 0


# --- kinds that start workers ---------------------------------------------------------------------------------------


def test_workers_come_under_the_names_of_their_orders_and_belong_to_the_pool(working):
    pool = working.pool()
    orders = [working.order(number) for number in (6, 7)]
    for order in orders:
        assert isinstance(pool.start(order), str)
    until(lambda: {order.host for order in orders} <= set(working.hosts()))
    seen = [working.hosts()[order.host] for order in orders]
    assert {(row["pool"], row["slots"]) for row in seen} == {("p", 2)}


def test_a_worker_that_cannot_work_ends_with_its_last_words(working, tmp_path):
    (tmp_path / "bad").write_text("two words")
    (tmp_path / "bad").write_text("wf_\N{SNOWMAN}")
    pool = working.pool(token_file=tmp_path / "bad")
    id = pool.start(working.order(8))
    until(lambda: phase(pool, id) == ENDED)
    assert "no usable token" in one(pool, id).about or one(pool, id).cause == FAILED


def test_the_token_is_in_a_file_of_the_owner_and_never_in_a_command_line(working, tmp_path):
    token = (tmp_path / "state" / "token").read_text().strip()
    pool = working.pool()
    id = pool.start(working.order(9))
    until(lambda: working.order(9).host in working.hosts())
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes())
        except OSError:
            continue
    assert not [line for line in lines if token.encode() in line]
    holding = [path for path in tmp_path.rglob("token") if path.is_file() and token in path.read_text()]
    assert {path.stat().st_mode & 0o077 for path in holding} == {0}
    pool.stop(id)


def test_a_pool_without_its_folder_says_so_instead_of_raising(working, tmp_path):
    answer = working.pool(directory=tmp_path / "state" / "token", token_file=tmp_path / "none").start(working.order(10))
    assert isinstance(answer, PoolError) and answer.error
