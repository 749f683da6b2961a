"""Tells each hook the state of every job that has another one than the hook was told last. Touches one file a hook.

A follower of the log: it compares what is committed with what it has told, so it needs no queue, blocks nobody, and
goes on after a restart of the server where it was. A state that lasted only while a hook could not be reached is left
out; the newest one is told at least once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from windfall.server.hooks.config import FINAL, Hook
from windfall.server.hooks.sending import Refused, deliver
from windfall.server.pool_tokens import write_private
from windfall.server.queries.one_job import job_status
from windfall.server.service import Service

log = logging.getLogger(__name__)
LONGEST_PAUSE_S = 300.0
LOOK_S = 0.2
"""Seconds between two looks: many commits make one."""


class Told(Struct):
    """What a hook was told: of jobs up to `until` the last state; those that are not in `open` had ended."""

    until: int = 0
    open: dict[str, str] = field(default_factory=dict)

    def state_of(self, job: int) -> str | None:
        """Empty: it had ended, in whatever way. None: it was never told of."""
        return self.open.get(str(job), "" if job <= self.until else None)

    def note(self, job: int, state: str) -> None:
        for skipped in range(self.until + 1, job):
            self.open[str(skipped)] = "new"
        self.until = max(self.until, job)
        if state in FINAL:
            self.open.pop(str(job), None)
        else:
            self.open[str(job)] = state


class Follower:
    """One hook of one server."""

    def __init__(self, service: Service, hook: Hook, folder: Path) -> None:
        self._service, self._hook = service, hook
        self._file = folder / f"{hook.name}.json"
        self._told = self._read()
        self._seq = 0

    def _read(self) -> Told:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(self._file.read_bytes(), type=Told)
        bags = self._service.state.bags
        # A new hook hears of what happens from now on.
        states = {str(bag.number): bag.state for bag in bags.values() if bag.state not in FINAL}
        return Told(bags.next - 1, states)

    async def run(self) -> None:
        """For as long as the server runs."""
        self._keep()
        for job in self._due():
            await self._try_to_tell(job)
        while True:
            seq = self._seq
            await self._service.change(lambda: self._service.committed > seq, 60.0)  # noqa: B023
            await asyncio.sleep(LOOK_S)
            self._seq, versions = self._service.committed, self._service.versions
            for job in [job for job, version in versions.items() if version > seq]:
                await self._try_to_tell(job)

    def _due(self) -> list[int]:
        """Jobs that changed while no server ran, or before this hook had heard of it."""
        told, bags = self._told, self._service.state.bags
        again = [bag.number for bag in bags.values() if bag.finished_t is None and bag.number <= told.until]
        return [*dict.fromkeys([*map(int, told.open), *again, *range(told.until + 1, bags.next)])]

    async def _try_to_tell(self, job: int) -> None:
        """Whatever goes wrong with a hook is no reason to stop the server."""
        try:
            await self._tell(job)
        except Exception:
            log.exception("hook %s failed", self._hook.name)

    async def _tell(self, job: int) -> None:
        bag = self._service.state.bags.get(job)
        if bag is None:  # it was forgotten, or the number is that of a fleet
            self._told.open.pop(str(job), None)
            return
        known, state = self._told.state_of(job), bag.state
        if state == known or (known == "" and state in FINAL):
            return
        if self._hook.wants(bag.rules.name, state):
            await self._deliver(job, state)
        self._told.note(job, state)
        self._keep()

    async def _deliver(self, job: int, state: str) -> None:
        hook, bag = self._hook, self._service.state.bags[job]
        delivery = f"{job}-{state}-{self._service.versions.get(job, 0)}"
        status = job_status(self._service, bag)
        news: dict[str, Any] = {"hook": hook.name, "delivery": delivery, **status, "state": state}
        pause_s = hook.pause_s
        for number in range(1, hook.tries + 1):
            try:
                await deliver(hook, news, self._service.driver.clock())
                return
            except Refused as error:
                if error.final or number == hook.tries:
                    log.error("hook %s is not told that job %d is %s: %s", hook.name, job, state, error)
                    return
                log.warning("hook %s does not take that job %d is %s, try %d: %s", hook.name, job, state, number, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _keep(self) -> None:
        try:
            self._file.parent.mkdir(mode=0o700, exist_ok=True)
            write_private(self._file, json.dumps(msgspec.to_builtins(self._told)))
        except OSError as error:
            log.warning("what hook %s was told could not be written down: %s", self._hook.name, error)
