"""Jobs as they come in and are changed: submitted, filled, sealed, cancelled, retried, changed. Decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from starlette.requests import Request

from windfall.api.answers import Cancelled, JobStatus, Retried
from windfall.api.asking import Admission
from windfall.api.requests import CancelBody, Changes, RetryBody, SubmitBody, read_changes
from windfall.api.small import Forgotten, Submitted, Total
from windfall.bags import spec as specs
from windfall.bags.chunks import Chunk, check_chunk, decode
from windfall.bags.outline import outlined
from windfall.bags.rendering import Renderer
from windfall.bags.spec import InputFile, JobSpec, TaskRow, parse_memory
from windfall.bounds import Count, TaskCount, read_json
from windfall.core import events as ev
from windfall.core.decisions import JobLetGo, JobTaken, TasksChosen
from windfall.core.events import IDLE_SLOTS, JobRules, TaskClass
from windfall.core.matching.policy import BagPolicy, DefaultPolicy
from windfall.core.records import Record
from windfall.core.state.jobs.bags import Bag
from windfall.errors import BadInput
from windfall.resources import needs_of
from windfall.server.http import scoped, workflows
from windfall.server.http.bodies import limited_body, typed_body
from windfall.server.http.supply.fleets import check_fleet
from windfall.server.http.supply.machines import check_rented
from windfall.server.job_files import JobQuota, size_of_inputs
from windfall.server.json_limits import check_json
from windfall.server.limits import DEFAULTS, Limits, TooLarge
from windfall.server.queries.one_job import job_status
from windfall.server.service import NotFound, Service
from windfall.store.contract import Batch, ChunkHead, ChunkRow, JobRow
from windfall.units import parse_money
from windfall.wire import frames

Json = dict[str, Any]


def rules_of(spec: JobSpec, paused: bool = False, replication: str = IDLE_SLOTS) -> JobRules:
    """The part of a specification that decisions depend on; `replication` of a job that does not say it."""
    return JobRules(
        name=spec.name,
        owner=spec.owner,
        key=spec.key,
        priority=spec.priority,
        max_failed_tasks=spec.max_failed_tasks,
        streaming=spec.streaming,
        deadline_s=spec.deadline_s,
        budget_microusd=spec.budget_microusd,
        policies=spec.policies,
        attributes={**spec.tags, **spec.attributes},
        paused=paused,
        workflow_class=spec.workflow_class,
        like=spec.like,
        rent_from=spec.pools,
        planner=spec.planner,
        confidence=spec.confidence,
        replication=spec.replication or replication,
        max_replicas=spec.max_replicas or 0,
        fleet=spec.fleet,
        quorum=spec.quorum,
        data_gb=spec.data_gb,
        task_data_gb=spec.task_data_gb,
    )


def classes_of(spec: JobSpec) -> list[TaskClass]:
    executable = executable_of(spec)
    return [
        TaskClass(
            cpus=needs.cpus,
            memory_bytes=needs.memory.bytes_ if needs.memory else 0,
            memory_per_attempt=bool(needs.memory and needs.memory.per_attempt),
            wall_s=needs.wall_s,
            max_failures=needs.max_failures,
            max_losses=needs.max_losses,
            estimate_s=needs.estimate_s,
            name=needs.name,
            checkpoint_mb=None if spec.checkpoint_s is None else spec.checkpoint_mb,
            executable=executable,
            fixed_memory=spec.fixed_memory,
            checkpoint_auto=spec.checkpoint_auto,
            checkpoint_s=None if spec.checkpoint_auto else spec.checkpoint_s,
            needs=needs_of(dict(needs.resources)),
            container=bool(spec.image),
            nodes=needs.nodes,
            spread=spec.spread,
        )
        for needs in spec.task_classes()
    ]


def executable_of(spec: JobSpec) -> str:
    """The program that every task runs; empty where each task has a command of its own."""
    if spec.kind == "call":
        return spec.python or "python"
    first = spec.command[0] if spec.command else ""
    return "" if "{" in first else first


def compile_policies(texts: dict[str, str], attributes: Sequence[str] = ()) -> BagPolicy:
    """Compile a bag's policies, or refuse them. The ClassAd library is loaded for the first bag that has some."""
    if not texts:
        return DefaultPolicy()
    from windfall.policy.compiled import compile_policies as compile_classads

    return compile_classads(texts, {"BOT": list(attributes)} if attributes else {})


