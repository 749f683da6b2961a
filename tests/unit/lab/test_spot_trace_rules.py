"""The rules of `lab spot-trace`, sentence by sentence, against an accountant that shares no code with the lab."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from windfall.lab.spot.trace import Series, command, run, terms_of
from windfall.planning.spot.market import Market
from windfall.planning.spot.windfall import PLANNERS

spells = st.lists(st.tuples(st.booleans(), st.integers(1, 9)), min_size=1, max_size=25)


class Witness:
    """Notes what a planner was shown and what it chose, tick by tick."""

    def __init__(self, inner) -> None:
        self.inner, self.seen, self.chosen = inner, [], []

    def observe(self, available) -> None:
        self.seen.append(available)
        self.inner.observe(available)

    def choose(self, state):
        self.chosen.append((len(self.seen), self.inner.choose(state)))
        return self.chosen[-1][1]


def account(choices: list[str], gap_s: float, changeover_ticks: int, spot: float, ondemand: float):
    """(cost, ticks of work done after each tick) of a list of choices, straight from the words of the rules."""
    cost, done, worked, to_pay = 0.0, 0, [], 0
    for before, now in pairwise(["idle", *choices]):
        if now == "idle":
            to_pay = 0
        else:
            if now != before:  # a start, or a change of market
                to_pay = changeover_ticks
            cost += gap_s / 3600 * (spot if now == "spot" else ondemand)
            if to_pay > 0:
                to_pay -= 1
            else:
                done += 1
        worked.append(done)
    return cost, worked


@pytest.mark.parametrize("name", list(PLANNERS))
@settings(max_examples=30, deadline=None)
@given(
    runs=spells,
    gap_s=st.sampled_from([600, 195, 300]),
    work_h=st.sampled_from([1.0, 2.6, 4.0]),
    spare_h=st.sampled_from([0.7, 1.5, 3.1]),
    changeover_s=st.sampled_from([0, 100, 600, 720]),
    start=st.integers(0, 60),
)
def test_a_run_is_what_an_independent_account_of_its_choices_says(
    name, runs, gap_s, work_h, spare_h, changeover_s, start
):
    series = Series("drawn", gap_s, [available for available, ticks in runs for _ in range(ticks)])
    start = min(start, len(series.available) - 1)
    terms = terms_of(
        gap_s, work_h=work_h, deadline_h=work_h + spare_h, changeover_s=changeover_s, spot_usd=0.973, ondemand_usd=3.06
    )
    witness = Witness(PLANNERS[name](terms))
    outcome = run(series, start, terms, witness)

    work = -(-round(work_h * 3600) // gap_s)
    deadline = round((work_h + spare_h) * 3600) // gap_s
    choices = [str(choice) for _, choice in witness.chosen]
    cost, worked = account(choices, gap_s, -(-changeover_s // gap_s), 0.973, 3.06)
    assert worked[-1] == work
    assert worked[-2:-1] in ([], [work - 1])  # it ends with the tick in which the work is done
    assert outcome.cost_usd == pytest.approx(cost)
    assert outcome.finish_h == pytest.approx(len(choices) * gap_s / 3600)
    assert outcome.met == (len(choices) <= deadline)

    beyond = [*series.available, *[False] * (start + len(choices))]
    assert witness.seen == beyond[: start + len(choices)]  # the past and each tick of the run, in order, once
    for tick, (shown, choice) in enumerate(witness.chosen):
        assert shown == start + tick + 1  # up to and including this tick, nothing of what comes
        assert choice is not Market.SPOT or beyond[start + tick]


@pytest.mark.parametrize("name", list(PLANNERS))
def test_the_future_beyond_the_present_tick_changes_no_choice(name):
    past = [True, False] * 20
    terms = terms_of(600.0, work_h=3, deadline_h=6, changeover_s=720, spot_usd=0.973, ondemand_usd=3.06)
    future = [True, True, False, True, True, True, False, False]
    chosen = []
    for rest in (True, False):
        witness = Witness(PLANNERS[name](terms))
        run(Series("drawn", 600.0, [*past, *future, *[rest] * 60]), len(past), terms, witness)
        chosen.append([choice for _, choice in witness.chosen[: len(future)]])
    assert chosen[0] == chosen[1]


def test_the_same_command_twice_prints_the_same(tmp_path):
    path = tmp_path / "series.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": [1, 1, 0, 0, 3, 0, 1] * 40}))
    line = ["--trace", str(path), "--work-h", "10", "--deadline-h", "13", "--start", "50", "--json"]
    first, second = (CliRunner().invoke(command, line).output for _ in range(2))
    assert first == second
