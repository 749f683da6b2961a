"""`POST /v1/exchange`: a worker's results in, tasks and cancellations out (docs/reference/protocol.md).

Decides nothing: it turns the message into events, waits until their records are durable, and words the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Annotated, Any, Protocol, TypeVar

import msgspec
from msgspec import Meta, Struct

from windfall.bags.remote_files import MOST_CHARACTERS
from windfall.bounds import (
    BROKEN,
    MAX_HELD,
    MAX_LEAVING_CHARS,
    MAX_NAME_CHARS,
    MAX_OUTPUT_FILES,
    MAX_RESULTS,
    MAX_WAIT_S,
    Ad,
    Ago,
    Count,
    Exit,
    FileName,
    Integer,
    KnownAd,
    Mode,
    Name,
    Number,
    Sha256,
    Slots,
    Text,
    broken,
    convert,
)
from windfall.core.decisions import DROPPED, STALE, WASTE, HostAnswered, ResultsJudged
from windfall.core.events import AnyEvent, CheckpointSaved, HostAsked, Key, MachineResumed, Result, ResultsReported
from windfall.core.records import Record
from windfall.core.state.hosts.hosts import GONE, Host
from windfall.core.state.renting.fleet import HIBERNATED, MachineState, machine_of
from windfall.core.state.state import State
from windfall.errors import BadInput, WindfallError
from windfall.server.host_secrets import newly_shown
from windfall.server.http.workers import result_files
from windfall.server.http.workers.fingerprints import fingerprint
from windfall.server.http.workers.handing_out import HandedOut, fail, hand_out, take_back
from windfall.server.json_limits import check_json
from windfall.server.limits import DEFAULTS, Limits, TooBusy, TooLarge
from windfall.server.pool_tokens import PoolToken, check_host
from windfall.server.service import Service
from windfall.store.contract import Batch, OutputRow
from windfall.wire import HOST_SECRET, VERSION, WITH_SECRET, frames, is_served
from windfall.wire.messages import BAD_TASK, CAUSES, DISAGREED, DONE, QUOTA

CAUSE_CODES = {cause: code for code, cause in enumerate(CAUSES) if cause not in (BAD_TASK, DISAGREED)}
"""What a worker may report."""


Address = Annotated[str, Meta(max_length=MOST_CHARACTERS)]


class More(Struct, omit_defaults=True):
    """What a result says beside its numbers."""

    outputs: Annotated[list[tuple[FileName, Sha256, Count, Mode]], Meta(max_length=MAX_OUTPUT_FILES)] | None = None
    dropped: tuple[Count, Count] | None = None
    # Outputs that went to a store: name, address, size, digest.
    stored: Annotated[list[tuple[FileName, Address, Count, Sha256]], Meta(max_length=MAX_OUTPUT_FILES)] | None = None
    text: str | None = None


ResultRow = tuple[
    Count, Count, Count, str, Exit | None, Ago, Ago, Ago, Count, Count, Count, Count, More | None
]  # fmt: skip
AttemptRow = tuple[Count, Count, Count]
CheckpointRow = tuple[Count, Count, Count, Sha256, Count, Ago]
Rows = Meta(max_length=MAX_RESULTS)


class Ask(Struct):
    """The header of a request. Whatever it says fits into the log, the columns and the snapshot."""

    v: Integer
    host: str
    boot: Name
    n: Number
    want: Count
    slots: Slots
    ad: Ad | None = None
    wait_s: Ago = 0.0
    results: list[ResultRow] = []
    started: Annotated[list[tuple[Count, Count, Count, Ago]], Meta(max_length=MAX_HELD)] = []
    held: Count = 0
    holds: Annotated[list[AttemptRow], Meta(max_length=MAX_HELD)] | None = None
    live: Annotated[list[tuple[Count, Count, Count, Count, Count, Count, Count]], Rows] = []
    leaving: Text | None = None
    checkpoints: Annotated[list[CheckpointRow], Rows] = []
    room: Count = 0


MOST_WAKES = 4
"""How often one exchange may be woken without news; then its answer is empty, and the worker backs off.

