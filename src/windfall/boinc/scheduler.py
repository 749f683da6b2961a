"""One call of a client: its reports become results, its wish for work an asking host, the answer workunits.

Decides nothing: which tasks a host gets, what becomes of a result and how long an attempt may take, the engine says.
Touches the store's blobs and the front's uploads.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Iterable
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
from msgspec import Struct, field

from windfall.boinc import names
from windfall.boinc.accounts import Account
from windfall.boinc.bundle import BadArchive, LaunchTask, TaskEnd, are_announced, job_file, read_archive
from windfall.boinc.credit import owner_of
from windfall.boinc.keys import PLATFORM
from windfall.boinc.names import Bundle, grouped, read_name
from windfall.boinc.replies import Reply, SentFile, SentWork
from windfall.boinc.requests import ABORTED, FINISHED, Report, SchedulerRequest
from windfall.boinc.validators import CannotJudge, NotYet, judged, pieces_of
from windfall.bounds import MAX_WANT
from windfall.core.decisions import Assigned, HostAnswered
from windfall.core.events import HostAsked, Key, Result, ResultsReported
from windfall.core.jobs.attempts import given_up
from windfall.core.matching.bundles import run_s
from windfall.core.records import Record
from windfall.core.state.hosts.hosts import GONE, Host
from windfall.core.state.jobs.attempts import Attempt
from windfall.server.http.workers.exchange import each_task_once, output_rows
from windfall.server.http.workers.fingerprints import fingerprint
from windfall.server.http.workers.handing_out import fail, hand_out
from windfall.server.http.workers.result_files import Sent
from windfall.server.http.workers.result_files import judged as judged_files
from windfall.server.outputs import output_files
from windfall.store.contract import Batch
from windfall.wire.messages import CANCELLED, CAUSES, DISAGREED, DONE, INPUTS, LOST, OOM, OUTPUTS, PREEMPTED, TIME

if TYPE_CHECKING:
    from windfall.boinc.front import Front

log = logging.getLogger(__name__)

BOOT = "boinc"
"""Clients keep their tasks when they are started again: to the engine they never are."""
MAX_ROOM = 1000
ROUND_TRIP_S = 20.0
"""From the end of a workunit to the begin of the next: clients act at ticks of seconds, whatever the network."""
CLOCKS_AGREE_S = 300.0
"""Clocks that differ by less are called right: a request may have been on its way for a while."""
DOWNLOAD_FAILED = (0, 1, 2)
ABORT_CAUSES = {202: CANCELLED, 197: TIME, 196: OOM, 198: OOM}
"""Why a client aborts a result, by its exit status; others are the volunteer's own wish, or a deadline."""
NEWCOMER_HOLDS = 16
"""Tasks that a host may hold before its first accepted result. A host that vanishes delays no more than these."""
JUDGING_S = 100.0
"""A client does not wait five minutes for an answer: what validators have not judged by then waits for the next."""
MOST_JUDGED = 100_000
NOT_STARTED = 200
"""Exit status of a result that had not begun when its deadline came."""
DEFAULT_MEMORY_BYTES = 256 << 20
DEFAULT_LIMIT_S = 7 * 86400.0
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
_pack = msgspec.msgpack.Encoder().encode


