"""How many workers to ask of each pool (GridBot, section 5): a maximum matching with capacities. Pure.

Bags (tasks that wait, the pools that their GridPolicy admits) against pools (free slots, and workers up to the limit).
Costs stand on the pools alone, so filling the cheapest pools first along augmenting paths, from unmet demand and from
dearer pools, gives a matching that is maximum and, among those, cheapest. Bags that admit the same pools are one group;
the flow of the last solution is kept and only mended when demand changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from types import MappingProxyType

from msgspec import Struct

from windfall.core.state.hosts.pools import Ask, Breaker, Matching, Pools, PoolState
from windfall.units import show_duration


class Supply(Struct):
    """What a pool gives already: its workers that are there, and how many of their slots are busy or free."""

    workers: int = 0
    busy_slots: int = 0
    free_slots: int = 0


FIRST_PAUSE_S = 60.0
LONGEST_PAUSE_S = 3600.0
ERRORS_TO_OPEN = 3
STUCK_S = 300.0
"""A queue from which no worker has come for this long does not move: others get the work."""


def solve(
    demand: Mapping[Pools, int], capacity: Mapping[str, int], price: Mapping[str, float], last: Matching | None = None
) -> Matching:
    """The cheapest maximum matching; `last` is mended rather than thrown away."""
    matching = _trimmed(last, demand, capacity) if last is not None else Matching()
    for group in demand:
        matching.flow.setdefault(group, {})
    for pool in sorted(capacity, key=lambda name: (price.get(name, 0.0), name)):
        # Mending can have left flow in a dear pool although a cheaper one has room again: it is moved as well.
        dearer = {name for name in capacity if price.get(name, 0.0) > price.get(pool, 0.0)}
        _fill(matching, pool, demand, capacity[pool], dearer)
    return matching


def _trimmed(last: Matching, demand: Mapping[Pools, int], capacity: Mapping[str, int]) -> Matching:
    """What of the last flow still fits."""
    flow: dict[Pools, dict[str, int]] = {}
    room = dict(capacity)
    for group, flows in last.flow.items():
        left = demand.get(group, 0)
        kept: dict[str, int] = {}
        for pool, amount in flows.items():
            fits = min(amount, left, room.get(pool, 0))
            if fits > 0:
                kept[pool] = fits
                left -= fits
                room[pool] -= fits
        if group in demand:
            flow[group] = kept
    return Matching(flow)


def _fill(matching: Matching, pool: str, demand: Mapping[Pools, int], capacity: int, dearer: set[str]) -> None:
    """Augment along shortest paths to this pool, from unmet demand and from what dearer pools hold."""
    while (room := capacity - matching.of_pool(pool)) > 0:
        path = _path_to(matching, pool, demand, dearer)
        if path is None:
            return
        first = path[0][0]
        amounts = [matching.flow[group][taken_from] for group, taken_from, _ in path if taken_from]
        if not path[0][1]:
            amounts.append(demand[first] - matching.of_group(first))
        amount = min(room, *amounts)
        for group, taken_from, given_to in path:
            flows = matching.flow[group]
            if taken_from:
                flows[taken_from] -= amount
            flows[given_to] = flows.get(given_to, 0) + amount


Step = tuple[Pools, str, str]
"""A group takes flow from a pool ('' for unmet demand) and gives it to another."""


def _path_to(matching: Matching, pool: str, demand: Mapping[Pools, int], dearer: set[str]) -> list[Step] | None:
    """Search backwards from the pool: which groups could use it, and which places in other pools would that free."""
    reached = {pool}
    frontier = [pool]
    arrived_by: dict[str, tuple[Pools, str]] = {}
    while frontier:
        following = []
        for target in frontier:
            for group in demand:
                if target not in group:
                    continue
                if matching.of_group(group) < demand[group]:
                    return _steps(group, "", target, arrived_by)
                for source, amount in matching.flow[group].items():
                    if amount <= 0 or source in reached:
                        continue
                    if source in dearer:
                        return _steps(group, source, target, arrived_by)
                    reached.add(source)
                    arrived_by[source] = (group, target)
                    following.append(source)
        frontier = following
    return None


def _steps(group: Pools, source: str, target: str, arrived_by: Mapping[str, tuple[Pools, str]]) -> list[Step]:
    steps: list[Step] = [(group, source, target)]
    while target in arrived_by:
        mover, onward = arrived_by[target]
        steps.append((mover, target, onward))
        target = onward
    return steps


# --- from the matching to requests ----------------------------------------------------------------------------------


def demand_of(bags: Sequence[tuple[int, Pools]]) -> dict[Pools, int]:
    """Waiting tasks (as slots) by group of admitted pools."""
    demand: dict[Pools, int] = {}
    for tasks, pools in bags:
        if pools and tasks > 0:
            demand[pools] = demand.get(pools, 0) + tasks
    return demand


def capacity_of(pool: PoolState, supply: Supply, t: float, shut: bool = False) -> int:
    """Slots that a pool could give to tasks that wait: those that are free, and those of workers yet to come.

    Of a pool that fails no more than its test is to come, and of a queue no more than may wait in it: others must not
    be kept from the work by a low price.
    """
    if pool.rules.joins_itself:
        return supply.free_slots
    to_come = 0 if shut else max(0, pool.rules.limit - supply.workers)
    if pool.rules.backlog:
        to_come = 0 if is_stuck(pool, t) else min(to_come, max(pool.queued, pool.rules.backlog))
    if pool.closed_until is not None:
        to_come = min(to_come, pool.queued or int(t >= pool.closed_until))
    return supply.free_slots + to_come * pool.rules.slots


def is_stuck(pool: PoolState, t: float) -> bool:
    """Whether workers are pending in a queue that does not move."""
    return bool(pool.rules.backlog and pool.queued and t - pool.moved_t > STUCK_S)


def asks(
    pools: Mapping[str, PoolState],
    supply: Mapping[str, Supply],
    matching: Matching,
    t: float,
    shut: Mapping[str, str] = MappingProxyType({}),
    widest: Mapping[str, int] = MappingProxyType({}),
) -> list[Ask]:
    """How many workers to ask of each pool now: what is missing, within its limit, its rate and its breaker.

    `shut`: pools that start nothing, and why. `widest`: slots of the widest task for a pool, where its workers differ.
    """
    found = []
    for name, pool in pools.items():
        if name in shut:
            found.append(Ask(name, 0, "", shut[name]))
            continue
        rules, given = pool.rules, supply.get(name) or Supply()
        wanted = matching.of_pool(name) - given.free_slots
        missing = min(ceil(wanted / rules.slots), rules.limit - given.workers) - pool.queued
        if missing <= 0 or rules.joins_itself:
            continue
        because = f"{wanted} more slots wanted, {given.workers} workers are there, {pool.queued} pending"
        allowed, held_back = allowance(pool, missing, t)
        slots = _size(pool, missing, wanted, widest.get(name, 1))
        found.append(Ask(name, allowed, because, held_back, slots=slots))
    return found


def remark(pool: PoolState, t: float) -> str:
    """Why no more workers are asked of a queue; empty if some could be."""
    if is_stuck(pool, t):
        return f"{pool.queued} workers are pending, and none has come for {show_duration(t - pool.moved_t)}"
    full = pool.rules.backlog and pool.queued >= pool.rules.backlog
    return f"at most {pool.rules.backlog} workers pending at once" if full else ""


def _size(pool: PoolState, missing: int, wanted: int, widest: int) -> int:
    """Slots of each missing worker: as many as the work that waits for them needs; 0: as the rules say."""
    rules = pool.rules
    if not rules.least_slots:
        return 0
    for_them = wanted - pool.queued * rules.slots
    slots = max(ceil(for_them / missing), rules.least_slots, widest)
    return 0 if slots >= rules.slots else slots


def allowance(pool: PoolState, missing: int, t: float) -> tuple[int, str]:
    """How many of the missing workers may be asked for now, and why not all of them."""
    if pool.closed_until is not None:
        failed = f"the pool failed {pool.errors} times, last: {pool.last_error}"
        if t < pool.closed_until:
            return 0, f"{failed}; next try in {show_duration(pool.closed_until - t)}"
        if pool.queued:
            return 0, f"{failed}; one worker was asked for as a test"
        return 1, f"{failed}; one worker as a test"
    rules = pool.rules
    if waits := remark(pool, t):
        return 0, waits
    if rules.backlog:
        missing = min(missing, rules.backlog - pool.queued)
    allowed = min(missing, int(pool.saved(t)))
    return allowed, "" if allowed == missing else f"at most {rules.per_minute:g} a minute"


def after_refusal(pool: PoolState, error: str, t: float) -> Breaker:
    """The breaker of a pool that refused workers, or whose worker came for nothing: errors in a row open it, for ever
    longer."""
    errors, closed_until = pool.errors + 1, pool.closed_until
    if errors >= ERRORS_TO_OPEN or closed_until is not None:
        closed_until = t + min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** max(0, errors - ERRORS_TO_OPEN))
    return Breaker(errors, closed_until, error)


def after_use(pool: PoolState) -> Breaker | None:
    """The breaker after a worker was given a task, the only proof that asking is worth it: one that was promised may
    never come, and one that came may suit no bag. None where the pool had no errors.
    """
    return Breaker() if pool.errors or pool.closed_until is not None or pool.last_error else None
