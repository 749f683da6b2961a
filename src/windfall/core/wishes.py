"""What the world is asked to do, in one list that follows from the state. Pure.

Both drivers carry out this list and have no rule of their own. Everything here is kept up to date by `apply`, so that
looking costs the same whatever the size of the state.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from msgspec import Struct

from windfall.core.decisions import (
    ACCEPTED,
    GROWN,
    REQUEUED,
    RETRIED,
    RETURNED,
    VOTED,
    HostAnswered,
    JobTaken,
    PlanTaken,
    ResultsJudged,
    TimeJudged,
)
from windfall.core.events import (
    AnyEvent,
    MachineHibernated,
    MachineNoticed,
    MachineResumed,
    MachineStarted,
    OverlayDue,
    PlanProposed,
    ResultsReported,
    SiteLooked,
    TimerFired,
)
from windfall.core.liveness.leases import is_due
from windfall.core.matching.replica_queue import next_cycle_t
from windfall.core.records import Record
from windfall.core.state.renting.fleet import MachineState
from windfall.core.state.state import State
from windfall.planning.contract import BAG, FLEET, WORKFLOW

PLANNER, FALLBACK, WORKFLOW_FALLBACK, FLEET_FALLBACK = "windfall", "on-demand", "greedy", "greedy"
"""The planner of a fleet that names none, and those that step in for one that fails: they search for nothing."""
RETRY_S = 10.0
"""Seconds until the next plan if the fallback failed as well."""


class PlanWish(Struct, frozen=True):
    """Have `planner` plan this fleet at `at_t`, or at once if that has passed; `fallback` steps in if it fails."""

    fleet: int
    planner: str
    fallback: str
    at_t: float
    retry_s: float = RETRY_S
    kind: str = BAG
    """Which table of planners the names are of (planning.contract)."""


class AskWish(Struct, frozen=True):
    """Start `count` workers from a pool. `number` is the request's own: asked twice, it is answered once."""

    pool: str
    number: int
    count: int
    slots: int = 0
    """Of each worker; 0: as the rules of the pool say."""


class Wishes(Struct):
    """What a driver has to do now. What is already under way stays in the list until an event says how it went."""

    wake_t: float
    """Submit `due(state, t)` at this time; infinity if nothing is due by itself. Early is harmless."""
    plans: Collection[int]
    """Fleets that need a plan, in the order in which they are planned if several are due: see `plan_wish`."""
    asks: list[AskWish]
    order: Collection[int]
    """Machines to rent."""
    end: Collection[int]
    """Machines to give back."""
    tell: Collection[int]
    """Hosts to wake because they have something to cancel."""


NO_ASKS: list[AskWish] = []


def wishes(state: State) -> Wishes:
    fleet, supply = state.fleet, state.supply
    asks = NO_ASKS
    if supply.asked:
        asks = [
            AskWish(pool, number, count, supply.pools[pool].sizes.get(number, 0) if pool in supply.pools else 0)
            for number, (pool, count) in supply.asked.items()
        ]
    return Wishes(wake_at(state), fleet.plans_due, asks, fleet.to_order, fleet.to_end, state.hosts.to_tell)


def wake_at(state: State) -> float:
    """When something is due by itself: a lease, a deadline of an attempt, a plan, a budget, the pools, a site's agent.

    The deadline may be that of an attempt that has ended. A simulation asks after every one of millions of events.
    """
    fleet, hosts, deadlines = state.fleet, state.hosts, state.bags.deadlines.front
    deadline_t = deadlines[0][0] if deadlines else inf
    at = min(deadline_t, fleet.replan_t, fleet.budget_t, state.supply.look_t, hosts.forget_t)
    lease_s = state.settings.lease_s
    if lease_s < inf:
        for number in hosts.live:
            silent_t = hosts[number].times.seen_t + lease_s
            at = silent_t if silent_t < at else at
            break
        if hosts.unknown:
            lost_t = hosts[next(iter(hosts.unknown))].times.seen_t + 2 * lease_s
            at = lost_t if lost_t < at else at
    if state.bags.cycled:
        at = min(at, next_cycle_t(state))
    if state.sites:
        at = min(at, *(min(site.look_t, site.review_t) for site in state.sites.values()))
    return at


