"""The live driver stops rather than go on with a state that its log does not tell, and says why."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import threading
from pathlib import Path

import msgspec
import pytest

from windfall.core.engine import Engine
from windfall.core.events import (
    AnyEvent,
    HostAsked,
    JobCancelled,
    JobRules,
    JobSubmitted,
    Settings,
    TaskClass,
    TasksAdded,
)
from windfall.core.records import decode_record
from windfall.core.state.snapshot import save
from windfall.core.state.state import State
from windfall.drivers import copying, realtime, snapshots
from windfall.drivers.failures import ServerFailed, Uncommitted, Unwritable, crash_file
from windfall.drivers.log_rows import HEARTBEAT
from windfall.drivers.realtime import Realtime
from windfall.store.contract import Batch, StoreError, StoreFull
from windfall.store.memory import MemoryStore


class Faulty(Engine):
    """An engine that raises in `decide` or `apply` when it meets the host named `bad`."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def decide(self, state, event):
        if self.where == "decide" and getattr(event, "host", "") == "bad":
            raise KeyError("decide")
        return super().decide(state, event)

    def apply(self, state, record):
        super().apply(state, record)
        if self.where == "apply" and getattr(record.event, "host", "") == "bad":
            raise KeyError("apply")


class Unwilling(MemoryStore):
    """A store that refuses with `error` while there is one."""

    error: Exception | None = None

    def append(self, batch: Batch) -> None:
        if self.error is not None:
            raise self.error
        super().append(batch)


def job(driver: Realtime, count: int = 4) -> list:
    now = driver.clock()
    return [JobSubmitted(now, JobRules("bag"), [TaskClass()]), TasksAdded(now, driver.state.bags.next, count)]


def asked(driver: Realtime, host: str, n: int = 1, ad: object = ()) -> HostAsked:
    return HostAsked(driver.clock(), host, "boot", n, 1, 1, ad or {"cpus": 1})


def replayed(store: MemoryStore) -> State:
    state, engine = State(), Engine()
    for row in store.records(limit=1_000_000):
        engine.apply(state, decode_record(row.data))
    return state


def play(story, store: MemoryStore | None = None, engine: Engine | None = None, **options) -> Realtime:
    async def run() -> Realtime:
        driver = Realtime(store or MemoryStore(), engine or Engine(), Settings(), **options)
        await driver.start()
        await story(driver)
        await asyncio.wait_for(driver.stop(), 30)
        return driver

    return asyncio.run(run())


def test_an_event_that_cannot_be_decided_stops_the_server_and_is_kept_for_diagnosis(tmp_path: Path):
    fatal: list[bool] = []

    async def story(driver):
        driver.on_fatal = lambda: fatal.append(True)
        await driver.submit(job(driver))
        waiting = driver.submit([asked(driver, "good")])
        with pytest.raises(ServerFailed, match="nothing could be decided on HostAsked: KeyError"):
            driver.submit([asked(driver, "other"), asked(driver, "bad")])
        with pytest.raises(Uncommitted):
            await waiting
        with pytest.raises(Uncommitted):
            driver.submit([asked(driver, "late")])

    store = MemoryStore()
    driver = play(story, store, Faulty("decide"), crash_directory=tmp_path)
    assert fatal == [True]
    (kept,) = tmp_path.glob("crash-*.json")
    said = json.loads(kept.read_text())
    assert said["event"]["type"] == "HostAsked" and said["event"]["host"] == "bad" and said["decided"] is None
    assert "KeyError" in "".join(said["traceback"]) and str(kept) in driver.failure.message
    event = msgspec.msgpack.decode(base64.b64decode(said["event_msgpack"]), type=AnyEvent)
    assert isinstance(event, HostAsked) and event.host == "bad"
    again = Realtime(store, Engine(), Settings())
    again.restore()
    assert again.state.host("bad") is None and again.state.host("other") is None
    assert again.state.bags[1].total == 4


def test_a_crash_file_of_an_event_that_cannot_be_encoded_says_why(tmp_path: Path):
    event = HostAsked(1.0, "odd", "boot", 1, 1, 1, {"cpus": 1 << 70})
    kept = crash_file(tmp_path, 7, event, None, KeyError("a bug"))
    assert kept is not None
    said = json.loads(kept.read_text())
    assert "OverflowError" in said["not_encoded"] and "event_msgpack" not in said
    assert "odd" in json.dumps(said["event"])


