"""What every pool promises (windfall.pools.contract). A new provider is one more line in PROVIDERS."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from windfall.client import Client
from windfall.pools.contract import Pool
from windfall.pools.local import LocalPool, Place
from windfall.server import embedded

Make = Callable[[Place, float], Pool]
PROVIDERS: dict[str, Make] = {"local": lambda place, idle_exit_s: LocalPool("p", 2, place, idle_exit_s)}


class World:
    """A server, and pools that find it."""

    def __init__(self, make: Make, directory: Path) -> None:
        self.server = embedded.start(directory / "state")
        self.client = Client(self.server.url, self.server.token)
        self.place = Place(self.server.url, directory / "state" / "token", directory / "clients")
        self._make = make
        self._pools: list[Pool] = []

    def pool(self, idle_exit_s: float = 60.0, **place: object) -> Pool:
        import msgspec

        self._pools.append(self._make(msgspec.structs.replace(self.place, **place), idle_exit_s))
        return self._pools[-1]

    def live(self) -> dict[str, dict]:
        return {row["host"]: row for row in self.client.hosts() if row["state"] == "live"}

    def close(self) -> None:
        for pool in self._pools:
            pool.stop()
        self.client.close()
        self.server.stop()


@pytest.fixture(params=PROVIDERS)
def world(request, tmp_path):
    made = World(PROVIDERS[request.param], tmp_path)
    yield made
    made.close()


def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


def test_clients_come_under_the_names_that_were_told_and_belong_to_the_pool(world):
    started = world.pool().start(2)
    assert len(started.hosts) == 2 and not started.error
    until(lambda: set(started.hosts) <= set(world.live()))
    assert {world.live()[host]["pool"] for host in started.hosts} == {"p"}
    assert {world.live()[host]["slots"] for host in started.hosts} == {2}


def test_a_client_is_listed_while_it_lives_and_once_after_its_end(world):
    pool = world.pool(idle_exit_s=1.0)
    (host,) = pool.start(1).hosts
    assert [(client.host, client.alive) for client in pool.list()] == [(host, True)]
    ended = []
    until(lambda: ended.extend(client for client in pool.list() if not client.alive) or ended)
    assert [(client.host, client.error) for client in ended] == [(host, "")], "it left for want of work, in good order"
    assert pool.list() == []


def test_stopping_ends_every_client_and_may_be_done_twice(world):
    pool = world.pool()
    hosts = pool.start(2).hosts
    until(lambda: set(hosts) <= set(world.live()))
    pool.stop()
    pool.stop()
    assert pool.list() == []
    until(lambda: not world.live())


def test_names_are_never_used_twice(world):
    pool = world.pool()
    first = pool.start(1).hosts
    pool.stop()
    assert set(first).isdisjoint(pool.start(1).hosts)
    assert set(first).isdisjoint(world.pool().start(1).hosts)


def test_a_client_that_cannot_work_ends_with_a_reason(world, tmp_path):
    pool = world.pool(token_file=tmp_path / "nothing")
    pool.start(1)
    ended = []
    until(lambda: ended.extend(client for client in pool.list() if not client.alive) or ended)
    assert "nothing" in ended[0].error and "exit code 2" in ended[0].error


def test_a_client_that_is_killed_is_named_with_the_signal(world):
    pool = world.pool()
    (host,) = pool.start(1).hosts
    for process in pool._processes.values():
        os.kill(process.pid, signal.SIGKILL)
    ended = []
    until(lambda: ended.extend(client for client in pool.list() if not client.alive) or ended)
    assert host in ended[0].error and "SIGKILL" in ended[0].error


def test_a_host_that_can_start_nothing_says_so_instead_of_failing(world, tmp_path):
    (tmp_path / "file").write_text("")
    started = world.pool(directory=tmp_path / "file").start(3)
    assert started.hosts == [] and "cannot be started" in started.error
