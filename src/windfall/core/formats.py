"""Records of older formats as records of today. Pure.

Format 1: `apply` made some of the choices itself, and the record does not hold them. They are made here, by the code
that decides, just before the record is applied; so a log of format 1 is read once and followed by records that are
complete.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from msgspec.structs import replace

from windfall.core.decisions import (
    CheckpointKept,
    ClientsAsked,
    HostAnswered,
    MachineSettled,
    Nothing,
    PlanTaken,
    ResultsJudged,
    SiteSettled,
    TasksChosen,
    TimeJudged,
)
from windfall.core.events import (
    Bookkeeping,
    CheckpointSaved,
    HostAsked,
    JobChanged,
    JobRetried,
    JobSealed,
    MachineEnded,
    MachineRefused,
    OverlayDue,
    PlanProposed,
    PoolAnswered,
    ResultsReported,
    ServerStarted,
    SiteHostReported,
    SiteLooked,
    TimerFired,
)
from windfall.core.jobs import changes, results
from windfall.core.liveness import leases
from windfall.core.matching import dispatch
from windfall.core.records import FORMAT, D, E, Record, decode_record
from windfall.core.renting import machines, plans
from windfall.core.sites import site
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.state import State
from windfall.core.supply import pools
from windfall.timeouts.learning.memory import CountRules

BOOKKEEPING_1 = Bookkeeping(
    CountRules(16, 1e-3, 1e8, 2000, 0.5, 0.3, 20.0, 64, 256), 500, 3600.0, 50, 16, 60.0, 1000
)  # fmt: skip
"""The parameters that format 1 had as constants."""


def read_record(state: State, data: bytes, format_: int) -> Record:
    """The record with every choice that applying it to this state takes."""
    record = decode_record(data)
    if format_ >= FORMAT:
        return record
    complete = COMPLETE.get(type(record.event))
    return record if complete is None else complete(state, record)


def _server_started(state: State, record: Record) -> Record:
    event = record.event
    assert isinstance(event, ServerStarted)
    return replace(record, event=replace(event, settings=replace(event.settings, bookkeeping=BOOKKEEPING_1)))


def _decided_anew(decide: Callable[[State, Any, Any], Any]) -> Callable[[State, Record], Record]:
    """Format 1 had no decision on these events."""

    def complete(state: State, record: Record) -> Record:
        if not isinstance(record.decided, Nothing):
            return record
        return replace(record, decided=decide(state, record.event, None))

    return complete


def _completed(event: type[E], decided: type[D], complete: Callable[[State, E, D], None]) -> Callable[..., Record]:
    """Format 1 has the decision on this event without what follows from it, which `complete` adds."""

    def add(state: State, record: Record) -> Record:
        assert isinstance(record.event, event) and isinstance(record.decided, decided)
        complete(state, record.event, record.decided)
        return record

    return add


def _host_asked(state: State, record: Record) -> Record:
    event, decided = record.event, record.decided
    assert isinstance(event, HostAsked) and isinstance(decided, HostAnswered)
    if decided.refused or decided.repeat:
        return record
    known = state.hosts.by_name.get(event.host)
    host = copy(known) if known is not None else Host.new(decided.host, event.host, event.t)
    host.times = copy(host.times)
    host.describe(event.ad, event.slots, event.t)
    dispatch.complete(state, host, event, decided)
    return record


def _overlay_due(state: State, record: Record) -> Record:
    decided = record.decided
    assert isinstance(decided, ClientsAsked)
    # Requests had no numbers and no answer names one: counting a pool's workers tells what came of them.
    decided.look_t = record.event.t + pools.LOOK_EVERY_S
    return record


def _site(state: State, record: Record) -> Record:
    decided = record.decided
    assert isinstance(decided, SiteSettled)
    site.complete(state, record.event.t, decided)
    return record


def _machine_ended(state: State, record: Record) -> Record:
    event, decided = record.event, record.decided
    assert isinstance(event, MachineEnded) and isinstance(decided, MachineSettled)
    decided.cause = event.cause
    machines.complete(state, event, decided)
    return record


def _checkpoint_saved(state: State, record: Record) -> Record:
    event = record.event
    assert isinstance(event, CheckpointSaved)
    return replace(record, decided=CheckpointKept(event.saved_s))


COMPLETE: dict[type, Callable[[State, Record], Record]] = {
    ServerStarted: _server_started,
    JobSealed: _decided_anew(changes.on_job_sealed),
    JobChanged: _decided_anew(changes.on_job_changed),
    PoolAnswered: _decided_anew(pools.on_pool_answered),
    MachineRefused: _decided_anew(machines.on_machine_refused),
    JobRetried: _completed(JobRetried, TasksChosen, changes.complete_retry),
    ResultsReported: _completed(ResultsReported, ResultsJudged, results.complete),
    HostAsked: _host_asked,
    TimerFired: _completed(TimerFired, TimeJudged, leases.complete),
    OverlayDue: _overlay_due,
    SiteHostReported: _site,
    SiteLooked: _site,
    PlanProposed: _completed(PlanProposed, PlanTaken, plans.complete),
    MachineEnded: _machine_ended,
    CheckpointSaved: _checkpoint_saved,
}
