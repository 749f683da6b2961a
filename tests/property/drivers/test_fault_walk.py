"""A recorded run is walked through the live driver once for every step that can fail, and that step fails.

Whatever fails, and wherever: the state is the replay of its log byte for byte, also after a restart; what was
acknowledged is in the log once; and a request that is repeated because it was not acknowledged is not counted twice.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from windfall.core.decisions import ACCEPTED, HostAnswered, ResultsJudged
from windfall.core.engine import Engine
from windfall.core.events import (
    AnyEvent,
    HostAsked,
    JobCancelled,
    JobRetried,
    JobRules,
    JobSealed,
    JobSubmitted,
    Key,
    Result,
    ResultsReported,
    Settings,
    TaskClass,
    TasksAdded,
    TimerFired,
)
from windfall.core.records import Record, decode_record, encode_record
from windfall.core.state.invariants import problems
from windfall.core.state.snapshot import save
from windfall.core.state.state import State
from windfall.drivers import log_rows, realtime, snapshots
from windfall.drivers.failures import ServerFailed, Uncommitted, Unwritable
from windfall.drivers.realtime import Realtime
from windfall.store import open_store
from windfall.store.contract import Batch, OutputRow, Store, StoreError, StoreFailed
from windfall.store.memory import MemoryStore
from windfall.wire.messages import CAUSES

START_T = 1000.0
GROUPS = 24
TASKS = 12

Point = tuple[str, int]
"""A kind of step, and which one of them it is in the run."""


class Injected(Exception):
    """A bug or a broken component, at the chosen point."""


class Faults:
    """Counts the steps of a run by their kind, and raises once, at `target`."""

    def __init__(self, target: Point | None = None) -> None:
        self.target = target
        self.seen: Counter[str] = Counter()
        self.fired = False
        self.on = True

    def step(self, kind: str, error: Callable[[str], Exception] = Injected) -> None:
        if not self.on:
            return
        self.seen[kind] += 1
        if self.target == (kind, self.seen[kind]) and not self.fired:
            self.fired = True
            raise error(f"{kind} {self.seen[kind]}")


class FaultyEngine(Engine):
    """Raises when told to, before or after it has changed the state."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self.faults = faults

    def decide(self, state: State, event: AnyEvent) -> Record:
        self.faults.step("decide")
        return super().decide(state, event)

    def apply(self, state: State, record: Record) -> None:
        self.faults.step("apply, nothing changed")
        super().apply(state, record)
        self.faults.step("apply, all changed")


class FaultyStore:
    """A store around another: raises before or after what it does, and remembers every record ever written."""

    def __init__(self, inner: Store, faults: Faults) -> None:
        self.inner, self.faults = inner, faults
        self.written: dict[int, bytes] = {}

    def append(self, batch: Batch) -> None:
        self.faults.step("append fails for now", StoreError)
        self.faults.step("append fails for good", StoreFailed)
        self.inner.append(batch)
        for row in batch.records:
            assert self.written.setdefault(row.seq, row.data) == row.data
        self.faults.step("append succeeds unheard, for now", StoreError)
        self.faults.step("append succeeds unheard, for good", Injected)

    def save_snapshot(self, seq: int, data: bytes, hurry: object = None) -> None:
        assert seq <= self.inner.last_seq()
        self.faults.step("snapshot fails", StoreError)
        self.inner.save_snapshot(seq, data)
        self.faults.step("snapshot succeeds unheard")

    def prune(self, before_seq: int, kinds: tuple[str, ...], from_seq: int = 0) -> int:
        self.faults.step("prune fails")
        return self.inner.prune(before_seq, kinds, from_seq)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


@contextmanager
def faulty_steps(faults: Faults) -> Iterator[None]:
    """The functions that the driver calls between deciding and committing."""
    names = {
        "_encode_event": "event is encoded",
        "_decode_event": "event is read back",
        "encode_record": "record is encoded",
        "decode_record": "record is read back",
        "pieces": "state is copied",
    }

    def wrapped(kind: str, call: Callable[..., object]) -> Callable[..., object]:
        def step(*args: object) -> object:
            faults.step(kind)
            return call(*args)

        return step

    with pytest.MonkeyPatch.context() as patch:
        elsewhere = {"encode_record": log_rows, "pieces": snapshots}
        for name, kind in names.items():
            module = elsewhere.get(name, realtime)
            patch.setattr(module, name, wrapped(kind, getattr(module, name)))
        patch.setattr(realtime, "RETRY_S", 0.0)
        yield


# --- the run ---

Request = Callable[[State], list[AnyEvent]]
"""What a handler makes of a message, looking at the state as it does: what is there already is not done again."""


