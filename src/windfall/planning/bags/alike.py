"""Machines of one planning pass that are worth the same: each kind is priced once. Pure."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from operator import itemgetter

from windfall.planning.bags.packing import Bin
from windfall.planning.room import market_key

Kind = tuple[tuple[str, str], float, float, float]
"""Offer, end of the lease, first and last moment at which a core is free."""


def kind_of(bin: Bin) -> Kind:
    """Machines of equal kind are worth the same."""
    free_t = bin.free_t
    if len(free_t) == 1:
        return market_key(bin.offer), bin.keep_t, free_t[0], free_t[0]
    return market_key(bin.offer), bin.keep_t, min(free_t), max(free_t)


class Alike:
    """By kind: the places of machines in the list of a pass, in rising order."""

    def __init__(self, bins: Iterable[Bin] = ()) -> None:
        self._places: dict[Kind, list[int]] = {}
        for place, bin in enumerate(bins):
            self.add(bin, place)

    def add(self, bin: Bin, place: int) -> None:
        insort(self._places.setdefault(kind_of(bin), []), place)

    def add_copies(self, bin: Bin, places: range) -> None:
        """The same for new machines of one kind, at the end of the list."""
        self._places.setdefault(kind_of(bin), []).extend(places)

    def change(self, before: Bin, after: Bin, place: int) -> Kind:
        """The machine at this place is of another kind now; the kind that it was of."""
        kind = kind_of(before)
        places = self._places[kind]
        if len(places) > 1:
            places.remove(place)
        else:
            del self._places[kind]
        self.add(after, place)
        return kind

    def of(self, bin: Bin) -> list[int]:
        """Places of the machines that are worth the same as this one."""
        return self._places.get(kind_of(bin), [])

    def firsts(self) -> list[tuple[Kind, int]]:
        """Each kind with the place of its first machine, in the order of places."""
        return sorted([(kind, places[0]) for kind, places in self._places.items()], key=itemgetter(1))
