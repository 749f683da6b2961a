"""Which jobs share a machine of a named fleet, and why. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from windfall.core.renting import money, shares
from windfall.core.renting.machines import machines_of
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.renting.fleet import REFUSED, MachineState, tariff_of
from windfall.core.state.renting.fleets import meant
from windfall.core.state.state import State
from windfall.units import show_duration, show_usd

if TYPE_CHECKING:
    from windfall.api.renting import JobPart, SharedMachine

MOST_MACHINES = 20
"""Of a job on more machines, those on which it was last are told."""


class Part(Struct):
    """What one job has of a machine. `begun`: cycles that it was the first to use."""

    job: int
    first_s: float
    used_s: float = 0.0
    begun: int = 0
    reserved: int = 0


def of_job(state: State, bag: Bag, t: float) -> list[SharedMachine]:
    """The machines on which a job of a named fleet ran or has tasks reserved, the newest first."""
    fleet = state.fleet.serving(bag.number)
    if fleet not in state.fleet.book.by_number:
        return []
    found = []
    for machine in reversed(machines_of(state, fleet)):
        if machine.cause == REFUSED:
            continue
        told = of_machine(state, machine, t)
        if any(part["job"] == bag.number for part in told["jobs"]):
            found.append(told)
        if len(found) == MOST_MACHINES:
            break
    return found


def of_machine(state: State, machine: MachineState, t: float) -> SharedMachine:
    """`jobs` in the order in which they came to the machine, what each is charged, and why it is there."""
    parts = _parts(state, machine, t)
    charged = shares.shares_of(state, machine, t)
    rows: list[JobPart] = [
        {
            "job": part.job,
            "cost_usd": money.usd(charged.get(part.job, 0)),
            "used_s": part.used_s,
            "cycles_begun": part.begun,
            "reserved": part.reserved,
        }
        for part in parts
    ]
    because = [_why(machine, parts[0], part, charged.get(part.job, 0)) for part in parts]
    if machine.because:
        because.insert(0, f"it is {machine.because}")
    return {"machine": machine.number, "offer": machine.offer.name, "there": machine.there, "jobs": rows,
            "because": because}  # fmt: skip


def _parts(state: State, machine: MachineState, t: float) -> list[Part]:
    cycle_s = tariff_of(machine.offer).cycle_s
    begun: set[int] = set()
    parts: dict[int, Part] = {}
    for use in sorted(shares.uses_of(state, machine, t), key=lambda use: (use.from_s, use.job)):
        part = parts.setdefault(use.job, Part(use.job, use.from_s))
        part.used_s += use.to_s - use.from_s
        cycles = set(range(int(use.from_s // cycle_s), int(max(use.from_s, use.to_s - 1e-9) // cycle_s) + 1))
        part.begun += len(cycles - begun)
        begun |= cycles
    waits = Counter(meant(machine.fleet, name)[0] for name in machine.queue) if machine.there else Counter[int]()
    for job, count in waits.items():
        parts.setdefault(job, Part(job, float("inf"))).reserved = count
    return list(parts.values())


def _why(machine: MachineState, first: Part, part: Part, charged: int) -> str:
    usd, waiting = show_usd(money.usd(charged)), f"{part.reserved} task{'s' * (part.reserved != 1)} of job {part.job}"
    if part.job == first.job:
        if not part.used_s:
            return f"it is being started for {waiting}"
        later = f" and {part.begun - 1} more of its cycles" if part.begun > 1 else ""
        return f"it was rented for job {part.job}, which used its first cycle{later} ({usd})"
    if not part.used_s:
        return f"{waiting} {'is' if part.reserved == 1 else 'are'} reserved for it, behind those of job {first.job}"
    if part.begun:
        return f"it was kept for job {part.job} for {part.begun} more cycle{'s' * (part.begun != 1)} ({usd})"
    used, alone = show_duration(part.used_s), show_usd(machine.offer.price_usd)
    return f"job {part.job} used {used} of cycles that were paid already: {usd} instead of {alone} for one of its own"
