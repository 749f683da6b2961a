"""Exchanges that wait for tasks while their worker ends, and how often busy workers ask."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.server.asgi import InProcess
from windfall.core.events import HostsEnded
from windfall.core.state.hosts.hosts import GONE
from windfall.server.http.workers import exchange
from windfall.wire import OLDEST, frames


@pytest.fixture
def server(tmp_path):
    with InProcess(tmp_path) as made:
        yield made


def test_a_worker_that_its_pool_shows_as_ended_gets_no_task_by_the_request_that_it_left_open(server):
    state, driver = server.driver.state, server.driver
    header = {"v": OLDEST, "host": "h", "boot": "b", "n": 1, "want": 1, "slots": 1, "ad": {}, "wait_s": 20.0}
    body = frames.join(json.dumps(header).encode(), [])

    async def ends_while_it_waits():
        asked = asyncio.ensure_future(server.acall("POST", "/v1/exchange", body))
        while "h" not in state.hosts.by_name:
            await asyncio.sleep(0.01)
        await driver.submit([HostsEnded(driver.clock(), state.host("h").pool, [("h", "its machine was ended")])])
        spec = {"name": "bag", "command": ["echo", "{}"], "source": {"kind": "range", "first": 1, "last": 3}}
        submitted = json.dumps({"spec": spec, "count": 3, "seal": True}).encode()
        assert (await server.acall("POST", "/v1/jobs", submitted))[0] == 201
        return await asked

    status, answer = server.run(ends_while_it_waits())
    assert status == 200 and json.loads(bytes(frames.split(answer)[0]))["tasks"] == []
    assert state.host("h").state == GONE and not state.host("h").held
    assert len(server.exchange(n=2, ad={})[1]["tasks"]) == 1, "a worker that was taken for ended comes back by itself"
    server.check()


def test_a_host_that_is_woken_for_nothing_waits_on_and_hears_of_the_task_that_comes_next(server):
    driver = server.driver
    header = {"v": OLDEST, "host": "h", "boot": "b", "n": 1, "want": 1, "slots": 1, "ad": {}, "wait_s": 20.0}
    body = frames.join(json.dumps(header).encode(), [])
    spec = {"name": "bag", "command": ["echo", "{}"], "source": {"kind": "range", "first": 1, "last": 1}}
    elsewhere = {"policies": {"JobRequirements": 'Host.Pool == "elsewhere"'}}

    async def submit(**more):
        said = json.dumps({"spec": spec | more, "count": 1, "seal": True}).encode()
        assert (await server.acall("POST", "/v1/jobs", said))[0] == 201

    async def woken_twice():
        asked = asyncio.ensure_future(server.acall("POST", "/v1/exchange", body))
        while "h" not in driver.state.hosts.by_name:
            await asyncio.sleep(0)
        await submit(**elsewhere)
        assert not asked.done(), "there was nothing for it"
        await submit()
        return await asked

    status, answer = server.run(woken_twice())
    assert status == 200 and [row[0] for row in json.loads(bytes(frames.split(answer)[0]))["tasks"]] == [2]
    server.check()


def test_busy_workers_of_a_server_with_many_hosts_are_told_to_ask_more_seldom(server, monkeypatch):
    """25,000 workers that ask once a second leave a server no time for anything else."""
    monkeypatch.setattr(exchange, "BUSY_ASKS_PER_S", 2)
    assert ["busy_s" in server.exchange(f"h{number}")[1] for number in range(2)] == [False, False]
    assert [server.exchange(f"h{number}")[1]["busy_s"] for number in range(2, 5)] == [1.5, 2.0, 2.5]


def test_an_error_while_looking_for_hosts_to_wake_neither_stops_commits_nor_the_server(server, monkeypatch, caplog):
    def fails(*_):
        raise KeyError("a host")

    server.exchange("h")
    server.service.idle.begin("h", 0, 0.0)
    monkeypatch.setattr(server.service.idle, "look", fails)
    server.submit(3)
    server.check()
    assert server.exchange("other")[1]["tasks"]
    assert "hosts that wait for work could not be looked at" in caplog.text