def known_policies(texts: dict[str, str]) -> BagPolicy:
    """Policies that were checked when they came in, for the engine: it never refuses what was once accepted."""
    from windfall.policy.compiled import ClassAdPolicy, named_policies

    return ClassAdPolicy(named_policies(texts))


async def submit(service: Service, request: Request) -> tuple[int, Submitted]:
    body = await typed_body(request, SubmitBody)
    spec = _owned(service, specs.decode(bytes(body.spec)), scoped.user_of(request))
    Renderer(spec)  # compiles the templates, and refuses what does not compile
    compile_policies(spec.policies, [*spec.tags, *spec.attributes])
    count = body.count
    if count and spec.source.kind != "range":
        raise BadInput("'count' goes with a range; send other tasks as chunks")
    if count and count != spec.source.range_count:
        raise BadInput(f"the range has {spec.source.range_count} numbers, 'count' says {count}")
    limits = service.intake.limits
    shape = workflows.shape_of(body.shape, spec, limits.decompressed_bytes)
    _check_total(service, max(count, 0 if shape is None else shape.tasks))
    if shape is not None and shape.tasks and body.seal:
        raise BadInput("a workflow is sealed when its tasks have been sent")
    await _check_inputs(service, spec)
    if spec.key and spec.key in service.state.bags.by_key:
        await service.driver.settled()  # a moment ago it was submitted for the first time: now the store has it
    check_rented(service, spec, shape is not None or bool(spec.like))
    check_fleet(service, spec, shape is not None or bool(spec.like))
    _check_validator(service, spec)
    known = service.state.bags.by_key.get(spec.key) if spec.key else None
    admission = None
    if body.late != "accept" and known is None:
        admission = await _admitted(service, spec, body, scoped.user_of(request))
        check_fleet(service, spec)  # it may have been drained or deleted meanwhile
    now = service.driver.clock()
    job = service.state.bags.next
    submitted = ev.JobSubmitted(now, rules_of(spec, replication=service.state.settings.replication), classes_of(spec))
    known = service.state.bags.by_key.get(spec.key) if spec.key else None  # again: time has passed
    if known is not None:
        bag = service.state.bags[known]
        missing = _missing(bag, count, body.seal, now) if service.spec(known).source == spec.source else []
        await service.driver.submit([submitted, *missing])
        return 201, {"job": known, "known": True, "total": bag.total}
    following: list[ev.AnyEvent] = [ev.TasksAdded(now, job, count)] if count else []
    if shape is not None:
        following = workflows.shaped(service.state, job, shape, now) + workflows.estimated(
            body.estimates, job, shape, now, limits.decompressed_bytes
        )
    if spec.like:
        following = workflows.instance(service, job, spec, now)
        count = sum(event.count for event in following if isinstance(event, ev.TasksAdded))
    if body.seal or spec.like:
        following.append(ev.JobSealed(now, job))
    row = JobRow(job, specs.encode(spec))
    records = await service.driver.submit([submitted, *following], lambda made: Batch(jobs=[row]))
    assert isinstance(records[0].decided, JobTaken) and records[0].decided.job == job
    told: Submitted = {"job": job, "known": False, "total": count}
    return 201, told if admission is None else {**told, "admission": admission}


