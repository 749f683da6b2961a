"""Fronts of deadlines and confidences: they never rise with the deadline, and name deadlines that were simulated."""

from __future__ import annotations

import math

from windfall.sim.studies.forecast import Forecast, Run
from windfall.sim.studies.fronts import Variant, front, nearest_promised, surer_plan, too_few_runs


def run(seed, cost_usd, end_s, deadline_s):
    met = end_s is not None and end_s <= deadline_s
    return Run(seed, cost_usd, end_s, met, (), 0, 0, 1, None, "")


def made_of(*runs):
    """A forecast of runs (cost, finish)."""
    return Forecast(100.0, tuple(run(n, cost, end_s, 100.0) for n, (cost, end_s) in enumerate(runs)))


def test_a_later_deadline_never_costs_more_and_says_whose_plan_is_cheaper():
    early, late, latest = Variant(100.0, 0.9), Variant(200.0, 0.9), Variant(300.0, 0.9)
    rows = front({
        early: made_of((5.0, 90.0), (5.0, 95.0)),
        late: made_of((7.0, 190.0), (6.0, 150.0)),
        latest: made_of((1.0, 290.0), (2.0, 250.0)),
    })  # fmt: skip
    assert [row.made.cost_usd.mean for row in rows] == [5.0, 5.0, 1.5]
    assert [row.planned_for for row in rows] == [early, early, latest]
    assert rows[1].made.met == 2, "judged by its own deadline"


def test_a_plan_that_is_late_too_often_is_no_plan_for_a_later_deadline():
    early, late = Variant(100.0, 0.9), Variant(200.0, 0.9)
    rows = front({early: made_of((1.0, 250.0), (1.0, 90.0)), late: made_of((3.0, 150.0), (3.0, 190.0))})
    assert [row.planned_for for row in rows] == [early, late]


def test_a_lower_confidence_never_costs_more():
    low, high = Variant(100.0, 0.5), Variant(100.0, 0.99)
    rows = front({low: made_of((5.0, 90.0), (5.0, 90.0)), high: made_of((4.0, 90.0), (4.0, 90.0))})
    assert [(row.planned_for, row.made.cost_usd.mean) for row in rows] == [(high, 4.0), (high, 4.0)]


def test_a_row_rests_on_all_its_runs_and_an_impossible_one_on_none():
    early, own, late = Variant(10.0, 0.9), Variant(200.0, 0.9), Variant(300.0, 0.9)
    found = {
        early: None, own: made_of((5.0, 90.0), (5.0, 95.0), (50.0, 95.0)), late: made_of((4.0, 90.0), (5.0, 95.0)),
    }  # fmt: skip
    rows = front(found)
    assert rows[0].made is None and [len(row.made.runs) for row in rows[1:]] == [3, 2]
    assert rows[1].made.cost_usd == found[own].cost_usd, "as the lines above the table"
    assert too_few_runs(found) == []


def test_rows_of_many_and_few_runs_that_contradict_each_other_rest_on_the_seeds_in_common():
    own, late = Variant(200.0, 0.9), Variant(300.0, 0.9)
    found = {own: made_of((5.0, 90.0), (5.0, 95.0), (1.0, 95.0)), late: made_of((4.0, 90.0), (5.0, 95.0))}
    assert too_few_runs(found) == [late], "4.50 of two runs is more than 3.67 of three"
    assert [row.made.cost_usd.mean for row in front(found)] == [5.0, 4.5]
    found[late] = made_of((4.0, 90.0), (5.0, 95.0), (1.0, 99.0))
    assert too_few_runs(found) == [] and [len(row.made.runs) for row in front(found)] == [3, 3]


def test_the_nearest_deadline_that_is_kept_often_enough_is_simulated_before_it_is_named():
    asked = []

    def later(deadline_s):
        asked.append(deadline_s)
        # Given more time, the planner begins later: only the second try is in time often enough.
        end_s = deadline_s + 10.0 if len(asked) == 1 else deadline_s
        return Forecast(deadline_s, tuple(run(n, 1.0, end_s, deadline_s) for n in range(4)))

    found = nearest_promised(made_of((1.0, 90.0), (1.0, 120.0), (1.0, 150.0), (1.0, 400.0)), 0.75, later)
    assert asked == [150.0, 160.0] and found.deadline_s == 160.0 and found.met == 4
    assert nearest_promised(Forecast(100.0, (run(1, 1.0, None, 100.0),)), 0.9, later) is None


def test_the_lowest_surer_plan_that_keeps_the_deadline_often_enough_is_named_with_its_runs():
    ends_s = {0.99: (90.0, 90.0, 150.0, 170.0), 0.999: (90.0, 90.0, 90.0, 150.0)}
    asked = []

    def surer(confidence):
        asked.append(confidence)
        return made_of(*((2.0, end_s) for end_s in ends_s[confidence]))

    late = made_of((1.0, 90.0), (1.0, 120.0), (1.0, 150.0), (1.0, 400.0))
    confidence, runs = surer_plan(late, 0.75, surer)
    assert asked == [0.99, 0.999] and confidence == 0.999 and runs.met == 3
    assert surer_plan(late, 0.8, surer) is None, "none is in time in four of five runs"
    asked.clear()
    assert surer_plan(late, 0.9995, surer) is None and not asked, "no surer plan is known than the one asked for"


def test_a_run_that_never_ends_is_later_than_all_others_and_opens_the_interval():
    ended = [(1.0, 50.0 + place) for place in range(9)]
    assert made_of(*ended, (1.0, 70.0)).finish_s.high == 70.0
    some_never = made_of(*ended, (1.0, None)).finish_s
    assert (some_never.low, some_never.high, some_never.mean) == (50.0, math.inf, 54.0)
    assert some_never.told()["high"] is None
    assert made_of((1.0, None)).finish_s is None
    # Of 60 runs the interval leaves out the last: one that never ends does not open it, five do.
    many = [(1.0, 50.0 + place) for place in range(60)]
    assert made_of(*many[:59], (1.0, None)).finish_s.high < 109.0
    assert math.isinf(made_of(*many[:55], *[(1.0, None)] * 5).finish_s.high)