class Ended(Struct):
    """What is made of the reports of one call: events, rows for the store, files that are no longer needed."""

    results: dict[str, list[Result]] = field(default_factory=dict)
    """By the host that held the attempts."""
    outputs: list[tuple[Key, bytes]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    sent: Sent = field(default_factory=dict)
    taken: set[Key] = field(default_factory=set)
    """Attempts of which a result is there."""


class Scheduler:
    """The scheduler of one front. `_locks`: the calls of one host come one after another."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._service = front.service
        self._locks: dict[str, asyncio.Lock] = {}
        self._md5: dict[str, str] = {}
        """MD5 of input blobs by their sha256."""
        self._judged: dict[tuple[str, str, int], str] = {}
        """By name and MD5 of an upload and a task: what a validator has said, while others of the upload wait."""
        self._hosts_of: Counter[int] = Counter()
        """Hosts of each account, perhaps with some that have gone since."""

    async def answer(self, request: SchedulerRequest, account: Account) -> Reply:
        name = self._host_name(request, account)
        if self._service.state.host(name) is None and self._has_most_hosts(account):
            return self._front.refusal("this account has as many hosts as the project lets one have")
        lock = self._locks.setdefault(name, asyncio.Lock())
        try:
            async with lock:
                return await self._answer(request, account, name)
        finally:
            if not lock.locked():
                self._locks.pop(name, None)

    async def _answer(self, request: SchedulerRequest, account: Account, name: str) -> Reply:
        reply = self._front.empty_reply(account)
        unjudged = await self._take_reports(request.reports, account)
        reply.acks = [report.name for report in request.reports if report.name not in unjudged]
        held = self._held(request.held, account)
        # What nobody waits for is acknowledged however often it is reported, or it would come for ever.
        reply.acks += [name for name in request.doubtful if name not in held]
        host, assigned = await self._ask(request, account, name, held)
        if request.hostid != host.number:
            reply.hostid = host.number
        reply.host_credit = host.record.credit
        key_is_good = self._front.tell_key(request.key, reply)
        if request.wants_s > 0 and not self._front.serves(request.platforms):
            reply.message = f"there are tasks for {PLATFORM} alone, not for {request.platforms[0] or 'yours'}"
        known = {*held, *reply.acks}
        reply.aborts = [told for told in request.held if told not in known]
        if key_is_good:
            fresh = {key for piece in assigned for key in _keys(piece)}
            lost = [key for key in host.held if key not in held.attempts and key not in fresh and self._is_live(key)]
            free = max(1, ceil(request.idle) or host.slots)
            new = [bundle for piece in assigned for bundle in _split(piece, free)]
            again = [part for bundle in grouped(lost, MAX_ROOM) for part in _split(bundle, free)]
            bundles = [*again, *new]
            reply.work = await self._work(bundles[: self._front.settings.most_results])
            ahead_s = self._clock_ahead_s(request)
            for work in reply.work:
                work.deadline_t += ahead_s
        return reply

    def _clock_ahead_s(self, request: SchedulerRequest) -> float:
        """How far the client's clock is ahead: it would give up at once what is due by a clock that lies behind."""
        ahead_s = request.now_t - self._service.driver.clock() if request.now_t > 0 else 0.0
        return ahead_s if abs(ahead_s) > CLOCKS_AGREE_S else 0.0

    # --- who asks ---

    def _host_name(self, request: SchedulerRequest, account: Account) -> str:
        """The engine's name of the host. A number counts if it is of this account; else the machine's own id does."""
        known = self._service.state.hosts.get(request.hostid)
        if known is not None and owner_of(known) == account.id:
            return known.name
        return f"boinc-{account.id}-{request.host.cpid or 'unknown'}"

    def _has_most_hosts(self, account: Account) -> bool:
        """Whether an account has as many hosts as one may have: a client can make up any number of them."""
        if not self._hosts_of or self._hosts_of[account.id] >= self._front.settings.most_hosts:
            there = (host for host in self._service.state.hosts.values() if host.state != GONE)
            self._hosts_of = Counter(map(owner_of, there))
        if self._hosts_of[account.id] >= self._front.settings.most_hosts:
            return True
        self._hosts_of[account.id] += 1
        return False

    def _ad(self, request: SchedulerRequest, account: Account) -> dict[str, Any]:
        machine = request.host
        # Everybody who may look at hosts sees the ad: names of people and of their machines only if they agreed.
        names_ = {"name": machine.name, "volunteer": account.name} if account.shows_name else {}
        return {
            "pool": self._front.pool, "cpus": float(machine.cpus), "slots": machine.cpus,
            "memory_mb": machine.memory_bytes >> 20, "os": "linux", "arch": "x86_64", "owner": str(account.id),
            "round_trip_s": ROUND_TRIP_S, "client": f"BOINC {request.version}", "model": machine.model, **names_,
        }  # fmt: skip

    async def _ask(
        self, request: SchedulerRequest, account: Account, name: str, held: Held
    ) -> tuple[Host, list[Assigned]]:
        service = self._service
        known = service.state.host(name)
        slots = request.host.cpus
        ad: dict[str, Any] | None = self._ad(request, account)
        if known is not None and known.ad == ad:
            ad = None
        want = room = 0
        if request.wants_s > 0 and not request.sends_none and self._front.serves(request.platforms):
            out = 0 if known is None else len(known.held)
            want = min(MAX_WANT, max(ceil(request.idle), slots - out, 0 if out else 1))
            room = MAX_ROOM
            if known is None or not known.record.results:
                left = max(0, NEWCOMER_HOLDS - out)
                want = min(want, left)
                room = left - want
        n = 1 if known is None else known.session.n + 1
        holds = None if known is None else self._holds(known, held)
        event = HostAsked(service.driver.clock(), name, BOOT, n, want, slots, ad, holds=holds, room=room)
        record = (await service.driver.submit([event]))[-1]
        decided = record.decided
        assert isinstance(decided, HostAnswered)
        return service.state.hosts[decided.host], list(decided.assigned)

    def _holds(self, host: Host, held: Held) -> list[Key] | None:
        """What the host has, if the engine believes that it has more: attempts that were given up and are not there.

        Those that are missing and still wanted are sent again.
        """
        there = [key for key in host.held if key in held.attempts or self._is_live(key)]
        return None if len(there) == len(host.held) else there

    def _is_live(self, key: Key) -> bool:
        bag = self._service.state.bags.get(key[0])
        return bag is not None and bag.attempts.find(key[1], key[2]) is not None

    # --- what a client has ---

    def holder(self, key: Key) -> Host | None:
        """The host that holds an attempt, or held it until it was given up; None if nobody waits for it."""
        attempt = self._attempt(key)
        return None if attempt is None else self._service.state.hosts.get(attempt.host)

    def _attempt(self, key: Key) -> Attempt | None:
        bag = self._service.state.bags.get(key[0])
        if bag is None:
            return None
        return bag.attempts.find(key[1], key[2]) or given_up(bag, key[1], key[2])

    def _is_of(self, key: Key, account: Account) -> bool:
        host = self.holder(key)
        return host is not None and owner_of(host) == account.id

    def is_awaited(self, bundle: Bundle) -> bool:
        """Whether any attempt of a workunit is still out."""
        return any(self.holder(key) is not None for key in bundle.attempts())

    def _held(self, told: Iterable[str], account: Account) -> Held:
        held = Held()
        for name in told:
            bundle = read_name(name)
            if bundle is None:
                continue
            keys = [key for key in bundle.attempts() if self._is_of(key, account)]
            if keys:
                held[name] = keys
                held.attempts.update(keys)
        return held

    # --- reports ---

    async def _take_reports(self, reports: list[Report], account: Account) -> set[str]:
        """Report what has ended to the engine; what nobody waits for changes nothing.

        Everything is acknowledged but what is returned: reports that the validator could not judge come again.
        """
        ended, unjudged = Ended(), set[str]()
        for report in reports:
            bundle = read_name(report.name)
            if bundle is None:
                continue
            try:
                await self._take(report, bundle, account, ended)
            except NotYet:
                unjudged.add(report.name)
            except CannotJudge as error:
                log.error("the validator of job %d did not work, its results wait: %s", bundle.job, error)
                unjudged.add(report.name)
        if ended.results:
            now = self._service.driver.clock()
            events = [
                ResultsReported(now, host, each)
                for host, results in ended.results.items()
                for each in each_task_once(results)
            ]
            outputs = ended.outputs

            def rows(made: list[Record]) -> Batch:
                kept = output_rows(made, outputs)
                judged_files(self._service, ended.sent, kept)
                return Batch(outputs=kept)

            await self._service.driver.submit(list(events), rows)
        for name in ended.names:
            self._front.uploads.forget(name)
        return unjudged

    async def _take(self, report: Report, bundle: Bundle, account: Account, ended: Ended) -> None:
        holders: dict[int, tuple[Host, Attempt]] = {}
        for key in bundle.attempts():
            if key in ended.taken:
                continue  # two names of one call hold the same attempt: one of them is made up, and the first counts
            host, attempt = self.holder(key), self._attempt(key)
            if host is not None and attempt is not None and owner_of(host) == account.id:
                holders[key[1]] = host, attempt
        if not holders:
            return
        validator = self._front.validator(bundle.job)
        told = {task.task: task.outputs for task in self.tasks_of(bundle)[0]}
        outputs = {task: told.get(task, []) for task in holders}
        ends = await asyncio.to_thread(self._unpacked, report, bundle, outputs, validator)
        ended.names.append(bundle.output)
        for task in holders:
            self._judged.pop((bundle.output, report.files[0].md5 if report.files else "", task), None)
        refused = await self._count(bundle, ends or {}, ended.sent)
        if bundle.job not in self._service.state.bags:
            return  # forgotten meanwhile
        rules = self._service.state.bags[bundle.job].classes
        now = self._service.driver.clock()
        for task, (host, attempt) in holders.items():
            key = (bundle.job, task, bundle.attempt)
            ended.taken.add(key)
            results = ended.results.setdefault(host.name, [])
            if ends is None:
                # Only what did not begin costs the task nothing: else it could fail in this way for ever.
                cause, ran_s = _failure(report), max(0.0, min(report.elapsed_s, now - attempt.sent))
                start = now - (ran_s if report.exit == NOT_STARTED else max(ran_s, 0.001))
                results.append(Result(*key, CAUSES.index(cause), report.exit, start, now))
                ended.outputs.append((key, _pack([b"", report.stderr.encode()[-65536:], b"", None])))
            else:
                end, row, digest = ends[task]
                if why := refused.get(key):
                    # One volunteer's word: another one is asked, as after any failure.
                    results.append(Result(*key, CAUSES.index(OUTPUTS), None, now - 0.001, now))
                    ended.outputs.append((key, _pack([end.stdout, end.stderr, b"", {"text": why}])))
                    continue
                run = min(end.run_s, max(0.0, now - attempt.sent))
                # Credit is for the processors that the task asks for, whatever the host claims.
                cpu_s = min(end.cpu_s, run * max(1.0, rules[self._service.state.bags[bundle.job].class_of(task)].cpus))
                # A success without a fingerprint was found wrong: by the validator, or it has other files than it must.
                is_wrong = end.cause == DONE and not digest
                number, code = CAUSES.index(DISAGREED if is_wrong else end.cause), end.exit if end.cause != DONE else 0
                results.append(Result(*key, number, code, now - run, now, cpu_s, end.rss_bytes, digest))
                ended.outputs.append((key, row))

    async def _count(self, bundle: Bundle, ends: dict[int, tuple[TaskEnd, bytes, str]], sent: Sent) -> dict[Key, str]:
        """Add what the tasks have made to `sent`; by attempt, why it is more than the job may have."""
        jobs, refused = self._service.job_files, dict[Key, str]()
        for task, (_, row, _) in ends.items():
            key, sizes = (bundle.job, task, bundle.attempt), {file[1]: file[2] for file in output_files(row)}
            if sizes and jobs.is_limited and (why := await jobs.admit(key, sizes)):
                refused[key], sizes = why, {}
            if sizes or key in refused:
                sent[key] = sizes
        return refused

    def _unpacked(
        self, report: Report, bundle: Bundle, outputs: dict[int, list[str]], validator: list[str]
    ) -> dict[int, tuple[TaskEnd, bytes, str]] | None:
        """The end of each task with the row that is kept of it and its fingerprint; None if the report is no success.

        `outputs`: by task, the names and patterns of the files that it must leave. Runs in a thread.
        """
        file = report.files[0] if report.files else None
        if report.state != FINISHED or report.exit or file is None or file.refused or file.name != bundle.output:
            return None
        path = self._front.uploads.whole(bundle.output, file.md5)
        if path is None:
            return None
        tasks = range(bundle.first, bundle.first + bundle.count)
        with open(path, "rb") as archive:
            try:
                ends = read_archive(archive, path.stat().st_size, tasks, self._front.output_cap(bundle.job))
            except BadArchive as error:
                log.warning("the output of %s is refused: %s", report.name, error)
                return None
            until_s = monotonic() + JUDGING_S
            found = {}
            for end in ends:
                if end.task in outputs:
                    key = (bundle.output, file.md5, end.task)
                    if end.cause == DONE and validator and key not in self._judged:
                        self._judge(key, end, archive, validator, until_s)
                    is_whole = end.cause != DONE or are_announced([name for name, *_ in end.files], outputs[end.task])
                    row, digest = self._kept(end, archive)
                    found[end.task] = end, row, self._judged.get(key, digest) if is_whole else ""
            return found

    def _judge(
        self, key: tuple[str, str, int], end: TaskEnd, archive: BinaryIO, validator: list[str], until_s: float
    ) -> None:
        """Ask the validator, and remember what it says until all of the upload is judged."""
        if monotonic() > until_s:
            raise NotYet
        if len(self._judged) >= MOST_JUDGED:
            self._judged.clear()
        files = [(name, pieces_of(archive, at, size)) for name, _, at, size in end.files]
        self._judged[key] = judged(validator, end.stdout, files)

    def _kept(self, end: TaskEnd, archive: BinaryIO) -> tuple[bytes, str]:
        """What is kept of a task, and its fingerprint; its files become blobs."""
        files: list[tuple[str, str, int, int]] = []
        for name, mode, at, size in end.files:
            archive.seek(at)
            data = archive.read(size)
            sha = hashlib.sha256(data).hexdigest()
            if self._service.store.blob_size(sha) is None:
                self._service.store.put_blob(sha, data)
            files.append((name, sha, size, mode))
        more: dict[str, Any] = {}
        if files:
            more["outputs"] = sorted(files)
        if any(end.dropped):
            more["dropped"] = end.dropped
        digest = fingerprint(end.stdout, end.dropped[0], files) if end.cause == DONE else ""
        return _pack([end.stdout, end.stderr, b"", more or None]), digest

    # --- work ---

    async def _work(self, bundles: list[Bundle]) -> list[SentWork]:
        made: list[SentWork] = []
        for bundle in bundles:
            work = await self._sent(bundle)
            if work is not None:
                made.append(work)
        return made

    async def _sent(self, bundle: Bundle) -> SentWork | None:
        front = self._front
        tasks, failed = self.tasks_of(bundle)
        if failed:
            await fail(self._service, failed)
            # The rest of the bundle is found missing at the next call and sent again.
            return None
        bag = self._service.state.bags[bundle.job]
        data = job_file(tasks)
        job = SentFile(f"{bundle.name}_job", front.job_url(bundle), _md5_of(data), len(data), "job")
        blobs = {source.removeprefix("in_"): None for task in tasks for _, source, _ in task.inputs}
        files = [job]
        for sha in blobs:
            size = await asyncio.to_thread(self._service.store.blob_size, sha)
            if size is None:
                await fail(self._service, dict.fromkeys(bundle.attempts(), "an input file is no longer kept"))
                return None
            files.append(SentFile(f"in_{sha}", front.blob_url(sha), await self._md5_of_blob(sha), size, f"in_{sha}"))
        rules = bag.classes[bag.class_of(bundle.first)]
        each_s = run_s(bag, rules) or rules.estimate_s or 60.0
        walls_s = [task.wall_s for task in tasks]
        limit_s = 2 * sum(walls_s) + 600 if all(walls_s) else DEFAULT_LIMIT_S
        attempt = self._attempt((bundle.job, bundle.first, bundle.attempt))
        deadline_t = attempt.deadline if attempt is not None else None
        memory = max((task.memory_bytes for task in tasks), default=0) or DEFAULT_MEMORY_BYTES
        most = front.settings.most_upload_bytes
        return SentWork(
            bundle.name, bundle.output, files, max(1.0, each_s * bundle.count), limit_s, memory,
            front.service.driver.clock() + front.settings.deadline_s if deadline_t is None else deadline_t,
            most, front.uploads.certificate(bundle.output, most),
        )  # fmt: skip

    def tasks_of(self, bundle: Bundle) -> tuple[list[LaunchTask], dict[Key, str]]:
        """What the launcher is told of a bundle; and what of it cannot be rendered, with the reason."""
        out = hand_out(self._service, [Assigned(bundle.job, bundle.first, bundle.count, bundle.attempt)])
        failed, tasks, at = dict(out.failed), [], 0
        spec = msgspec.json.decode(out.jobs[bundle.job]) if bundle.job in out.jobs else {}
        for job, task, attempt, argv, overrides, n_payload in out.rows:
            payload = b""
            if n_payload:
                payload, at = out.attachments[at], at + 1
            said = {**spec, **(overrides or {})}
            if argv is None:
                failed[job, task, attempt] = "Python calls are not run by BOINC clients"
                continue
            most = self._front.settings.most_upload_bytes // bundle.count - 2 * (said["output_cap_bytes"] + 4096)
            tasks.append(
                LaunchTask(
                    task=task,
                    argv=argv,
                    env={**ENV, **said["env"], **_own_env(job, task, attempt)},
                    inputs=[(name, f"in_{sha}", mode) for name, sha, _, mode in said["inputs"]],
                    outputs=said["outputs"],
                    stdin=payload,
                    wall_s=float(said["wall_s"] or 0.0),
                    memory_bytes=int(said["memory_bytes"] or 0),
                    output_cap_bytes=said["output_cap_bytes"],
                    most_bytes=max(0, most),
                )
            )
        return tasks, failed

    async def _md5_of_blob(self, sha: str) -> str:
        if sha not in self._md5:
            if len(self._md5) > 100_000:
                self._md5.clear()
            self._md5[sha] = await asyncio.to_thread(self._read_md5, sha)
        return self._md5[sha]

    def _read_md5(self, sha: str) -> str:
        with self._service.store.open_blob(sha) as file:
            digest = hashlib.md5(usedforsecurity=False)
            while piece := file.read(1 << 20):
                digest.update(piece)
            return digest.hexdigest()


class Held(dict[str, list[Key]]):
    """By the names that a client has: the attempts of them that are its own and still awaited."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts: set[Key] = set()


def _own_env(job: int, task: int, attempt: int) -> dict[str, str]:
    return {"WINDFALL_JOB": str(job), "WINDFALL_TASK": str(task), "WINDFALL_ATTEMPT": str(attempt)}


def _md5_of(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _keys(piece: Assigned) -> list[Key]:
    return [(piece.job, task, piece.attempt) for task in range(piece.first, piece.first + piece.count)]


def _split(piece: Assigned | Bundle, parts: int) -> list[Bundle]:
    """A range of tasks as workunits: one for each processor that is free, unless they would be too long.

    What was lost on the way is split in the same way, and has the same names then.
    """
    size = min(names.MAX_BUNDLE, ceil(piece.count / parts))
    ends = range(piece.first, piece.first + piece.count, size)
    last = piece.first + piece.count
    return [Bundle(piece.job, first, min(size, last - first), piece.attempt) for first in ends]


def _failure(report: Report) -> str:
    """The cause of an attempt that ended without an archive: never the task's own exit code."""
    if report.state in DOWNLOAD_FAILED:
        return INPUTS
    if report.state == ABORTED:
        return ABORT_CAUSES.get(report.exit, PREEMPTED)
    return LOST
