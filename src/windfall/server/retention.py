"""What a server forgets by itself: ended jobs by age, number and size, and the beginning of its log. Touches the store.

Hosts that have left are forgotten by the engine (core.liveness.forgetting); here their limits are read.

Nothing of a job that has not ended is forgotten. Jobs go as by `windfall forget`; files that nobody names any more are
removed by the sweeper (sweeping.py). Sizes are read in a thread, beside the server.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from windfall.core.events import Settings
from windfall.core.jobs.forgetting import why_kept
from windfall.core.state.state import State
from windfall.errors import BadInput, WindfallError
from windfall.server.http.submission import let_go
from windfall.server.service import Service
from windfall.server.sweeping import BREATH_S, give_back, named_files
from windfall.store.contract import Store
from windfall.units import parse_bytes, parse_duration

log = logging.getLogger(__name__)

EVERY_S = 3600.0


class Retention(Struct, frozen=True, kw_only=True):
    """Each can be set: `windfall server --retain NAME=VALUE`. None: no limit."""

    age_s: float | None = None
    """Since a job has ended."""
    jobs: int | None = None
    """Ended jobs."""
    size_bytes: int | None = None
    """Specifications, tasks, outputs and files of all jobs together."""
    log_age_s: float | None = None
    """Of records of the log."""
    log_bytes: int | None = None
    """Records of the log together."""
    hosts: int | None = Settings().hosts_kept
    """Hosts that have left."""
    host_age_s: float | None = Settings().host_forget_s
    """Since a host that has left was last heard."""

    @property
    def chooses_jobs(self) -> bool:
        return (self.age_s, self.jobs, self.size_bytes) != (None, None, None)

    @property
    def cuts_log(self) -> bool:
        return (self.log_age_s, self.log_bytes) != (None, None)


NAMES = {
    "age": "age_s", "jobs": "jobs", "size": "size_bytes", "log-age": "log_age_s", "log-size": "log_bytes",
    "hosts": "hosts", "host-age": "host_age_s",
}  # fmt: skip
ALL = "all"
"""The value without a limit."""


def read_retention(pairs: Iterable[str]) -> Retention:
    """As an operator gives it, NAME=VALUE each. BadInput names the pair that cannot be."""
    found: dict[str, float | None] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        field = NAMES.get(name)
        if field is None or not equals:
            raise BadInput(f"--retain {pair}: no such rule", hint=f"as in age=30d; rules are: {', '.join(NAMES)}")
        if text == ALL:
            found[field] = None
        elif field.endswith("_bytes"):
            found[field] = parse_bytes(text, f"--retain {name}")
        elif field.endswith("_s"):
            found[field] = parse_duration(text, f"--retain {name}")
        elif text.isdecimal() and len(text) <= 12:
            found[field] = int(text)
        else:
            raise BadInput(f"--retain {pair}: not a whole number", hint="a number, or all")
    return Retention(**found)  # type: ignore[arg-type]


class Sizes(Struct):
    """Bytes by job, as they are kept."""

    rows: dict[int, int]
    """Specification, tasks and outputs."""
    files: dict[int, frozenset[str]]
    """Blobs that the job names."""
    blobs: dict[str, int]

    def total(self) -> int:
        return sum(self.rows.values()) + sum(self.blobs.values())


def read_sizes(store: Store, jobs: Iterable[int]) -> Sizes:
    blobs = dict(store.blobs())
    files = {job: frozenset(named_files(store, job)) & blobs.keys() for job in jobs} if blobs else {}
    return Sizes(store.job_bytes(), files, blobs)


def due(state: State, rules: Retention, now_s: float, sizes: Sizes | None) -> list[int]:
    """Ended jobs to forget, the oldest first. Those that are still needed, such as for a bill, are passed over."""
    ended = [
        bag for bag in state.bags.values() if bag.finished_t is not None and not why_kept(state, bag.number, now_s)
    ]
    ended.sort(key=lambda bag: (bag.finished_t or 0.0, bag.number))
    chosen: dict[int, None] = {}
    if rules.age_s is not None:
        chosen |= {bag.number: None for bag in ended if now_s - (bag.finished_t or 0.0) > rules.age_s}
    if rules.jobs is not None:
        all_ended = sum(bag.finished_t is not None for bag in state.bags.values())
        chosen |= {bag.number: None for bag in ended[: max(0, all_ended - rules.jobs)]}
    if rules.size_bytes is not None and sizes is not None:
        over = sizes.total() - rules.size_bytes
        users = Counter(blob for files in sizes.files.values() for blob in files)
        for number in [*chosen, *(bag.number for bag in ended if bag.number not in chosen)]:
            if number not in chosen and over <= 0:
                break
            chosen[number] = None
            over -= sizes.rows.get(number, 0)
            for blob in sizes.files.get(number, ()):
                users[blob] -= 1
                over -= 0 if users[blob] else sizes.blobs[blob]
    return list(chosen)


class Retainer:
    """Forgets what the rules say, once an hour."""

    def __init__(self, service: Service, rules: Retention) -> None:
        self._service, self._rules = service, rules

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except WindfallError as error:
                log.warning("what is old could not be forgotten: %s", error.message)
            await asyncio.sleep(EVERY_S)

    async def look(self) -> tuple[list[int], int]:
        """Jobs that were forgotten, and records that were dropped."""
        forgotten = await self._forget_jobs() if self._rules.chooses_jobs else []
        dropped = await self._cut_log() if self._rules.cuts_log else 0
        if forgotten or dropped:
            log.info("%d ended jobs and %d records of the log were forgotten", len(forgotten), dropped)
            await give_back(self._service.store)
        return forgotten, dropped

    async def _forget_jobs(self) -> list[int]:
        service, sizes = self._service, None
        if self._rules.size_bytes is not None:
            sizes = await asyncio.to_thread(read_sizes, service.store, list(service.state.bags))
        jobs = due(service.state, self._rules, service.driver.clock(), sizes)
        return [job for job in jobs if not await let_go(service, job)]

    async def _cut_log(self) -> int:
        service, rules = self._service, self._rules
        before_t = None if rules.log_age_s is None else service.driver.clock() - rules.log_age_s
        seq = await asyncio.to_thread(service.store.log_before, before_t, rules.log_bytes)
        first = await asyncio.to_thread(_first_needed, service.store, service.state)
        seq = min(seq, first - 1) if first else seq
        dropped = 0
        while cut := await asyncio.to_thread(service.store.cut_log, seq):
            dropped += cut
            await asyncio.sleep(BREATH_S)
        return dropped


def _first_needed(store: Store, state: State) -> int:
    """The first record of the first job that has not ended; 0 if all have."""
    job = min((bag.number for bag in list(state.bags.values()) if bag.finished_t is None), default=0)
    if not job:
        return 0
    rows = store.records(0, 1, job=job)
    return rows[0].seq if rows else 1
