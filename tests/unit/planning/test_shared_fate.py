"""Offers that are interrupted together: what is learned of it, what it adds to the price of risk, who is spread."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from windfall.planning.bags.prices import Prices
from windfall.planning.contract import ONDEMAND, SPOT, Market, Snapshot, Task
from windfall.planning.counts import CountSettings, SpellCounts, was_beside, went_together
from windfall.planning.offers import Offer
from windfall.planning.registry import PLANNERS
from windfall.planning.spot.live import Learner

HOUR_S = 3600.0
EAST = Offer(name="spot-m5-east", pool="c", price_usd=0.9, lag_s=200.0, market=SPOT, limit=40, free_if_taken=False)
WEST = replace(EAST, name="spot-m5-west")
OTHER = replace(EAST, name="spot-m5-other", price_usd=0.92)
SURE = replace(EAST, name="sure", price_usd=3.0, market=ONDEMAND)


def counted(peers: int = 0, peers_lost: int = 0, **pairs: tuple[int, int]) -> Market:
    """A market, and of each other offer by name: (interruptions of both, interruptions while that one was up)."""
    counts = SpellCounts(peers=peers, peers_lost=peers_lost)
    for name, (went, beside) in pairs.items():
        for _ in range(went):
            went_together(counts, f"c/spot-m5-{name}", CountSettings())
        for _ in range(beside):
            was_beside(counts, f"c/spot-m5-{name}", CountSettings())
    return Market(spells=10, reclaimed=10, up_s=20 * HOUR_S, counts=counts)


ALIKE = {
    EAST.key: counted(west=(12, 12), other=(0, 12), peers=100, peers_lost=100),
    WEST.key: counted(east=(12, 12), other=(0, 12), peers=100, peers_lost=100),
    OTHER.key: counted(east=(0, 12), west=(0, 12), peers=100, peers_lost=100),
}


def snapshot(*spot: Offer, markets: dict[str, Market] = ALIKE) -> Snapshot:
    tasks = {number: Task(number, 1200.0) for number in range(40)}
    return Snapshot(
        t=0.0, deadline_t=4 * HOUR_S, tasks=tasks, machines=(), offers=(*spot, SURE), markets=markets, total=40
    )


def rented(*spot: Offer, markets: dict[str, Market] = ALIKE) -> Counter[str]:
    plan = PLANNERS["windfall"](snapshot(*spot, markets=markets))
    return Counter(start.offer.name.rpartition("-")[2] for start in plan.start)


def test_zones_that_went_together_are_learned_as_correlated_and_others_are_not():
    learner = Learner(ALIKE)
    assert learner.shared_fate(EAST, WEST) > 0.8
    assert learner.shared_fate(EAST, OTHER) < 0.2
    assert learner.shared_fate(EAST, EAST) > 0.9


def test_a_pair_that_was_never_seen_is_expected_to_fare_like_pairs_whose_names_share_as_much():
    fifth = replace(EAST, name="spot-m5-fifth")
    alike = {EAST.key: counted(west=(12, 12)), WEST.key: counted(east=(12, 12))}
    apart = {EAST.key: counted(west=(0, 12)), WEST.key: counted(east=(0, 12))}
    assert Learner(alike).shared_fate(EAST, fifth) > 0.8
    assert Learner(apart).shared_fate(EAST, fifth) < 0.2


def test_offers_of_different_pools_share_no_fate():
    assert Learner({}).shared_fate(EAST, replace(EAST, pool="d")) == 0.0


def test_an_interruption_costs_more_if_every_other_zone_goes_as_well():
    def risk_usd(went: int) -> float:
        markets = {key: counted(12, went, east=(went, 12), west=(went, 12)) for key in (EAST.key, WEST.key)}
        prices = Prices(snapshot(EAST, WEST, markets=markets), 1200.0, 40, 5.0)
        return float(prices.losses(EAST, 0.0, 50)[-1])

    assert risk_usd(12) > 1.1 * risk_usd(0)


def test_a_bag_is_spread_over_zones_of_about_the_same_price_that_do_not_go_together():
    machines = rented(EAST, WEST, OTHER)
    assert machines["other"] == pytest.approx(sum(machines.values()) / 2, abs=1.5)


def test_a_bag_is_not_spread_over_a_dearer_zone_that_goes_together_with_the_cheapest():
    dearer = replace(WEST, price_usd=0.93)
    assert set(rented(EAST, dearer)) <= {"east", "sure"}


def test_a_bag_is_not_spread_where_that_costs_more_than_it_is_worth():
    assert set(rented(EAST, replace(OTHER, price_usd=1.2))) <= {"east", "sure"}
