"""Machines that are worth the same are found without looking at all of them."""

from __future__ import annotations

import random

from msgspec.structs import replace

from windfall.planning.bags.alike import Alike, kind_of
from windfall.planning.bags.packing import Bin, Item, count_copies, fill, fresh
from windfall.planning.contract import Task
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


def test_copies_of_a_filled_machine_are_those_that_filling_one_after_the_other_gives():
    draw = random.Random(7)
    for _ in range(200):
        items = [
            Item(Task(-1, draw.uniform(20.0, 900.0)), draw.randint(1, 3000), []) for _ in range(draw.randint(1, 3))
        ]
        offer, keep_s = replace(OFFERS[0], cores=draw.choice([1, 2, 4])), draw.choice([3600.0, float("inf")])
        left, first = [item.count for item in items], fresh("", offer, 0.0, keep_s)
        before = list(left)
        fill(first, items, left, 4000.0)
        one_by_one = list(left)
        for _ in range(count_copies(first, before, left, 50)):
            another = fresh("", offer, 0.0, keep_s)
            fill(another, items, one_by_one, 4000.0)
            assert (another.placed, another.free_t) == (first.placed, first.free_t)
        assert one_by_one == left
