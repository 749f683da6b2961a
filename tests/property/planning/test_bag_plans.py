"""Plans of bags carried out in a small world: whatever is reclaimed or hibernated, the safety net holds."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.clouds.bag_plans import World
from windfall.planning.bags.feasibility import earliest_deadline_t, fits_by
from windfall.planning.bags.packing import Item, fill, fresh, longest_first
from windfall.planning.bags.safety_net import SafetyNet
from windfall.planning.contract import ONDEMAND, SPOT, Group, Machine, Phase, Snapshot, Task
from windfall.planning.offers import Offer
from windfall.planning.registry import PLANNERS

SAFE = ("windfall", "uniform-progress", "greedy", "on-demand")
MARGIN_S = 5.0

offer_terms = st.fixed_dictionaries({
    "cycle_s": st.sampled_from([900.0, 600.0, 60.0]),
    "lag_s": st.sampled_from([20.0, 90.0]),
    "cores": st.sampled_from([1, 2, 4]),
    "when_taken": st.sampled_from(["terminate", "hibernate"]),
    "cheap": st.floats(0.1, 0.9),
    "limit": st.integers(1, 6),
})  # fmt: skip
strike_lists = st.lists(
    st.tuples(st.floats(0.5, 4_000), st.integers(0, 9), st.sampled_from([30.0, 400.0, 1e9])), max_size=10
)
task_lists = st.lists(st.tuples(st.integers(10, 500), st.sampled_from([0.0, 1.0, 3.0])), min_size=1, max_size=16)


def make_offers(terms: dict, pool_limit: int | None = None) -> tuple[Offer, ...]:
    """One type in both markets, and a larger one on demand without a limit worth the name."""
    common = {"cycle_s": terms["cycle_s"], "lag_s": terms["lag_s"], "pool_limit": pool_limit}
    price = terms["cores"] * terms["cycle_s"] / 3600
    memory_gb = 4.0
    return (
        Offer(name="s", market=SPOT, price_usd=price * terms["cheap"], cores=terms["cores"], memory_gb=memory_gb,
              limit=terms["limit"], when_taken=terms["when_taken"], **common),
        Offer(name="o", market=ONDEMAND, price_usd=price, cores=terms["cores"], memory_gb=memory_gb, limit=2, **common),
        Offer(name="p", market=ONDEMAND, price_usd=price * 1.5, cores=terms["cores"], memory_gb=8.0, limit=40,
              **common),
    )  # fmt: skip


def make_tasks(raw: list[tuple[int, float]]) -> list[Task]:
    return [Task(place, float(seconds), memory_gb) for place, (seconds, memory_gb) in enumerate(raw)]


def net_holds_at_first(tasks: list[Task], offers: tuple[Offer, ...], deadline_t: float) -> bool:
    snapshot = Snapshot(t=0.0, deadline_t=deadline_t, tasks={t.id: t for t in tasks}, machines=(), offers=offers)
    safety_net = SafetyNet(snapshot, [], snapshot.room(), MARGIN_S)
    return safety_net.latest_t(longest_first([Item(task, 1, []) for task in tasks])) > 0.0


@pytest.mark.parametrize("planner", SAFE)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(raw=task_lists, terms=offer_terms, spare=st.floats(1.05, 4.0), strikes=strike_lists)
def test_no_interruption_makes_it_miss_a_deadline_that_on_demand_could_meet(planner, raw, terms, spare, strikes):
    tasks, offers = make_tasks(raw), make_offers(terms)
    deadline_t = (terms["lag_s"] + max(task.runtime_s for task in tasks) + 2 * MARGIN_S) * spare
    if not net_holds_at_first(tasks, offers, deadline_t):
        return
    assert World(PLANNERS[planner], tasks, offers, deadline_t, strikes).run() <= deadline_t + 1e-6


@pytest.mark.parametrize("planner", SAFE)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    raw=task_lists, terms=offer_terms, pool_limit=st.integers(1, 8), spare=st.floats(1.05, 4.0), strikes=strike_lists
)
def test_the_limit_of_a_pool_holds_over_its_offers(planner, raw, terms, pool_limit, spare, strikes):
    tasks, offers = make_tasks(raw), make_offers(terms, pool_limit)
    deadline_t = (terms["lag_s"] + max(task.runtime_s for task in tasks) + 2 * MARGIN_S) * spare
    is_safe = net_holds_at_first(tasks, offers, deadline_t)
    end_t = World(
        PLANNERS[planner], tasks, offers, deadline_t, strikes
    ).run()  # it refuses more machines than the limit
    assert end_t <= deadline_t + 1e-6 or not is_safe


CROWDED = {
    # Spot machines take the places of the pool; the longest task, which fits on none of them, is left over.
    "no interruption": (
        [(85, 1.0), (191, 1.0), (420, 3.0), (147, 0.0), (233, 1.0), (450, 3.0)],
        {"cycle_s": 600.0, "lag_s": 90.0, "cores": 2, "when_taken": "terminate", "cheap": 0.24, "limit": 1},
        2, 768.4, [],
    ),
    # The only place of the pool is that of a spot machine, which is hibernated for good.
    "hibernated": (
        [(242, 0.0), (181, 3.0), (52, 0.0), (260, 0.0), (449, 1.0), (336, 0.0), (493, 0.0), (168, 0.0), (462, 0.0),
         (70, 3.0), (67, 1.0), (107, 0.0), (235, 1.0), (428, 0.0)],
        {"cycle_s": 60.0, "lag_s": 20.0, "cores": 4, "when_taken": "hibernate", "cheap": 0.52, "limit": 6}, 1, 1379.9,
        [(393.1, 8, 1e9)],
    ),
    # A plan made again moves tasks from on-demand machines to spot, in a pool without a place for their rescue.
    "planned again": (
        [(321, 3.0), (69, 3.0), (431, 1.0), (281, 3.0), (497, 3.0), (240, 1.0), (88, 3.0)],
        {"cycle_s": 900.0, "lag_s": 20.0, "cores": 1, "when_taken": "hibernate", "cheap": 0.52, "limit": 3},
        5, 624.9, [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CROWDED)
def test_spot_does_not_take_the_places_that_a_rescue_needs(case):
    raw, terms, pool_limit, deadline_t, strikes = CROWDED[case]
    tasks, offers = make_tasks(raw), make_offers(terms, pool_limit)
    assert net_holds_at_first(tasks, offers, deadline_t)
    assert World(PLANNERS["windfall"], tasks, offers, deadline_t, strikes).run() <= deadline_t


def test_a_loose_deadline_in_a_pool_of_one_machine_is_met_on_spot():
    terms = {"cycle_s": 60.0, "lag_s": 20.0, "cores": 1, "when_taken": "terminate", "cheap": 0.3, "limit": 4}
    offers = make_offers(terms, pool_limit=1)
    world = World(PLANNERS["windfall"], make_tasks([(60, 0.0)] * 6), offers, 7200.0, [])
    world.run()
    assert {machine.offer.market for machine in world.machines.values()} == {SPOT}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(count=st.integers(1, 60), seconds=st.integers(10, 500), terms=offer_terms, spare=st.floats(1.05, 6.0),
       strikes=strike_lists)  # fmt: skip
def test_the_safety_net_holds_for_bags_planned_by_counts(count, seconds, terms, spare, strikes):
    tasks = [Task(place, float(seconds)) for place in range(count)]
    offers = make_offers(terms)
    deadline_t = (terms["lag_s"] + max(task.runtime_s for task in tasks) + 2 * MARGIN_S) * spare
    if not net_holds_at_first(tasks, offers, deadline_t):
        return
    assert World(PLANNERS["windfall"], tasks, offers, deadline_t, strikes, named=False).run() <= deadline_t + 1e-6


@settings(max_examples=60, deadline=None)
@given(
    raw=st.lists(
        st.tuples(st.integers(10, 500), st.integers(1, 90), st.sampled_from([0.0, 3.0])), min_size=1, max_size=4
    ), terms=offer_terms, share=st.floats(0.1, 2.0),
)  # fmt: skip
def test_a_rescue_by_equal_machines_is_that_of_one_machine_after_the_other(raw, terms, share):
    items = longest_first([Item(Task(-1, float(s), gb, mean_s=0.8 * s), count, []) for s, count, gb in raw])
    offers = make_offers(terms)
    by_t = terms["lag_s"] + share * 1_000.0
    snapshot = Snapshot(
        t=0.0, deadline_t=by_t, tasks={}, machines=(), offers=offers,
        groups=tuple(Group(item.task, item.count) for item in items),
    )  # fmt: skip
    left, opened = [item.count for item in items], 0
    room = snapshot.room()
    safety_net = SafetyNet(snapshot, [], room.copy(), 0.0)
    for offer in safety_net.offers:
        while any(left) and room.of(offer) > 0 and fill(fresh("", offer, 0.0, math.inf), items, left, by_t):
            room.take(offer)
            opened += 1
    found, missing = safety_net.rescue(items, 0.0)
    assert (len(found), missing) == (opened, left)


@settings(max_examples=20, deadline=None)
@given(raw=task_lists, terms=offer_terms, spare=st.floats(1.05, 4.0))
def test_no_machine_begins_a_cycle_with_nothing_to_do_while_spot_is_quiet(raw, terms, spare):
    tasks, offers = make_tasks(raw), make_offers(terms)
    deadline_t = (terms["lag_s"] + max(task.runtime_s for task in tasks) + 2 * MARGIN_S) * spare
    if not net_holds_at_first(tasks, offers, deadline_t):
        return
    world = World(PLANNERS["windfall"], tasks, offers, deadline_t, [])
    world.run()
    assert sum(machine.idle_cycles for machine in world.machines.values()) == 0


@settings(max_examples=30, deadline=None)
@given(raw=task_lists, terms=offer_terms, share=st.floats(0.05, 0.9))
def test_an_impossible_deadline_does_not_fit_and_the_earliest_one_is_met(raw, terms, share):
    tasks, offers = make_tasks(raw), make_offers(terms)
    asked_t = share * (terms["lag_s"] + max(task.runtime_s for task in tasks))
    snapshot = Snapshot(t=0.0, deadline_t=asked_t, tasks={t.id: t for t in tasks}, machines=(), offers=offers)
    assert not fits_by(snapshot, asked_t - MARGIN_S)
    earliest_t = math.ceil(earliest_deadline_t(snapshot, MARGIN_S))
    assert earliest_t > asked_t
    assert World(PLANNERS["windfall"], tasks, offers, earliest_t, []).run() <= earliest_t + 1e-6


@settings(max_examples=100, deadline=None)
@given(
    seconds=st.lists(st.integers(10, 300), min_size=4, max_size=24),
    machines=st.integers(1, 3),
    planner=st.sampled_from(["windfall", "greedy", "on-demand"]),
)
def test_queues_that_are_in_time_by_a_hair_stay_in_time_when_they_are_planned_again(seconds, machines, planner):
    steady = Offer(name="o", market=ONDEMAND, price_usd=1.0, cores=2, cycle_s=900.0, lag_s=60.0, limit=machines)
    free_t, queues = [[0.0, 0.0] for _ in range(machines)], [list[int]() for _ in range(machines)]
    for number, length in enumerate(seconds):
        place = number % machines
        lane = free_t[place].index(min(free_t[place]))
        free_t[place][lane] += length
        queues[place].append(number)
    deadline_t = max(map(max, free_t)) + MARGIN_S
    rented = [
        Machine(id=str(place), offer=steady, phase=Phase.BUSY, waiting=tuple(queue), paid_until_t=900.0)
        for place, queue in enumerate(queues)
    ]
    tasks = {number: Task(number, float(length)) for number, length in enumerate(seconds)}
    plan = PLANNERS[planner](
        Snapshot(t=0.0, deadline_t=deadline_t, tasks=tasks, machines=tuple(rented), offers=(steady,), total=len(tasks))
    )
    assert plan.predicted_finish_t <= deadline_t - MARGIN_S + 1e-3
