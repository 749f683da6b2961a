"""The keeper of plans: has a fleet planned when something has changed, and proposes the plan to the engine.

Planners may take seconds, so they run in a process of their own, one fleet after the other. If one fails or takes too
long, the fallback plans instead, which needs no search: rent on demand. Touches one process, by a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from selectors import EVENT_READ, DefaultSelector
from typing import Protocol

import msgspec

from windfall.core.records import Record
from windfall.core.wishes import PLANNER, PlanWish, plan_wish, wishes
from windfall.drivers import thinking
from windfall.drivers.failures import Uncommitted
from windfall.drivers.keepers import planner_process
from windfall.drivers.keepers.planner_process import Answer, Question
from windfall.drivers.realtime import Realtime
from windfall.errors import BadInput
from windfall.planning.contract import BAG, Plan, Snapshot

log = logging.getLogger(__name__)

LIMIT_S = 10.0
"""Seconds that a planner may take."""
STARTS_S = 30.0
"""Seconds that its process may take to start on a busy host, once."""


class Asked(Protocol):
    """How planners are asked. All but `close` are called from one thread."""

    def warm(self) -> None: ...
    def propose(self, wish: PlanWish, asked: Plan | Snapshot) -> tuple[Plan, str]: ...
    def close(self) -> None: ...

    def clear(self) -> None: ...


class PlanKeeper:
    """Keeps the plans of one server; `planning` asks planners, in a process of its own if not told otherwise."""

    def __init__(self, driver: Realtime, limit_s: float = LIMIT_S, planning: Asked | None = None) -> None:
        self._driver = driver
        self._planning = planning or Planning(limit_s)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="planner")
        self._changed = asyncio.Event()
        self._at_work: dict[int, asyncio.Task[None]] = {}
        self._waiting: dict[int, tuple[float, asyncio.Event]] = {}
        """Fleets whose plan is not due yet: when it is, and what wakes it if it is due sooner."""
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
        self._planning.clear()

    def _committed(self, records: list[Record]) -> None:
        if self._driver.state.fleet.plans_due:
            self._changed.set()

    async def _keep(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            for fleet in list(wishes(self._driver.state).plans):
                waits_until_t, sooner = self._waiting.get(fleet, (-math.inf, None))
                if fleet in self._at_work and sooner is None:
                    continue
                wish = plan_wish(self._driver.state, fleet)
                if sooner is not None:
                    # Changes that are collected may be followed by one that cannot wait.
                    if wish is None or wish.at_t < waits_until_t:
                        sooner.set()
                elif wish is not None:
                    self._at_work[fleet] = asyncio.create_task(self._plan(wish))

    async def _plan(self, wish: PlanWish) -> None:
        try:
            await self._wait(wish)
            await self.plan(wish.fleet)
        except Uncommitted:
            await asyncio.sleep(wish.retry_s)  # nothing can be written now, and the driver has said why
        except Exception:
            log.exception("no plan could be made for fleet %d; trying again", wish.fleet)
            await asyncio.sleep(wish.retry_s)
        finally:
            del self._at_work[wish.fleet]
        if self._driver.state.fleet.plans_due:
            self._changed.set()

    async def _wait(self, wish: PlanWish) -> None:
        """Until the plan is due."""
        sooner, at_t = asyncio.Event(), wish.at_t
        try:
            while (left_s := at_t - self._driver.clock()) > 0.0:
                self._waiting[wish.fleet] = at_t, sooner
                sooner.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(sooner.wait(), left_s)
                now = plan_wish(self._driver.state, wish.fleet)
                at_t = -math.inf if now is None else min(at_t, now.at_t)
        finally:
            self._waiting.pop(wish.fleet, None)

    async def plan(self, fleet: int) -> None:
        """Look, think, propose."""
        driver = self._driver
        # Durable first: the snapshot of a planner should hold nothing that could still be lost.
        await driver.settled()
        wish = plan_wish(driver.state, fleet)
        if wish is None:
            return
        named = planner_process.names_up_to(wish.planner, wish.kind)
        asked, seq = thinking.question(driver.state, wish, driver.clock(), named, True), driver.state.seq
        answered = await asyncio.get_running_loop().run_in_executor(self._thread, self._planning.propose, wish, asked)
        await driver.submit([thinking.proposal(wish, seq, driver.clock(), asked, answered)])


def _load() -> None:
    """What plans and estimates need takes seconds to load on a busy host: once, and not on the loop."""
    import scipy.special  # noqa: F401

    planner_process.names_up_to(PLANNER, BAG)


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

    def propose(self, wish: PlanWish, asked: Plan | Snapshot) -> tuple[Plan, str]:
        """A plan, and why it is not the chosen planner's, if so."""
        plan, error = thinking.answer(wish, asked, self._ask, planner_process.think)
        if error and not self._closed:
            log.warning("%s", error)
        return plan, error

    def _ask(self, name: str, snapshot: Snapshot) -> Plan:
        """The answer of the planner's process. BadInput says why there is none."""
        if self._closed:
            raise BadInput("the server stops")
        try:
            process = self._process or self._start()
            assert process.stdin is not None
            planner_process.send(process.stdin, Question(name, snapshot))
            answer = self._receive(process, self._limit_s)
        except (OSError, EOFError, msgspec.DecodeError) as failure:
            self._kill()
            raise BadInput(f"its process failed: {str(failure) or type(failure).__name__}") from failure
        if answer is None:
            raise BadInput(f"no answer within {self._limit_s:g} s")
        if answer.plan is None:
            raise BadInput(answer.error)
        return answer.plan

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "windfall.drivers.keepers.planner_process"]
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

    def clear(self) -> None:
        """After `close`, when no thread waits for an answer any more: leave neither process nor pipes behind."""
        self._kill()

    def close(self) -> None:
        """Called from another thread: an answer that is waited for will not come."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