def test_a_decision_that_cannot_be_written_down_stops_the_server():
    class Strange(Engine):
        def decide(self, state, event):
            record = super().decide(state, event)
            if isinstance(event, HostAsked):
                record.decided.assigned = [object()]
            return record

    async def story(driver):
        with pytest.raises(ServerFailed, match="nothing could be decided on HostAsked"):
            driver.submit([asked(driver, "h")])

    store = MemoryStore()
    play(story, store, Strange())
    assert store.last_seq() == 1


@pytest.mark.parametrize(
    "ad",
    [{"cpus": 2**64}, {"name": "\ud800"}, {"set": object()}],
    ids=["a number that is too large", "half a character", "an object"],
)
def test_an_event_that_cannot_be_written_down_leaves_nothing_of_its_request_behind(ad):
    async def story(driver):
        before = save(driver.state)
        with pytest.raises(Unwritable):
            driver.submit([*job(driver), asked(driver, "h", ad=ad)])
        with pytest.raises(Unwritable):
            driver.submit([asked(driver, "h", ad=ad)])
        assert save(driver.state) == before
        await driver.submit(job(driver))

    store = MemoryStore()
    driver = play(story, store)
    assert save(replayed(store)) == save(driver.state)


def test_an_event_of_the_wrong_types_is_refused_before_it_is_applied():
    """It could be encoded; a restart could not have read it."""

    async def story(driver):
        await driver.submit(job(driver))
        before = save(driver.state)
        with pytest.raises(Unwritable):
            driver.submit([JobCancelled(driver.clock(), 1, [True, 3], "")])
        assert save(driver.state) == before

    store = MemoryStore()
    driver = play(story, store)
    assert save(replayed(store)) == save(driver.state)


def test_a_record_that_cannot_be_applied_stops_the_server_and_is_kept_for_diagnosis(tmp_path: Path):
    fatal: list[bool] = []

    async def story(driver):
        driver.on_fatal = lambda: fatal.append(True)
        await driver.submit(job(driver))
        waiting = driver.submit([asked(driver, "good")])
        with pytest.raises(ServerFailed, match="could not be applied"):
            driver.submit([asked(driver, "other"), asked(driver, "bad", ad={"cpus": 2})])
        with pytest.raises(Uncommitted):
            await waiting
        with pytest.raises(Uncommitted):
            driver.submit([asked(driver, "late")])
        with pytest.raises(Uncommitted):
            await driver.settled()
        assert "could not be applied" in driver.illness()

    store = MemoryStore()
    driver = play(story, store, Faulty("apply"), crash_directory=tmp_path)
    assert fatal == [True]
    assert driver.failure is not None and driver.failure.exit_code == 1
    (kept,) = tmp_path.glob("crash-*.json")
    said = json.loads(kept.read_text())
    assert said["event"]["type"] == "HostAsked" and said["event"]["host"] == "bad"
    assert said["decided"]["type"] == "HostAnswered"
    assert "KeyError" in "".join(said["traceback"]) and str(kept) in driver.failure.message
    assert kept.stat().st_mode & 0o077 == 0
    again = Realtime(store, Engine(), Settings())
    again.restore()
    assert again.state.host("bad") is None and again.state.host("other") is None
    assert again.state.bags[1].total == 4


def test_rows_that_cannot_be_made_stop_the_server_and_their_records_are_not_logged(tmp_path: Path):
    async def story(driver):
        with pytest.raises(ServerFailed):
            driver.submit(job(driver), lambda made: 1 / 0)

    store = MemoryStore()
    play(story, store, crash_directory=tmp_path)
    assert store.last_seq() == 1


def test_a_store_error_that_a_retry_cures_is_retried_and_nothing_is_lost(monkeypatch):
    monkeypatch.setattr(realtime, "PATIENCE_S", 3600.0)
    store = Unwilling()

    async def story(driver):
        store.error = StoreFull("full")
        waiting = driver.submit(job(driver))
        while not driver.trouble:
            await asyncio.sleep(0.01)
        assert driver.illness() == "full"
        store.error = None
        assert len(await waiting) == 2
        assert driver.illness() == ""

    driver = play(story, store)
    assert save(replayed(store)) == save(driver.state)


