"""How many jobs of a class arrive in an hour: by those of two hours, or of twenty minutes where these differ."""

from __future__ import annotations

import pytest

from tests.support.engine.hand import Hand
from windfall.core.events import FleetCreated, OffersConfigured
from windfall.core.renting.arrivals import Arrivals
from windfall.core.state.renting.fleets import FleetRules
from windfall.core.state.snapshot import load, save
from windfall.planning.offers import Offer


def stream(*moments: float, **rules: object) -> tuple[Hand, int]:
    hand = Hand(lease_s=1e6)
    hand.step(OffersConfigured(hand.t, "cloud", [Offer(name="one", price_usd=0.1, pool="cloud")]))
    number = hand.step(FleetCreated(hand.t, FleetRules("shared", ["cloud"]))).decided.number
    for moment in moments:
        hand.t = moment
        hand.submit(1, fleet="shared", deadline_s=3600.0, **rules)
    return hand, number


def rate(hand: Hand, number: int, t: float) -> float:
    return Arrivals(hand.state, number, t).of(max(hand.state.bags.values(), key=lambda bag: bag.number))[1]


def test_an_even_stream_has_the_rate_of_the_last_two_hours():
    hand, number = stream(*(600.0 * place for place in range(1, 31)))
    assert rate(hand, number, 18000.0) == pytest.approx(6.0)


def test_a_burst_counts_at_once():
    hand, number = stream(*(1800.0 * place for place in range(1, 9)), *(14500.0 + place for place in range(10)))
    assert rate(hand, number, 14520.0) == pytest.approx(33.0)


def test_a_job_in_the_first_minute_is_no_stream_of_one_a_minute():
    hand, number = stream(10.0)
    assert rate(hand, number, 60.0) == pytest.approx(3.0)


def test_jobs_with_other_deadlines_are_another_class():
    hand, number = stream(100.0, 200.0)
    hand.submit(1, fleet="shared", deadline_s=7200.0)
    arrived = Arrivals(hand.state, number, 300.0)
    assert [arrived.of(bag) for bag in hand.state.bags.values()] == [(0, 6.0), (0, 6.0), (1, 3.0)]


def test_a_restart_changes_no_rate():
    hand, number = stream(*(600.0 * place for place in range(1, 31)))
    again = Arrivals(load(save(hand.state)), number, 18000.0)
    assert again.of(hand.state.bags[max(hand.state.bags)])[1] == pytest.approx(6.0)
