"""Machines that are worth the same are found without looking at all of them."""

from __future__ import annotations

import random

from msgspec.structs import replace

from windfall.planning.bags.alike import Alike, kind_of
from windfall.planning.bags.packing import Bin
from windfall.planning.offers import Offer

OFFERS = [Offer(name=name, price_usd=1.0, cores=2) for name in "ab"]


def scanned(bins: list[Bin]) -> list[tuple[object, int]]:
    """Each kind with its first machine, by looking at all of them."""
    found: dict[object, int] = {}
    for place, bin in enumerate(bins):
        found.setdefault(kind_of(bin), place)
    return list(found.items())


def test_kinds_are_those_of_a_scan_of_all_machines_whatever_changes():
    draw = random.Random(4)
    bins = [Bin(str(n), draw.choice(OFFERS), [0.0, draw.choice([0.0, 60.0])], 3600.0) for n in range(12)]
    alike = Alike(bins)
    for step in range(200):
        if step % 5 == 0:
            bins.append(Bin(str(len(bins)), draw.choice(OFFERS), [0.0, 0.0], 3600.0, is_new=True))
            alike.add(bins[-1], len(bins) - 1)
        place = draw.randrange(len(bins))
        changed = replace(bins[place], keep_t=draw.choice([3600.0, 7200.0]), free_t=[draw.choice([0.0, 60.0]), 60.0])
        alike.change(bins[place], changed, place)
        bins[place] = changed
        assert alike.firsts() == scanned(bins)
        assert alike.of(changed) == [n for n, bin in enumerate(bins) if kind_of(bin) == kind_of(changed)]
