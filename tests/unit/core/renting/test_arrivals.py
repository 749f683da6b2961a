"""How many jobs of a class arrive in an hour: by those of two hours, or of twenty minutes where these differ much."""

from __future__ import annotations

import pytest

from tests.support.engine.hand import Hand
from windfall.core.events import FleetCreated, OffersConfigured
from windfall.core.renting.arrivals import Arrivals
from windfall.core.state.renting.fleets import FleetRules
from windfall.core.state.snapshot import load, save
from windfall.planning.offers import Offer


def stream(*moments: float, lag_s: float = 1800.0, **rules: object) -> tuple[Hand, int]:
    hand = Hand(lease_s=1e6)
    hand.step(OffersConfigured(hand.t, "cloud", [Offer(name="one", price_usd=0.1, pool="cloud", lag_s=lag_s)]))
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
    assert [arrived.of(bag)[:2] for bag in hand.state.bags.values()] == [(0, 6.0), (0, 6.0), (1, 3.0)]


def test_few_arrivals_by_chance_do_not_end_a_stream():
    hand, number = stream(*(180.0 * place for place in range(1, 40)), 7300.0)
    assert rate(hand, number, 8300.0) == pytest.approx(17.0), "1 of 6.7 came in twenty minutes"


def test_a_stream_that_stops_is_told_of_with_its_usual_rate_beside_it():
    hand, number = stream(*(100.0 * place for place in range(1, 73)))
    _, now, usual = Arrivals(hand.state, number, 8500.0).of(hand.state.bags[max(hand.state.bags)])
    assert now == pytest.approx(1.5) and usual == pytest.approx(29.5, abs=0.5)


def test_a_restart_changes_no_rate():
    hand, number = stream(*(600.0 * place for place in range(1, 31)))
    again = Arrivals(load(save(hand.state)), number, 18000.0)
    assert again.of(hand.state.bags[max(hand.state.bags)])[1] == pytest.approx(6.0)


DAY_S = 86400.0


def of_days(days: float) -> list[float]:
    """A job every five minutes from 9 to 12 o'clock, and one in the night."""
    whole = [day * DAY_S + moment for day in range(4) for moment in (*range(32400, 43200, 300), 80000)]
    return [moment for moment in whole if moment < days * DAY_S]


def test_the_hour_that_begins_is_foretold_by_the_same_hour_of_the_days_before():
    hand, number = stream(*of_days(3.0))
    assert rate(hand, number, 3 * DAY_S + 32390.0) == pytest.approx(12.0), "nothing came yet today"
    began_t = 3 * DAY_S + 32400.0
    hand, number = stream(*of_days(3.0), began_t, began_t + 300.0)
    assert rate(hand, number, began_t + 310.0) == pytest.approx(12.0), "as every day, though two jobs came yet"


def test_where_boots_are_short_the_days_before_are_not_believed():
    hand, number = stream(*of_days(3.0), lag_s=60.0)
    assert rate(hand, number, 3 * DAY_S + 32390.0) == 0.0


def test_the_days_before_never_lower_the_rate_that_is_seen():
    hand, number = stream(*of_days(3.0), *(3 * DAY_S + moment for moment in range(32400, 43200, 300)))
    assert rate(hand, number, 3 * DAY_S + 43190.0) == pytest.approx(12.0), "the stream ends in a moment, as every day"


def test_one_day_foretells_nothing():
    hand, number = stream(*of_days(1.0))
    assert rate(hand, number, DAY_S + 32390.0) == 0.0


def test_days_that_are_not_alike_foretell_nothing():
    hand, number = stream(*(day * DAY_S + 9000.0 * day + 300.0 * place for day in range(3) for place in range(36)))
    assert rate(hand, number, 3 * DAY_S) == 0.0


def test_a_stream_that_does_not_come_today_is_not_waited_for():
    hand, number = stream(*of_days(3.0))
    assert rate(hand, number, 3 * DAY_S + 34200.0) == 0.0, "half an hour after it should have begun"