def test_requests_do_not_wait_for_a_disk_that_stays_full(monkeypatch):
    monkeypatch.setattr(realtime, "PATIENCE_S", 0.0)
    store = Unwilling()

    async def story(driver):
        store.error = StoreFull("full")
        with pytest.raises(Uncommitted) as raised:
            await asyncio.wait_for(driver.submit(job(driver)), 30)
        assert raised.value.retryable
        with pytest.raises(Uncommitted):
            await asyncio.wait_for(driver.settled(), 30)

    driver = play(story, store)
    assert driver.unwritten == 2 and store.last_seq() == 1


def conflict() -> StoreError:
    error = StoreError("record 2 is in the log already")
    error.retryable = False
    return error


@pytest.mark.parametrize("error", [conflict(), OverflowError("too large"), KeyError("bug")])
def test_a_store_error_that_no_retry_cures_stops_the_server(error: Exception):
    store, fatal = Unwilling(), []

    async def story(driver):
        driver.on_fatal = lambda: fatal.append(True)
        store.error = error
        first = driver.submit(job(driver))
        await asyncio.sleep(0)
        second = driver.submit([asked(driver, "h")])
        for waiting in (first, second):
            with pytest.raises(Uncommitted):
                await asyncio.wait_for(waiting, 30)
        assert "for good" in driver.failure.message

    play(story, store)
    assert fatal == [True] and store.last_seq() == 1


def test_a_background_task_that_dies_or_ends_stops_the_server():
    async def dies() -> None:
        raise KeyError("why")

    async def ends() -> None:
        pass

    for work, said in ((dies, "the thing died: KeyError('why')"), (ends, "the thing has ended")):

        async def story(driver, work=work):
            driver.background(ends(), "the short one", ends=True)
            driver.background(work(), "the thing")
            await asyncio.sleep(0.01)

        assert play(story).failure.message == said


def test_a_listener_that_raises_stops_the_server():
    async def story(driver):
        driver.on_commit.append(lambda records: 1 / 0)
        driver.submit([asked(driver, "h")])
        await asyncio.sleep(0.05)

    assert "the commit loop died" in play(story).failure.message


def test_a_timer_that_fails_stops_the_server(monkeypatch):
    async def story(driver):
        def fails(state):
            raise KeyError("time")

        monkeypatch.setattr(realtime, "wake_at", fails)
        driver._fire()

    assert "the timer failed" in play(story).failure.message


