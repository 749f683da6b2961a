"""The safety net of the spot planners: as long as on-demand can be had, the deadline is met."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windfall.lab.spot.trace import Series, run
from windfall.planning.spot.market import Market, State, Terms, guarded
from windfall.planning.spot.windfall import PLANNERS

spells = st.lists(st.tuples(st.booleans(), st.integers(1, 12)), min_size=1, max_size=20)
problems = st.tuples(st.integers(1, 40), st.integers(0, 25), st.integers(0, 4))


def deal(work: int, spare: int, changeover: int) -> Terms:
    return Terms(
        work_ticks=work,
        deadline_ticks=work + changeover + spare,
        changeover_ticks=changeover,
        tick_s=600.0,
        spot_usd=1.0,
        ondemand_usd=3.0,
    )


def series_of(runs: list[tuple[bool, int]]) -> Series:
    return Series("drawn", 600.0, [available for available, ticks in runs for _ in range(ticks)])


@pytest.mark.parametrize("name", list(PLANNERS))
@settings(max_examples=40, deadline=None)
@given(runs=spells, problem=problems, past=st.integers(0, 30))
def test_no_planner_ever_misses_a_deadline_that_on_demand_can_meet(name, runs, problem, past):
    terms, series = deal(*problem), series_of(runs)
    outcome = run(series, min(past, len(series.available) - 1), terms, PLANNERS[name](terms))
    assert outcome.met


class Whim:
    """Wishes whatever it was told to, tick by tick."""

    def __init__(self, terms: Terms, wishes: list[Market]) -> None:
        self.terms, self.wishes, self.available = terms, wishes, False

    def observe(self, available: bool) -> None:
        self.available = available

    def choose(self, state: State) -> Market:
        return guarded(self.terms, state, self.available, self.wishes[state.tick % len(self.wishes)])


@given(runs=spells, problem=problems, wishes=st.lists(st.sampled_from(list(Market)), min_size=1, max_size=30))
def test_the_safety_net_holds_for_any_wish_at_all(runs, problem, wishes):
    terms = deal(*problem)
    assert run(series_of(runs), 0, terms, Whim(terms, wishes)).met
