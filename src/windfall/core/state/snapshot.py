"""The state as bytes and back: what a restart begins with. Pure.

Fields are arrays: new ones go to the end, with a default, so that a newer version reads an older snapshot.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from math import inf
from typing import Any

import msgspec
from msgspec import Struct, field

from windfall.core.events import Assigned, JobRules, Key, Settings, TaskClass
from windfall.core.liveness.reliability import Reliability
from windfall.core.sites.instances import SiteState
from windfall.core.state import dag
from windfall.core.state.agenda import Agenda
from windfall.core.state.columns import Columns
from windfall.core.state.fleet import MachineState, PlanState, Seen
from windfall.core.state.state import GONE, LIVE, Advice, Attempt, Bag, Host, State, pool_of
from windfall.core.supply.overlay import Flow, Matching, PoolState
from windfall.planning.estimates import Record as RunTimes
from windfall.planning.offers import Offer
from windfall.timeouts.online import Memory


class SavedBag(Struct, array_like=True):
    number: int
    rules: JobRules
    classes: list[TaskClass]
    submitted_t: float
    sealed: bool
    stopped: str
    finished_t: float | None
    last_result_t: float | None
    columns: list[int]
    """Lengths of the columns, whose bytes stand behind the header."""
    segments: list[tuple[int, int]]
    fresh: list[list[tuple[int, int]]]
    again: list[list[int]]
    live: dict[int, list[Attempt]]
    given_up: dict[int, list[Attempt]]
    tail: bool
    attempts: int
    waste: int
    counts: list[int]
    turnarounds: dict[int, int]
    levels: dict[int, list[int]]
    run_s: float
    causes: dict[int, int]
    blame: dict[int, list[int]]
    order: int
    shape: str = ""
    reserved: dict[int, int] = field(default_factory=dict)
    saved: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    estimates: bytes = b""
    checkpoints: dict[int, str] = field(default_factory=dict)
    ran: dict[int, float] = field(default_factory=dict)


class SavedShape(Struct, array_like=True):
    """Who waits for whom, once for all jobs of that shape. How many parents are left follows from the tasks' states."""

    key: str
    offsets: bytes
    children: bytes


class SavedHost(Struct, array_like=True):
    number: int
    name: str
    boot: str
    n: int
    state: str
    ad: dict[str, Any]
    ad_version: int
    ad_t: float
    slots: int
    memory_bytes: int
    memory_held: int
    joined_t: float
    seen_t: float
    heard_t: float
    draining: bool
    blocked: str
    blocked_until: float | None
    left: str
    held: list[Key]
    to_cancel: list[Key]
    assigned: list[Assigned]
    cancelled: list[Key]
    record: Reliability


class SavedFleet(Struct, array_like=True):
    """Rented machines, what was seen of their offers, and the plans of jobs."""

    offers: dict[str, list[Offer]] = field(default_factory=dict)
    machines: list[MachineState] = field(default_factory=list)
    markets: dict[str, Seen] = field(default_factory=dict)
    strangers: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    plans: list[PlanState] = field(default_factory=list)
    plans_due: list[int] = field(default_factory=list)
    run_times: dict[str, RunTimes] = field(default_factory=dict)
    next_machine: int = 1


class SavedState(Struct, array_like=True):
    seq: int
    t: float
    settings: Settings
    bags: list[SavedBag]
    hosts: list[SavedHost]
    live_hosts: list[int]
    unknown_hosts: list[int]
    deadlines: list[tuple[float, int, int, int]]
    next_job: int
    next_host: int
    pools: list[PoolState] = field(default_factory=list)
    flow: Flow = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    advice: dict[str, Advice] = field(default_factory=dict)
    sites: list[SiteState] = field(default_factory=list)
    shapes: list[SavedShape] = field(default_factory=list)
    fleet: SavedFleet = field(default_factory=SavedFleet)


_BAG_PLAIN = (
    "number", "rules", "classes", "submitted_t", "sealed", "stopped", "finished_t", "last_result_t", "segments",
    "live", "given_up", "tail", "attempts", "waste", "counts", "turnarounds", "run_s",
    "causes", "blame", "reserved", "saved", "checkpoints", "ran",
)  # fmt: skip
_HOST_PLAIN = tuple(name for name in SavedHost.__struct_fields__ if name != "held")


def save(state: State) -> bytes:
    """The whole state as bytes; equal states give equal bytes."""
    return b"".join(pieces(state))


def pieces(state: State) -> list[bytes]:
    """The same in pieces that nothing changes any more: another thread may join them while the state goes on.

    A header, and behind it the columns as they are: a million tasks are copied once, not packed.
    """
    columns: list[bytes] = []
    bags = []
    for bag in state.bags.values():
        mine = [*bag.columns.save(), bag.order.tobytes()]
        bags.append(_saved_bag(bag, [len(column) for column in mine]))
        columns += mine
    header = msgspec.msgpack.encode(_saved_state(state, bags))
    return [_LENGTH.pack(len(header)), header, *columns]


_LENGTH = struct.Struct(">Q")


