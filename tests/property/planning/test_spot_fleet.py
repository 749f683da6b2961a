"""Fleets: whatever spot and prices do, the deadline is met, and no planner pays less than the lower bound."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from windfall.lab.spot.bags import reserve_ticks, run_bag
from windfall.lab.spot.bound import omniscient_usd
from windfall.lab.spot.worlds import World, bound_usd, run
from windfall.planning.spot.fleet import FleetTerms, SeatBySeat
from windfall.planning.spot.fleet_windfall import FleetWindfall
from windfall.planning.spot.market import Terms
from windfall.planning.spot.windfall import PLANNERS

TICK_S = 600.0


def planner_of(name, terms, zones):
    return FleetWindfall(terms, zones) if name == "windfall" else SeatBySeat(terms, zones, PLANNERS[name])


@st.composite
def problems(draw):
    seats, zones = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    spell = st.tuples(
        st.lists(st.integers(0, seats), min_size=zones, max_size=zones),
        st.lists(st.sampled_from([0.5, 1.0, 2.5]), min_size=zones, max_size=zones),
        st.integers(1, 10),
    )
    spells = draw(st.lists(spell, min_size=2, max_size=12))
    counts = [count for count, _, ticks in spells for _ in range(ticks)]
    usd = [price for _, price, ticks in spells for _ in range(ticks)]
    changeover, work, spare = draw(st.integers(0, 3)), draw(st.integers(1, 14)), draw(st.integers(0, 12))
    terms = FleetTerms(
        seats=seats, work_ticks=seats * work, deadline_ticks=work + changeover + spare,
        changeover_ticks=changeover, tick_s=TICK_S, ondemand_usd=3.0,
    )  # fmt: skip
    start = draw(st.integers(0, len(counts) - 1))
    return World("drawn", TICK_S, seats, 3.0, counts, usd), start, terms


@pytest.mark.parametrize("name", list(PLANNERS))
@settings(max_examples=30, deadline=None)
@given(problem=problems())
def test_no_fleet_misses_a_deadline_that_on_demand_can_meet_and_none_beats_the_bound(name, problem):
    world, start, terms = problem
    outcome = run(world, start, terms, planner_of(name, terms, len(world.counts[0])))
    assert outcome.met
    assert outcome.cost_usd >= bound_usd(world, start, terms) - 1e-6


@pytest.mark.parametrize("name", list(PLANNERS))
@settings(max_examples=25, deadline=None)
@given(problem=problems(), tasks=st.lists(st.floats(20.0, 1500.0), min_size=1, max_size=25))
def test_tasks_that_start_again_are_all_done_by_a_deadline_with_room_for_the_longest(name, problem, tasks):
    world, start, terms = problem
    tasks = tuple(tasks)
    work = math.ceil(sum(tasks) / TICK_S)
    alone = math.ceil(work / terms.seats) + terms.changeover_ticks + reserve_ticks(terms, tasks)
    terms = replace(terms, work_ticks=work, deadline_ticks=alone + terms.deadline_ticks // 4)
    outcome = run_bag(world, start, terms, tasks, lambda planned, zones: planner_of(name, planned, zones))
    assert outcome.met
    assert outcome.cost_usd >= bound_usd(world, start, replace(terms, work_ticks=int(sum(tasks) / TICK_S))) - 1e-6


@settings(max_examples=40, deadline=None)
@given(
    available=st.lists(st.booleans(), min_size=1, max_size=30),
    work=st.integers(1, 12),
    spare=st.integers(0, 10),
    changeover=st.integers(0, 3),
)
def test_the_bound_of_one_machine_is_at_most_what_the_omniscient_one_pays(available, work, spare, changeover):
    deadline = work + changeover + spare
    world = World("drawn", TICK_S, 1, 3.0, [[int(there)] for there in available], [[1.0]] * len(available))
    terms = FleetTerms(
        seats=1, work_ticks=work, deadline_ticks=deadline, changeover_ticks=changeover, tick_s=TICK_S, ondemand_usd=3.0
    )
    exact = omniscient_usd(
        Terms(
            work_ticks=work, deadline_ticks=deadline, changeover_ticks=changeover, tick_s=TICK_S,
            spot_usd=1.0, ondemand_usd=3.0,
        ),
        available,
    )  # fmt: skip
    assert bound_usd(world, 0, terms) <= exact + 1e-6