class Script:
    """A run to be recorded: three hosts, two jobs, results, failures, losses, a cancellation, retries."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.engine, self.state = Engine(), State()
        self.t = START_T
        self.n: Counter[str] = Counter()
        self.held: dict[str, list[Key]] = {"h1": [], "h2": [], "h3": []}
        self.groups: list[list[Request]] = []
        self._play(lambda state: [realtime.ServerStarted(START_T, Settings())])
        self.groups.append([self._submit("a"), self._submit("b")])
        for _ in range(GROUPS):
            self.t += self.chance.uniform(0.1, 2.0)
            self.groups.append([self._anything() for _ in range(self.chance.choice((1, 1, 2, 3)))])

    def _play(self, request: Request) -> Request:
        for event in request(self.state):
            record = self.engine.step(self.state, event)
            self._follow(record)
        return request

    def _follow(self, record: Record) -> None:
        event, decided = record.event, record.decided
        if isinstance(event, HostAsked) and isinstance(decided, HostAnswered):
            for piece in decided.assigned:
                tasks = range(piece.first, piece.first + piece.count)
                self.held[event.host] += [(piece.job, task, piece.attempt) for task in tasks]

    def _submit(self, key: str) -> Request:
        t = self.t

        def request(state: State) -> list[AnyEvent]:
            events: list[AnyEvent] = []
            job = state.bags.by_key.get(key, state.bags.next)
            bag = state.bags.get(job)
            if bag is None:
                events.append(JobSubmitted(t, JobRules("bag", key=key), [TaskClass()]))
            if bag is None or not bag.total:
                events.append(TasksAdded(t, job, TASKS))
            if bag is None or not bag.sealed:
                events.append(JobSealed(t, job))
            return events

        return self._play(request)

    def _anything(self) -> Request:
        return self.chance.choice([self._exchange] * 8 + [self._timer, self._cancel, self._retry])()

    def _exchange(self) -> Request:
        host = self.chance.choice(list(self.held))
        self.n[host] += 1
        ended = [key for key in self.held[host] if self.chance.random() < 0.7]
        self.held[host] = [key for key in self.held[host] if key not in ended]
        events: list[AnyEvent] = []
        if ended:
            causes = [self.chance.choice(("done", "done", "done", "exit")) for _ in ended]
            results = [
                Result(*key, CAUSES.index(cause), int(cause != "done"), self.t - 0.5, self.t)
                for key, cause in zip(ended, causes, strict=True)
            ]
            events.append(ResultsReported(self.t, host, results))
        ad = {"cpus": 2} if self.n[host] == 1 else None
        events.append(HostAsked(self.t, host, "boot", self.n[host], 2 - len(self.held[host]), 2, ad))
        return self._play(lambda state: list(events))

    def _timer(self) -> Request:
        self.t += self.chance.choice((1.0, 70.0))
        event = TimerFired(self.t)
        return self._play(lambda state: [event])

    def _cancel(self) -> Request:
        event = JobCancelled(self.t, 2, [self.chance.randrange(TASKS)], "by hand")
        return self._play(lambda state: [event])

    def _retry(self) -> Request:
        event = JobRetried(self.t, 1, None, False)
        return self._play(lambda state: [event])


def outputs_of(made: list[Record]) -> Batch:
    """An output for every result, as the exchange keeps them."""
    results = [
        result for record in made if isinstance(record.event, ResultsReported) for result in record.event.results
    ]
    return Batch(outputs=[OutputRow(r.job, r.task, r.attempt, b"out") for r in results])


# --- the walk ---


class Walk:
    """One run through the driver with at most one fault; restarted whenever the server stops."""

    def __init__(self, script: Script, inner: Store, target: Point | None = None) -> None:
        self.script = script
        self.faults = Faults(target)
        self.store = FaultyStore(inner, self.faults)
        self.acknowledged: dict[int, bytes] = {}
        self.restarts = 0
        self.refused = 0

    def run(self) -> Walk:
        with faulty_steps(self.faults):
            asyncio.run(self._run())
        self._check_log()
        return self

    async def _run(self) -> None:
        driver = await self._started()
        for group in self.script.groups:
            driver = await self._until_acknowledged(driver, group)
        await driver.stop()
        self.final = driver.state
        # Once more from the disk, after an orderly end.
        self._check(self._restored(), driver)

    async def _started(self) -> Realtime:
        while True:
            driver = self._restored()
            try:
                await driver.start()
            except (Uncommitted, ServerFailed):
                await self._fallen(driver)
            else:
                return driver

    def _restored(self) -> Realtime:
        self.faults.on = False
        driver = Realtime(self.store, FaultyEngine(self.faults), Settings(), snapshot_records=9)
        driver.restore()
        driver.clock = lambda: START_T  # no timer fires by itself: all times stand in the script
        self.faults.on = True
        assert save(driver.state) == save(self._replayed()), self.faults.target
        return driver

    def _replayed(self) -> State:
        """The whole log, also what was pruned, applied to an empty state."""
        state, engine = State(), Engine()
        for seq in sorted(self.store.written):
            engine.apply(state, decode_record(self.store.written[seq]))
        return state

    async def _until_acknowledged(self, driver: Realtime, group: list[Request]) -> Realtime:
        """All requests of a group at once; those that were not acknowledged again, as a worker or a client does."""
        while group:
            answers = [self._answer(driver, request) for request in group]
            done = await asyncio.gather(*answers)
            group = [request for request, ok in zip(group, done, strict=True) if not ok]
            if driver.failure is not None:
                await self._fallen(driver)
                driver = await self._started()
        if driver.snapshots.taking is not None:
            await asyncio.wait([driver.snapshots.taking])  # so that every walk takes its snapshots at the same records
        return driver

    async def _answer(self, driver: Realtime, request: Request) -> bool:
        try:
            try:
                submitted = driver.submit(request(driver.state), self._rows)
            except Unwritable:
                self.refused += 1
                submitted = driver.submit(request(driver.state), self._rows)
            records = await submitted
        except (Uncommitted, ServerFailed):
            self.refused += 1
            return False
        self.acknowledged |= {record.seq: encode_record(record) for record in records}
        return True

    def _rows(self, made: list[Record]) -> Batch:
        self.faults.step("rows are made")
        return outputs_of(made)

    async def _fallen(self, driver: Realtime) -> None:
        """The server has stopped. Nothing is pending in it that anybody was told of."""
        self.restarts += 1
        assert driver.failure is not None
        assert driver.illness()
        await driver.stop()

    def _check(self, restored: Realtime, before: Realtime) -> None:
        assert save(restored.state) == save(before.state), self.faults.target
        assert problems(restored.state) == []

    def _check_log(self) -> None:
        for seq, data in self.acknowledged.items():
            assert self.store.written[seq] == data, f"record {seq} was acknowledged and is not in the log"
        assert sorted(self.store.written) == list(range(1, len(self.store.written) + 1))
        counted = self.accepted()
        assert set(counted.values()) <= {1}, counted
        for job, bag in self.final.bags.items():
            assert bag.counts[2] == sum(key[0] == job for key in counted)
        for record in self._records():
            if isinstance(record.event, ResultsReported):
                for result in record.event.results:
                    assert self.store.inner.output(result.job, result.task, result.attempt) == b"out"

    def _records(self) -> list[Record]:
        return [decode_record(data) for data in self.store.written.values()]

    def accepted(self) -> Counter[tuple[int, int]]:
        """How often each task's result was accepted, by the log."""
        return Counter(
            (result.job, result.task)
            for record in self._records()
            if isinstance(record.event, ResultsReported) and isinstance(record.decided, ResultsJudged)
            for result, verdict in zip(record.event.results, record.decided.verdicts, strict=True)
            if verdict == ACCEPTED
        )


