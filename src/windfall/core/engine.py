"""The engine: `decide(state, event)` looks and chooses, `apply(state, record)` alone changes the state. Pure.

Nothing here knows whether time is real. Ids come from counters, time from `event.t`. A log is replayed by `apply`
alone; deciding again over the same events gives the same records, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from windfall.core.decisions import AnyDecision, HostAnswered, ResultsJudged, TimeJudged
from windfall.core.events import (
    AnyEvent,
    CheckpointSaved,
    Event,
    FleetChanged,
    FleetCreated,
    HostAsked,
    HostBlocked,
    HostDrained,
    HostsEnded,
    HostUnblocked,
    InstanceCancelled,
    InstanceRequested,
    InstancesWanted,
    JobCancelled,
    JobChanged,
    JobForgotten,
    JobRetried,
    JobSealed,
    JobShaped,
    JobSubmitted,
    MachineEnded,
    MachineHibernated,
    MachineNoticed,
    MachineRefused,
    MachineResumed,
    MachineStarted,
    OffersConfigured,
    OverlayDue,
    PlanProposed,
    PoolAdded,
    PoolAnswered,
    PoolCounted,
    PoolRemoved,
    PoolsConfigured,
    PoolSwitched,
    PricesReported,
    ResultsReported,
    SeriesImported,
    ServerStarted,
    SiteCreated,
    SiteHostReported,
    SiteLooked,
    StrangersSeen,
    TasksAdded,
    TasksEstimated,
    TimerFired,
)
from windfall.core.jobs import apply as jobs_apply
from windfall.core.jobs import changes, forgetting, results
from windfall.core.liveness import apply as liveness_apply
from windfall.core.liveness import leases
from windfall.core.matching import apply as matching_apply
from windfall.core.matching import dispatch
from windfall.core.matching.policy import BagPolicy, DefaultPolicy
from windfall.core.matching.ranking import Ranking
from windfall.core.records import D, E, Record, RecordOf
from windfall.core.renting import apply as renting_apply
from windfall.core.renting import fleets, machines, plans, runtimes
from windfall.core.sites import apply as sites_apply
from windfall.core.sites import site
from windfall.core.sites.view import SiteViews
from windfall.core.state.state import State
from windfall.core.supply import apply as supply_apply
from windfall.core.supply import modes, pools

Compile = Callable[[dict[str, str]], BagPolicy]


REMEMBERED_POLICIES = 10_000


class Policies:
    """Compiled policies by their texts: bags that say the same share one. Holds nothing that a decision changes."""

    def __init__(self, compile_: Compile | None = None) -> None:
        self._compile = compile_
        self._cache: dict[tuple[tuple[str, str], ...], BagPolicy] = {}
        self._default = DefaultPolicy()
        self._ranking: tuple[State, int, Ranking] | None = None
        self.sites = SiteViews()

    def ranking(self, state: State) -> Ranking:
        """The bags with tasks to hand out, as hosts are matched with them; made anew when they have changed."""
        known = self._ranking
        if known is None or known[0] is not state or known[1] != state.bags.revision:
            known = self._ranking = (state, state.bags.revision, Ranking(state, self))
        return known[2]

    def of(self, texts: dict[str, str]) -> BagPolicy:
        if not texts or self._compile is None:
            return self._default
        key = tuple(sorted(texts.items()))
        found = self._cache.get(key)
        if found is None:
            if len(self._cache) >= REMEMBERED_POLICIES:
                self._cache.clear()
            found = self._cache[key] = self._compile(texts)
        return found


Decide = Callable[[State, AnyEvent, Policies], AnyDecision]
Apply = Callable[[State, AnyEvent, AnyDecision], None]


def handler(
    event: type[E], decide: Callable[[State, E, Policies], D], apply: Callable[[State, E, D], None]
) -> tuple[type[Event], tuple[Decide, Apply]]:
    """What decides on an event and what carries that decision into the state; their types must fit each other."""
    return event, (cast(Decide, decide), cast(Apply, apply))


# One line an event.
HANDLERS: dict[type[Event], tuple[Decide, Apply]] = dict(
    [
        handler(ServerStarted, changes.nothing, jobs_apply.apply_server_started),
        handler(JobSubmitted, changes.on_job_submitted, jobs_apply.apply_job_submitted),
        handler(TasksAdded, changes.on_tasks_added, jobs_apply.apply_tasks_added),
        handler(JobShaped, changes.nothing, jobs_apply.apply_job_shaped),
        handler(JobSealed, changes.on_job_sealed, jobs_apply.apply_job_sealed),
        handler(JobChanged, changes.on_job_changed, jobs_apply.apply_job_changed),
        handler(JobCancelled, changes.on_job_cancelled, jobs_apply.apply_job_cancelled),
        handler(JobRetried, changes.on_job_retried, jobs_apply.apply_job_retried),
        handler(JobForgotten, forgetting.on_job_forgotten, jobs_apply.apply_job_forgotten),
        handler(ResultsReported, results.on_results_reported, jobs_apply.apply_results),
        handler(HostAsked, dispatch.on_host_asked, matching_apply.apply_host_answered),
        handler(HostBlocked, changes.nothing, jobs_apply.apply_host_blocked),
        handler(HostUnblocked, changes.nothing, jobs_apply.apply_host_unblocked),
        handler(HostDrained, changes.nothing, jobs_apply.apply_host_drained),
        handler(HostsEnded, leases.on_hosts_ended, liveness_apply.apply_hosts_ended),
        handler(TimerFired, leases.on_timer_fired, renting_apply.apply_time_judged),
        handler(PoolsConfigured, changes.nothing, supply_apply.apply_pools_configured),
        handler(OverlayDue, pools.on_overlay_due, supply_apply.apply_clients_asked),
        handler(PoolAnswered, pools.on_pool_answered, supply_apply.apply_pool_answered),
        handler(PoolCounted, changes.nothing, supply_apply.apply_pool_counted),
        handler(PoolAdded, changes.nothing, supply_apply.apply_pool_added),
        handler(PoolSwitched, modes.on_pool_switched, supply_apply.apply_pool_switched),
        handler(PoolRemoved, modes.on_pool_removed, supply_apply.apply_pool_removed),
        handler(SiteCreated, changes.nothing, sites_apply.apply_site_created),
        handler(SiteHostReported, site.on_site_host_reported, sites_apply.apply_site_host_reported),
        handler(InstanceRequested, site.on_instance_requested, sites_apply.apply_instance_requested),
        handler(InstancesWanted, site.on_instances_wanted, sites_apply.apply_instances_wanted),
        handler(InstanceCancelled, site.on_instance_cancelled, sites_apply.apply_instance_cancelled),
        handler(SiteLooked, site.on_site_looked, sites_apply.apply_site_looked),
        handler(TasksEstimated, changes.nothing, renting_apply.apply_tasks_estimated),
        handler(OffersConfigured, changes.nothing, renting_apply.apply_offers_configured),
        handler(PricesReported, changes.nothing, renting_apply.apply_prices_reported),
        handler(PlanProposed, plans.on_plan_proposed, renting_apply.apply_plan_taken),
        handler(MachineStarted, changes.nothing, renting_apply.apply_machine_started),
        handler(MachineRefused, machines.on_machine_refused, renting_apply.apply_machine_refused),
        handler(MachineNoticed, changes.nothing, renting_apply.apply_machine_noticed),
        handler(MachineHibernated, changes.nothing, renting_apply.apply_machine_hibernated),
        handler(MachineResumed, changes.nothing, renting_apply.apply_machine_resumed),
        handler(MachineEnded, machines.on_machine_ended, renting_apply.apply_machine_ended),
        handler(StrangersSeen, changes.nothing, renting_apply.apply_strangers_seen),
        handler(SeriesImported, changes.nothing, renting_apply.apply_series_imported),
        handler(FleetCreated, fleets.on_fleet_created, renting_apply.apply_fleet_created),
        handler(FleetChanged, fleets.on_fleet_changed, renting_apply.apply_fleet_changed),
        handler(CheckpointSaved, runtimes.on_checkpoint_saved, renting_apply.apply_checkpoint_saved),
    ]
)


class Engine:
    """The two functions with the policies that were injected into them."""

    def __init__(self, compile_: Compile | None = None) -> None:
        self.policies = Policies(compile_)

    def decide(self, state: State, event: AnyEvent) -> Record:
        """What to do about `event`. Changes nothing."""
        return RecordOf(state.seq + 1, event, HANDLERS[type(event)][0](state, event, self.policies))

    def apply(self, state: State, record: Record) -> None:
        """Carry a record into the state. Decides nothing."""
        event = record.event
        if event.t > state.t:
            state.t = event.t
        HANDLERS[type(event)][1](state, event, record.decided)
        state.seq = record.seq
        if state.supply.pools:
            supply_apply.note_demand(state, event)

    def step(self, state: State, event: AnyEvent) -> Record:
        """Decide and apply: what drivers do with every event."""
        # `decide` and `apply` in one: this runs for every event of millions.
        decide, apply = HANDLERS[type(event)]
        seq, decided = state.seq + 1, decide(state, event, self.policies)
        record: Record = RecordOf(seq, event, decided)
        if event.t > state.t:
            state.t = event.t
        apply(state, event, decided)
        state.seq = seq
        if state.supply.pools:
            supply_apply.note_demand(state, event)
        return record


__all__ = ["Engine", "HostAnswered", "Policies", "Record", "ResultsJudged", "TimeJudged"]
