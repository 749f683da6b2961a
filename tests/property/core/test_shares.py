"""The shares of a machine's bill add up to it, whatever jobs have used of it and however its prices moved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windfall.core.renting import money
from windfall.core.renting.shares import FLEET, shares_of, split
from windfall.core.state.renting.fleet import MachineState, owed_microusd
from windfall.core.state.renting.fleets import Use
from windfall.core.state.state import State
from windfall.planning.offers import Offer

seconds = st.floats(0.0, 20_000.0)
offers = st.builds(
    Offer,
    name=st.just("o"),
    price_usd=st.floats(0.0000001, 10.0),
    cores=st.integers(1, 8),
    cycle_s=st.sampled_from([60.0, 900.0, 3600.0]),
    minimum_s=st.sampled_from([0.0, 60.0]),
    free_if_taken=st.booleans(),
)
uses = st.lists(st.tuples(st.integers(1, 5), seconds, seconds, st.sampled_from([0.0, 0.5, 1.0, 4.0])), max_size=12)
rates = st.lists(st.tuples(seconds, st.floats(0.01, 1e7)), max_size=3)


@given(offer=offers, uses=uses, rates=rates, held_s=seconds, taken=st.booleans())
def test_the_shares_of_a_machine_are_its_bill_to_the_micro_dollar(offer, uses, rates, held_s, taken):
    meter = money.end(money.start(0.0), held_s, taken=taken)
    machine = MachineState(1, 99, offer, 0.0, meter=meter, rates=sorted(rates), ended_t=held_s, phase="ended")
    machine.uses = [Use(job, min(a, b, held_s), min(max(a, b), held_s), cores) for job, a, b, cores in uses]
    found = shares_of(State(), machine, held_s + 5.0)
    assert sum(found.values()) == owed_microusd(machine, held_s)
    assert all(part >= 0 for part in found.values())
    users = {use.job for use in machine.uses if use.to_s > use.from_s}
    assert set(found) - {FLEET} <= users


@given(total=st.integers(0, 10**12), weights=st.dictionaries(st.integers(0, 50), st.floats(0.0, 1e12), max_size=20))
def test_a_split_gives_every_micro_dollar_to_somebody_and_nobody_more_than_one_beyond_their_part(total, weights):
    parts = split(total, weights)
    assert sum(parts.values()) == total
    whole = sum(weights.values())
    for key, part in parts.items():
        if whole > 0.0:
            assert abs(part - total * weights[key] / whole) <= 1.0 + 1e-3 * len(weights) + 1e-12 * total


def test_a_machine_that_was_refused_costs_nobody_anything():
    machine = MachineState(1, 99, Offer(name="o", price_usd=1.0), 0.0, cause="refused", phase="ended", ended_t=1.0)
    assert shares_of(State(), machine, 2.0) == {}
