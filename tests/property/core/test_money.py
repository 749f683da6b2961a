"""Billing holds for any life of a machine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windfall.core.renting import money
from windfall.core.renting.money import Tariff

tariffs = st.builds(
    Tariff,
    cycle_microusd=st.integers(1, 10**6),
    cycle_s=st.sampled_from([1.0, 60.0, 900.0, 3600.0]),
    minimum_s=st.sampled_from([0.0, 60.0]),
    free_if_taken=st.booleans(),
)


@given(tariff=tariffs, spans=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 5_000)), max_size=6))
def test_what_is_owed_never_falls_while_a_machine_is_held_and_never_rises_while_it_is_hibernated(tariff, spans):
    meter, t, last = money.start(0.0), 0.0, 0
    for awake_s, asleep_s in spans:
        t += awake_s
        owed = money.owed_microusd(tariff, meter, t)
        assert owed >= last
        meter = money.pause(meter, t)
        t += asleep_s
        assert money.owed_microusd(tariff, meter, t) == owed
        meter, last = money.resume(meter, t), owed


@given(tariff=tariffs, life_s=st.integers(0, 20_000))
def test_a_machine_given_back_before_its_paid_time_ends_owes_no_further_cycle(tariff, life_s):
    meter, t = money.start(0.0), float(life_s)
    until = money.paid_until_t(tariff, meter, t)
    assert until > t
    assert money.owed_microusd(tariff, money.end(meter, t + (until - t) / 2), until) <= money.owed_microusd(
        tariff, meter, min(t + 0.5, (t + until) / 2)
    )
