"""Named fleets in the engine: created, opened, paused, drained, deleted. Pure.

A name is that of one fleet at a time. Nothing is lost by a change: a fleet with jobs in it is not deleted, and one that
drains finishes the jobs that it has.
"""

from __future__ import annotations

from typing import Any

from windfall.core.decisions import FleetSettled
from windfall.core.events import FleetChanged, FleetCreated
from windfall.core.state.renting.fleet import MachineState
from windfall.core.state.renting.fleets import DELETED, DRAINING, PAUSED
from windfall.core.state.state import State
from windfall.core.supply import modes
from windfall.core.wishes import there


def on_fleet_created(state: State, event: FleetCreated, policies: Any) -> FleetSettled:
    if event.rules.name in state.fleet.book.by_name:
        return FleetSettled(refused=f"there is a fleet '{event.rules.name}' already")
    return FleetSettled(state.bags.next)


def on_fleet_changed(state: State, event: FleetChanged, policies: Any) -> FleetSettled:
    known = state.fleet.book.by_number.get(event.fleet)
    if known is None or known.mode == DELETED:
        return FleetSettled(event.fleet, refused=f"there is no fleet {event.fleet}")
    if event.rules is not None and event.rules.name != known.rules.name:
        return FleetSettled(event.fleet, refused="the name of a fleet does not change")
    if event.mode == DELETED and (jobs := jobs_in(state, event.fleet)):
        return FleetSettled(event.fleet, refused=in_words(known.rules.name, jobs))
    settled = FleetSettled(event.fleet)
    machines = there(state, event.fleet)
    if event.mode == DELETED:
        settled.stopped = [machine.number for machine in machines]
    elif event.mode in (PAUSED, DRAINING):
        # What the provider has not been asked for can be withdrawn; a fleet without jobs needs no machine to drain.
        empty = event.mode == DRAINING and not jobs_in(state, event.fleet)
        settled.stopped = [
            machine.number for machine in machines if not machine.id or (empty and _idle(state, machine))
        ]
    return settled


def _idle(state: State, machine: MachineState) -> bool:
    return not modes.is_busy(state, machine)


def jobs_in(state: State, number: int) -> list[int]:
    """The jobs of a named fleet that have not ended, those whose tasks are still being sent included."""
    name = state.fleet.book.by_number[number].rules.name
    active = state.fleet.book.active[number]
    coming = (
        bag.number
        for bag in state.bags.values()
        if bag.rules.fleet == name and bag.finished_t is None and bag.number not in state.fleet.book.of_job
    )
    return sorted({*active, *coming})


def in_words(name: str, jobs: list[int]) -> str:
    """Why a fleet with these jobs cannot be deleted."""
    listed = ", ".join(map(str, jobs[:5])) + (", ..." if len(jobs) > 5 else "")
    return f"fleet '{name}' has {len(jobs)} unfinished job{'s' * (len(jobs) != 1)} in it: {listed}"


def name_of(state: State, number: int) -> str:
    """The name of a fleet; empty if it is a job's own."""
    known = state.fleet.book.by_number.get(number)
    return "" if known is None else known.rules.name
