"""Which units of resources a task gets: GPUs and the like of its host, licences of the whole server. Pure.

Amounts are thousandths of a unit, so that sums are exact. A need of 2500 is two whole units and half of a third. A unit
of which a task has a part may have other tasks on it, together at most one whole; a whole one is the task's alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from windfall.core.decisions import Units
from windfall.core.events import Needs
from windfall.core.state.hosts.hosts import OF_SERVER, Host
from windfall.core.state.state import State

WHOLE = 1000
"""Thousandths of a unit."""


def lacking(state: State, host: Host, needs: Needs) -> tuple[str, int, int] | None:
    """(resource, thousandths needed, thousandths there) of the first that host or server never have enough of."""
    for name, need in needs:
        of_server = state.settings.resources.get(name)
        has = host.resources.get(name, 0) * WHOLE if of_server is None else of_server
        if need > has:
            return name, need, has
    return None


class FreeUnits:
    """What is free for an asking host; `take` takes from it."""

    __slots__ = ("_of_host", "_of_server")

    def __init__(self, state: State, host: Host) -> None:
        self._of_host = {name: [WHOLE] * count for name, count in host.resources.items()}
        for units in host.units.values():
            for name, index, amount in units:
                left = self._of_host.get(name)
                if left is not None and 0 <= index < len(left):
                    left[index] -= amount
        self._of_server = dict(state.settings.resources)
        if self._of_server:
            for name, amount in state.hosts.shared().items():
                if name in self._of_server:
                    self._of_server[name] -= amount

    def take(self, needs: Needs) -> Units | None:
        """Units for one task; None, and nothing is taken, if there are not enough."""
        found: list[tuple[str, int, int]] = []
        for name, need in needs:
            if name in self._of_server:
                part = [(name, OF_SERVER, need)] if need <= self._of_server[name] else None
            else:
                part = _chosen(name, self._of_host.get(name, []), need)
            if part is None:
                return None
            found += part
        self.reserve(found)
        return tuple(found)

    def reserve(self, units: Iterable[tuple[str, int, int]]) -> None:
        """These are given to a task."""
        for name, index, amount in units:
            if index == OF_SERVER:
                self._of_server[name] -= amount
            else:
                self._of_host[name][index] -= amount


def _chosen(name: str, left: list[int], need: int) -> list[tuple[str, int, int]] | None:
    """The first free units for the whole ones; for the rest the fullest unit that has room: others stay whole."""
    count, rest = divmod(need, WHOLE)
    whole = [index for index, amount in enumerate(left) if amount == WHOLE][:count]
    if len(whole) < count:
        return None
    found = [(name, index, WHOLE) for index in whole]
    if rest:
        rooms = [(amount, index) for index, amount in enumerate(left) if amount >= rest and index not in whole]
        if not rooms:
            return None
        found.append((name, min(rooms)[1], rest))
    return found