News often come in two steps: a task returns, and a few milliseconds later a plan reserves it for an idle machine.
"""


class WrongVersion(WindfallError):
    code = "wrong-version"


class UsedId(WindfallError):
    code = "used-id"


_decode = msgspec.json.Decoder(Ask).decode
_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode


async def exchange(service: Service, body: bytes, token: PoolToken | None = None, secret: str = "") -> bytes:
    """One exchange: the frame of the request in, the frame of the answer out.

    `token` is the pool's, if it is one; `secret` is what the host shows to be told from others.
    """
    began_s = monotonic()
    ask, attachments = read(body, service.intake.limits)
    driver = service.driver
    state, now = driver.state, driver.clock()
    host = state.hosts.by_name.get(ask.host)
    if driver.undecided and (host is None or host.state == GONE or ask.host in driver.undecided or ask.live):
        # What is looked at below must be as the exchanges before this one leave it.
        driver.decide_now()
        host = state.hosts.by_name.get(ask.host)
    check_shown(ask.v, secret)
    shown = newly_shown(host, ask.host, secret, ask.boot)
    if host is None or host.state == GONE:
        check_room(service)
    if token is not None:
        check_host(state, token, ask.host, ask.boot, ask.ad, now, bool(shown))
    arrival = service.arrived(ask.host)
    repeated = host is not None and host.session.n == ask.n and host.session.boot == ask.boot
    events: list[AnyEvent] = []
    outputs: list[tuple[Key, bytes]] = []
    sent: dict[Key, dict[str, int]] = {}
    if not repeated:
        results = ask.results
        has_files, voting = _special(state, results) if results else (False, NO_JOBS)
        if has_files:
            sent = await result_files.check_outputs(service, ask)
        if results or ask.live or attachments:
            outputs = take_attachments(service, ask, attachments)
        if voting:
            driver.decide_now()
        digests = await digests_of(service, ask, outputs, voting) if voting else {}
        saved = await result_files.check_checkpoints(service, ask) if ask.checkpoints else []
        if has_files or voting or ask.checkpoints:
            # Again: time may have passed.
            host = state.hosts.by_name.get(ask.host)
            shown = newly_shown(host, ask.host, secret, ask.boot)
        if shown and host is not None and host.access.secret:
            outputs = []  # another worker has taken the name: whatever it says, no attempt under it is its own
        else:
            # Before the results: what a preempted attempt saved last must be there when its task is handed out again.
            if saved:
                events += checkpoint_events(ask, now, saved)
            if results:
                events += result_events(ask, now, digests)
    if state.fleet.there and (machine := _hibernated(service, ask.host)) is not None:
        events.append(MachineResumed(now, machine.number, now))
    want, room, most = ask.want, ask.room, service.intake.limits.tasks
    if want + room > most:
        want = min(want, most)
        room = min(room, most - want)
    leaving = ask.leaving[:MAX_LEAVING_CHARS] if ask.leaving else ask.leaving
    events.append(HostAsked(now, ask.host, ask.boot, ask.n, want, ask.slots, ask.ad, leaving, ask.holds, room, shown))
    rows = partial(_rows, service, outputs, sent) if outputs else None
    if state.fleet.there:
        records = await driver.submit(events, rows)
    else:
        records = await driver.submit_soon(ask.host, events, rows)
    answer = _answer_of(records[-1])
    if answer.refused:
        raise UsedId(f"exchange {ask.n} of '{ask.host}' is older than the last one: {answer.refused}")
    waited_s = 0.0
    if ask.wait_s > 0.0 and want > 0 and not ask.leaving and not answer.assigned:
        answer, waited_s = await _answer_with_news(service, ask, want, room, records[-1], arrival)
    # A repeated exchange gets what the state remembers of the first.
    host = driver.state.hosts[answer.host]
    if answer.repeat and (host.session.boot, host.session.n) != (ask.boot, ask.n):
        # The state remembers a later one by now, which may not be durable yet; its worker has had the answer to this.
        raise UsedId(f"exchange {ask.n} of '{ask.host}' was overtaken by a newer one")
    out = hand_out(
        service, host.session.assigned if answer.repeat else answer.assigned, service.intake.limits.answer_bytes
    )
    if out.failed:
        await fail(service, out.failed)
    if out.beyond:
        # After a repeated exchange some of them are back already.
        await take_back(service, [key for key in out.beyond if key in host.held])
    said = word(service, ask, answer, host, out, token, waited_s)
    service.exchange_times.add(max(0.0, monotonic() - began_s - waited_s))
    return said


async def _answer_with_news(
    service: Service, ask: Ask, want: int, room: int, record: Record, arrival: int
) -> tuple[HostAnswered, float]:
    """The answer to a host that got no task and waits for one; and for how long it waited.

    `arrival`: the number of this exchange among those of its host.
    """
    driver, answer = service.driver, _answer_of(record)
    waited_s, ends_s = 0.0, monotonic() + min(ask.wait_s, MAX_WAIT_S)
    for _ in range(MOST_WAKES):
        left_s = ends_s - monotonic()
        if left_s <= 0 or _has_news(service, ask.host, answer):
            break
        waits_from = driver.clock()
        await service.host_waits(ask.host, record.seq, left_s)
        waited_s += max(0.0, driver.clock() - waits_from)
        if service.arrival(ask.host) != arrival:
            # The worker has hung up and asked again: tasks handed out here would not reach it.
            raise UsedId(f"exchange {ask.n} of '{ask.host}' was overtaken by a newer one")
        if _hibernated(service, ask.host) is not None or driver.state.hosts[answer.host].state == GONE:
            # Its worker was frozen, or has ended, with this request open: to ask again in its name would look like its
            # return, and tasks handed out here would not reach it.
            break
        again = HostAsked(driver.clock(), ask.host, ask.boot, ask.n, want, ask.slots, room=room)
        (record,) = await driver.submit([again])
        answer = _answer_of(record)
    return answer, waited_s


BUSY_ASKS_PER_S = 2000
"""Exchanges a second of workers whose slots are all busy: where there are more hosts, each asks more seldom than once
a second. The server keeps most of its time for results and for hosts that want tasks."""
NO_JOBS: frozenset[int] = frozenset()


def _special(state: State, results: list[ResultRow]) -> tuple[bool, frozenset[int]]:
    """Whether a result tells of files, or of a quota that they would exceed; and jobs that volunteers may run."""
    has_files, voting = False, NO_JOBS
    for row in results:
        if row[12] is not None or row[3] == QUOTA:
            has_files = True
        bag = state.bags.get(row[0])
        if bag is not None and bag._terms.rules.quorum:
            voting |= {row[0]}
    return has_files, voting


def _rows(
    service: Service, outputs: list[tuple[Key, bytes]], sent: dict[Key, dict[str, int]], made: list[Record]
) -> Batch:
    """What is stored with the records of an exchange."""
    kept = output_rows(made, outputs)
    if sent:
        result_files.judged(service, sent, kept)
    return Batch(outputs=kept)


def check_shown(version: int, secret: str) -> None:
    """Refuse a host that shows no secret although its version of the protocol has them."""
    if version >= WITH_SECRET and not secret:
        hint = f"make one of 64 hexadecimal digits, and send it with every request: {HOST_SECRET}"
        raise BadInput(f"version {version} of the protocol asks every host for a secret", hint=hint, code="no-secret")


def check_room(service: Service) -> None:
    """TooBusy if one more host, of workers or of sites, would be more than the operator allows."""
    hosts, most = service.state.hosts, service.intake.limits.hosts
    owned = sum(len(site.hosts) for site in service.state.sites.values())
    there = len(hosts.live) + len(hosts.unknown) + owned
    if there >= most:
        hint = f"at most {most:,} (windfall server --limit hosts=N): end some, or wait until leases have run out"
        raise TooBusy(f"{there:,} hosts are there", hint=hint)


def _hibernated(service: Service, name: str) -> MachineState | None:
    """The machine of this host, if it is believed to hibernate."""
    if not service.state.fleet.there:
        return None
    host = service.state.host(name)
    machine = None if host is None else machine_of(service.state, host)
    return machine if machine is not None and machine.phase == HIBERNATED else None


class Versioned(Protocol):
    """A header that says its version of the protocol."""

    v: int


T = TypeVar("T", bound=Versioned)


def open_frame(
    body: bytes, decode: Callable[[memoryview], T], limits: Limits, what: str, sender: str
) -> tuple[T, memoryview]:
    """Header and attachments of a frame. `what` and `sender` are named in errors: a broken frame, another version."""
    try:
        header, attachments = frames.split(body)
        check_json(header, limits, what)
        ask = decode(header)
    except frames.BadFrame as error:
        raise BadInput(f"not {what}: {error}") from None
    except BROKEN as error:
        raise broken(error, f"not {what}") from None
    if not is_served(ask.v, limits.protocol):
        served = f"{limits.protocol} and {VERSION}" if limits.protocol < VERSION else f"{VERSION} alone"
        raise WrongVersion(
            f"the {sender} speaks version {ask.v} of the protocol, this server {served}",
            hint="fetch the server's own worker: curl -O SERVER/worker.pyz",
        )
    return ask, attachments


def read(body: bytes, limits: Limits = DEFAULTS) -> tuple[Ask, memoryview]:
    """The request, checked as far as its form goes."""
    ask, attachments = open_frame(body, _decode, limits, "an exchange", "worker")
    if len(ask.results) > limits.results:
        hint = f"at most {limits.results:,}: send the others with the next exchange"
        raise TooLarge(f"{len(ask.results):,} results in one exchange", limit=limits.body_bytes, hint=hint)
    if not ask.host or len(ask.host) > MAX_NAME_CHARS or not ask.host.isprintable():
        raise BadInput(f"a host's id has 1 to {MAX_NAME_CHARS} printable characters")
    if ask.ad is not None:
        convert(ask.ad, KnownAd, "not an exchange: the ad")
        if ask.ad.get("owner") is not None:
            # A volunteer's host has another lease and votes with others: only their front knows whose it is.
            raise BadInput("not an exchange: the ad: 'owner' is said of hosts of volunteers, by the server alone")
        if len(_encode(ask.ad)) > limits.ad_bytes:
            hint = f"at most {limits.ad_bytes:,} bytes (windfall server --limit ad=SIZE): give it fewer or shorter tags"
            raise BadInput(f"the ad of '{ask.host}' is too large", hint=hint, code="too-large")
    return ask, attachments


def take_attachments(service: Service, ask: Ask, attachments: memoryview) -> list[tuple[Key, bytes]]:
    """Cut the attachments apart: outputs of results, packed for the store, and live output into memory."""
    at = 0
    outputs: list[tuple[Key, bytes]] = []
    for row in ask.results:
        n_out, n_err, n_value, more = row[9:13]
        total = n_out + n_err + n_value
        if total or more:
            a, b = at + n_out, at + n_out + n_err
            parts = [attachments[at:a], attachments[a:b], attachments[b : at + total]]
            outputs.append((row[:3], _pack([*map(bytes, parts), more])))
            at += total
    host = service.state.host(ask.host) if ask.live else None
    for job, task, attempt, out_at, n_out, err_at, n_err in ask.live:
        middle, end = at + n_out, at + n_out + n_err
        key = (job, task, attempt)
        if host is not None and key in host.held:
            service.live.add(key, out_at, bytes(attachments[at:middle]), err_at, bytes(attachments[middle:end]))
        at = end
    if at != len(attachments):
        raise BadInput(f"the attachments have {len(attachments)} bytes, their lengths add up to {at}")
    return outputs


def checkpoint_events(ask: Ask, now: float, rows: list[CheckpointRow]) -> list[AnyEvent]:
    """What a checkpoint is worth follows from how long its attempt has run: the engine says."""
    return [
        CheckpointSaved(now, job, task, attempt, 0.0, blob, max(0.0, run_s), ask.host)
        for job, task, attempt, blob, _, run_s in rows
    ]


async def digests_of(
    service: Service, ask: Ask, outputs: list[tuple[Key, bytes]], jobs: frozenset[int]
) -> dict[Key, str]:
    """What successes left, where volunteers run tasks of the same job (`jobs`): theirs are compared with it.

    A result of one's own host is believed. Where there is a validator, it is asked only to judge those who have voted.
    """
    packed = dict(outputs)
    found: dict[Key, str] = {}
    for row in ask.results:
        if row[0] not in jobs or row[3] != DONE:
            continue
        validator = service.spec(row[0]).validator
        if validator and row[1] not in service.state.bags[row[0]].progress.votes:
            continue
        stdout, _, _, more = msgspec.msgpack.decode(packed[row[:3]]) if row[:3] in packed else (b"", b"", b"", None)
        said = more or {}
        if not validator:
            found[row[:3]] = fingerprint(stdout, (said.get("dropped") or (0, 0))[0], files_of(said))
        elif not said.get("stored"):
            found[row[:3]] = await _judged(service, validator, stdout, files_of(said))
    return found


async def _judged(service: Service, validator: str, stdout: bytes, files: list[tuple[str, str]]) -> str:
    for front in service.fronts.values():
        if validator in front.validators:
            return await front.fingerprint(validator, stdout, files)
    return ""


def result_events(ask: Ask, now: float, digests: dict[Key, str]) -> list[AnyEvent]:
    """The results as events on the server's clock. Two of one task go into two events: each is judged in its turn."""
    results = []
    for job, task, attempt, cause, code, ago_s, run_s, cpu_s, rss, _, _, _, _ in ask.results:
        number = CAUSE_CODES.get(cause)
        if number is None:
            raise BadInput(f"a result of task {task} has the unknown cause '{cause}'")
        end = now - ago_s if ago_s > 0.0 else now
        start = end - run_s if run_s > 0.0 else end
        digest = digests.get((job, task, attempt), "") if digests else ""
        cpu_s = cpu_s if cpu_s > 0.0 else 0.0
        results.append(Result(job, task, attempt, number, code, start, end, cpu_s, rss, digest))
    rounds = [results] if len(results) == 1 else each_task_once(results)
    return [ResultsReported(now, ask.host, round_) for round_ in rounds]


