"""Random laws: their values are rounded as `round` would round them."""

from math import inf, nextafter

from hypothesis import example, given
from hypothesis import strategies as st

from windfall.sim.inputs.laws import rounded

halves = st.builds(lambda count, up: nextafter((count + 0.5) / 1e6, up), st.integers(0, 10**12), st.floats(-1.0, 1e9))


@given(st.one_of(st.floats(allow_nan=False), st.floats(0.0, 1e7), halves))
@example(-0.0)
@example(2.5e-6)
@example(inf)
def test_a_value_is_rounded_to_six_decimals_bit_for_bit_as_round_does_it(value: float) -> None:
    assert rounded(value).hex() == round(value, 6).hex()