STOPS = {
    "decide",
    "record is encoded",
    "record is read back",
    "apply, nothing changed",
    "apply, all changed",
    "rows are made",
    "append fails for good",
    "append succeeds unheard, for good",
}
"""The steps whose failure stops the server; it goes on after all others."""
GOES_ON = {
    "event is encoded",
    "event is read back",
    "append fails for now",
    "append succeeds unheard, for now",
    "state is copied",
    "snapshot fails",
    "snapshot succeeds unheard",
    "prune fails",
}


def walked(script: Script, store: Callable[[], Store], kinds: set[str]) -> int:
    """Walk once for every step of these kinds. Returns how many there were."""
    plain = Walk(script, store()).run()
    assert plain.restarts == plain.refused == 0
    assert set(plain.faults.seen) == STOPS | GOES_ON, "a step has no fault, or a fault no step"
    points = [(kind, number) for kind in sorted(kinds) for number in range(1, plain.faults.seen[kind] + 1)]
    visited = 0
    for kind, number in points:
        walk = Walk(script, store(), (kind, number)).run()
        assert walk.faults.fired, (kind, number)
        assert walk.restarts == (kind in STOPS), (kind, number)
        if not walk.restarts:  # a restart renews the leases of hosts: another story may follow
            assert walk.accepted() == plain.accepted(), (kind, number)
        visited += 1
    assert visited == sum(plain.faults.seen[kind] for kind in kinds)
    return visited


@pytest.mark.parametrize("kind", sorted(STOPS | GOES_ON))
def test_after_a_fault_at_any_step_the_state_is_its_log_and_nothing_counts_twice(kind: str):
    assert walked(Script(seed=8), MemoryStore, {kind}) > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["append fails for good", "append succeeds unheard, for good", "snapshot fails"])
def test_after_a_fault_of_the_store_sqlite_holds_what_the_state_is_made_of(kind: str, tmp_path: Path):
    opened: list[Store] = []

    def store() -> Store:
        if opened:
            opened[-1].close()
        opened.append(open_store(tmp_path / str(len(opened))))
        return opened[-1]

    try:
        assert walked(Script(seed=9), store, {kind}) > 0
    finally:
        opened[-1].close()
