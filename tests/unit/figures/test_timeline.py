"""Pictures over time in pages: no overlap, one axis for all, a deadline that squeezes nothing, cost in steps."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from windfall.figures.charts import histogram_chart
from windfall.figures.look import STYLE
from windfall.figures.timeline import FAR, LEFT, RIGHT, WIDTH, Axis, Bar, lanes, rows_chart, steps_chart
from windfall.server.queries.pictures.series import cycles_of

SPANS = st.lists(st.tuples(st.floats(0, 100), st.floats(0, 50)), max_size=30)


@given(SPANS)
def test_bars_of_one_lane_never_overlap_and_none_is_lost(spans):
    bars = [Bar(start, start + length, "done") for start, length in spans]
    rows = lanes(bars)
    assert sorted(bar.start_s for row in rows for bar in row) == sorted(start for start, _ in spans)
    for row in rows:
        assert all(one.end_s <= two.start_s + 1e-6 for one, two in pairwise(row))


def test_a_host_of_very_many_lanes_is_no_taller_than_sixteen_and_loses_none():
    bars = [Bar(0.0, 5.0, "done") for _ in range(80)]
    tall, usual = (rows_chart([("desk", bars[:count])], Axis(10.0), str) for count in (80, 16))
    height = re.compile(r'viewBox="0 0 \d+ (\d+)"')
    assert height.search(tall)[1] == height.search(usual)[1] and tall.count("<rect") == 80
    tops = [float(y) for y in re.findall(r'<rect class="done" x="[^"]*" y="([^"]*)"', tall)]
    assert len(set(tops)) == 80


def test_what_a_machine_did_stands_above_its_tasks_in_a_lane_of_its_own():
    tasks, machine = [Bar(2.0, 4.0, "done"), Bar(4.0, 6.0, "done")], [Bar(0.0, 2.0, "boot"), Bar(2.0, 9.0, "spot")]
    drawn = rows_chart([("m1", tasks)], Axis(10.0), str, "", [machine])
    at = {kind: set(re.findall(rf'class="{kind}" x="[^"]*" y="([^"]*)"', drawn)) for kind in ("boot", "spot", "done")}
    assert at["boot"] == at["spot"] and len(at["done"]) == 1 and at["done"] != at["spot"]


@given(st.floats(0, 40.0))
def test_the_name_of_a_mark_lies_within_the_picture(t_s):
    drawn = steps_chart([(0.0, 1.0)], Axis(40.0), str, str, marks=[(t_s, "tail begins")])
    x, anchor = re.search(r'class="mark-name" x="([^"]*)" y="[^"]*" text-anchor="(\w+)">tail begins<', drawn).groups()
    length = 80.0  # of the eleven letters, as chromium draws them
    assert (float(x) + length <= WIDTH) if anchor == "start" else (float(x) - length >= 0)


def test_a_deadline_far_away_does_not_squeeze_the_axis_and_a_near_one_is_drawn():
    far, near = Axis(40.0, 40.0 * FAR + 1), Axis(40.0, 45.0)
    assert far.x(40.0) > WIDTH - RIGHT - 20 and not far.deadline_is_near
    assert "deadline 51 →" in steps_chart([(0.0, 1.0)], far, lambda s: f"{s:.0f}", str)
    assert near.x(45.0) < WIDTH - RIGHT and 'class="limit"' in steps_chart([(0.0, 1.0)], near, str, str)


def test_pictures_of_one_page_have_the_same_ticks_at_the_same_places():
    axis = Axis(40.0)
    ticks = [
        re.findall(r'y="[0-9.]+" text-anchor="middle">([^<]+)<', made)
        for made in (steps_chart([(0.0, 1.0)], axis, str, str), rows_chart([("h", [Bar(0, 1, "done")])], axis, str))
    ]
    assert ticks[0] == ticks[1] and axis.x(0.0) == LEFT


def test_only_a_budget_that_there_is_gets_a_line():
    assert "limit" not in steps_chart([(0.0, 1.0)], Axis(40.0), str, str)
    assert ">budget $2.00<" in steps_chart([(0.0, 1.0)], Axis(40.0), str, str, (2.0, "budget $2.00"))


def test_a_cycle_is_paid_in_full_when_it_begins_and_stands_still_in_hibernation():
    row = {"cycles": 3, "cycle_s": 10.0, "billed_s": 25.0, "slept_s": 0.0, "requested_s": 105.0, "cost_usd": 0.3,
           "ended_s": 130.0}  # fmt: skip
    steps = cycles_of(row, 100.0)
    assert [t for t, _ in steps] == [5.0, 15.0, 25.0] and sum(usd for _, usd in steps) == 0.3 * 1.0
    assert cycles_of(row | {"slept_s": 25.0, "ended_s": 155.0}, 100.0)[1][0] == 25.0
    assert cycles_of(row | {"cycles": 0}, 100.0) == []


def test_labels_of_pictures_have_at_least_twelve_pixels():
    sizes = [int(size) for size in re.findall(r"font(?:-size)?:(\d+)px", STYLE)]
    assert sizes and min(sizes) >= 12


def test_an_axis_of_counts_names_no_value_twice():
    drawn = histogram_chart([0.0, 1.0, 2.0], [1, 1], str, "two tasks")
    assert re.findall(r'text-anchor="end">([^<]*)</text>', drawn) == ["0", "1", "2.0"]
