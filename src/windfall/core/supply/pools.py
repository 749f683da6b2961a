"""The overlay in the engine: workers to ask of pools, and what became of them (GridBot, section 5). Pure."""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from windfall.core.decisions import ClientsAsked, PoolJudged
from windfall.core.events import OverlayDue, PoolAnswered
from windfall.core.matching import lifetimes
from windfall.core.matching.ads import Ad, bag_ad, pool_ad, queue_ad
from windfall.core.matching.matcher import needs_failover
from windfall.core.sites import site
from windfall.core.sites.site import with_room
from windfall.core.state.hosts.pools import Ask, Matching, Pools, PoolState
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.state import State
from windfall.core.supply import modes, overlay
from windfall.core.supply.overlay import Supply

if TYPE_CHECKING:
    from windfall.core.engine import Policies

LOOK_EVERY_S = 2.0


def on_overlay_due(state: State, event: OverlayDue, policies: Policies) -> ClientsAsked:
    matching, asks = look(state, policies, event.t)
    wanted = [ask for ask in asks if ask.count]
    for number, ask in enumerate(wanted, state.supply.next_ask):
        ask.number = number
    # While tasks wait, the pools are reviewed at intervals: workers may come, leave or fail without an event.
    return ClientsAsked(wanted, matching.listed(), event.t + LOOK_EVERY_S if state.bags.ready else inf)


def on_pool_answered(state: State, event: PoolAnswered, policies: Any) -> PoolJudged:
    pool = state.supply.pools.get(event.pool)
    refused = pool is not None and event.error
    return PoolJudged(overlay.after_refusal(pool, event.error, event.t) if pool is not None and refused else None)


def look(state: State, policies: Policies, t: float) -> tuple[Matching, list[Ask]]:
    """Match what waits with the pools. The asks also say what is held back, and why."""
    pools = with_room(state)
    supply = supply_of(state, t)
    demand = overlay.demand_of(_wants(state, policies, t))
    shut = {name: why for name in pools if (why := _starts_nothing(state, name, t))}
    capacity = {name: overlay.capacity_of(pool, supply[name], t, name in shut) for name, pool in pools.items()}
    matching = overlay.solve(
        demand, capacity, {name: _price(pool) for name, pool in pools.items()}, state.supply.matching
    )
    return matching, overlay.asks(pools, supply, matching, t, shut, _widest(state))


def _starts_nothing(state: State, pool: str, t: float) -> str:
    return modes.starts_nothing(state, pool) or site.starts_nothing(state, pool, t)


def _price(pool: PoolState) -> float:
    """Of a slot. Workers that came by themselves are there in any case: they are used before any is asked for."""
    return -1.0 if pool.rules.joins_itself else pool.rules.price_usd / pool.rules.slots


def _wants(state: State, policies: Policies, t: float) -> list[tuple[int, Pools]]:
    """The slots that each bag could fill, and the pools that its GridPolicy admits for them."""
    if not state.supply.pools:
        return []
    ads: dict[str, Ad] = {name: pool_ad(state, name) for name in sorted(state.supply.pools)}
    queue = queue_ad(state)
    return [want for bag in state.bags.ready.values() for want in _wants_of(state, policies, bag, ads, queue, t)]


def _admitted(policies: Policies, bag: Bag, pools: dict[str, Ad], queue: Ad, t: float) -> list[str]:
    policy = policies.of(bag.rules.policies)
    if "GridPolicy" not in policy.expressions:
        return list(pools)
    about = bag_ad(bag, t)
    return [name for name, pool in pools.items() if policy.wants_pool(about, pool, t, queue)]


