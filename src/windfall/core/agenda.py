"""What is due when: entries by time, in a heap of small heaps, one for each stretch of time that has any. Pure.

In one heap of half a million entries every pop walks twenty levels down, and misses the processor's cache on most of
them. Here it looks only at what is due in the present minute, however much is due in the days after that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import inf
from typing import Any, Generic, TypeVar

Entry = TypeVar("Entry", bound=tuple[Any, ...])
"""A tuple that begins with a finite time; those that follow tell entries of one time apart."""
STRETCH_S = 64.0


class Agenda(Generic[Entry]):
    """A queue by time, smallest entry first."""

    __slots__ = ("_order", "_stretches", "front")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._stretches: dict[float, list[Entry]] = {}
        self._order: list[float] = []
        self.front: list[Entry] = []
        """The first stretch, itself a heap: `front[0]` is the next entry. Empty only if there are no entries at all."""
        for entry in entries:
            self.push(entry)

    def push(self, entry: Entry) -> None:
        number = entry[0] // STRETCH_S
        stretch = self._stretches.get(number)
        if stretch is not None:
            heappush(stretch, entry)
            return
        stretch = self._stretches[number] = [entry]
        heappush(self._order, number)
        if self._order[0] == number:
            self.front = stretch

    def pop(self) -> Entry:
        entry = heappop(self.front)
        if not self.front:
            del self._stretches[heappop(self._order)]
            self.front = self._stretches[self._order[0]] if self._order else []
        return entry

    def due(self, t: float) -> list[Entry]:
        """What is due by `t`, in order, without taking it off: costs what it finds, not the whole agenda."""
        if not self.front or self.front[0][0] > t:
            return []
        stretches = _up_to(self._order, t // STRETCH_S)
        return sorted(entry for number in stretches for entry in _up_to(self._stretches[number], (t, inf)))

    def __bool__(self) -> bool:
        return bool(self.front)

    def __len__(self) -> int:
        return sum(len(stretch) for stretch in self._stretches.values())

    def __iter__(self) -> Iterator[Entry]:
        """All entries in order."""
        for number in sorted(self._order):
            yield from sorted(self._stretches[number])


def _up_to(heap: list[Any], most: Any) -> list[Any]:
    """The members of a heap that are not above `most`: the children of a larger one need not be looked at."""
    found = []
    places = [0]
    for place in places:
        if place < len(heap) and heap[place] <= most:
            found.append(heap[place])
            places += (2 * place + 1, 2 * place + 2)
    return found
