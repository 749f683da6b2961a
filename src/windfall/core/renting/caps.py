"""The caps of owners in a named fleet, where a plan is taken. Pure.

The tasks of an owner that run on the machines of the fleet and those that are reserved together need at most the cores
of its cap. A machine of a named fleet begins only what is reserved for it, so what holds for reservations holds for
what runs.
"""

from __future__ import annotations

from collections.abc import Container

from windfall.core.renting.machines import width_of
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.renting.fleet import queue_of
from windfall.core.state.renting.fleets import meant
from windfall.core.state.state import State


class Caps:
    """What the owners of capped jobs may still reserve.

    `replaced`: labels of the machines whose queues the plan gives anew; other queues count as they are.
    """

    def __init__(self, state: State, fleet: int, replaced: Container[str]) -> None:
        named = state.fleet.book.by_number.get(fleet)
        self._caps = {} if named is None else named.rules.owner_caps
        self._used: dict[str, int] = {}
        self._over: dict[str, int] = {}
        if self._caps:
            for machine in state.fleet.there_of.get(fleet, {}).values():
                host = state.hosts.get(machine.host)
                for job, task, _ in host.held if host is not None else ():
                    self._count(state.bags[job], task)
                for name in () if str(machine.number) in replaced else queue_of(state, machine):
                    job, task = meant(fleet, name)
                    self._count(state.bags[job], task)

    def _count(self, bag: Bag, task: int) -> None:
        owner = bag.rules.owner
        self._used[owner] = self._used.get(owner, 0) + width_of(bag, task)

    def allow(self, bag: Bag, task: int) -> bool:
        """Whether the task may be reserved as well; it is counted if so."""
        cap = self._caps.get(bag.rules.owner) if self._caps else None
        if cap is None:
            return True
        if self._used.get(bag.rules.owner, 0) + width_of(bag, task) > cap:
            self._over[bag.rules.owner] = self._over.get(bag.rules.owner, 0) + 1
            return False
        self._count(bag, task)
        return True

    @property
    def refused(self) -> list[str]:
        """In words, for the record of the plan."""
        return [
            f"{count} tasks of {owner or 'jobs without an owner'}: the cap of {self._caps[owner]} cores is reached"
            for owner, count in sorted(self._over.items())
        ]
