"""What is due when: entries by time, those of the present minute in a heap, later ones in a list for each minute. Pure.

In one heap of half a million entries every pop walks twenty levels down, and misses the processor's cache on most of
them. Here it looks only at what is due in the present minute, and an entry for a later one is put down and not compared
with anything until that minute has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any, Generic, TypeVar

Entry = TypeVar("Entry", bound=tuple[Any, ...])
"""A tuple that begins with a finite time; those that follow tell entries of one time apart."""
STRETCH_S = 64.0


class Agenda(Generic[Entry]):
    """A queue by time, smallest entry first."""

    __slots__ = ("_later", "_number", "_order", "front")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._number = -inf
        self._later: dict[float, list[Entry]] = {}
        self._order: list[float] = []
        self.front: list[Entry] = []
        """A heap of all entries up to the end of stretch `_number`: `front[0]` is the next one. Empty only if there are
        no entries at all."""
        for entry in entries:
            self.push(entry)

    def push(self, entry: Entry) -> None:
        number = entry[0] // STRETCH_S
        stretch = self._later.get(number)
        if stretch is not None:
            # Nearly always: attempts take longer than a stretch.
            stretch.append(entry)
            return
        if number <= self._number:
            heappush(self.front, entry)
            return
        self._later[number] = [entry]
        heappush(self._order, number)
        if not self.front:
            self._open_next()

    def pop(self) -> Entry:
        front = self.front
        entry = heappop(front)
        if not front:
            self._open_next()
        return entry

    def _open_next(self) -> None:
        if self._order:
            self._number = number = heappop(self._order)
            self.front = front = self._later.pop(number)
            if len(front) > 1:
                heapify(front)

    def due(self, t: float) -> list[Entry]:
        """What is due by `t`, in order, without taking it off: costs what it finds and little more."""
        found, last = _up_to(self.front, (t, inf)), t // STRETCH_S
        if self._order and self._order[0] <= last:
            for number in _up_to(self._order, last):
                found += [entry for entry in self._later[number] if entry[0] <= t]
        return sorted(found) if len(found) > 1 else found

    def __bool__(self) -> bool:
        return bool(self.front)

    def __len__(self) -> int:
        return len(self.front) + sum(len(stretch) for stretch in self._later.values())

    def __iter__(self) -> Iterator[Entry]:
        """All entries in order."""
        yield from sorted(self.front)
        for number in sorted(self._order):
            yield from sorted(self._later[number])


def _up_to(heap: list[Any], most: Any) -> list[Any]:
    """The members of a heap that are not above `most`: the children of a larger one need not be looked at."""
    found = []
    places = [0]
    for place in places:
        if place < len(heap) and heap[place] <= most:
            found.append(heap[place])
            places += (2 * place + 1, 2 * place + 2)
    return found
