"""When the budgets of fleets will be used up by the machines that they hold. Pure; nothing here decides.

The budget of a job is that of its own fleet, for all of its time; that of a named fleet is renewed in each period. A
promise needs time to be kept: a machine is told to stop some seconds (`lead_s`) before the billing cycle that would
exceed the budget of its fleet. What a machine that is hibernated or boots unbilled would owe that soon after its return
counts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from windfall.core.renting import money
from windfall.core.state.renting.fleet import REFUSED, MachineState, held_at, owed_microusd, tariff_of
from windfall.core.state.renting.fleets import budget_since_t

if TYPE_CHECKING:
    from windfall.core.state.state import State
    from windfall.planning.offers import Offer

STOP_LEAD_S, LONGEST_LEAD_S = 2.0, 60.0
"""Least and most seconds between the order to give a machine back and the billing cycle that it must not begin."""
LEAD_SHARE = 0.005
"""Of a long billing cycle the lead is this part: a server or a provider under load may be late by seconds."""
SLOW_STOP_FACTOR, STOPS_SEEN = 1.5, 20
"""It is this multiple of the time that the slowest of the last stops took."""
STOP_EACH_S, MOST_FOR_OTHERS = 0.4, 2.0
"""Machines are stopped one after the other: for each further one the lead is longer by this, at most by this multiple
of itself. On a busy computer 5 of 12 emulated machines were gone after the 2 s of their lead."""
STEP_S = 0.05
"""Accuracy of `exhausted_t`, and the shortest pause between two looks at a budget."""


def machines_of(state: State, fleet: int) -> list[MachineState]:
    return [state.fleet.machines[number] for number in state.fleet.by_fleet.get(fleet, ())]


def limit_of(state: State, fleet: int, t: float) -> tuple[int | None, float]:
    """What all machines of a fleet together may have cost at most, and until when this holds."""
    named = state.fleet.book.by_number.get(fleet)
    if named is None:
        return state.bags[fleet].rules.budget_microusd, math.inf
    rules = named.rules
    if rules.budget_microusd is None:
        return None, math.inf
    since_t = budget_since_t(named, t)
    before = sum(owed_then_microusd(machine, since_t, t) for machine in machines_of(state, fleet))
    return before + rules.budget_microusd, since_t + rules.budget_s


def owed_then_microusd(machine: MachineState, then_t: float, t: float) -> int:
    """What a machine had cost at `then_t`, which is t or earlier."""
    if machine.requested_t >= then_t or machine.cause == REFUSED:
        return 0
    if machine.ended_t is not None and machine.ended_t <= then_t:
        return owed_microusd(machine, t)
    meter = money.Meter(held_s=held_at(machine, then_t, t))
    return money.owed_at_rates(tariff_of(machine.offer), meter, t, machine.rates)


def offer_lead_s(offer: Offer) -> float:
    """The lead of a machine before anything is known of the stops of its fleet."""
    return min(LONGEST_LEAD_S, max(STOP_LEAD_S, LEAD_SHARE * offer.cycle_s))


def lead_s(state: State, fleet: int) -> float:
    """Seconds before a cycle at which a machine of this fleet must be told to stop, so that it does not begin it."""
    known = state.fleet.by_fleet.get(fleet, [])
    there = state.fleet.there_of.get(fleet, {}).values()
    usual_s = max((offer_lead_s(machine.offer) for machine in there), default=STOP_LEAD_S)
    usual_s += min(STOP_EACH_S * max(0, len(there) - 1), MOST_FOR_OTHERS * usual_s)
    took_s = 0.0
    for number in known[-STOPS_SEEN:]:
        machine = state.fleet.machines[number]
        if machine.stopping_t is not None and machine.ended_t is not None and machine.id:
            took_s = max(took_s, machine.ended_t - machine.stopping_t)
    return min(LONGEST_LEAD_S, max(usual_s, SLOW_STOP_FACTOR * took_s))


def may_begin_cycles(machine: MachineState) -> bool:
    """Whether cycles of this machine are still ours to prevent."""
    return machine.there and not machine.stopping


def soon_owed_microusd(machine: MachineState, t: float, lead_s: float) -> int:
    """What a machine owes `lead_s` from t on if it is kept and, where its meter stands still, comes back now."""
    if not may_begin_cycles(machine):
        return owed_microusd(machine, t)
    meter = machine.meter if machine.meter.since_t is not None else money.resume(machine.meter, t)
    return money.owed_at_rates(tariff_of(machine.offer), meter, t + lead_s, machine.rates)


def exhausted_t(state: State, fleet: int, t: float) -> float:
    """A time before which no billing cycle exceeds the budget if all machines are kept; at most `STEP_S` too early."""
    limit, _ = limit_of(state, fleet, t)
    if limit is None:
        return math.inf
    machines = machines_of(state, fleet)
    running = [machine for machine in machines if may_begin_cycles(machine) and machine.meter.since_t is not None]
    lead = lead_s(state, fleet)
    resting = sum(soon_owed_microusd(machine, t, lead) for machine in machines if machine not in running)
    if not running:
        return math.inf if resting <= limit else t
    begun = [_Begun(machine, t) for machine in running]
    left = limit - resting - sum(owed_microusd(machine, t) for machine in running)
    low, high = t, t + 1.0
    while sum(each.more_microusd(high - t) for each in begun) <= left:
        low, high = high, t + 2 * (high - t)
        if math.isinf(high) or high - t > 1e10:
            return math.inf
    while high - low > STEP_S:
        middle = (low + high) / 2
        if sum(each.more_microusd(middle - t) for each in begun) <= left:
            low = middle
        else:
            high = middle
    return low


class _Begun:
    """The cycles of one running machine, and what more of them cost at its present price."""

    __slots__ = ("cycles", "held_s", "price", "tariff")

    def __init__(self, machine: MachineState, t: float) -> None:
        self.tariff = tariff_of(machine.offer)
        self.price = machine.rates[-1][1] if machine.rates else self.tariff.cycle_microusd
        self.held_s = money.held_s(machine.meter, t)
        self.cycles = self._cycles(0.0)

    def _cycles(self, more_s: float) -> int:
        seconds = max(self.held_s + more_s, self.tariff.minimum_s)
        return max(1, math.ceil(seconds / self.tariff.cycle_s - money.ROUNDING))

    def more_microusd(self, more_s: float) -> float:
        """What is owed beyond now after `more_s` further seconds."""
        return (self._cycles(more_s) - self.cycles) * self.price


def watch(state: State, number: int, t: float) -> None:
    """Keep the time of the next look at a budget; call when meters, prices, machines or the budget have changed."""
    fleet = state.fleet
    limit, until_t = limit_of(state, number, t)
    if limit is None or not any(map(may_begin_cycles, fleet.there_of.get(number, {}).values())):
        if fleet.budgets.pop(number, None) is not None:
            fleet.budget_t = min(fleet.budgets.values(), default=math.inf)
        return
    fleet.budgets[number] = max(min(exhausted_t(state, number, t) - lead_s(state, number), until_t), t)
    fleet.budget_t = min(fleet.budgets.values())


def watch_again(state: State, number: int, t: float) -> None:
    """After a look that has told what to give back: the next one is a little later, so that time passes."""
    watch(state, number, t)
    if number in state.fleet.budgets:
        state.fleet.budgets[number] = max(state.fleet.budgets[number], t + STEP_S)
        state.fleet.budget_t = min(state.fleet.budgets.values())
