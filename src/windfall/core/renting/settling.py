"""The bill of a job that is forgotten stays in the ledger. Decides nothing.

A job's own machines go, and what they cost is added up. Machines of a named fleet stay with the shares of all jobs that
used them; of a forgotten one the name is kept.
"""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf

from windfall.core.state.jobs.bags import Bag
from windfall.core.state.renting.fleet import REFUSED, owed_microusd
from windfall.core.state.renting.fleets import meant
from windfall.core.state.renting.ledger import PaidJob
from windfall.core.state.state import State


def month_of(t: float) -> str:
    """As in 2026-11, in UTC."""
    return datetime.fromtimestamp(t, UTC).strftime("%Y-%m")


def settle(state: State, bag: Bag, t: float, share_microusd: int) -> None:
    """Call before the job goes. Its own machines have ended; `share_microusd`: of the machines of a named fleet."""
    if bag.number in state.fleet.book.of_job:
        _leave_fleet(state, bag, t, share_microusd)
    else:
        _settle_own(state, bag, t)


def _settle_own(state: State, bag: Bag, t: float) -> None:
    """Add up what the machines have cost, and forget them with the plan."""
    fleet, job = state.fleet, bag.number
    total = count = 0
    for number in fleet.by_fleet.pop(job, ()):
        machine = fleet.machines.pop(number)
        if machine.cause == REFUSED:
            continue
        ended_t = machine.ended_t if machine.ended_t is not None else machine.requested_t
        owed = owed_microusd(machine, ended_t)
        fleet.ledger.add_machine(month_of(ended_t), machine.offer.pool, owed)
        total, count = total + owed, count + 1
    if count:
        fleet.ledger.add_job(_paid(bag, t, count, total))
    for book in (fleet.there_of, fleet.plans, fleet.plans_due, fleet.budgets):
        book.pop(job, None)
    fleet.budget_t = min(fleet.budgets.values(), default=inf)
    fleet.schedule()


def _leave_fleet(state: State, bag: Bag, t: float, share_microusd: int) -> None:
    """The job's uses of the fleet's machines stay, so that what every job is charged stays the same."""
    fleet, job = state.fleet, bag.number
    fleet.ledger.add_job(_paid(bag, t, 0, share_microusd))
    number = fleet.book.of_job.pop(job)
    fleet.book.by_number[number].forgotten_jobs += 1
    fleet.book.active[number].pop(job, None)
    for machine in fleet.there_of.get(number, {}).values():
        machine.queue = [name for name in machine.queue if meant(number, name)[0] != job]


def _paid(bag: Bag, t: float, machines: int, microusd: int) -> PaidJob:
    ended_t = t if bag.finished_t is None else bag.finished_t
    return PaidJob(bag.number, bag.rules.name, bag.rules.owner, ended_t, machines, microusd)