def each_task_once(results: list[Result]) -> list[list[Result]]:
    """The results in rounds: the first of every task, the second of every task, and so on."""
    rounds: list[list[Result]] = []
    seen: dict[tuple[int, int], int] = {}
    for result in results:
        key = (result.job, result.task)
        place = seen[key] = seen.get(key, -1) + 1
        if place == len(rounds):
            rounds.append([])
        rounds[place].append(result)
    return rounds


def files_of(said: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and digest of the files of an attempt, wherever they went."""
    kept = [(name, sha256) for name, sha256, *_ in said.get("outputs") or ()]
    return kept + [(name, sha256) for name, _, _, sha256 in said.get("stored") or ()]


def output_rows(records: list[Record], outputs: list[tuple[Key, bytes]]) -> list[OutputRow]:
    """The outputs worth keeping: not those of results that changed nothing."""
    useful = set()
    for record in records:
        if isinstance(record.event, ResultsReported) and isinstance(record.decided, ResultsJudged):
            for result, verdict in zip(record.event.results, record.decided.verdicts, strict=True):
                if verdict not in (STALE, WASTE, DROPPED):
                    useful.add((result.job, result.task, result.attempt))
    kept: dict[Key, bytes] = {}
    for key, data in outputs:
        if key in useful:
            kept.setdefault(key, data)  # of an attempt that is reported twice, what was judged first
    return [OutputRow(*key, data) for key, data in kept.items()]


def _answer_of(record: Record) -> HostAnswered:
    assert isinstance(record.decided, HostAnswered)
    return record.decided


def _has_news(service: Service, name: str, answer: HostAnswered) -> bool:
    host = service.state.host(name)
    to_tell = host is not None and host.session.has_news
    told = answer.assigned or answer.cancel or answer.hand_back or answer.begin
    return bool(told or answer.repeat or answer.tell or answer.stop or to_tell)


def word(
    service: Service, ask: Ask, answer: HostAnswered, host: Host, out: HandedOut, token: PoolToken | None,
    waited_s: float = 0.0,
) -> bytes:  # fmt: skip
    """What a host is told: the tasks that are handed out to it, and all else that was decided."""
    repeat, session = answer.repeat, host.session
    header = {
        "v": ask.v,
        "n": ask.n,
        "jobs": out.jobs,
        "tasks": out.rows,
        "cancel": session.cancelled if repeat else answer.cancel,
        "hand_back": session.handed_back if repeat else answer.hand_back,
        "begin": session.begun if repeat else answer.begin,
        "waited_s": round(waited_s, 4) if waited_s else 0.0,
        "watch": service.live.watched(host.held),
        "next_s": service.driver.state.settings.lease_s / 3,
        "tell": answer.tell,
        "stop": answer.stop or None,
    }
    if (busy_s := len(service.state.hosts.live) / BUSY_ASKS_PER_S) > 1.0:
        header["busy_s"] = round(busy_s, 1)
    if token is not None and service.tokens.pools is not None:
        renewed = service.tokens.pools.renewed(token, service.driver.clock())
        header |= {} if renewed is None else {"token": renewed}
    return frames.join(_encode(header), out.attachments)
