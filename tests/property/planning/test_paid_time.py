"""Machines that have room for a task are found all at once: the same ones as by trying one after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windfall.planning.bags.hibernated import PaidTime
from windfall.planning.bags.packing import Bin, Item, fill
from windfall.planning.contract import Task
from windfall.planning.offers import Offer

BY_T = 3000.0
OFFERS = (
    Offer(name="slow", market="spot", cores=1, price_usd=0.1, cycle_s=900.0, lag_s=30.0, memory_gb=2.0),
    Offer(name="fast", cores=3, price_usd=0.4, cycle_s=900.0, lag_s=30.0, memory_gb=8.0, speed=2.0),
)

moments = st.floats(0.0, 3200.0)
machines = st.lists(st.tuples(st.sampled_from(OFFERS), moments, moments, st.floats(1.0, 2.0)), max_size=12)
tasks = st.lists(st.tuples(st.floats(1.0, 2500.0), st.sampled_from([0.0, 1.0, 4.0])), max_size=8)


def bins_of(raw: list[tuple[Offer, float, float, float]]) -> list[Bin]:
    return [
        Bin(str(place), offer, [free_t + core for core in range(offer.cores)], keep_t, [], stretch=stretch)
        for place, (offer, free_t, keep_t, stretch) in enumerate(raw)
    ]


def placed(bins: list[Bin], raw: list[tuple[float, float]], all_at_once: bool) -> list[int | None]:
    """Where each task goes: to the first machine that has room for it."""
    paid, found = PaidTime(bins, BY_T), list[int | None]()
    for number, (seconds, memory_gb) in enumerate(raw):
        item = Item(Task(number, seconds, memory_gb), 1, [number])
        places = paid.places_for(item.task) if all_at_once else range(len(bins))
        place = next((place for place in places if fill(bins[place], [item], [1], BY_T)), None)
        if place is not None:
            paid.changed(place, bins[place])
        found.append(place)
    return found


@given(raw=machines, waiting=tasks)
def test_tasks_go_where_they_went_when_every_machine_was_tried(raw, waiting):
    assert placed(bins_of(raw), waiting, True) == placed(bins_of(raw), waiting, False)
