"""Requests that come together share one commit; a single one waits for nobody."""

from __future__ import annotations

import asyncio

import pytest

from windfall.core.engine import Engine
from windfall.core.events import HostAsked, ResultsReported, Settings
from windfall.core.records import decode_record
from windfall.drivers import realtime
from windfall.drivers.failures import ServerFailed, Uncommitted, Unwritable
from windfall.drivers.realtime import Realtime
from windfall.store.contract import Batch
from windfall.store.memory import MemoryStore


class Counting(MemoryStore):
    """A store that remembers how many records each commit had."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def append(self, batch: Batch) -> None:
        self.sizes.append(len(batch.records))
        super().append(batch)


def told(story) -> Counting:
    """The store after a story that is given a running driver; what was committed at its start is left out."""
    store = Counting()

    async def tell() -> None:
        driver = Realtime(store, Engine(), Settings())
        await driver.start()
        store.sizes.clear()
        await story(driver)
        sizes = list(store.sizes)
        await driver.stop()
        store.sizes = sizes

    asyncio.run(tell())
    return store


async def ask(driver: Realtime, host: str, turns: int = 0) -> None:
    """Ask as a host does whose request is read after this many turns of the loop."""
    for _ in range(turns):
        await asyncio.sleep(0)
    await driver.submit([HostAsked(driver.clock(), host, "boot", 1, 1, 1, {"cpus": 1})])


def test_requests_that_are_read_one_turn_after_another_share_a_commit():
    async def story(driver: Realtime) -> None:
        await asyncio.gather(*(ask(driver, f"host-{number}", number) for number in range(20)))

    assert told(story).sizes == [20]


def test_a_request_that_is_alone_is_committed_without_a_pause(monkeypatch):
    monkeypatch.setattr(realtime, "COMMIT_EVERY_S", 3600.0)

    async def story(driver: Realtime) -> None:
        for number in range(5):
            await ask(driver, f"host-{number}")

    assert told(story).sizes == [1] * 5


def test_behind_a_crowd_the_next_commit_waits_for_others(monkeypatch):
    monkeypatch.setattr(realtime, "COMMIT_EVERY_S", 1.0)

    async def story(driver: Realtime) -> None:
        await asyncio.gather(*(ask(driver, f"first-{number}") for number in range(realtime.CROWD)))
        late = asyncio.create_task(ask(driver, "late"))
        await asyncio.sleep(0.01)
        await asyncio.gather(late, ask(driver, "later"))
        await ask(driver, "last")

    sizes = told(story).sizes
    assert sizes[:2] == [realtime.CROWD, 2]


def test_requests_that_never_cease_do_not_hold_a_commit_back_for_ever(monkeypatch):
    monkeypatch.setattr(realtime, "GATHER_S", 0.0)

    async def story(driver: Realtime) -> None:
        await asyncio.gather(*(ask(driver, f"host-{number}", 3 * number) for number in range(5)))

    assert sum(told(story).sizes) == 5
    assert len(told(story).sizes) > 1


def hosts_of(store: Counting) -> list[str]:
    """Who asked, in the order of the log."""
    return [decode_record(row.data).event.host for row in store.records(1)]


async def ask_soon(driver: Realtime, host: str, n: int = 1) -> None:
    await driver.submit_soon(host, [HostAsked(driver.clock(), host, "boot", n, 1, 1, {"cpus": 1})])


def test_what_is_submitted_soon_is_decided_in_its_order_and_shares_a_commit():
    async def story(driver: Realtime) -> None:
        await asyncio.gather(*(ask_soon(driver, f"host-{number}") for number in range(20)))
        assert [host.name for host in driver.state.hosts.values()] == [f"host-{number}" for number in range(20)]

    assert told(story).sizes == [20]


def test_what_is_submitted_at_once_is_decided_behind_what_came_before_it():
    async def story(driver: Realtime) -> None:
        await asyncio.gather(ask_soon(driver, "first"), ask(driver, "second"), ask_soon(driver, "third"))

    assert hosts_of(told(story)) == ["first", "second", "third"]


def test_an_event_that_cannot_be_written_down_fails_alone_among_those_decided_together():
    async def story(driver: Realtime) -> None:
        asked = HostAsked(driver.clock(), "bad", "boot", 1, 1, 1, {"cpus": object()})
        bad = driver.submit_soon("bad", [asked])
        results = await asyncio.gather(ask_soon(driver, "first"), bad, ask_soon(driver, "last"), return_exceptions=True)
        assert [type(result) for result in results] == [type(None), Unwritable, type(None)]

    assert hosts_of(told(story)) == ["first", "last"]


def test_nothing_is_settled_while_something_is_undecided():
    async def story(driver: Realtime) -> None:
        asked = asyncio.create_task(ask_soon(driver, "host"))
        await asyncio.sleep(0)
        assert "host" not in driver.state.hosts.by_name
        await driver.settled()
        assert "host" in driver.state.hosts.by_name
        await asked

    assert told(story).sizes == [1]


def test_a_driver_that_fails_refuses_what_is_undecided():
    async def story(driver: Realtime) -> None:
        asked = asyncio.create_task(ask_soon(driver, "host"))
        await asyncio.sleep(0)
        driver.fail("broken")
        with pytest.raises(Uncommitted):
            await asked

    assert told(story).sizes == []


async def report_and_ask_soon(driver: Realtime, host: str, ad: object = 1) -> None:
    """As a worker does that has a result; that of a host which is not known counts for nothing."""
    now = driver.clock()
    asked = HostAsked(now, host, "boot", 1, 1, 1, {"cpus": ad})
    await driver.submit_soon(host, [ResultsReported(now, host, []), asked])


def kinds_of(store: Counting) -> list[tuple[str, str]]:
    events = [decode_record(row.data).event for row in store.records(1)]
    return [(type(event).__name__, event.host) for event in events]


def test_requests_that_come_together_report_first_and_ask_then():
    async def story(driver: Realtime) -> None:
        hosts = (report_and_ask_soon(driver, "a"), ask_soon(driver, "b"), report_and_ask_soon(driver, "c"))
        await asyncio.gather(*hosts)

    first, then = [("ResultsReported", "a"), ("HostAsked", "b"), ("ResultsReported", "c")], ["a", "c"]
    store = told(story)
    assert kinds_of(store) == [*first, *(("HostAsked", host) for host in then)]
    assert store.sizes == [5]


def test_nothing_is_done_of_a_request_whose_last_event_cannot_be_written_down():
    async def story(driver: Realtime) -> None:
        bad = report_and_ask_soon(driver, "bad", object())
        results = await asyncio.gather(report_and_ask_soon(driver, "good"), bad, return_exceptions=True)
        assert [type(result) for result in results] == [type(None), Unwritable]

    assert {host for _, host in kinds_of(told(story))} == {"good"}


def test_where_one_event_stops_the_server_all_requests_of_its_turn_are_refused():
    async def story(driver: Realtime) -> None:
        apply = driver.engine.apply

        def breaks(state, record):
            if record.event.host == "bad":
                raise KeyError("apply")
            apply(state, record)

        driver.engine.apply = breaks
        hosts = [report_and_ask_soon(driver, host) for host in ("first", "bad", "last")]
        results = await asyncio.wait_for(asyncio.gather(*hosts, return_exceptions=True), 10)
        assert [type(result) for result in results] == [Uncommitted, ServerFailed, Uncommitted]

    assert told(story).sizes == []
