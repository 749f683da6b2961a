"""Reading: statuses, tasks, results, output, events, hosts. Decides nothing and changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from itertools import islice
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from windfall.api.answers import HostCounts, Hosts, Jobs, JobStatus, OneHost, Tasks
from windfall.api.explained import Explained, Groups, Step, Timeouts
from windfall.api.renting import SharedMachine
from windfall.api.small import EventRow, Events, ParametersDigest, Rendered
from windfall.bags.chunks import add_to_digest
from windfall.bags.rendering import Renderer
from windfall.bounds import MAX_INTEGER
from windfall.core.explain import jobs as explaining
from windfall.core.liveness import timeouts
from windfall.core.mentions import mentioned_jobs, shown_job
from windfall.core.records import Record, decode_record
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.jobs.bags import FINAL, Bag
from windfall.core.state.jobs.columns import FAILED, STATE_NAMES
from windfall.errors import BadInput, WindfallError
from windfall.server.http import scoped, workflows
from windfall.server.outputs import counted_outputs, output_rows
from windfall.server.queries import failures
from windfall.server.queries.by_reference import bag_of
from windfall.server.queries.one_job import job_status
from windfall.server.queries.renting import money
from windfall.server.queries.status import exit_code, host_row, recovered, task_row, tasks_in
from windfall.server.service import NotFound, Service, decimal
from windfall.store.contract import Store, StoreError
from windfall.wire import frames
from windfall.wire.messages import CAUSES

Json = dict[str, Any]
Packed = tuple[bytes, bytes, bytes, Json | None]
NO_OUTPUT: Packed = (b"", b"", b"", None)
MAX_ROWS = 5000
MAX_FRAME_BYTES = 16 << 20
MOST_LAST_BYTES = 64 << 10
"""Of what an attempt wrote to standard error, where only its end is asked for."""
STORY_KINDS = (
    "HostAsked", "ResultsReported", "TimerFired", "JobRetried", "JobCancelled", "MachineEnded", "PlanProposed",
    "HostsEnded", "SiteHostReported", "SiteLooked",
)  # fmt: skip

_unpack = msgspec.msgpack.Decoder(Packed).decode
_encode = msgspec.json.Encoder().encode


def from_query(request: Request, name: str, default: float, most: float = MAX_INTEGER) -> float:
    """A number of a query; one over `most` counts as that."""
    text = request.query_params.get(name)
    if text is None or text == "":
        return default
    try:
        value = float(text)
    except ValueError:
        raise BadInput(f"{name} must be a number, not '{text[:40]}'") from None
    if not abs(value) <= MAX_INTEGER:
        raise BadInput(f"{name} must be a number up to {MAX_INTEGER:,}, not '{text[:40]}'")
    return min(value, most)


def whole(request: Request, name: str, default: int, most: float = MAX_INTEGER) -> int:
    """A position or a number of rows of a query: 0 or more."""
    return max(0, int(from_query(request, name, default, most)))


async def jobs(service: Service, request: Request) -> tuple[int, Jobs]:
    wanted = request.query_params.get("state")
    before, limit = whole(request, "before", MAX_INTEGER), whole(request, "limit", MAX_INTEGER)
    seen = [bag for bag in service.state.bags.values() if scoped.sees(request, bag)]
    bags = (bag for bag in reversed(seen) if bag.number < before)
    found = list(islice((bag for bag in bags if not wanted or bag.state == wanted), limit + 1))
    following = found[limit - 1].number if 0 < limit < len(found) else None
    told = [job_status(service, bag) for bag in found[:limit]]
    return 200, {"jobs": told, "next": following, "total": len(seen)}


async def job(service: Service, request: Request) -> tuple[int, JobStatus]:
    bag = service.bag(request.path_params["job"])
    version = int(from_query(request, "version", -1))
    wait_s = from_query(request, "wait_s", 0.0)
    if wait_s > 0 and request.query_params.get("ended") == "1":
        await service.change(lambda: bag.finished_t is not None or bag.number not in service.state.bags, wait_s)
    elif wait_s > 0 and version >= 0:
        await service.change(lambda: service.versions.get(bag.number, 0) != version, wait_s)
    await service.driver.settled()
    return 200, job_status(service, service.bag(str(bag.number)))  # it may have been forgotten meanwhile


async def job_spec(service: Service, request: Request) -> tuple[int, Json]:
    return 200, msgspec.to_builtins(service.spec(service.bag(request.path_params["job"]).number))


async def parameters(service: Service, request: Request) -> tuple[int, ParametersDigest]:
    """A hash of the parameters of a job's first tasks, so that a list can be compared without being sent."""
    bag = service.bag(request.path_params["job"])
    spec, count = service.spec(bag.number), whole(request, "tasks", bag.total)
    if spec.source.kind not in ("lines", "rows") or count > bag.total:
        raise BadInput(f"job {bag.number} has no list of {count:,} lines or rows", code="no-list")
    rows, total, at = service.renderer(bag.number).rows, hashlib.sha256(), 0
    while at < count:
        rows.enter(at)
        add_to_digest(total, rows.current[at - rows.first : count - rows.first])
        at = rows.end
        await asyncio.sleep(0)  # others are served between two chunks
    return 200, {"tasks": count, "sha256": total.hexdigest()}


