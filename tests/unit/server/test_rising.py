"""Counters that never fall, though what they count is forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windfall.server.rising import Rising


def test_what_was_counted_stays_counted_when_its_job_is_forgotten():
    rising = Rising()
    assert [rising.of("attempts", total) for total in (46, 4, 6)] == [46, 46, 48]
    assert rising.of("lost", 3, "lab") == 3 and rising.of("lost", 0, "lab") == 3
    assert rising.labels("lost") == ["lab"]


@given(totals=st.lists(st.integers(0, 1000)))
def test_a_counter_never_falls_and_is_never_below_what_there_is(totals):
    rising = Rising()
    shown = [rising.of("attempts", total) for total in totals]
    assert shown == sorted(shown)
    assert all(value >= total for value, total in zip(shown, totals, strict=True))
