"""Records as rows of the store's log, and which of them say only that somebody is alive. Touches nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windfall.core.decisions import AnyDecision, HostAnswered, SiteSettled
from windfall.core.events import AnyEvent, Event, HostAsked, OverlayDue, SiteHostReported, SiteLooked, TimerFired
from windfall.core.mentions import job_column
from windfall.core.records import Record, encode_record
from windfall.store.contract import Record as LogRow

HEARTBEAT = "heartbeat"
"""Kind of the records that say only that a host is alive; they are pruned behind a snapshot."""
_QUIET = (SiteSettled(), SiteSettled(repeat=True))


def log_row(record: Record) -> LogRow:
    """The row of a record: its kind, the jobs that it is about, its bytes."""
    event = record.event
    kind = type(event)
    is_quiet = _HEARTBEATS.get(kind)
    name = HEARTBEAT if is_quiet is not None and is_quiet(event, record.decided) else kind.__name__
    return LogRow(record.seq, event.t, job_column(record), name, encode_record(record))


def _host_is_alive(event: HostAsked, decided: HostAnswered) -> bool:
    """Does nothing change but the time at which the host was last seen?"""
    if decided.assigned or event.ad is not None:
        return False
    return not (decided.cancel or decided.lost or decided.tails or decided.probation)


def _agent_is_alive(event: SiteHostReported, decided: SiteSettled) -> bool:
    said = event.capacity or event.started or event.ended or event.leaving or event.secret
    return not said and decided in _QUIET


def _nothing_is_due(event: AnyEvent, decided: AnyDecision) -> bool:
    return not any(getattr(decided, name) for name in decided.__struct_fields__)


_HEARTBEATS: dict[type[Event], Callable[[Any, Any], bool]] = {
    HostAsked: _host_is_alive,
    SiteHostReported: _agent_is_alive,
    SiteLooked: lambda event, decided: decided in _QUIET,
    TimerFired: _nothing_is_due,
    OverlayDue: lambda event, decided: not decided.asks,
}
"""Which records say only that somebody is alive, or that there was nothing to do. By event: most have no such case."""