async def _admitted(service: Service, spec: JobSpec, body: SubmitBody, user: str) -> Admission | None:
    """What the fleet says of a job that has not been submitted; None if it cannot say."""
    from windfall.server.queries.renting.admission import outline_of, refuse_late

    if not spec.fleet or spec.deadline_s is None:
        raise BadInput("'late' goes with a fleet and a deadline", hint='as in: "fleet": "night", "deadline_s": 7200')
    outline = body.outline or (outline_of(service, spec) if spec.like else outlined(spec, body.count, []))
    if outline is None:
        raise BadInput("how long do the tasks take?", hint="send 'outline', or a range with an estimate")
    asked = msgspec.structs.replace(outline, deadline_s=spec.deadline_s, every_s=None)
    return await refuse_late(service, spec.fleet, asked, spec.confidence, body.late == "reject", user)


async def _check_inputs(service: Service, spec: JobSpec) -> None:
    """Refuse a job whose files are more than the operator allows one job."""
    jobs, files = service.job_files, (*spec.inputs, *spec.files)
    if files and jobs.is_limited:
        size = await asyncio.to_thread(size_of_inputs, service.store, files)
        if size > jobs.limit_bytes:
            raise JobQuota(0, size, jobs.limit_bytes)


def _check_total(service: Service, total: int) -> None:
    """Refuse a job of more tasks than the operator allows one job."""
    limits = service.intake.limits
    if total > limits.job_tasks:
        hint = f"at most {limits.job_tasks:,} (windfall server --limit job-tasks=N): submit it in parts"
        raise TooLarge(f"the job would have {total:,} tasks", limit=limits.body_bytes, hint=hint)


def _owned(service: Service, spec: JobSpec, user: str) -> JobSpec:
    """A job that a user's own token submits is that user's, whatever the login on the machine that it came from."""
    if not user:
        return spec
    known = service.state.bags.by_key.get(spec.key, 0) if spec.key else 0
    for number in (spec.like, known):
        if number in service.state.bags and service.state.bags[number].rules.owner != user:
            raise BadInput("its key or class belongs to a job of another user", hint="choose another", code="used-key")
    return msgspec.structs.replace(spec, owner=user)


def _check_validator(service: Service, spec: JobSpec) -> None:
    known = sorted({name for front in service.fronts.values() for name in front.validators})
    if spec.validator and spec.validator not in known:
        adds = "windfall boinc enable --validator NAME=COMMAND adds one"
        hint = f"there are: {', '.join(known)}" if known else adds
        raise BadInput(f"there is no validator '{spec.validator}'", hint=hint)


def _missing(bag: Bag, count: int, seal: bool, now: float) -> list[ev.AnyEvent]:
    """What a repeated submission of a range still has to do: a damaged end of the log may have been dropped since."""
    if bag.sealed or not count or bag.total not in (0, count):
        return []
    added: list[ev.AnyEvent] = [] if bag.total else [ev.TasksAdded(now, bag.number, count)]
    return [*added, ev.JobSealed(now, bag.number)] if seal else added


class ChunkNote(Struct, forbid_unknown_fields=True):
    first: TaskCount
    count: TaskCount
    codec: str
    bytes: Count
    klass: Count = 0


class TasksHeader(Struct, forbid_unknown_fields=True):
    chunks: list[ChunkNote]
    seal: bool = False
    append: bool = False  # the job was complete, and becomes longer