async def tasks(service: Service, request: Request) -> tuple[int, Tasks]:
    bag = service.bag(request.path_params["job"])
    state = request.query_params.get("state")
    if state and state not in STATE_NAMES:
        raise BadInput(f"no state '{state}'", hint=f"states are: {', '.join(STATE_NAMES)}")
    states = frozenset(range(5)) if not state else frozenset({STATE_NAMES.index(state)})
    cause, host = request.query_params.get("cause"), request.query_params.get("host")
    if cause and cause not in CAUSES:
        raise BadInput(f"no cause '{cause[:40]}'", hint=f"causes are: {', '.join(CAUSES)}")
    limit = whole(request, "limit", 1000, MAX_ROWS)
    found, following = tasks_in(
        bag, states, whole(request, "after", 0), limit,
        cause=CAUSES.index(cause) if cause else None, host=_host(service, host) if host else None,
    )  # fmt: skip
    if name := request.query_params.get("name"):
        found, following = [workflows.numbered(service, bag, name)], None
    return 200, {"tasks": [task_row(service, bag, task) for task in found], "next": following}


def one_task(bag: Bag, text: str) -> int:
    task = decimal(text)
    if task is None or task >= bag.total:
        numbers = f"tasks 0 to {bag.total - 1}" if bag.total > 1 else "task 0 alone" if bag.total else "no tasks"
        raise NotFound(
            f"there is no task '{text[:40]}': job {bag.number} has {numbers}",
            hint=f"list them: windfall tasks {bag.number}",
            code="no-such-task",
        )
    return task


async def render(service: Service, request: Request) -> tuple[int, Rendered]:
    bag = service.bag(request.path_params["job"])
    task = one_task(bag, request.path_params["task"])
    renderer = service.renderer(bag.number)
    rendered = renderer.task(task, max(1, bag.columns.attempts[task]))
    spec = renderer.spec
    return 200, {
        "task": task,
        "argv": rendered.argv,
        "params": renderer.parameters(task),
        "stdin": None if renderer.spec.kind == "call" else rendered.payload.decode(),
        "env": spec.env,
        "cwd": spec.cwd,
        "overrides": rendered.overrides,
    }


async def explain(service: Service, request: Request) -> tuple[int, Explained]:
    """Why a job or a task waits, or the story of a task, by the code that decides."""
    bag = service.bag(request.path_params["job"])
    text = request.query_params.get("task")
    task = one_task(bag, text) if text else None
    await service.driver.settled()
    records = await asyncio.to_thread(_log, service, bag) if task is not None else []
    now = service.driver.clock()

    def name_of(number: int) -> str:
        return workflows.name_of(service, bag, number) or str(number)

    told = explaining.explain(service.state, service.driver.engine.policies, bag, task, now, records, name_of)
    if task is not None:
        _add_texts(told["story"], await _last_words(service, bag, [task]), task)
    else:
        if scoped.user_of(request):
            told["sharing"] = [_own_part(row, bag.number) for row in told["sharing"]]
        told["last_plans"], told["strangers"] = await money.last_plans(service, bag), money.strangers(service, bag)
    return 200, told


def _own_part(row: SharedMachine, job: int) -> SharedMachine:
    """A shared machine as the owner of one job sees it: how many others there are, and nothing else of them."""
    others = len(row["jobs"]) - 1
    said = [f"it is shared with {others} other job{'s' * (others != 1)}"] if others else []
    return {**row, "jobs": [part for part in row["jobs"] if part["job"] == job], "because": said}


def _add_texts(story: list[Step], outputs: dict[tuple[int, int], Packed], task: int) -> None:
    """Add to each ended attempt of a story why it ended, in the worker's words and in its own last line."""
    for step in story:
        if "cause" in step:
            _, stderr, _, more = outputs.get((task, step["attempt"]), NO_OUTPUT)
            step["text"] = (more or {}).get("text") or ""
            step["last_line"] = failures.last_line(stderr)


