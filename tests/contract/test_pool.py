"""What every pool promises (windfall.pools.contract). How a new kind joins: tests/support/pools/pool_worlds.py."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.pools.pool_worlds import World, firmly_ended, kinds_of_pools, one, phase, rows, until
from windfall.client import Client
from windfall.pools.contract import ENDED, FAILED, KINDS_OF_ERROR, RELEASED, RUNNING, PoolError, gap_s
from windfall.server import embedded

KINDS = kinds_of_pools()


def _params(works: bool) -> list:
    return [pytest.param(name, marks=kind.marks) for name, kind in KINDS.items() if kind.works or not works]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("server")
    with embedded.start(directory / "state") as running:
        yield running, directory


@pytest.fixture(params=_params(works=False))
def world(request, server, tmp_path):
    yield from _made(request.param, server, tmp_path)


@pytest.fixture(params=_params(works=True))
def working(request, server, tmp_path):
    """Only kinds whose workers ask a server for work."""
    yield from _made(request.param, server, tmp_path)


def _made(kind: str, server, tmp_path: Path) -> Iterator[World]:
    running, directory = server
    (tmp_path / "state").mkdir()
    shutil.copy(directory / "state" / "token", tmp_path / "state" / "token")
    with ExitStack() as stack:
        made = stack.enter_context(KINDS[kind].world(tmp_path, running.url))
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
    until(lambda: firmly_ended(pool, id))
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
    until(lambda: firmly_ended(other, id))


def test_the_doctor_finds_nothing_wrong_with_a_pool_that_works(world):
    assert [check for check in world.pool().doctor() if check.error] == []


def test_a_pool_says_how_often_it_may_be_asked(world):
    pool = world.pool()
    assert pool.interval_s > 0 and gap_s(pool) >= 0


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


def test_a_worker_that_cannot_reach_its_server_ends_and_its_machine_with_it(working):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{probe.getsockname()[1]}"
    pool = working.pool({"unreachable_exit": "5s"}, url=nowhere)
    id = pool.start(working.order(11))
    until(lambda: phase(pool, id) == RUNNING)
    until(lambda: phase(pool, id) == ENDED)
    assert "cannot be reached" in one(pool, id).about


def test_many_are_listed_whole_each_once(world):
    """A provider may answer in pages: the list is the truth only if it is all of them."""
    pool = world.pool()
    started = {pool.start(world.order(number)) for number in range(20, 23)}
    errors = {answer for answer in started if isinstance(answer, PoolError)}
    assert all(error.kind in KINDS_OF_ERROR and error.error for error in errors)
    listed = [row.id for row in rows(pool) if row.host is not None]
    assert sorted(listed) == sorted(started - errors)