def _wants_of(
    state: State, policies: Policies, bag: Bag, pools: dict[str, Ad], queue: Ad, t: float
) -> list[tuple[int, Pools]]:
    admitted = _admitted(policies, bag, pools, queue, t)
    failover = state.settings.failover_pool
    found = []
    for rules, waiting in zip(bag.classes, bag.queues.by_class, strict=True):
        width = max(1, ceil(rules.cpus))
        fitting = tuple(name for name in admitted if _is_wide_enough(state.supply.pools[name], width))
        if rules.nodes:
            fitting = tuple(name for name in fitting if _has_hosts(state.supply.pools[name], rules.nodes))
            width = rules.nodes * max((state.supply.pools[name].rules.slots for name in fitting), default=1)
        special = sum(needs_failover(bag, task) for task in waiting.again) if failover else 0
        found.append(((waiting.size - special) * width, fitting))
        found.append((special * width, tuple(name for name in fitting if name == failover)))
    return found


def _widest(state: State) -> dict[str, int]:
    """Slots of the widest waiting task that fits into a worker of each pool whose workers differ in size."""
    found: dict[str, int] = {}
    for name, pool in state.supply.pools.items():
        if pool.rules.least_slots:
            widths = [max(1, ceil(rules.cpus)) for bag in state.bags.ready.values() for rules in bag.classes]
            found[name] = max((width for width in widths if width <= pool.rules.slots), default=1)
    return found


def _has_hosts(pool: PoolState, nodes: int) -> bool:
    """Whether the pool's limit allows this number of workers at once."""
    return pool.rules.joins_itself or pool.rules.limit >= nodes


def _is_wide_enough(pool: PoolState, width: int) -> bool:
    return pool.rules.joins_itself or pool.rules.slots >= width


def supply_of(state: State, t: float) -> dict[str, Supply]:
    """What the workers of each configured pool do. A host that gets nothing has no free slots."""
    supply = {name: Supply(state.hosts.by_pool.get(name, 0)) for name in state.supply.pools}
    for number in state.hosts.live:
        host = state.hosts[number]
        given = supply.get(host.pool)
        if given is None:
            continue
        busy = min(len(host.held), host.slots) if host.gang is None else host.slots
        given.busy_slots += busy
        if modes.gives_nothing(state, host.pool):
            continue
        useless = host.access.draining or host.access.is_blocked(t) or host.record.probation_until is not None
        if not useless and lifetimes.is_of_use(state, host, t):
            given.free_slots += host.slots - busy
    return supply


class Outlook(Struct):
    """What a pool can still do for a bag."""

    pool: str
    what: str
    hopeful: bool = False


def outlook(state: State, policies: Policies, bag: Bag, width: int, t: float) -> list[Outlook]:
    """Of every pool that can be asked: will it give workers for tasks of this bag that take `width` slots?"""
    supply = supply_of(state, t)
    ads: dict[str, Ad] = {name: pool_ad(state, name) for name in state.supply.pools}
    admitted = _admitted(policies, bag, ads, queue_ad(state), t)
    found = []
    for name, pool in with_room(state).items():
        given = supply[name]
        if pool.rules.joins_itself:
            continue
        if shut := _starts_nothing(state, name, t):
            found.append(Outlook(name, shut))
        elif name not in admitted:
            found.append(Outlook(name, "GridPolicy does not admit it"))
        elif not _is_wide_enough(pool, width):
            found.append(Outlook(name, f"its workers have {pool.rules.slots} slots, a task takes {width}"))
        elif overlay.is_stuck(pool, t):
            found.append(Outlook(name, overlay.remark(pool, t)))
        elif pool.queued:
            found.append(Outlook(name, f"{pool.queued} workers are on their way", hopeful=True))
        elif given.workers >= pool.rules.limit:
            limit = pool.rules.limit
            there = "its one worker is there" if limit == 1 else f"all of its {limit} workers are there"
            found.append(Outlook(name, "its hosts have no room" if name in state.sites else there))
        elif given.free_slots >= width:
            found.append(Outlook(name, f"{given.free_slots} slots of its workers are free"))
        else:
            allowed, held_back = overlay.allowance(pool, 1, t)
            found.append(Outlook(name, held_back or "a worker is asked for", hopeful=allowed > 0))
    return found