def _log(service: Service, bag: Bag) -> list[Record]:
    """The records that may speak of a task of this job: between its submission and its end, and about it."""
    store, job = service.store, bag.number
    submitted = store.records(0, 1, job, ("JobSubmitted",))
    after = submitted[0].seq if submitted else 0
    until = store.last_seq()
    if bag.finished_t is not None:
        # What hosts still report when the job has ended they report within two leases.
        until = _last_before(store, bag.finished_t + 2 * service.state.settings.lease_s, after, until)
    found: list[Record] = []
    while rows := store.records_about(job, after, until, STORY_KINDS, 5000):
        records = [decode_record(row.data) for row in rows]
        found += [record for record in records if job in mentioned_jobs(record)]
        after = rows[-1].seq
    return found


def _last_before(store: Store, t: float, low: int, high: int) -> int:
    """The number of a record that none up to `t` follows, among those from `low` to `high`, by halving."""
    while low < high:
        middle = (low + high) // 2
        following = store.records(middle, 1)
        if following and following[0].t <= t:
            low = following[0].seq
        else:
            high = middle
    return high


# --- results --------------------------------------------------------------------------------------------------------


async def results(service: Service, request: Request) -> Response:
    """Rows of ended tasks by index."""
    bag = service.bag(request.path_params["job"])
    limit = whole(request, "limit", 1000, MAX_ROWS)
    chosen = request.query_params.get("tasks")
    if chosen:
        found: list[int] = [one_task(bag, text) for text in chosen.split(",")]
        following = None
    else:
        found, following = tasks_in(bag, FINAL, whole(request, "after", 0), limit)
    rows, attachments, cut = await _rows(service, bag, found)
    if cut is not None:
        following = found[cut]
    return frame({"rows": rows, "next": following}, attachments)


async def completed(service: Service, request: Request) -> Response:
    """Rows in the order of completion, as a long poll."""
    bag = service.bag(request.path_params["job"])
    after = whole(request, "after", 0)
    limit = whole(request, "limit", 1000, MAX_ROWS)
    wait_s = from_query(request, "wait_s", 0.0)
    if wait_s > 0:
        await service.change(lambda: len(bag.columns.order) > after or bag.finished_t is not None, wait_s)
    order = bag.columns.order[after : after + limit].tolist()
    final = [task for task in order if bag.columns.state[task] in FINAL]
    rows, attachments, cut = await _rows(service, bag, final)
    position = after + len(order) if cut is None else after + order.index(final[cut])
    finished = bag.finished_t is not None and position >= len(bag.columns.order)
    return frame({"rows": rows, "position": position, "finished": finished}, attachments)


async def _rows(service: Service, bag: Bag, tasks: list[int]) -> tuple[list[list[Any]], list[bytes], int | None]:
    """Result rows with their attachments; where the frame was full, the position of the first row left out."""
    await service.driver.settled()
    # All of a row before outputs are read: a task may be run again meanwhile.
    heads = [_head(service, bag, task) for task in tasks]
    counted = [(head[0], head[2] or 0) for head in heads]
    outputs, read = await asyncio.to_thread(counted_outputs, service.store, bag.number, counted, MAX_FRAME_BYTES)
    service.bag(str(bag.number))  # forgotten meanwhile: not found, rather than results that left nothing behind
    returns_values = _returns_values(service, bag)
    rows: list[list[Any]] = []
    attachments: list[bytes] = []
    size = 0
    for position, head in enumerate(heads[:read]):
        stdout, stderr, value, more = _unpack(outputs[head[0]]) if head[0] in outputs else NO_OUTPUT
        if not returns_values:
            value = b""
        size += len(stdout) + len(stderr) + len(value)
        if size > MAX_FRAME_BYTES and position:
            return rows, attachments, position
        name = workflows.name_of(service, bag, head[0])
        rows.append([*head, len(stdout), len(stderr), len(value), more, name])
        attachments += [part for part in (stdout, stderr, value) if part]
    return rows, attachments, read if read < len(tasks) else None


def _head(service: Service, bag: Bag, task: int) -> list[Any]:
    """A row of results without what the task left behind."""
    columns = bag.columns
    host = service.state.hosts.get(columns.host[task])
    ended = columns.attempt[task] > 0
    return [
        task, STATE_NAMES[columns.state[task]], columns.attempt[task] or None, exit_code(bag, task),
        CAUSES[columns.cause[task]] if ended else None, host.name if host and ended else None,
        columns.start[task] if ended else None, columns.end[task] if ended else None,
    ]  # fmt: skip


