"""The driver packs old records beside its commits, and a restart reads the same state from snapshot, log and packs."""

from __future__ import annotations

import asyncio

from windfall.core.engine import Engine
from windfall.core.events import (
    HostAsked,
    JobRules,
    JobSealed,
    JobSubmitted,
    Result,
    ResultsReported,
    Settings,
    TaskClass,
    TasksAdded,
)
from windfall.core.state.snapshot import save
from windfall.drivers.realtime import Realtime
from windfall.store import packs
from windfall.store.contract import StoreError
from windfall.store.sqlite.store import SqliteStore


def driven(store):
    driver = Realtime(store, Engine(), Settings(), snapshot_records=60)
    driver.restore()
    return driver


async def finish_tasks(driver, count):
    """One host finishes tasks one by one; every second exchange only says that it is alive."""
    t = driver.clock()
    await driver.submit([JobSubmitted(t, JobRules("job"), [TaskClass()]), TasksAdded(t, 1, count + 1), JobSealed(t, 1)])
    n, held = 0, []
    for _ in range(count):
        t, n = driver.clock(), n + 1
        results = [ResultsReported(t, "h", [Result(*key, 0, 0, t - 0.001, t)]) for key in held]
        asked = HostAsked(t, "h", "boot", n, 1, 1, {} if n == 1 else None)
        records = await driver.submit([*results, asked])
        held = [(piece.job, piece.first, piece.attempt) for piece in records[-1].decided.assigned]
        n += 1
        await driver.submit([HostAsked(driver.clock(), "h", "boot", n, 0, 1)])


def pack_count(store):
    return len(store._read("SELECT 1 FROM packs"))


def played(store, count=200):
    async def story():
        driver = driven(store)
        await driver.start()
        await finish_tasks(driver, count)
        for _ in range(2000):
            if driver.snapshots.packing is not None and driver.snapshots.packing.done():
                break
            await asyncio.sleep(0.005)
        await driver.stop()
        return driver

    return asyncio.run(story())


def test_old_records_are_packed_and_a_restart_reads_the_same_state(tmp_path, monkeypatch):
    monkeypatch.setattr(packs, "RECORDS", 20)
    store = SqliteStore(tmp_path / "state")
    driver = played(store)
    assert driver.failure is None and pack_count(store) >= 2
    whole = [record.seq for record in store.records(limit=10_000)]
    assert whole == sorted(set(whole)) and whole[-1] == driver.state.seq
    store.close()
    again = SqliteStore(tmp_path / "state")
    assert save(driven(again).state) == save(driver.state)
    again.close()


def test_a_store_that_cannot_pack_does_not_stop_the_server(tmp_path, caplog):
    class Full(SqliteStore):
        def pack(self, until_seq):
            raise StoreError("no space for packs")

    store = Full(tmp_path / "state")
    driver = played(store, 60)
    store.close()
    assert driver.failure is None and not driver.snapshots.error
    assert "old records could not be packed: no space for packs" in caplog.text
