"""Pools as records change them: configured, asked for workers, answered, counted. Decides nothing."""

from __future__ import annotations

from math import inf

from windfall.core.decisions import ClientsAsked, Nothing, PoolJudged, PoolSettled
from windfall.core.events import (
    AnyEvent,
    JobCancelled,
    JobChanged,
    JobRetried,
    JobSealed,
    OverlayDue,
    PlanProposed,
    PoolAdded,
    PoolAnswered,
    PoolCounted,
    PoolRemoved,
    PoolsConfigured,
    PoolSwitched,
    TasksAdded,
)
from windfall.core.renting import apply as renting
from windfall.core.state.hosts.pools import NEVER_CAME_KEPT, OPEN, AddedPool, Matching, PoolMode, PoolState
from windfall.core.state.state import State


def apply_pools_configured(state: State, event: PoolsConfigured, decided: Nothing) -> None:
    before = state.supply.pools
    state.supply.pools = {}
    for rules in event.pools:
        pool = state.supply.pools[rules.name] = before.get(rules.name) or PoolState(rules)
        pool.rules = rules
        if pool.moved_t == -inf:
            pool.moved_t = event.t
    state.supply.matching, state.supply.look_t = Matching(), inf
    gone = [number for number, (pool_name, _) in state.supply.asked.items() if pool_name not in state.supply.pools]
    for number in gone:
        del state.supply.asked[number]


def apply_pool_added(state: State, event: PoolAdded, decided: Nothing) -> None:
    state.supply.added[event.pool] = AddedPool(event.pool, event.entry, event.base, event.t)
    state.supply.modes.pop(event.pool, None)


def apply_pool_switched(state: State, event: PoolSwitched, decided: PoolSettled) -> None:
    supply = state.supply
    if event.mode == OPEN:
        supply.modes.pop(event.pool, None)
    else:
        supply.modes[event.pool] = PoolMode(event.mode, event.t, event.reason)
    pool = supply.pools.get(event.pool)
    for number in decided.withdrawn:
        _, count = supply.asked.pop(number)
        if pool is not None:
            pool.wait_for(max(0, pool.queued - count), event.t)
    for number in decided.stopped:
        renting.give_back(state, state.fleet.machines[number], event.t)
    for number in decided.freed:
        renting.unreserve(state, state.fleet.machines[number])
    for job in state.fleet.plans:
        state.touch(job)


def apply_pool_removed(state: State, event: PoolRemoved, decided: PoolSettled) -> None:
    if decided.refused:
        return
    supply = state.supply
    fleet = state.fleet
    for known in (supply.added, supply.modes, supply.pools, fleet.offers, fleet.strangers, fleet.priced_t):
        known.pop(event.pool, None)
    supply.asked = {number: asked for number, asked in supply.asked.items() if asked[0] != event.pool}
    supply.matching = Matching()


def apply_clients_asked(state: State, event: OverlayDue, decided: ClientsAsked) -> None:
    supply = state.supply
    supply.matching, supply.look_t = Matching.of(decided.flow), decided.look_t
    for ask in decided.asks:
        supply.asked[ask.number] = (ask.pool, ask.count)
        supply.next_ask = ask.number + 1
        asked(supply.pools[ask.pool], ask.count, event.t)
        if ask.slots:
            supply.pools[ask.pool].sizes[ask.number] = ask.slots


def apply_pool_answered(state: State, event: PoolAnswered, decided: PoolJudged) -> None:
    pool = state.supply.pools.get(event.pool)
    state.supply.asked.pop(event.ask, None)
    if pool is not None:
        pool.sizes.pop(event.ask, None)
    if pool is not None and decided.breaker is not None:
        # These workers will not come.
        pool.wait_for(max(0, pool.queued - event.count), event.t)
        pool.note(decided.breaker)
    if pool is not None and event.said:
        said = [(event.t, host, words) for host, words in event.said]
        pool.never_came = [*pool.never_came, *said][-NEVER_CAME_KEPT:]


def apply_pool_counted(state: State, event: PoolCounted, decided: Nothing) -> None:
    pool = state.supply.pools.get(event.pool)
    if pool is not None:
        # Requests that no pool has answered yet are not counted there.
        unanswered = sum(count for name, count in state.supply.asked.values() if name == event.pool)
        pool.wait_for(event.pending + unanswered, event.t)


DEMAND = frozenset(
    {TasksAdded, JobSealed, JobChanged, JobCancelled, JobRetried, PoolsConfigured, PoolSwitched, PlanProposed}
)
"""Events after which more workers, or fewer, may be wanted."""


def note_demand(state: State, event: AnyEvent) -> None:
    """After any event: look at the pools soon if it may have changed what is wanted of them."""
    supply = state.supply
    soon_t = event.t + state.settings.pools_after_s
    if supply.look_t <= soon_t or all(pool.rules.joins_itself for pool in supply.pools.values()):
        return
    if type(event) in DEMAND or (supply.look_t == inf and state.bags.ready):
        supply.look_t = soon_t


def asked(pool: PoolState, count: int, t: float) -> None:
    """Note that workers were asked for: they are pending until the pool or the workers themselves say otherwise."""
    pool.allowance, pool.asked_t = pool.saved(t) - count, t
    pool.wait_for(pool.queued + count, t)


def joined(pool: PoolState, t: float) -> None:
    """A worker has come: it is pending no more."""
    pool.wait_for(max(0, pool.queued - 1), t)
