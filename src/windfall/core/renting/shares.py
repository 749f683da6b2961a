"""What each job of a shared fleet is charged for its machines. Pure; integer micro-dollars.

A billing cycle is split among the jobs that used it, by the core-seconds that their attempts held; a cycle that none
used is charged to the fleet. The shares of a machine add up to its bill to the micro-dollar. A job with a fleet of its
own is charged all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec.structs import replace

from windfall.core.renting import money
from windfall.core.state.renting import fleet
from windfall.core.state.renting.fleet import REFUSED, MachineState, held_at, owed_microusd, tariff_of
from windfall.core.state.renting.fleets import Use
from windfall.core.state.state import State

FLEET = 0
"""Stands for the fleet itself among its jobs: no job has this number."""


def shares_of(state: State, machine: MachineState, t: float) -> dict[int, int]:
    """By job, and for the fleet itself under `FLEET`: its part of what a machine costs up to t."""
    if machine.cause == REFUSED:
        return {}
    t = t if machine.ended_t is None else machine.ended_t
    owed = owed_microusd(machine, t)
    if machine.fleet in state.bags:
        return {machine.fleet: owed}
    return split(owed, _weights(machine, uses_of(state, machine, t), t))


def charged(state: State, number: int, t: float) -> dict[int, int]:
    """By job, and for the fleet itself under `FLEET`: its part of the bill of a fleet."""
    total: dict[int, int] = {}
    for machine in state.fleet.by_fleet.get(number, ()):
        for job, part in shares_of(state, state.fleet.machines[machine], t).items():
            total[job] = total.get(job, 0) + part
    return total


def charged_to_job_microusd(state: State, job: int, t: float) -> int:
    """What a job is charged up to t, in a fleet of its own or as its part of a shared one."""
    return charged(state, state.fleet.serving(job), t).get(job, 0)


def after_stop_microusd(state: State, job: int, t: float) -> int:
    """The part of a job in what providers bill for cycles that began after they were told to stop its machines.

    Cycles in which no task ran are the fleet's.
    """
    total = 0
    for number in state.fleet.by_fleet.get(state.fleet.serving(job), ()):
        machine = state.fleet.machines[number]
        later = fleet.after_stop_microusd(machine, t)
        if not later:
            continue
        if machine.fleet == job:
            total += later
            continue
        as_told = replace(machine.meter, held_s=held_at(machine, machine.stopping_t or t, t), since_t=None)
        first = money.owed_cycles(tariff_of(machine.offer), as_told, t)
        total += split(later, _weights(machine, uses_of(state, machine, t), t, first)).get(job, 0)
    return total


def split(total: int, weights: Mapping[int, float]) -> dict[int, int]:
    """Whole parts of `total` in proportion to the weights, the largest remainders rounded up; their sum is `total`."""
    whole = math.fsum(weights.values())
    if whole <= 0.0:
        return {FLEET: total} if total else {}
    exact = {key: total * weight / whole for key, weight in weights.items()}
    parts = {key: math.floor(value) for key, value in exact.items()}
    missing = total - sum(parts.values())
    by_remainder = sorted(exact, key=lambda key: (parts[key] - exact[key], key))
    for place in range(abs(missing)):
        parts[by_remainder[place % len(by_remainder)]] += 1 if missing > 0 else -1
    return parts


def uses_of(state: State, machine: MachineState, t: float) -> list[Use]:
    """What jobs have used and use of a machine of a named fleet."""
    return [*machine.uses, *_in_use(state, machine, t)]


def _in_use(state: State, machine: MachineState, t: float) -> list[Use]:
    """What attempts that have not ended hold of a machine."""
    host = state.hosts.get(machine.host)
    found = []
    for job, task, number in host.held if host is not None else ():
        bag = state.bags[job]
        attempt = bag.attempts.find(task, number)
        if attempt is not None:
            cores = bag.classes[bag.class_of(task)].cpus
            found.append(Use(job, held_at(machine, attempt.sent, t), held_at(machine, t, t), cores))
    return found


def _weights(machine: MachineState, uses: list[Use], t: float, from_cycle: int = 0) -> dict[int, float]:
    """By job: the micro-dollars of its parts of the cycles from this one on; cycles without use under `FLEET`."""
    tariff = tariff_of(machine.offer)
    prices = _prices(machine, money.owed_cycles(tariff, machine.meter, t))
    used: dict[int, dict[int, float]] = {}
    for use in uses:
        first, last = int(use.from_s // tariff.cycle_s), int(use.to_s // tariff.cycle_s)
        for cycle in range(first, min(last, len(prices) - 1) + 1):
            begin_s = cycle * tariff.cycle_s
            seconds = min(use.to_s, begin_s + tariff.cycle_s) - max(use.from_s, begin_s)
            if seconds > 0.0:
                row = used.setdefault(cycle, {})
                row[use.job] = row.get(use.job, 0.0) + seconds * max(use.cores, 1e-3)
    weights: dict[int, float] = {}
    for cycle, price in list(enumerate(prices))[from_cycle:]:
        row = used.get(cycle, {FLEET: 1.0})
        whole = math.fsum(row.values())
        for job, amount in row.items():
            weights[job] = weights.get(job, 0.0) + price * amount / whole
    return weights


def _prices(machine: MachineState, cycles: int) -> list[float]:
    """The price of each cycle, as `money.owed_at_rates` counts them."""
    tariff = tariff_of(machine.offer)
    prices, price = list[float](), tariff.cycle_microusd
    for seconds, rate in machine.rates:
        begins = min(cycles, max(len(prices), math.ceil(seconds / tariff.cycle_s - money.ROUNDING)))
        prices += [price] * (begins - len(prices))
        price = rate
    return prices + [price] * (cycles - len(prices))
