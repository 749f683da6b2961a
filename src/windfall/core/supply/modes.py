"""Pools that their operator has paused, drains or ends, and what follows for workers and machines. Pure.

paused: nothing new is started; what is there goes on. draining: its hosts get nothing more and end when they have done
what they hold. ending: all of it ends now, and the pool is taken away when nothing of it is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windfall.core.decisions import PoolSettled
from windfall.core.events import PoolRemoved, PoolSwitched
from windfall.core.jobs import attempts
from windfall.core.state.hosts.hosts import GONE
from windfall.core.state.hosts.pools import DRAINING, ENDING, OPEN, PAUSED
from windfall.core.state.renting.fleet import MachineState

if TYPE_CHECKING:
    from windfall.core.state.state import State

MODES = (OPEN, PAUSED, DRAINING, ENDING)


def mode_of(state: State, pool: str) -> str:
    found = state.supply.modes.get(pool)
    return OPEN if found is None else found.mode


def starts_nothing(state: State, pool: str) -> str:
    """Why nothing new is started in a pool, in words; empty if it may be."""
    found = state.supply.modes.get(pool)
    if found is None:
        return ""
    what = {PAUSED: "paused", DRAINING: "being drained", ENDING: "being removed"}[found.mode]
    return f"pool {pool} is {what}" + (f": {found.reason}" if found.reason else "")


def gives_nothing(state: State, pool: str) -> bool:
    """Whether hosts of a pool get no more work."""
    modes = state.supply.modes
    return bool(modes) and pool in modes and modes[pool].mode in (DRAINING, ENDING)


def on_pool_switched(state: State, event: PoolSwitched, policies: Any) -> PoolSettled:
    settled = PoolSettled()
    if event.mode == OPEN:
        return settled
    settled.withdrawn = [number for number, (pool, _) in state.supply.asked.items() if pool == event.pool]
    for machine in state.fleet.there.values():
        if machine.offer.pool != event.pool or machine.stopping:
            continue
        if event.mode == ENDING or not machine.id or (event.mode == DRAINING and not is_busy(state, machine)):
            settled.stopped.append(machine.number)
        elif event.mode == DRAINING:
            settled.freed.append(machine.number)
    return settled


def on_pool_removed(state: State, event: PoolRemoved, policies: Any) -> PoolSettled:
    left = living(state, event.pool)
    return PoolSettled(refused=left and f"pool {event.pool} still has {left}")


def living(state: State, pool: str) -> str:
    """What of a pool has not ended, in words; empty if nothing is left. Workers on their way count."""
    hosts = state.hosts.by_pool.get(pool, 0)
    machines = sum(machine.offer.pool == pool for machine in state.fleet.there.values())
    supply = state.supply.pools.get(pool)
    pending = 0 if supply is None else supply.queued
    counts = [(machines, "machine", "")] if machines else [(hosts, "worker", ""), (pending, "worker", " to come")]
    return " and ".join(f"{count} {what}{'s' * (count != 1)}{where}" for count, what, where in counts if count)


def is_busy(state: State, machine: MachineState) -> bool:
    """Whether attempts run on a machine."""
    host = state.hosts.get(machine.host)
    if host is None or host.state == GONE:
        return False
    return any(attempts.is_live(state.bags[job], task, number) for job, task, number in host.held)


def to_end(state: State, pool: str, workers: list[str]) -> list[tuple[str, bool]]:
    """Workers of a pool that shall be stopped by their provider, and whether they may finish their tasks first.

    One that asks for work is told to go by the answer; one that is on its way, or silent, hears nothing.
    """
    mode = mode_of(state, pool)
    if mode == ENDING:
        return [(name, False) for name in workers]
    if mode != DRAINING and not _is_unneeded(state, pool):
        return []
    hosts = ((name, state.host(name)) for name in workers if mode == DRAINING or _is_asked_for(pool, name))
    return [(name, True) for name, host in hosts if host is None or host.state == GONE]


def _is_unneeded(state: State, pool: str) -> bool:
    """Whether workers wait in a queue although every job has ended.

    While a job goes on they keep their places: its tasks may have to run again, or others may follow.
    """
    supply = state.supply.pools.get(pool)
    if supply is None or not supply.rules.backlog or not supply.queued or state.bags.ready:
        return False
    return all(bag.finished_t is not None for bag in state.bags.values())


def _is_asked_for(pool: str, worker: str) -> bool:
    """Whether a request of the engine names this worker: POOL-REQUEST-NUMBER. Others are on trial."""
    request, _, number = worker.removeprefix(f"{pool}-").partition("-")
    return worker.startswith(f"{pool}-") and request.isdecimal() and number.isdecimal()
