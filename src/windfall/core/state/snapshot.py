"""The state as bytes and back. Equal states give equal bytes. Pure."""

from __future__ import annotations

from msgspec import Struct

from windfall import graph as graphs
from windfall.core.events import Key, Settings
from windfall.core.sites.instances import SiteState
from windfall.core.state.agenda import Agenda
from windfall.core.state.hosts.hosts import Host, SavedHosts
from windfall.core.state.hosts.learned import Learned
from windfall.core.state.hosts.pools import AddedPool, Flow, Matching, PoolMode, PoolState
from windfall.core.state.jobs.bags import Bag, Bags, Due
from windfall.core.state.renting.budgets import watch
from windfall.core.state.renting.fleet import SavedFleet
from windfall.core.state.saving import Reader, Writer
from windfall.core.state.state import State


class SavedShape(Struct, array_like=True):
    """The edges of a workflow, once for all jobs of that shape."""

    offsets: bytes
    children: bytes


class SavedState(Struct, array_like=True):
    """The parts of the state as they save themselves; indexes are made anew."""

    seq: int
    t: float
    settings: Settings
    shapes: dict[str, SavedShape]
    bags: list[Bag]
    deadlines: list[Due]
    next_job: int
    hosts: SavedHosts
    fleet: SavedFleet
    pools: list[PoolState]
    flow: Flow
    asked: dict[int, tuple[str, int]]
    next_ask: int
    look_t: float
    learned: Learned
    sites: list[SiteState]
    pool_modes: dict[str, PoolMode] = {}
    added_pools: list[AddedPool] = []


def save(state: State) -> bytes:
    return b"".join(pieces(state))


def pieces(state: State, shared: bool = False) -> list[bytes | memoryview]:
    """The snapshot in pieces that nothing changes any more: another thread may join them while the state goes on.

    `shared`: without a copy of the columns, where the state does not go on.
    """
    bags = state.bags
    shapes = {key: SavedShape(shape.offsets.tobytes(), shape.children.tobytes()) for key, shape in bags.shapes.items()}
    return Writer(shared).pieces(
        SavedState(
            state.seq, state.t, state.settings, shapes, list(bags.values()), list(filter(bags.is_out, bags.deadlines)),
            bags.next, state.hosts.saved(), state.fleet.saved(), list(state.supply.pools.values()),
            state.supply.matching.listed(), state.supply.asked, state.supply.next_ask, state.supply.look_t,
            state.learned, list(state.sites.values()), state.supply.modes, list(state.supply.added.values()),
        )
    )  # fmt: skip


def load(data: bytes) -> State:
    saved = Reader(data).read(SavedState)
    state = State()
    state.seq, state.t, state.settings, state.learned = saved.seq, saved.t, saved.settings, saved.learned
    bags = state.bags
    bags.shapes = {key: graphs.unpack(shape.offsets, shape.children) for key, shape in saved.shapes.items()}
    for bag in saved.bags:
        bag.shape = bags.shapes[bag.shape_key] if bag.shape_key else None
        bags.add(bag)
        bags.refresh(bag)
    bags.deadlines, bags.next = Agenda(saved.deadlines), saved.next_job
    for host in saved.hosts.hosts:
        _reckon_held(bags, host)
    state.hosts.restore(saved.hosts)
    state.fleet.restore(saved.fleet)
    state.supply.pools = {pool.rules.name: pool for pool in saved.pools}
    supply = state.supply
    supply.matching = Matching.of(saved.flow)
    supply.asked, supply.next_ask, supply.look_t = saved.asked, saved.next_ask, saved.look_t
    supply.modes, supply.added = dict(saved.pool_modes), {pool.name: pool for pool in saved.added_pools}
    state.sites = {site.rules.name: site for site in saved.sites}
    for job in state.fleet.book.of_job:
        state.fleet.book.note(job, bags[job].finished_t is not None)
    for fleet in state.fleet.plans:
        watch(state, fleet, state.t)
    return state


def _reckon_held(bags: Bags, host: Host) -> None:
    """Drop attempts that nobody knows, and count the memory of the others: versions before left some there, of a worker
    whose name another one had taken, and counted memory by what tasks asked for later."""
    known = [key for key in host.held if key[0] in bags and _is_out(bags[key[0]], host.number, key)]
    if len(known) < len(host.held):
        host.held = dict.fromkeys(known)
        host.session.asked_back = {key: None for key in host.session.asked_back if key in host.held}
    host.memory_held = sum(bags[job].memory_for(task, number) for job, task, number in known)


def _is_out(bag: Bag, host: int, key: Key) -> bool:
    out = (*bag.attempts.live.get(key[1], ()), *bag.attempts.given_up.get(key[1], ()))
    return any((each.number, each.host) == (key[2], host) for each in out)