def _returns_values(service: Service, bag: Bag) -> bool:
    """Whether the tasks are Python calls. A client unpickles values: what a worker adds to a command is no value."""
    try:
        return service.spec(bag.number).kind == "call"
    except WindfallError:
        return False


async def _last_words(service: Service, bag: Bag, tasks: list[int]) -> dict[tuple[int, int], Packed]:
    """By task and attempt, the end of what they wrote to standard error and what their workers said of them."""

    def read() -> dict[tuple[int, int], Packed]:
        found: dict[tuple[int, int], Packed] = {}
        for row in output_rows(service.store, bag.number, tasks):
            _, stderr, _, more = _unpack(row.data)
            found[row.task, row.attempt] = (b"", stderr[-MOST_LAST_BYTES:], b"", more)
        return found

    found = await asyncio.to_thread(read)
    service.bag(str(bag.number))  # it may have been forgotten meanwhile
    return found


def frame(header: Json, attachments: list[bytes]) -> Response:
    return Response(frames.join(_encode(header), attachments), media_type=frames.CONTENT_TYPE)


def counting_attempt(bag: Bag, task: int) -> int:
    """The attempt whose output is the task's: of a task that has ended the one that counted, else the newest."""
    columns = bag.columns
    return (columns.attempt[task] if columns.state[task] in FINAL else 0) or columns.attempts[task]


async def output(service: Service, request: Request) -> Response:
    """What a task has written: of an ended attempt from the store, of a running one as its worker sends it."""
    bag = service.bag(request.path_params["job"])
    task = one_task(bag, request.path_params["task"])
    attempt = whole(request, "attempt", 0) or counting_attempt(bag, task)
    out_from, err_from = whole(request, "stdout_from", 0), whole(request, "stderr_from", 0)
    key = (bag.number, task, attempt)

    def running() -> bool:
        return any(a.number == attempt for a in bag.attempts.live.get(task, ()))

    if running():
        service.live.follow(key)
        wait_s = from_query(request, "wait_s", 0.0)
        await service.change(lambda: not running() or _news(service, key, out_from, err_from), wait_s)
    if running():
        out_at, stdout, err_at, stderr = service.live.read(key, out_from, err_from)
        text = ""
    else:
        data = await asyncio.to_thread(service.store.output, *key)
        service.bag(str(bag.number))  # it may have been forgotten meanwhile
        full = _unpack(data) if data else NO_OUTPUT
        out_at, err_at = out_from, err_from
        stdout, stderr = full[0][out_from:], full[1][err_from:]
        text = (full[3] or {}).get("text") or ""
    judged = bag.columns.state[task] in FINAL and bag.columns.attempt[task] == attempt
    header = {
        "task": task,
        "attempt": attempt,
        "ended": not running(),
        "n_stdout": len(stdout),
        "n_stderr": len(stderr),
        "stdout_at": out_at,
        "stderr_at": err_at,
        "cause": CAUSES[bag.columns.cause[task]] if judged else None,
        "exit_code": exit_code(bag, task) if judged else None,
        "text": text,
    }
    return frame(header, [stdout, stderr])


def _news(service: Service, key: tuple[int, int, int], out_from: int, err_from: int) -> bool:
    _, stdout, _, stderr = service.live.read(key, out_from, err_from)
    return bool(stdout or stderr)


async def groups(service: Service, request: Request) -> tuple[int, Groups]:
    """Failures grouped by kind and by what their last lines have in common, the largest kind first."""
    bag = service.bag(request.path_params["job"])
    failed, _ = tasks_in(bag, frozenset({FAILED}), 0, bag.total)
    read, unread = failures.sample([(task, (CAUSES[bag.columns.cause[task]], exit_code(bag, task))) for task in failed])
    retried = recovered(bag, failures.MOST_READ)
    outputs = await _last_words(service, bag, [*(task for task, _ in read), *retried])
    renderer: Renderer | None = None
    with contextlib.suppress(BadInput):  # a specification that cannot be read: its tasks failed for that
        renderer = service.renderer(bag.number)
    found = failures.Groups()
    for task, kind in read:
        _add(found, task, kind, outputs.get((task, bag.columns.attempt[task]), NO_OUTPUT), renderer, final=True)
    for kind, tasks in unread.items():
        found.add_unread(tasks, kind)
    for task in retried:
        attempts = [key for key in outputs if key[0] == task and key[1] != bag.columns.attempt[task]]
        packed = outputs[max(attempts)] if attempts else NO_OUTPUT
        _add(found, task, ("retried", None), packed, renderer, final=False)
    ordered = found.ordered()
    for group in ordered if bag.shape is not None else ():
        group["names"] = [workflows.name_of(service, bag, task) for task in group["tasks"]]
    return 200, {"groups": ordered, "complete": not unread}