class Slow(MemoryStore):
    """Notes when snapshots are written, while records never stop coming."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshots: list[int] = []

    def save_snapshot(self, seq: int, data: bytes, hurry: object = None) -> None:
        assert seq <= self.last_seq(), "a snapshot of what is not in the log"
        self.snapshots.append(seq)
        super().save_snapshot(seq, data)


@pytest.mark.parametrize("limits", [{"snapshot_records": 100}, {"snapshot_bytes": 2000}], ids=["records", "bytes"])
def test_snapshots_are_taken_while_records_never_stop_coming(limits):
    async def story(driver):
        waiting = []
        for n in range(1, 1001):
            waiting.append(driver.submit([asked(driver, "h", n)]))
            if n % 10 == 0:
                # There is always a record pending: a new one comes before the last commit has ended.
                await waiting[-2]
        await waiting[-1]

    store = Slow()
    driver = play(story, store, **limits)
    # The last is that of the end. How many come before depends on how soon another thread has written each.
    assert len(store.snapshots) >= 2
    assert store.snapshots[0] < store.last_seq() - 100
    again = Realtime(store, Engine(), Settings())
    again.restore()
    assert save(again.state) == save(driver.state)


def test_commits_do_not_wait_for_a_snapshot_that_is_being_written():
    begun, may_end = threading.Event(), threading.Event()

    class Waiting(Slow):
        def save_snapshot(self, seq: int, data: bytes, hurry: object = None) -> None:
            begun.set()
            assert may_end.wait(60)
            super().save_snapshot(seq, data)

    async def story(driver):
        for n in range(1, 30):
            await driver.submit([asked(driver, "h", n)])
        await eventually(begun.is_set)
        for n in range(30, 60):
            await asyncio.wait_for(driver.submit([asked(driver, "h", n)]), 30)
        assert store.snapshots == []
        may_end.set()
        await eventually(lambda: store.snapshots)

    store = Waiting()
    assert play(story, store, snapshot_records=20).failure is None


def test_a_long_log_is_pruned_in_parts_each_looked_at_once_and_no_heartbeat_stays(monkeypatch):
    monkeypatch.setattr(snapshots, "PRUNED_RECORDS", 10)
    looked: list[tuple[int, int]] = []

    class Pruned(Slow):
        def prune(self, before_seq, kinds, from_seq=0):
            looked.append((from_seq, before_seq))
            return super().prune(before_seq, kinds, from_seq)

    async def story(driver):
        for n in range(1, 201):
            await driver.submit([asked(driver, "h", n)])
            if n % 40 == 0:
                taking = driver.snapshots.taking
                await eventually(lambda taking=taking: taking is None or taking.done())

    store = Pruned()
    assert play(story, store, snapshot_records=20).failure is None
    assert max(before - first for first, before in looked) <= 10
    older = store.snapshots[-3]  # the last one is that of the end, after which nothing is pruned
    assert (
        len(store.snapshots) > 3 and [r for r in store.records(0, 1000) if r.seq <= older and r.kind == HEARTBEAT] == []
    )
    # Below the older of two snapshots nothing is looked at again.
    starts = [first for first, _ in looked]
    assert starts.count(0) <= 2


def test_a_large_state_is_encoded_by_a_process_of_its_own(monkeypatch):
    made = []
    monkeypatch.setattr(copying, "LARGE_TASKS", 0)
    monkeypatch.setattr(copying, "Forked", lambda state, forked=copying.Forked: made.append(state) or forked(state))

    async def story(driver):
        # One snapshot at a time, and at a commit: records have to come until the first is written.
        for n in range(1, 61):
            await driver.submit([asked(driver, "h", n)])
            if n % 30 == 0:
                await eventually(lambda n=n: len(store.snapshots) >= n // 30)
        assert driver.snapshots.error == ""

    store = Slow()
    driver = play(story, store, snapshot_records=20)
    assert len(made) > 1
    again = Realtime(store, Engine(), Settings())
    again.restore()
    assert save(again.state) == save(driver.state)


def test_if_the_process_that_encodes_fails_the_server_encodes_by_itself(monkeypatch):
    monkeypatch.setattr(copying, "LARGE_TASKS", 0)
    monkeypatch.setattr(copying, "_encode_and_exit", lambda state, handle: os._exit(1))

    async def story(driver):
        for n in range(1, 30):
            await driver.submit([asked(driver, "h", n)])
        await eventually(lambda: driver.snapshots.error)
        for n in range(30, 60):
            await driver.submit([asked(driver, "h", n)])
        await eventually(lambda: store.snapshots and not driver.snapshots.error)  # cleared once the store has it

    store = Slow()
    assert play(story, store, snapshot_records=20).failure is None


async def eventually(holds):
    for _ in range(6000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen within a minute")


@pytest.mark.parametrize("where", ["encode", "write"])
def test_a_snapshot_that_fails_is_told_and_the_server_goes_on(monkeypatch, where: str):
    def fails(*_: object) -> None:
        raise OverflowError("too large for a snapshot")

    store = MemoryStore()
    if where == "encode":
        monkeypatch.setattr(snapshots, "pieces", fails)
    else:
        store.save_snapshot = fails

    async def story(driver):
        for n in range(1, 20):
            await asyncio.wait_for(driver.submit([asked(driver, "h", n)]), 30)
        assert "too large for a snapshot" in driver.snapshots.error
        assert driver.illness() == ""

    driver = play(story, store, snapshot_records=3)
    assert driver.failure is None
    assert save(replayed(store)) == save(driver.state)


def test_a_log_that_cannot_be_applied_is_refused_in_words(tmp_path: Path):
    async def story(driver):
        await driver.submit([asked(driver, "bad")])

    store = MemoryStore()
    play(story, store)
    store._snapshots.clear()
    with pytest.raises(ServerFailed, match=r"record 2 of the log \(HostAsked\) cannot be applied"):
        Realtime(store, Faulty("apply"), Settings(), tmp_path).restore()
    assert (tmp_path / "crash-2.json").exists()