def _saved_bag(bag: Bag, lengths: list[int]) -> SavedBag:
    return SavedBag(
        columns=lengths[:-1],
        order=lengths[-1],
        levels={level: list(tasks) for level, tasks in bag.levels.items()},
        fresh=[list(queue.fresh) for queue in bag.queues],
        again=[list(queue.again) for queue in bag.queues],
        estimates=bag.estimates.tobytes(),
        shape=bag.shape.key if bag.shape is not None else "",
        **{name: getattr(bag, name) for name in _BAG_PLAIN},
    )


def _saved_state(state: State, bags: list[SavedBag]) -> SavedState:
    hosts = [
        SavedHost(held=list(host.held), **{name: getattr(host, name) for name in _HOST_PLAIN})
        for host in state.hosts.values()
    ]
    return SavedState(
        state.seq, state.t, state.settings, bags, hosts, list(state.live_hosts),
        list(state.unknown_hosts), list(state.deadlines), state.next_job, state.next_host,
        pools=list(state.pools.values()), flow=state.matching.listed(), memory=state.memory, advice=state.advice,
        sites=list(state.sites.values()),
        shapes=[
            SavedShape(key, shape.offsets.tobytes(), shape.children.tobytes()) for key, shape in state.shapes.items()
        ],
        fleet=SavedFleet(
            state.offers, list(state.machines.values()), state.markets, state.strangers, list(state.plans.values()),
            list(state.plans_due), state.run_times, state.next_machine,
        ),
    )  # fmt: skip


def load(data: bytes) -> State:
    (length,) = _LENGTH.unpack_from(data)
    view = memoryview(data)[_LENGTH.size :]
    saved = msgspec.msgpack.decode(view[:length], type=SavedState)
    at = length
    state = State()
    state.seq, state.t, state.settings = saved.seq, saved.t, saved.settings
    state.next_job, state.next_host = saved.next_job, saved.next_host
    state.deadlines = Agenda(saved.deadlines)
    state.pools = {pool.rules.name: pool for pool in saved.pools}
    state.matching = Matching.of(saved.flow)
    state.memory, state.advice = saved.memory, saved.advice
    state.sites = {site.rules.name: site for site in saved.sites}
    state.shapes = {shape.key: dag.unpack(shape.offsets, shape.children) for shape in saved.shapes}
    for saved_bag in saved.bags:
        bag = _load_bag(saved_bag)
        at = _load_columns(bag, saved_bag, view, at)
        if saved_bag.shape:
            bag.take_shape(state.shapes[saved_bag.shape])
        bag.aside = sum(not bag.is_held(task) for task in bag.reserved)
        state.bags[bag.number] = bag
        if bag.rules.key:
            state.keys[bag.rules.key] = bag.number
        state.refresh(bag)
    for saved_host in saved.hosts:
        host = Host(saved_host.number, saved_host.name, saved_host.joined_t)
        for name in _HOST_PLAIN:
            setattr(host, name, getattr(saved_host, name))
        host.held = dict.fromkeys(saved_host.held)
        host.pool = pool_of(host.ad)
        state.hosts[host.number] = host
        state.names[host.name] = host
        if host.state == LIVE:
            state.live_slots += host.slots
        if host.state != GONE:
            state.count_client(host.pool, 1)
        if host.to_cancel:
            state.hosts_to_tell[host.number] = None
    state.live_hosts = OrderedDict.fromkeys(saved.live_hosts)
    state.unknown_hosts = OrderedDict.fromkeys(saved.unknown_hosts)
    _load_fleet(state, saved.fleet)
    return state


def _load_fleet(state: State, saved: SavedFleet) -> None:
    for name in ("offers", "markets", "strangers", "run_times", "next_machine"):
        setattr(state, name, getattr(saved, name))
    for machine in saved.machines:
        state.machines[machine.number] = machine
        state.machines_by_job.setdefault(machine.job, []).append(machine.number)
        if machine.there:
            state.there[machine.number] = machine
    state.plans = {plan.job: plan for plan in saved.plans}
    state.plans_due = dict.fromkeys(saved.plans_due)
    state.plan_look_t = min((plan.replan_t for plan in saved.plans), default=inf)


def _load_bag(saved: SavedBag) -> Bag:
    bag = Bag(saved.number, saved.rules, saved.classes, saved.submitted_t)
    for name in _BAG_PLAIN:
        setattr(bag, name, getattr(saved, name))
    bag.estimates.frombytes(saved.estimates)
    bag.levels = {level: OrderedDict.fromkeys(tasks) for level, tasks in saved.levels.items()}
    for queue, fresh, again in zip(bag.queues, saved.fresh, saved.again, strict=True):
        queue.fresh.extend(fresh)
        queue.again.extend(again)
        queue.size = len(again) + sum(end - start for start, end in fresh)
    return bag


def _load_columns(bag: Bag, saved: SavedBag, view: memoryview, at: int) -> int:
    """Cut a bag's columns out of what stands behind the header; returns where the next one begins."""
    cut = []
    for length in [*saved.columns, saved.order]:
        cut.append(view[at : at + length])
        at += length
    bag.columns = Columns.load(cut[:-1])
    bag.order.frombytes(cut[-1])
    return at
