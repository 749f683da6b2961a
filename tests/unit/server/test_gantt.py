"""Machines over time: when one was busy and when idle, whatever ran there."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from windfall.server.queries.pictures.gantt import halves, merged

SPANS = st.lists(st.tuples(st.floats(0, 90), st.floats(0.001, 30)).map(lambda each: (each[0], sum(each))), max_size=20)


@given(SPANS, st.floats(0, 100), st.floats(0.001, 50))
def test_busy_and_idle_fill_the_time_that_a_machine_was_up(work, start, length):
    up = (start, start + length)
    parts = halves(up, merged(work), 0.0)
    assert parts[0][0] == up[0] and parts[-1][1] == up[1]
    assert all(one[1] == two[0] for one, two in pairwise(parts))
    middle = (up[0] + up[1]) / 2
    is_busy = next(busy for begin, end, busy in parts if begin <= middle <= end)
    inside = any(begin < middle < end for begin, end in work)
    outside = all(not begin - 1e-9 <= middle <= end + 1e-9 for begin, end in work)
    assert is_busy or not inside
    assert not is_busy or not outside


def test_a_short_pause_between_two_tasks_is_not_idle():
    assert halves((0.0, 10.0), [(1.0, 4.0), (4.1, 9.0)], 0.5) == [
        (0.0, 1.0, False),
        (1.0, 9.0, True),
        (9.0, 10.0, False),
    ]
    assert halves((0.0, 10.0), [], 0.5) == [(0.0, 10.0, False)]
    assert halves((5.0, 5.0), [], 0.5) == []
