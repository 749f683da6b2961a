"""A standby follows a server, takes over when that is silent, and the server before can commit nothing more."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.engine.virtual_loop import run_virtually
from windfall.core.engine import Engine
from windfall.core.events import JobRules, JobSubmitted, Settings, TaskClass, TasksAdded
from windfall.core.state.snapshot import save
from windfall.drivers.failures import Uncommitted
from windfall.drivers.following import LET_GO_S, Following, StandsBy
from windfall.drivers.realtime import Realtime
from windfall.store.contract import Holder, StoreError
from windfall.store.memory import MemoryStore


class Watched(MemoryStore):
    """Says who holds it as told; cannot be read while `away`."""

    process = "process 1"
    away = False

    def holder(self) -> Holder:
        if self.away:
            raise StoreError("away")
        return super().holder()._replace(process=self.process)


def driver(store, kind=Realtime):
    return kind(store, Engine(), Settings())


def submitted(made):
    now = made.clock()
    return [JobSubmitted(now, JobRules("bag"), [TaskClass()]), TasksAdded(now, made.state.bags.next, 3)]


async def served(store):
    made = driver(store)
    made.restore()
    await made.start()
    return made


async def followed(store):
    made = driver(store, Following)
    made.restore()
    return made


def test_a_standby_has_the_state_of_its_server_and_takes_nothing_on():
    async def story():
        store = Watched()
        first = await served(store)
        standby = await followed(store)
        told = []
        standby.on_commit.append(told.extend)
        following = asyncio.create_task(standby.until_silent(100.0, forces=True))
        for _ in range(3):
            await first.submit(submitted(first))
            await asyncio.sleep(1.0)
        assert save(standby.state) == save(first.state)
        assert [record.seq for record in told] == list(range(2, first.state.seq + 1))
        with pytest.raises(StandsBy, match="standby"):
            standby.submit(submitted(standby))
        following.cancel()
        await first.stop()

    run_virtually(story())


def test_signs_of_life_keep_an_idle_server_and_silence_ends_it():
    async def story():
        store = Watched()
        first = await served(store)
        beating = first.background(first.beat("http://first"), "the signs of life")
        standby = await followed(store)
        following = asyncio.create_task(standby.until_silent(5.0, forces=True))
        await asyncio.sleep(60.0)
        assert not following.done() and standby.leader.url == "http://first"
        beating.cancel()
        began = asyncio.get_running_loop().time()
        await following
        assert 3.9 <= asyncio.get_running_loop().time() - began <= 6.0
        second = driver(store.taken_over())
        second.go_on_from(standby)
        await second.start()
        await second.submit(submitted(second))
        with pytest.raises(Uncommitted):
            await first.submit(submitted(first))
        assert first.fenced and "taken this state over" in first.failure.message
        assert save(second.state) == save(restored(store).state)
        await first.stop()
        await second.stop()

    run_virtually(story())


def restored(store):
    made = driver(store)
    made.restore()
    return made


def test_a_server_that_is_fenced_while_it_is_idle_notices_it():
    async def story():
        store = Watched()
        first = await served(store)
        first.background(first.beat("http://first"), "the signs of life")
        store.taken_over()
        await asyncio.sleep(3.0)
        assert first.fenced and first.failure is not None
        await first.stop()

    run_virtually(story())


@pytest.mark.parametrize("forces", [False, True])
def test_a_store_that_is_let_go_is_taken_after_a_second_and_not_at_once(forces):
    async def story():
        store = Watched()
        first = await served(store)
        await first.stop()
        standby = await followed(store)
        following = asyncio.create_task(standby.until_silent(100.0, forces=forces))
        store.process = ""
        await asyncio.sleep(0.5 * LET_GO_S)
        store.process = "process 1"  # its connection was broken, and it has come back
        await asyncio.sleep(5.0)
        assert not following.done()
        store.process = ""
        await asyncio.sleep(LET_GO_S + 0.5)
        assert following.done()

    run_virtually(story())


def test_a_directory_whose_server_hangs_is_not_taken_away_from_it():
    async def story():
        store = Watched()
        await (await served(store)).stop()
        standby = await followed(store)
        following = asyncio.create_task(standby.until_silent(5.0, forces=False))
        await asyncio.sleep(100.0)
        assert not following.done()
        following.cancel()

    run_virtually(story())


def test_a_database_that_cannot_be_read_says_nothing_of_the_server():
    async def story():
        store = Watched()
        await (await served(store)).stop()
        standby = await followed(store)
        following = asyncio.create_task(standby.until_silent(5.0, forces=True))
        await asyncio.sleep(4.0)
        store.away = True
        await asyncio.sleep(100.0)
        store.away = False
        await asyncio.sleep(4.0)
        assert not following.done(), "it was away itself, and took the server for silent"
        await asyncio.sleep(3.0)
        assert following.done()

    run_virtually(story())


def test_a_standby_that_is_far_behind_begins_with_a_snapshot():
    async def story():
        store = Watched()
        first = await served(store)
        standby = await followed(store)
        for _ in range(3):
            await first.submit(submitted(first))
            store.save_snapshot(first.state.seq, save(first.state))
        for seq in range(1, 4):
            del store._records[seq], store._sums[seq]
        following = asyncio.create_task(standby.until_silent(50.0, forces=True))
        await asyncio.sleep(1.0)
        assert save(standby.state) == save(first.state)
        following.cancel()
        await first.stop()

    run_virtually(story())
