"""The keeper of plans: has a planner look at a job when something has changed, and proposes what it says to the engine.

Planners may think for seconds, so they do it in a process of its own, one job after the other. One that fails or takes
too long is replaced for the moment by one that needs no thinking: rent on demand. Touches one process, by a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from selectors import EVENT_READ, DefaultSelector

import msgspec

from windfall.core.events import PlanProposed, Record
from windfall.core.renting import plans
from windfall.drivers import planner_process
from windfall.drivers.planner_process import Answer, Question
from windfall.drivers.realtime import Realtime
from windfall.planning.contract import Plan, Snapshot

log = logging.getLogger(__name__)

DEFAULT, FALLBACK, WORKFLOW_FALLBACK = "windfall", "on-demand", "greedy"
LIMIT_S = 10.0
"""So long a planner may think."""
STARTS_S = 30.0
"""So long its process may take to start on a busy host, once."""
PAUSE_S = 0.1
"""Between two plans for one job: things happen in swarms."""
AGAIN_S = 10.0
"""When to look again if even the fallback failed."""


class PlanKeeper:
    """Keeps the plans of one server."""

    def __init__(self, driver: Realtime, limit_s: float = LIMIT_S) -> None:
        self._driver = driver
        self._planning = Planning(limit_s)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="planner")
        self._changed = asyncio.Event()
        self._at_work: dict[int, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, _load)
        self._driver.on_commit.append(self._committed)
        self._task = self._driver.background(self._keep(), "the keeper of plans")
        self._thread.submit(self._planning.warm)
        self._changed.set()

    async def stop(self) -> None:
        tasks = [task for task in (self._task, *self._at_work.values()) if task is not None]
        for task in tasks:
            task.cancel()
        self._planning.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._thread.shutdown()

    def _committed(self, records: list[Record]) -> None:
        if self._driver.state.fleet.plans_due:
            self._changed.set()

    async def _keep(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            for job in plans.due(self._driver.state):
                if job not in self._at_work:
                    self._at_work[job] = asyncio.create_task(self._plan(job))

    async def _plan(self, job: int) -> None:
        try:
            await self.plan(job)
        except Exception:
            log.exception("no plan could be made for job %d; trying again", job)
            await asyncio.sleep(AGAIN_S)
        await asyncio.sleep(PAUSE_S)
        del self._at_work[job]
        if self._driver.state.fleet.plans_due:
            self._changed.set()

    async def plan(self, job: int) -> None:
        """Look, think, propose."""
        driver = self._driver
        bag = driver.state.bags[job]
        name = bag.rules.planner or DEFAULT
        # Settled first: what a planner is shown should not be lost again while it thinks.
        await driver.settled()
        ended = plans.closing(driver.state, job)
        if ended is not None:
            await driver.submit([PlanProposed(driver.clock(), job, driver.state.seq, ended)])
            return
        named = planner_process.names_up_to(name, bag.shape is not None)
        snapshot, seq = plans.view(driver.state, job, driver.clock(), named), driver.state.seq
        plan, error = await asyncio.get_running_loop().run_in_executor(
            self._thread, self._planning.propose, name, snapshot
        )
        await driver.submit([PlanProposed(driver.clock(), job, seq, plan, error)])


def _load() -> None:
    """What plans and estimates need takes seconds to load on a busy host: once, and not on the loop."""
    import scipy.stats  # noqa: F401

    planner_process.names_up_to(DEFAULT, False)


class Planning:
    """A planner in a process of its own, from a thread. It is started when it is first needed, again when killed."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def warm(self) -> None:
        """Start the process before it is needed."""
        with contextlib.suppress(OSError, EOFError):
            if not self._closed:
                self._start()

    def propose(self, name: str, snapshot: Snapshot) -> tuple[Plan, str]:
        """A plan, and why it is not the chosen planner's, if so."""
        answer = self._ask(name, snapshot)
        if answer.plan is not None:
            return answer.plan, ""
        if self._closed:
            return Plan(), "the server stops"
        fallback = WORKFLOW_FALLBACK if snapshot.is_workflow else FALLBACK
        error = f"planner {name}: {answer.error}; {fallback} stepped in"
        log.warning("%s", error)
        try:
            return planner_process.think(fallback, snapshot), error
        except Exception as failure:
            return Plan(replan_t=snapshot.t + AGAIN_S), f"{error} and failed as well: {failure!r}"

    def _ask(self, name: str, snapshot: Snapshot) -> Answer:
        if self._closed:
            return Answer(error="the server stops")
        try:
            process = self._process or self._start()
            assert process.stdin is not None
            planner_process.send(process.stdin, Question(name, snapshot))
            body = self._receive(process, self._limit_s)
            return Answer(error=f"no answer within {self._limit_s:g} s") if body is None else body
        except (OSError, EOFError, msgspec.DecodeError) as failure:
            self._kill()
            return Answer(error=f"its process failed: {str(failure) or type(failure).__name__}")

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "windfall.drivers.planner_process"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        if self._receive(self._process, STARTS_S) is None:
            raise EOFError("it did not start")
        return self._process

    def _receive(self, process: subprocess.Popen[bytes], limit_s: float) -> Answer | None:
        """The next answer; None, and the process is killed, when it takes too long."""
        assert process.stdout is not None
        until = time.monotonic() + limit_s
        with DefaultSelector() as selector:
            selector.register(process.stdout, EVENT_READ)
            reader = planner_process.Reader(process.stdout)
            while True:
                if not selector.select(max(0.0, until - time.monotonic())):
                    self._kill()
                    return None
                if (body := reader.more()) is not None:
                    return msgspec.msgpack.decode(body, type=Answer)

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def close(self) -> None:
        """From another thread: whoever waits for an answer gets none."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
