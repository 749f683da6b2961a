"""A batch system as a pool: one job, or one element of a job array, is one worker. Touches its commands and a folder.

A job carries its worker's name, its pool and the id of the state in its own name: one query for all jobs of this user
tells which are ours, even those whose submission was not answered. The name of an array is what the names of its
workers begin with; the number of an element is the rest.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from windfall.planning.offers import Offer
from windfall.pools.batch import doctor
from windfall.pools.batch.script import BATCH_LOG
from windfall.pools.batch.settings import BatchSettings, notice_s, walltime_s
from windfall.pools.batch.submit import Request, Submitter
from windfall.pools.batch.systems import Job, System
from windfall.pools.contract import (
    ENDED,
    INVALID,
    PENDING,
    QUOTA,
    RELEASED,
    TRANSIENT,
    Check,
    Order,
    PoolError,
    Seen,
)
from windfall.pools.kinds import Place, PoolConfig
from windfall.pools.starting.calls import call
from windfall.pools.starting.shipped import (
    LOG,
    last_words,
    lay_out,
    one_line,
    renew_token,
    server_of,
    worker_options,
    write_private,
)
from windfall.units import parse_bytes, parse_duration

TAG = "windfall"
SHOWN_S = 600.0
"""Seconds for which a worker is listed after its end."""
HAND_BACK_S = 5.0
"""Seconds that a worker has to hand its tasks back; then its job is cancelled."""
UNSURE_S = 120.0
"""Seconds after which a job whose submission was not answered must be in the queue."""
SLOWEST_S = 60.0
"""Longest time between two queries of a queue in which nothing changes."""
BUSY_SHARE = 0.05
"""A query that takes long burdens the batch system: it is busy with ours for at most this share of the time."""
Rows = list[Seen]  # `list` is also the name of a method
Checks = list[Check]
Jobs = list[Job]
Words = list[str]
Answers = list[str | PoolError]
Refusals = dict[str, PoolError]
_NUMBERED = re.compile(r"(.*-)([1-9]\d{0,8})")
LARGEST_INDEX = 1000
"""Slurm refuses larger numbers of elements unless it is configured otherwise."""


class Kept(Struct):
    """What is written down about one worker."""

    host: str
    id: str = ""
    started_t: float = 0.0
    ended_t: float = 0.0
    cause: str = ""
    about: str = ""
    told_t: float = 0.0
    """When it was first told to hand back its tasks."""
    told: bool = False
    name: str = ""
    """Of its job."""


class BatchPool:
    """See windfall.pools.contract.Pool. The id of a worker is that of its job."""

    offers: tuple[Offer, ...] = ()

    def __init__(self, system: System, pool: PoolConfig, place: Place, clock: Callable[[], float] = time.time) -> None:
        self._system, self._pool, self._place, self._clock = system, pool, place, clock
        self._settings: BatchSettings = pool.settings
        self._limit_s = parse_duration(self._settings.time_limit, "time_limit")
        self._stated_s = parse_duration(self._settings.interval, "interval")
        self._least_s = self.interval_s = self._stated_s
        own = self._settings.folder
        self._folder = (pool.base.resolve() / Path(own).expanduser() / place.owner) if own else place.directory
        self._submitter = Submitter(system, self._folder / "submit", self._limit_s)
        self._tag = f"{TAG}+{_plain(place.owner)}+{_plain(pool.name)}+"
        self._arrays = self._settings.arrays and system.arrays is not None
        self._kept: dict[str, Kept] = {}
        self._last: dict[str, str] = {}
        """Phase of each worker's job at the last query."""
        for path in sorted(self._folder.glob("*/order.json")):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                kept = msgspec.json.decode(path.read_bytes(), type=Kept)
                self._kept[kept.host] = kept

    # --- the contract ---

    def start(self, order: Order) -> str | PoolError:
        return self.start_many([order])[0]

    def start_many(self, orders: Sequence[Order]) -> Answers:
        """Start workers, together as one job array if that can be."""
        known = [kept for order in orders if (kept := self._kept.get(order.host)) is not None]
        # Of some, an earlier call did not hear whether the job was taken: the queue knows, and must be asked first.
        unsure = any(not kept.id and not kept.ended_t for kept in known)
        if unsure and isinstance(unknown := self.list(), PoolError):
            return [unknown] * len(orders)
        new = [order for order in orders if order.host not in self._kept]
        refused = self._submit(new) if self._is_array(new) else self._submit_singly(new)
        found = [self._kept.get(order.host) for order in orders]
        return [
            refused[order.host] if kept is None or order.host in refused else kept.id or kept.host
            for order, kept in zip(orders, found, strict=True)
        ]

    def _is_array(self, orders: Sequence[Order]) -> bool:
        """Whether workers can be the elements of one array: alike but for their numbers, which follow on each other."""
        named = [_NUMBERED.fullmatch(order.host) for order in orders]
        parts = [(found[1], int(found[2])) for found in named if found is not None]
        if len(orders) < 2 or not self._arrays or len(parts) < len(orders) or parts[-1][1] > LARGEST_INDEX:
            return False
        alike = {(prefix, order.slots) for (prefix, _), order in zip(parts, orders, strict=True)}
        return len(alike) == 1 and [number for _, number in parts] == [*range(parts[0][1], parts[-1][1] + 1)]

    def _submit_singly(self, orders: Sequence[Order]) -> Refusals:
        """Each as a job of its own, up to the first refusal: the others would fare no better."""
        for place, order in enumerate(orders):
            if refused := self._submit([order]):
                return dict.fromkeys((each.host for each in orders[place:]), refused[order.host])
        return {}

    def _submit(self, orders: Sequence[Order]) -> Refusals:
        """Submit one job, or one array. What is refused leaves nothing behind."""
        request, kept = self._request(orders), list[Kept]()
        for order in orders:
            if isinstance(new := self._laid_out(order, request.name), PoolError):
                self._forget_all(kept)
                return dict.fromkeys((each.host for each in orders), new)
            kept.append(new)
        answer = self._submitter.submit(request)
        self.interval_s = self._least_s
        if answer.error is None:
            for each in kept:
                each.id = self._element(answer.id, request, each.host)
                self._write(each)
            return {}
        if not answer.unsure:  # else the job may come, and is found by its name
            self._forget_all(kept)
        if len(orders) > 1 and not answer.unsure and ("array" in answer.error.error.lower() or _is_quota(answer.error)):
            # A system without arrays takes single jobs, and a quota may leave room for some of them.
            self._arrays = self._arrays and _is_quota(answer.error)
            return self._submit_singly(orders)
        return dict.fromkeys((each.host for each in orders), answer.error)

    def _laid_out(self, order: Order, name: str) -> Kept | PoolError:
        folder, settings = self._of(order.host), self._settings
        try:
            options = worker_options(order, self._pool)
            server = server_of(self._place, settings.server)
            lay_out(folder, self._place, server, order.host, options, settings.python)
        except OSError as error:
            return PoolError(f"{folder}: {error.strerror or error}", TRANSIENT)
        kept = self._kept[order.host] = Kept(order.host, started_t=self._clock(), name=name)
        self._write(kept)
        return kept

    def _element(self, id: str, request: Request, host: str) -> str:
        """The id of a worker's job: that of the job submitted, or of its element of the array submitted."""
        if request.elements is None or self._system.arrays is None:
            return id
        number = int(self._tag_and(host).removeprefix(request.name))
        return self._system.arrays.element(id, number)

    def _request(self, orders: Sequence[Order]) -> Request:
        settings, first, last = self._settings, orders[0], orders[-1]
        memory = parse_bytes(settings.memory) * first.slots if settings.memory else None
        seconds = walltime_s(settings)
        begins, elements = first.host, None
        if len(orders) > 1:
            begins = first.host.rstrip("0123456789")
            elements = (int(first.host.removeprefix(begins)), int(last.host.removeprefix(begins)))
        return Request(
            self._tag_and(begins), self._of(begins), first.slots * settings.cores, seconds, notice_s(settings, seconds),
            settings.where, settings.account, memory, settings.directives, elements,
        )  # fmt: skip

    def _tag_and(self, host: str) -> str:
        return self._tag + host

    def list(self) -> Rows | PoolError:
        jobs = self._jobs()
        if isinstance(jobs, PoolError):
            return jobs
        now, rows = self._clock(), Rows()
        listed: dict[str, Job] = {}
        for job in jobs:
            if not job.name.startswith(f"{TAG}+"):
                continue  # of this user, but nothing of Windfall's
            if not job.name.startswith(self._tag):
                if job.phase != ENDED and not self._is_of_this_state(job):
                    rows.append(Seen(job.id, job.phase, job.since_t, about=f"job {job.name} of another state"))
                continue
            self._note(job, listed)
        self._adapt(listed)
        return [self._seen(kept, listed.get(kept.host), now) for kept in [*self._kept.values()]] + rows

    def _jobs(self) -> Jobs | PoolError:
        """Every job of this user, by one query."""
        began = time.monotonic()
        called = call(self._system.listing, b"", self._limit_s, env=self._system.env)
        program = self._system.listing[0]
        if called.trouble or called.code:
            said = one_line(called.stderr) or called.trouble or f"exit code {called.code}"
            return PoolError(f"{program}: {said}", TRANSIENT)
        self._least_s = max(self._stated_s, min(SLOWEST_S, (time.monotonic() - began) / BUSY_SHARE))
        try:
            return self._system.parse(called.stdout)
        except msgspec.DecodeError as error:
            return PoolError(f"{program} printed something else than expected: {error}", INVALID)

    def stop(self, id: str, gently: bool = False) -> PoolError | None:
        """Gently: one SIGTERM to the worker. Else a second one, by which tasks are handed back, and then the end."""
        alive = (kept for kept in self._kept.values() if not kept.ended_t)
        kept = next((kept for kept in alive if id in (kept.id, kept.host)), None)
        if kept is None or not kept.id or (gently and kept.told):
            return None
        first, now = not kept.told, self._clock()
        kept.told, kept.told_t = True, kept.told_t or (0.0 if gently else now)
        self._write(kept)
        self.interval_s = self._least_s
        if self._last.get(kept.host) == PENDING or (kept.told_t and now > kept.told_t + HAND_BACK_S):
            return self._tell(self._system.cancel, kept)
        problem = self._tell(self._system.terminate, kept)
        if first and not gently and problem is None:
            time.sleep(0.05)  # two signals at once would count as one
            problem = self._tell(self._system.terminate, kept)
        return problem

    def doctor(self) -> Checks:
        checks = doctor.programs(self._system, self._limit_s)
        if any(check.error for check in checks):
            return checks
        settings, server = self._settings, server_of(self._place, self._settings.server)
        checks.append(doctor.answers(self._system, self._jobs()))
        checks.append(doctor.writable(self._folder))
        checks.append(doctor.reachable(self._system, server, bool(settings.server), self._limit_s))
        if self._system.dry_run and not any(check.error for check in checks):
            request = self._request([Order("doctor", self._pool.slots)])
            answer = self._submitter.submit(request, dry=True)
            checks.append(doctor.accepted(self._system, answer, settings.where, settings.account))
        return checks

    def close(self) -> None:
        pass

    # --- one worker ---

    def _note(self, job: Job, listed: dict[str, Job]) -> None:
        """Find the worker of a job by its id, or by its name if its submission was not answered."""
        host = job.name.removeprefix(self._tag) + (job.index if job.name.endswith("-") else "")
        kept = self._kept.get(host)
        if kept is None:
            if job.phase == ENDED:
                return
            kept = self._kept[host] = Kept(host, started_t=self._clock(), name=job.name)
        if not kept.id:
            kept.id = job.id
            self._write(kept)
        if kept.id == job.id:
            listed[host] = job

    def _is_of_this_state(self, job: Job) -> bool:
        return job.name.startswith(f"{TAG}+{_plain(self._place.owner)}+")

    def _seen(self, kept: Kept, job: Job | None, now: float) -> Seen:
        if not kept.ended_t:
            if job is not None and job.phase != ENDED:
                if job.phase == PENDING:
                    renew_token(self._of(kept.host), self._place, kept.host)
                return Seen(kept.id, job.phase, job.since_t or kept.started_t, kept.host, about=job.why)
            if job is None and now < kept.started_t + (0.0 if kept.id else UNSURE_S):
                return Seen(kept.host, PENDING, kept.started_t, kept.host)
            self._end(kept, job, now)
        elif now > kept.ended_t + SHOWN_S:
            self._forget(kept)
        return Seen(kept.id or kept.host, ENDED, kept.ended_t, kept.host, kept.cause, None, kept.about)

    def _end(self, kept: Kept, job: Job | None, now: float) -> None:
        kept.ended_t = now
        kept.cause = RELEASED if kept.told else job.cause if job is not None else ""
        how = job.why if job is not None and job.why else "it is not in the queue any more"
        folder = self._of(kept.host)
        said = last_words(folder / BATCH_LOG), last_words(folder / LOG)
        kept.about = f"job {kept.id} of worker {kept.host}: {': '.join(part for part in (how, *said) if part)}"
        self._write(kept)
        (folder / "worker.pyz").unlink(missing_ok=True)

    def _adapt(self, listed: dict[str, Job]) -> None:
        """Ask again soon while something changes, and ever less often while nothing does."""
        phases = {host: job.phase for host, job in listed.items()}
        changed = phases != self._last
        self._last = phases
        self.interval_s = self._least_s if changed else min(SLOWEST_S, max(self._least_s, self.interval_s * 1.5))

    def _tell(self, command: Words, kept: Kept) -> PoolError | None:
        words = [word.format(name=kept.name or self._tag_and(kept.host)) for word in command]
        called = call([*words, kept.id], b"", self._limit_s)
        said = one_line(called.stderr) or called.trouble
        if not called.trouble and (called.code == 0 or any(words in said.lower() for words in self._system.gone)):
            return None
        return PoolError(f"{command[0]}: {said or f'exit code {called.code}'}", TRANSIENT)

    def _forget_all(self, kept: Sequence[Kept]) -> None:
        for each in kept:
            self._forget(each)

    def _forget(self, kept: Kept) -> None:
        shutil.rmtree(self._of(kept.host), ignore_errors=True)
        self._kept.pop(kept.host, None)

    def _write(self, kept: Kept) -> None:
        path = self._of(kept.host) / "order.json"
        with contextlib.suppress(OSError):  # on a full disk the job is found by its name
            write_private(path.with_suffix(".new"), msgspec.json.encode(kept).decode())
            path.with_suffix(".new").replace(path)

    def _of(self, host: str) -> Path:
        return self._folder / host


def _is_quota(error: PoolError) -> bool:
    return error.kind == QUOTA


def _plain(text: str) -> str:
    """As it may stand in the name of a job."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)