def _add(
    found: failures.Groups, task: int, kind: failures.Kind, packed: Packed, renderer: Renderer | None, *, final: bool
) -> None:
    text = (packed[3] or {}).get("text") or ""
    parameters: str | dict[str, str] | None
    try:
        parameters = None if renderer is None else renderer.parameters(task)
    except StoreError:
        raise
    except Exception:  # as where it is handed out, and told: whatever keeps a task from being rendered
        parameters = None
    found.add(task, kind, packed[1], text, final=final, parameters=parameters)


# --- events and hosts -----------------------------------------------------------------------------------------------


async def events(service: Service, request: Request) -> tuple[int, Events]:
    after = whole(request, "after", 0)
    limit = whole(request, "limit", 1000, MAX_ROWS)
    reference = request.query_params.get("job")
    job_number = bag_of(service.state, reference, scoped.user_of(request)).number if reference else None
    wait_s = from_query(request, "wait_s", 0.0)
    if wait_s > 0:
        await service.change(lambda: service.state.seq > after, wait_s)
    listed, seen = await asyncio.to_thread(_events_from, service.store, after, limit, job_number)
    return 200, {"events": listed, "next": seen}


def _events_from(store: Store, after: int, limit: int, job: int | None) -> tuple[list[EventRow], int]:
    """Up to `limit` records behind `after`, all or those of a job, and the last one that was looked at."""
    listed: list[EventRow] = []
    while rows := store.records(after, limit):
        for row in rows:
            after = row.seq
            record = decode_record(row.data)
            if job is None or job in mentioned_jobs(record):
                listed.append(
                    {
                        "seq": row.seq, "t": row.t, "type": row.kind, "job": shown_job(row.job),
                        "event": spell(record.event), "decided": spell(record.decided),
                    }
                )  # fmt: skip
                if len(listed) == limit:
                    return listed, after
    return listed, after


def spell(struct: Any) -> Any:
    """An array-like struct with its field names, for people."""
    if isinstance(struct, msgspec.Struct):
        named = {"type": type(struct).__name__} if getattr(struct, "__struct_config__").tag else {}  # noqa: B009
        return named | {name: spell(getattr(struct, name)) for name in struct.__struct_fields__ if name != "t"}
    if isinstance(struct, list | tuple):
        return [spell(item) for item in struct]
    if isinstance(struct, bytes):
        return f"{len(struct)} bytes"
    return struct


async def hosts(service: Service, request: Request) -> tuple[int, Hosts]:
    """By name in pages of `limit`, from behind `after` on; all in the order of their joining without a limit."""
    known, wanted = service.state.hosts, request.query_params.get("state")
    listed = [host for host in known.values() if not wanted or host.state == wanted]
    following = None
    if request.query_params.get("limit"):
        limit, after = whole(request, "limit", 0, MAX_ROWS), request.query_params.get("after", "")
        behind = sorted((host.name, host) for host in listed if host.name > after)
        listed = [host for _, host in behind[:limit]]
        following = listed[-1].name if 0 < limit < len(behind) else None
    counts: HostCounts = {
        "live": len(known.live), "unknown": len(known.unknown), "slots": known.live_slots, "total": len(known),
    }  # fmt: skip
    return 200, {
        "hosts": [host_row(service, host) for host in listed], "next": following, "counts": counts,
        "forgotten": [
            {"pool": pool, "hosts": sum_.hosts, "done": sum_.done, "failed": sum_.failed, "lost": sum_.lost}
            for pool, sum_ in known.forgotten.items()
        ],
    }  # fmt: skip


async def learned_timeouts(service: Service, request: Request) -> tuple[int, Timeouts]:
    """What has been learned about silence, per pool and bag."""
    pool = request.query_params.get("pool")
    return 200, {
        "timeouts": timeouts.all_shown(service.state, pool),
        "prior_s": timeouts.PRIOR_S,
        "floor_s": timeouts.FLOOR_S,
        "cap_s": timeouts.CAP_S,
    }


async def host(service: Service, request: Request) -> tuple[int, OneHost]:
    found = _host(service, request.path_params["host"])
    held = [f"{service.state.bags[key[0]].rules.name}.{key[1]}#{key[2]}" for key in found.held]
    return 200, {**host_row(service, found), "holding": held[:100]}


def _host(service: Service, name: str) -> Host:
    found = service.state.host(name)
    if found is None:
        raise NotFound(f"there is no host '{name[:80]}'", hint="see them: windfall host list", code="no-such-host")
    return found
