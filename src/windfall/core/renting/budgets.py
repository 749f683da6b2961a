"""Which machines are given back before a billing cycle that would exceed the budget of their fleet. Pure."""

from __future__ import annotations

from windfall.core.renting import money
from windfall.core.state.renting import fleet
from windfall.core.state.renting.budgets import (
    lead_s,
    limit_of,
    machines_of,
    may_begin_cycles,
    offer_lead_s,
    soon_owed_microusd,
)
from windfall.core.state.renting.fleet import MachineState
from windfall.core.state.state import State
from windfall.planning.offers import Offer


def to_give_back(state: State, t: float) -> list[int]:
    """Machines of all fleets that would exceed a budget within its lead."""
    return [number for fleet in sorted(state.fleet.budgets) for number in _of_fleet(state, fleet, t)]


def _of_fleet(state: State, number: int, t: float) -> list[int]:
    limit, _ = limit_of(state, number, t)
    machines = machines_of(state, number)
    if limit is None:
        return []
    lead = lead_s(state, number)
    over = sum(soon_owed_microusd(machine, t, lead) for machine in machines) - limit
    found = []
    for machine in sorted(filter(may_begin_cycles, machines), key=lambda machine: _worth(state, machine)):
        if over <= 0:
            break
        saved = soon_owed_microusd(machine, t, lead) - _owed_if_stopped(machine, t)
        if saved > 0:
            over -= saved
            found.append(machine.number)
    return found


def _owed_if_stopped(machine: MachineState, t: float) -> int:
    """An order that the provider has not taken can be withdrawn."""
    return fleet.owed_microusd(machine, t) if machine.id else 0


def _worth(state: State, machine: MachineState) -> tuple[int, int, int]:
    """The least is given back first: what has not started, then idle and hibernated machines, then the youngest."""
    if not machine.id:
        return 0, 0, -machine.number
    host = state.hosts.get(machine.host)
    running = len(host.held) if host is not None else 0
    awake = machine.phase != fleet.HIBERNATED
    return 1, running * awake, -machine.number


def first_cost_microusd(offer: Offer) -> int:
    """What a machine owes before it has begun any task: its boot, and the time in which it could be given back."""
    booted_s = (offer.lag_s if offer.bills_boot else 0.0) + offer_lead_s(offer)
    return money.owed_microusd(fleet.tariff_of(offer), money.Meter(held_s=booted_s), 0.0)
