"""A whole server in virtual time: engine, driver, store, HTTP handlers, with workers and clients on a bad network.

One seed decides everything: what is delayed, sent twice or dropped, when the server crashes between two steps of its
event loop or is replaced while it goes on, which writes fail, are torn or succeed unheard, when the disk is full, how
far the clock jumps. After every commit the state's invariants are checked; after every restart the state must be what
its log tells, with everything that was acknowledged; at the end all results are recounted from the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, TypeVar

from msgspec.json import decode, encode

from tests.support.engine.virtual_loop import QuickLoop
from windfall.core.decisions import ACCEPTED, ResultsJudged
from windfall.core.engine import Engine
from windfall.core.events import ResultsReported, Settings
from windfall.core.records import Record, decode_record
from windfall.core.state.invariants import problems
from windfall.core.state.jobs.columns import DONE
from windfall.core.state.snapshot import save
from windfall.drivers import clock
from windfall.drivers.failures import ServerFailed, Uncommitted
from windfall.drivers.realtime import Realtime
from windfall.server.http.app import Application
from windfall.server.http.submission import known_policies
from windfall.server.limits import Intake, Limits
from windfall.server.outputs import output_rows
from windfall.server.service import Service
from windfall.store.contract import Batch, StoreError, StoreFull
from windfall.store.memory import MemoryStore
from windfall.wire import ATTEMPT, HOST_SECRET, OLDEST, VERSION, WORKER_AGENT, frames

T = TypeVar("T")
SECRET = HOST_SECRET.lower().encode()
Key = tuple[int, int, int]
EXCHANGE = "/v1/exchange"
LEASE_S = 30.0
START_T = 1_700_000_000.0
STORMY_S = 400.0
"""Virtual seconds with faults; then the weather is fine, and everything has to end."""
FINE_S = 40_000.0
LATEST_CALL_S = 8.0
QUOTA_BYTES = 1000
"""Of a job: its three different files are about half of it."""
_life: contextvars.ContextVar[Life | None] = contextvars.ContextVar("life", default=None)


class Gone(Exception):
    """No answer: the request or the answer was lost, or the server is gone."""


class FaultLoop(QuickLoop):
    """Calls that would run in threads take a while; those of a server that has crashed meanwhile may not happen."""

    chance: random.Random
    calm = False

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        future: asyncio.Future[T] = self.create_future()
        life = _life.get()
        slow = 0.002 if self.calm else self.chance.choice((0.001, 0.003, 0.02, 0.5))

        def do() -> None:
            if life is not None and life.dead:
                return
            outcome: Callable[[], None]
            try:
                outcome = partial(future.set_result, func(*args))
            except Exception as error:
                outcome = partial(future.set_exception, error)
            self.call_later(self.chance.uniform(0, slow), lambda: None if future.done() else outcome())

        self.call_later(self.chance.uniform(0, slow), do)
        return future


class FaultyStore:
    """The store of one life of a server. Its handle on the memory is fenced when another life opens it."""

    def __init__(self, inner: MemoryStore, world: World) -> None:
        self.inner, self.world = inner, world

    def append(self, batch: Batch) -> None:
        chance = self.world.chance
        if self.world.disk_full:
            raise StoreFull("no space left")
        if not self.world.calm and chance.random() < 0.02:
            raise StoreError("it did not work")
        self.inner.append(batch)
        self.world.count("append")
        if not self.world.calm and chance.random() < 0.02:
            raise StoreError("it worked, and the answer was lost")

    def save_snapshot(self, seq: int, data: bytes, hurry: threading.Event | None = None) -> None:
        if self.world.disk_full or (not self.world.calm and self.world.chance.random() < 0.2):
            raise StoreFull("no space left")
        assert seq <= self.inner.last_seq()
        self.inner.save_snapshot(seq, data)
        self.world.count("snapshot")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Life:
    """One server process, from its start to its end."""

    def __init__(self, world: World, store: MemoryStore) -> None:
        self.world = world
        self.dead = self.serving = False
        self.store = FaultyStore(store, world)
        self.driver = Realtime(self.store, Engine(known_policies), Settings(lease_s=LEASE_S, hosts_kept=0), None, 60)  # type: ignore[arg-type]
        self.tasks: dict[asyncio.Task[Any], None] = {}  # in order: a set would not be the same each time

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        context = contextvars.copy_context()
        context.run(_life.set, self)
        task = asyncio.get_running_loop().create_task(work, context=context)
        self.tasks[task] = None
        task.add_done_callback(lambda task: self.tasks.pop(task, None))
        return task

    async def start(self) -> None:
        self.driver.restore()
        self.world.check_restored(self.driver)
        self.driver.on_commit.append(self.committed)
        self.driver.on_fatal = self._failed
        service = Service(self.driver, self.store)  # type: ignore[arg-type]
        service.intake = Intake(Limits(job_blobs_bytes=QUOTA_BYTES))
        service.uploads._writers = SimpleNamespace(submit=lambda call: call())  # type: ignore[assignment]
        self.application = Application(service)
        await self.driver.start()
        self.serving = True
        self.world.served.set()

    def _failed(self) -> None:
        """The driver stops the server. Only one that was replaced may do that."""
        if not self.driver.fenced and not self.dead:
            self.world.broken.append(AssertionError(f"the server failed: {self.driver.failure}"))
        asyncio.get_running_loop().call_soon(self.crash)

    def committed(self, records: list[Record]) -> None:
        if not self.dead:
            try:
                self.world.check(self.driver, records)
            except AssertionError as error:
                self.world.broken.append(error)

    def crash(self) -> None:
        """As kill -9: nothing more of it runs."""
        self.dead, self.serving = True, False
        if not any(life.serving for life in self.world.lives):
            self.world.served.clear()
        self.driver._stopping = True
        if self.driver._timer is not None:
            self.driver._timer.cancel()
        for task in [*self.tasks, *sorted(self.driver._tasks, key=asyncio.Task.get_name)]:
            task.cancel()

    async def answer(
        self, method: str, path: str, body: bytes, secret: str = "", attempt: str = ""
    ) -> tuple[int, bytes]:
        headers = [(b"authorization", f"Bearer {self.world.token}".encode()), (SECRET, secret.encode())]
        headers += [(b"user-agent", WORKER_AGENT.encode()), (ATTEMPT.lower().encode(), attempt.encode())]
        if path == EXCHANGE:
            # As a connection hands on small ones (server/asking.py).
            said = await self.application.exchange(body, dict(headers))
            return (200, said) if isinstance(said, bytes) else (said.status_code, bytes(said.body))
        sent: list[Any] = []
        pieces = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if not pieces:
                await asyncio.get_running_loop().create_future()
            return pieces.pop()

        async def send(message: Any) -> None:
            sent.append(message)

        bare, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": bare, "raw_path": bare.encode(), "query_string": query.encode(), "root_path": "",
            "headers": headers, "client": None, "server": ("s", 1),
        }  # fmt: skip
        await self.application(scope, receive, send)
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


class World:
    """Everything that one seed decides."""

    def __init__(self, seed: int) -> None:
        self.seed, self.chance = seed, random.Random(seed)
        self.memory = MemoryStore()
        self.calm = self.disk_full = False
        self.jump_s = 0.0
        self.lives: list[Life] = []
        self.counts: Counter[str] = Counter()
        self.acknowledged: dict[str, int] = {}
        self.cancelled: set[int] = set()
        self.done: set[tuple[int, int]] = set()
        self.token = ""
        self.served = asyncio.Event()
        """Set while a server serves."""
        self.broken: list[AssertionError] = []
        """What did not hold, found where an exception would have stopped only the server."""

    def count(self, what: str) -> None:
        self.counts[what] += 1

    # --- the server ---

    async def start_server(self) -> Life:
        self.memory = self.memory.taken_over()
        life = Life(self, self.memory)
        self.lives = [*(other for other in self.lives if not other.dead), life]
        try:
            await life.begin(life.start())
        except AssertionError as error:
            self.broken.append(error)
        except (Uncommitted, ServerFailed, asyncio.CancelledError):
            pass  # replaced or crashed while it started, or its disk is full: the storm goes on
        self.count("start")
        return life

    def tear(self) -> None:
        """The last record was being written when the machine lost its power: nobody had heard of it."""
        last = self.memory.last_seq()
        if last > self.heard:
            row = self.memory._records[last]
            self.memory._records[last] = row._replace(data=row.data[:-1] + b"\xc1")
            self.count("torn write")

    heard = 0
    """The last record that any listener was told of."""

    async def weather(self) -> None:
        """Crashes, replacements, full disks and jumping clocks, until the storm is over."""
        loop = asyncio.get_running_loop()
        while loop.time() < STORMY_S:
            await asyncio.sleep(self.chance.expovariate(1 / 15))
            fault = self.chance.choice(("crash", "crash", "replace", "disk", "clock"))
            self.count(fault)
            active = self.lives[-1]
            if fault == "crash":
                for life in self.lives:
                    life.crash()
                if self.chance.random() < 0.3:
                    self.tear()
                await asyncio.sleep(self.chance.choice((0.0, 0.1, 5.0, 2 * LEASE_S)))
                await self.start_server()
            elif fault == "replace" and active.serving:
                await self.start_server()  # the one before goes on, and must be able to do no harm
            elif fault == "disk":
                self.disk_full = True
                await asyncio.sleep(self.chance.choice((0.3, 3.0, 20.0)))
                self.disk_full = False
            elif fault == "clock":
                self.jump_s = self.chance.choice((-86400.0, -60.0, 60.0, 86400.0, 0.0))
        self.calm = loop.calm = True  # type: ignore[attr-defined]
        if not self.lives[-1].serving or self.lives[-1].dead:
            await self.start_server()

    # --- the network ---

    async def call(
        self, method: str, path: str, body: bytes = b"", secret: str = "", attempt: str = ""
    ) -> tuple[int, bytes]:
        """One request of a worker or a client to any of the servers. Gone: it is not known what happened."""
        chance, calm = self.chance, self.calm
        await asyncio.sleep(chance.uniform(0, 0.01 if calm else chance.choice((0.001, 0.05, 2.0))))
        if not calm and chance.random() < 0.05:
            self.count("request lost")
            await asyncio.sleep(LATEST_CALL_S)
            raise Gone
        there = [life for life in self.lives if life.serving and not life.dead]
        if not there:
            # As one that asks five times a second: the first time that it finds a server is the next one that counts.
            await self.served.wait()
            await asyncio.sleep(chance.uniform(0, 0.2))
            raise Gone
        life = there[-1] if calm else chance.choice(there)
        if not calm and chance.random() < 0.05:
            self.count("request twice")
            asyncio.get_running_loop().call_later(
                chance.uniform(0, 5.0),
                lambda: None if life.dead else life.begin(_ignored(life.answer(method, path, body, secret, attempt))),
            )
        task = life.begin(life.answer(method, path, body, secret, attempt))
        await asyncio.wait({task}, timeout=LATEST_CALL_S + 30.0)
        if task.cancelled() or not task.done() or (not calm and chance.random() < 0.05):
            self.count("answer lost")
            task.cancel()
            raise Gone
        await asyncio.sleep(chance.uniform(0, 0.001 if calm else chance.choice((0.001, 0.05, 2.0))))
        return task.result()

    async def until_answered(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        while True:
            try:
                status, answer = await self.call(method, path, encode(body) if body is not None else b"")
            except Gone:
                continue
            assert status != 500, answer
            if status < 300:
                return dict(decode(answer))
            if status < 500 and status != 404:
                return {"refused": status}
            await asyncio.sleep(self.chance.uniform(0.05, 1.0))

    # --- what must hold ---

    def check(self, driver: Realtime, records: list[Record]) -> None:
        """After every commit."""
        self.heard = max(self.heard, records[-1].seq if records else 0)
        assert driver.store.last_seq() >= self.heard
        found = problems(driver.state)
        assert found == [], found
        for record in records:
            if isinstance(record.event, ResultsReported) and isinstance(record.decided, ResultsJudged):
                for result, verdict in zip(record.event.results, record.decided.verdicts, strict=True):
                    if verdict == ACCEPTED:
                        assert (result.job, result.task) not in self.done, "counted twice"
                        self.done.add((result.job, result.task))
                        self.count("accepted")

    def check_restored(self, driver: Realtime) -> None:
        """After every restart: whatever anybody was told is still so, and the log alone tells the same state."""
        state = driver.state
        assert state.seq >= self.heard, "a record that was acknowledged is gone"
        for job in self.acknowledged.values():
            assert job in state.bags, f"job {job} was acknowledged and is gone"
        for job, task in self.done:
            assert state.bags[job].columns.state[task] == DONE, f"the result of {job}.{task} is gone"
        again = Realtime(self.memory, Engine(known_policies), Settings())
        again.restore()
        assert save(again.state) == save(state)

    def recount(self) -> None:
        """At the end, from the log and the outputs alone."""
        accepted: Counter[tuple[int, int]] = Counter()
        for row in self.memory.records(0, 10**9):
            record = decode_record(row.data)
            if isinstance(record.event, ResultsReported) and isinstance(record.decided, ResultsJudged):
                for result, verdict in zip(record.event.results, record.decided.verdicts, strict=True):
                    accepted[result.job, result.task] += verdict == ACCEPTED
        twice = {task: count for task, count in accepted.items() if count > 1}
        assert not twice, f"results counted twice: {twice}"
        state = self.lives[-1].driver.state
        for job in self.acknowledged.values():
            bag = state.bags[job]
            for task in range(bag.total):
                if bag.columns.state[task] != DONE:
                    assert job in self.cancelled, f"task {job}.{task} never ended"
                    continue
                assert accepted[job, task] == 1, f"{job}.{task} is done without a result"
                kept = output_rows(self.memory, job, [task])
                assert any(f"{job}.{task}".encode() in row.data for row in kept), f"the output of {job}.{task} is gone"
                assert not has_file(job) or self.memory.blob_size(sha256(file_of(job, task)).hexdigest())


async def _ignored(work: Coroutine[Any, Any, Any]) -> None:
    await asyncio.gather(work, return_exceptions=True)


class SimWorker:
    """A worker as the protocol describes it: numbered exchanges, repeated until they are answered; it may crash.

    Every other one shows no secret: when it comes back it has to wait until its lease has run out.
    """

    def __init__(self, world: World, number: int, slots: int) -> None:
        self.world, self.name, self.slots = world, f"w{number}", slots
        self.secret = f"secret of {number}" if number % 2 else ""
        self.boots = 0

    async def run(self) -> None:
        while True:
            self.boots += 1
            await self._life()
            self.world.count("worker crash")
            # After the longest of these it is forgotten, and comes back as a host that nobody knows.
            await asyncio.sleep(0.0 if self.world.calm else self.world.chance.choice((0.0, 0.0, 1.0, 5 * LEASE_S)))

    async def _life(self) -> None:
        world, chance = self.world, self.world.chance
        loop = asyncio.get_running_loop()
        boot, n = f"b{self.boots}", 0
        running: dict[Key, float] = {}
        ended: dict[Key, float] = {}
        crash_at = loop.time() + chance.expovariate(1 / 200)
        while True:
            now = loop.time()
            if now > crash_at and not world.calm:
                return
            for key, until in [*running.items()]:
                if until <= now:
                    ended[key] = running.pop(key)
            n += 1
            sending = list(ended)
            header = {
                "v": VERSION if self.secret else OLDEST, "host": self.name, "boot": boot, "n": n, "slots": self.slots,
                "want": max(0, self.slots - len(running)), "ad": {"cpus": self.slots} if n == 1 else None,
                "wait_s": chance.choice((0.0, 0.0, 5.0)), "held": len(running),
                "holds": [list(key) for key in running],
                "results": [self._row(key, now - ended[key]) for key in sending],
            }  # fmt: skip
            for key in sending:
                if has_file(key[0]):
                    await self._send(key)
            output = [f"{job}.{task}".encode() for job, task, _ in sending]
            answer = await self._exchange(header, output)
            if answer is None:
                return  # refused: as a worker that is started again
            for key in sending:
                del ended[key]
            for job, task, attempt, *_ in answer["tasks"]:
                running.setdefault((job, task, attempt), loop.time() + chance.expovariate(1 / 5))
            for key in [tuple(key) for key in [*answer["cancel"], *answer["hand_back"]]]:
                running.pop(key, None)  # type: ignore[call-overload]
            await asyncio.sleep(chance.uniform(0.05, 3.0))

    @staticmethod
    def _row(key: Key, ago_s: float) -> list[Any]:
        job, task, attempt = key
        sha, size = sha256(file_of(job, task)).hexdigest(), len(file_of(job, task))
        more = {"outputs": [["out", sha, size, 0o644]]} if has_file(job) else None
        return [job, task, attempt, "done", 0, ago_s, 1.0, 1.0, 1, len(f"{job}.{task}"), 0, 0, more]

    async def _send(self, key: Key) -> None:
        """Send the file of an attempt, until it is there."""
        content = file_of(*key[:2])
        path, attempt = f"/v1/blobs/{sha256(content).hexdigest()}", ".".join(map(str, key)) if self.secret else ""
        while True:
            with contextlib.suppress(Gone):
                status, answer = await self.world.call("PUT", path, content, self.secret, attempt)
                if status in (200, 201):
                    self.world.count("file")
                    return
                assert status in (429, 503, 507), answer
                await asyncio.sleep(self.world.chance.uniform(0.05, 1.0))

    async def _exchange(self, header: dict[str, Any], output: list[bytes]) -> dict[str, Any] | None:
        while True:
            try:
                body = frames.join(encode(header), output)
                status, answer = await self.world.call("POST", EXCHANGE, body, self.secret)
            except Gone:
                header = {**header, "wait_s": 0.0}
                continue
            assert status != 500, answer
            if status == 200:
                said: dict[str, Any] = decode(frames.split(answer)[0])
                return said
            if status in (400, 409):
                self.world.count(f"worker refused {status}")
                return None
            await asyncio.sleep(self.world.chance.uniform(0.05, 1.0))


def has_file(job: int) -> bool:
    """Whether the tasks of a job leave a file each."""
    return job % 2 == 0


def file_of(job: int, task: int) -> bytes:
    """Every third task of a job leaves the same."""
    return b"%d.%d" % (job, task % 3) * 40


async def client(world: World, number: int) -> None:
    """Submits a job, repeats that until it is acknowledged, perhaps cancels it, and waits for its end."""
    await asyncio.sleep(world.chance.uniform(0, STORMY_S / 2))
    count = world.chance.randint(1, 12)
    spec = {
        "name": f"bag{number}", "command": ["echo", "{}"], "key": f"key{number}", "max_losses": 1000, "max_failures": 1,
        "outputs": ["out"],
        "source": {"kind": "range", "first": 1, "last": count},
    }  # fmt: skip
    told = await world.until_answered("POST", "/v1/jobs", {"spec": spec, "count": count, "seal": True})
    job = int(told["job"])
    assert job not in world.acknowledged.values(), "two jobs have one number"
    world.acknowledged[f"key{number}"] = job
    world.count("job")
    if world.chance.random() < 0.15:
        await asyncio.sleep(world.chance.uniform(0, 30))
        world.cancelled.add(job)
        await world.until_answered("POST", f"/v1/jobs/{job}/cancel", {})
    while True:
        status = await world.until_answered("GET", f"/v1/jobs/{job}")
        if status.get("state") in ("done", "cancelled", "failed"):
            return
        await asyncio.sleep(world.chance.uniform(1, 10))


async def story(world: World) -> None:
    loop = asyncio.get_running_loop()
    loop.chance = random.Random(world.seed + 1)  # type: ignore[attr-defined]
    system = SimpleNamespace(time=lambda: START_T + loop.time() + world.jump_s, monotonic=lambda: loop.time())
    before, clock.time = clock.time, system  # type: ignore[assignment]
    try:
        first = await world.start_server()
        world.token = Service(first.driver, world.memory).tokens.create("admin", "all", 0.0)
        first.crash()  # it has not heard of the token
        await world.start_server()
        workers = [
            loop.create_task(SimWorker(world, n, world.chance.randint(1, 3)).run())
            for n in range(world.chance.randint(1, 4))
        ]
        storm = loop.create_task(world.weather())
        clients = [client(world, number) for number in range(world.chance.randint(1, 5))]
        work = asyncio.gather(storm, *clients)
        done, _ = await asyncio.wait({work, *workers}, timeout=STORMY_S + FINE_S, return_when=asyncio.FIRST_COMPLETED)
        if world.broken:
            raise world.broken[0]
        assert done, "work did not end in fine weather"
        for task in done:
            task.result()
        assert work.done()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        world.recount()
        await settled(world.lives[-1].driver)
        world.check_restored(world.lives[-1].driver)
    finally:
        for life in world.lives:
            life.crash()
        clock.time = before


async def settled(driver: Realtime) -> None:
    """Wait until the store has all that the state is made of: while it was waited for, one more may have come."""
    while True:
        try:
            await driver.settled()
        except Uncommitted:  # the disk was full a moment ago
            await asyncio.sleep(1.0)
            continue
        if driver.store.last_seq() == driver.state.seq:
            return
        await asyncio.sleep(0.1)


def live_through(seed: int) -> Counter[str]:
    """One world to its end: what happened in it. AssertionError if anything that must hold did not."""
    world = World(seed)
    with asyncio.Runner(loop_factory=FaultLoop) as runner:
        runner.run(story(world))
    return world.counts