async def add_tasks(service: Service, request: Request) -> tuple[int, Total]:
    # The job is looked for when the body is here: while it arrives, the job may be forgotten.
    limits = service.intake.limits
    header, chunks = read_chunks(await limited_body(request), limits)
    if service.job_files.is_limited:
        await _count_inputs(service, service.bag(request.path_params["job"]), chunks)
    bag = service.bag(request.path_params["job"])
    if bag.sealed:
        if all(chunk.first + chunk.count <= bag.total for chunk in chunks):
            return 200, {"total": bag.total}
        if not header.append:
            raise BadInput(f"job {bag.number} is sealed: no more tasks can be added", code="sealed")
        _refuse_append(bag)
    spec = service.spec(bag.number)
    added: list[Chunk] = []
    total = bag.total
    for chunk in chunks:
        if chunk.first + chunk.count <= total:
            continue
        if chunk.first != total:
            raise BadInput(f"a chunk begins with task {chunk.first}, but the next one is {total}", code="gap")
        check_chunk(spec, chunk, limits.decompressed_bytes)
        added.append(chunk)
        total += chunk.count
    _check_total(service, total)
    workflows.refuse_odd_count(bag, total, header.seal)
    now = service.driver.clock()
    events: list[ev.AnyEvent] = [ev.TasksAdded(now, bag.number, c.count, c.klass) for c in added]
    if header.seal or (bag.sealed and added):
        # Again, if tasks were appended: its plan is made anew.
        events.append(ev.JobSealed(now, bag.number))
    rows = [ChunkRow(bag.number, c.first, c.count, c.klass, c.codec, c.data) for c in added]
    service.renderer(bag.number)  # read while the store can still refuse: what is applied must be kept

    def kept(made: list[Record]) -> Batch:
        """The chunks whose tasks were added, and from now on the renderer knows of them."""
        count = sum(isinstance(record.event, ev.TasksAdded) for record in made)
        service.chunks_added(bag.number, [ChunkHead(c.first, c.count, c.klass, c.codec) for c in added[:count]])
        return Batch(chunks=rows[:count])

    if events:
        await service.driver.submit(events, kept)
    return 200, {"total": bag.total}


async def _count_inputs(service: Service, bag: Bag, chunks: list[Chunk]) -> None:
    """Refuse tasks that take more files than the operator allows one job."""
    spec, most = service.spec(bag.number), service.intake.limits.decompressed_bytes
    if spec.source.kind != "tasks":
        return
    inputs: list[InputFile] = []
    for chunk in chunks:
        if chunk.first + chunk.count > bag.total:
            check_chunk(spec, chunk, most)
            for task in decode(chunk.codec, chunk.data, chunk.count, most):
                assert isinstance(task, TaskRow)
                inputs += task.inputs or ()
    if inputs:
        await service.job_files.add_inputs(bag.number, inputs)


def _refuse_append(bag: Bag) -> None:
    if bag.shape is not None or bag.rules.like:
        raise BadInput(f"job {bag.number} is a workflow: its tasks are fixed", code="sealed")
    if bag.stopped:
        raise BadInput(
            f"job {bag.number} was stopped ({bag.stopped})", hint="submit the new tasks as a job", code="sealed"
        )


def read_chunks(body: bytes, limits: Limits = DEFAULTS) -> tuple[TasksHeader, list[Chunk]]:
    try:
        raw, attachments = frames.split(body)
    except frames.BadFrame as error:
        raise BadInput(f"not a frame of chunks: {error}") from None
    check_json(raw, limits, "a frame of chunks")
    header = read_json(raw, TasksHeader, "not a frame of chunks")
    chunks, at = [], 0
    for note in header.chunks:
        chunks.append(Chunk(note.first, note.count, note.klass, note.codec, bytes(attachments[at : at + note.bytes])))
        at += note.bytes
    if at != len(attachments):
        raise BadInput(f"the chunks have {len(attachments)} bytes, their lengths add up to {at}")
    return header, chunks


async def seal(service: Service, request: Request) -> tuple[int, Total]:
    bag = service.bag(request.path_params["job"])
    workflows.refuse_odd_count(bag, bag.total, seal=True)
    if not bag.sealed:
        await service.driver.submit([ev.JobSealed(service.driver.clock(), bag.number)])
    return 200, {"total": bag.total}


async def cancel(service: Service, request: Request) -> tuple[int, Cancelled]:
    body = await typed_body(request, CancelBody)
    bag = service.bag(request.path_params["job"])
    before = bag.counts[4]
    event = ev.JobCancelled(service.driver.clock(), bag.number, _tasks(body.tasks, bag.total), body.reason or "")
    await service.driver.submit([event])
    return 200, {"job": bag.number, "cancelled": bag.counts[4] - before}