def due(state: State, t: float) -> list[AnyEvent]:
    """The events to submit at a wake-up."""
    found: list[AnyEvent] = []
    state.bags.forget_ended()
    if is_due(state, t):
        found.append(TimerFired(t))
    for site in state.sites.values():
        if min(site.look_t, site.review_t) <= t:
            found.append(SiteLooked(t, site.rules.name))
    if state.supply.look_t <= t:
        found.append(OverlayDue(t))
    return found


def plan_wish(state: State, fleet: int) -> PlanWish | None:
    """How to make the plan that a fleet needs; None if its jobs have ended and all its machines are going, or if its
    job was forgotten."""
    followed = state.fleet.plans.get(fleet)
    if followed is None:
        return None
    at_t = followed.at_t
    named = state.fleet.book.by_number.get(fleet)
    if named is not None:
        if not state.fleet.book.active[fleet] and not there(state, fleet):
            return None
        return PlanWish(fleet, named.rules.planner or PLANNER, FLEET_FALLBACK, at_t, kind=FLEET)
    bag = state.bags[fleet]
    if bag.finished_t is not None and not there(state, fleet):
        return None
    kind, fallback = (BAG, FALLBACK) if bag.shape is None else (WORKFLOW, WORKFLOW_FALLBACK)
    return PlanWish(fleet, bag.rules.planner or PLANNER, fallback, at_t, kind=kind)


def there(state: State, fleet: int) -> list[MachineState]:
    """The machines of a fleet that have not ended and are not being given back."""
    return [machine for machine in state.fleet.there_of.get(fleet, {}).values() if not machine.stopping]


# --- whom to wake ---------------------------------------------------------------------------------------------------


_MAKE_NO_WORK = (OverlayDue, MachineStarted, MachineNoticed, MachineHibernated, MachineResumed)
"""Events after which no task may run where it could not before."""
_WAITS_AGAIN = frozenset({RETRIED, GROWN, REQUEUED, RETURNED, VOTED})
"""Verdicts after which a task waits again."""


def makes_work(state: State, record: Record) -> bool:
    """Whether a host that got nothing before this record could get something after it."""
    decided, event = record.decided, record.event
    if isinstance(decided, ResultsJudged):
        if state.settings.resources or not _WAITS_AGAIN.isdisjoint(decided.verdicts):
            return True  # what an attempt had of the whole server, another host's may have now
        return bool(state.bags.shapes) and isinstance(event, ResultsReported) and _frees_children(state, event, decided)
    if isinstance(decided, HostAnswered):
        return bool(decided.lost)
    if isinstance(decided, PlanTaken):
        return _frees_tasks(state, event, decided)
    return not isinstance(event, _MAKE_NO_WORK)


def _frees_tasks(state: State, event: AnyEvent, decided: PlanTaken) -> bool:
    """Whether a plan gives some machine a task, or may let one begin a task that waits for any machine."""
    if decided.queues or decided.again or decided.moved or decided.stopped or decided.recalled:
        return True
    assert isinstance(event, PlanProposed)
    own = state.bags.get(event.job)
    return own is None or own.waiting > 0


def _frees_children(state: State, event: ResultsReported, decided: ResultsJudged) -> bool:
    """Whether a task of a workflow is done, which may release its children."""
    bags = state.bags
    return any(
        verdict == ACCEPTED and (bag := bags.get(result.job)) is not None and bag.shape is not None
        for result, verdict in zip(event.results, decided.verdicts, strict=True)
    )


def jobs_touched(state: State, record: Record) -> list[int]:
    """The jobs that look different after this record."""
    event, decided = record.event, record.decided
    if isinstance(event, ResultsReported):
        return [result.job for result in event.results]
    if isinstance(decided, HostAnswered):
        return [assigned.job for assigned in decided.assigned] + [loss[0] for loss in decided.lost]
    if isinstance(decided, TimeJudged):
        return [loss[0] for loss in (*decided.lost, *decided.expired)]
    job = decided.job if isinstance(decided, JobTaken) else getattr(event, "job", None)
    machine = state.fleet.machines.get(getattr(event, "machine", 0))
    return [found for found in (job, None if machine is None else machine.fleet) if found is not None]


def machines_to_wake(state: State, record: Record) -> list[MachineState]:
    """Rented machines whose workers may now be given something: tasks reserved for one are in no other queue."""
    if not state.fleet.there or not makes_work(state, record):
        return []
    fleets = dict.fromkeys(state.fleet.serving(job) for job in jobs_touched(state, record))
    machines = (machine for fleet in fleets for machine in state.fleet.there_of.get(fleet, {}).values())
    return [machine for machine in machines if machine.host]
