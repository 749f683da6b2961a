"""Chance by place: numbers that are made by the block are the numbers that are made one by one."""

from hypothesis import given
from hypothesis import strategies as st

from windfall.sim.chance import BLOCK, BLOCKS_KEPT, stream, stream_in_turn

places = st.tuples(st.integers(0, 3 * BLOCK * BLOCKS_KEPT), st.sampled_from([0, 1, 2, -1]))


@given(st.integers(0, 2**64), st.lists(places, max_size=30))
def test_a_number_is_the_same_made_alone_or_in_a_block_asked_for_in_any_order(seed, asked):
    alone, in_turn = stream(seed, "purpose"), stream_in_turn(seed, "purpose", usual=(1, 2))
    assert [in_turn(*place) for place in asked] == [alone(*place) for place in asked]


def test_numbers_of_dropped_blocks_are_still_the_same():
    alone, in_turn = stream(1, "run"), stream_in_turn(1, "run")
    last = BLOCK * (BLOCKS_KEPT + 3)
    for a in range(0, last, BLOCK // 2):
        in_turn(a)
    assert [in_turn(a) for a in range(0, last, 97)] == [alone(a) for a in range(0, last, 97)]