def _tasks(tasks: list[int] | None, total: int) -> list[int] | None:
    """Each once."""
    if tasks is None:
        return None
    for task in tasks:
        if task >= total:
            last = f"its last is {total - 1}" if total else "it has none"
            raise NotFound(f"there is no task {task}: {last}", code="no-such-task")
    return list(dict.fromkeys(tasks))


async def retry(service: Service, request: Request) -> tuple[int, Retried]:
    body = await typed_body(request, RetryBody)
    bag = service.bag(request.path_params["job"])
    tasks = _tasks(body.tasks, bag.total)
    if body.memory:
        await _change(service, bag.number, Changes(memory=body.memory))
        service.bag(str(bag.number))  # it may have been forgotten meanwhile
    event = ev.JobRetried(service.driver.clock(), bag.number, tasks, body.cancelled)
    record = (await service.driver.submit([event]))[0]
    assert isinstance(record.decided, TasksChosen)
    return 200, {"job": bag.number, "retried": len(record.decided.tasks)}


async def change(service: Service, request: Request) -> tuple[int, JobStatus]:
    body = await limited_body(request) or b"{}"
    check_json(body, service.intake.limits, "the changes")
    bag = service.bag(request.path_params["job"])
    await _change(service, bag.number, read_changes(body))
    return 200, job_status(service, bag)


class StillNeeded(BadInput):
    """The job cannot be forgotten."""

    code = "job-needed"


async def forget(service: Service, request: Request) -> tuple[int, Forgotten]:
    """Forget a job that has ended: its tasks, results and specification go in the transaction of the record."""
    bag = service.bag(request.path_params["job"])
    if refused := await let_go(service, bag.number):
        hint = "" if bag.finished_t is not None else f"cancel it first: windfall cancel {bag.number}"
        raise StillNeeded(refused, hint=hint)
    return 200, {"forgotten": bag.number, "name": bag.rules.name, "tasks": bag.total}


async def let_go(service: Service, job: int) -> str:
    """Forget a job, or say why it is kept."""

    def gone(made: list[Record]) -> Batch:
        return Batch(forgotten=[] if _refusal(made[0]) else [job])

    return _refusal((await service.driver.submit([ev.JobForgotten(service.driver.clock(), job)], gone))[0])


def _refusal(record: Record) -> str:
    assert isinstance(record.decided, JobLetGo)
    return record.decided.refused


async def _change(service: Service, job: int, wanted: Changes) -> None:
    bag = service.state.bags[job]
    spec = service.spec(job)
    said = {name: value for name in Changes.__struct_fields__ if (value := getattr(wanted, name)) is not UNSET}
    paused = said.pop("paused", bag.rules.paused)
    if "policies" in said:
        merged = {**spec.policies, **said["policies"]}
        said["policies"] = {policy: text for policy, text in merged.items() if text is not None}
    if "attributes" in said:
        said["attributes"] = {**spec.attributes, **said["attributes"]}
    if "resources" in said:
        # None of a resource: the task does not need it any more.
        said["resources"] = {name: units for name, units in {**spec.resources, **said["resources"]}.items() if units}
    if "budget_usd" in said:
        budget = said.pop("budget_usd")
        said["budget_microusd"] = None if budget is None else parse_money(budget)
    if said.get("memory") is not None:
        said["memory"] = parse_memory(said["memory"])
    changed = msgspec.structs.replace(spec, **said)
    specs.check(changed, f"job {job}")
    compile_policies(changed.policies, [*changed.tags, *changed.attributes])
    row = JobRow(job, specs.encode(changed))
    rules = rules_of(changed, paused, bag.rules.replication)
    event = ev.JobChanged(service.driver.clock(), job, rules, classes_of(changed))
    service.renderer(job)  # read while the store can still refuse
    done = service.driver.submit([event], lambda made: Batch(jobs=[row]))
    service.replace_spec(job, changed)
    await done
