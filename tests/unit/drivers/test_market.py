"""What the keeper of machines tells the engine of offers and prices that change."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from tests.support.clouds.providers import SPOT, STEADY, Account, FakeCloud
from tests.support.engine.hand import Hand
from windfall.drivers.keepers.market import market_news
from windfall.pools.contract import PriceMove


class Moving(FakeCloud):
    """A cloud whose prices move."""

    def __init__(self) -> None:
        super().__init__(Account())
        self.moves: list[PriceMove] = []

    def price_moves(self) -> list[PriceMove]:
        return self.moves

    def move(self, since_t: float, price_usd: float, name: str = "spot") -> None:
        self.moves.append(PriceMove(name, price_usd, since_t))
        self.offers = tuple(replace(o, price_usd=price_usd) if o.name == name else o for o in self.offers)


class Told:
    """An engine that is told the news."""

    def __init__(self) -> None:
        self.hand, self.pool = Hand(), Moving()

    def look(self, t: float) -> list:
        news = market_news(self.hand.state, "cloud", self.pool, t)
        for event in news:
            self.hand.step(event)
        return [
            (type(event).__name__, getattr(event, "prices", None), getattr(event, "since_t", None)) for event in news
        ]

    @property
    def offers(self) -> list:
        return self.hand.state.fleet.offers["cloud"]


def test_offers_are_told_once_and_again_when_they_change():
    told = Told()
    t = told.hand.t
    assert [event[0] for event in told.look(t)] == ["OffersConfigured"]
    assert told.look(t + 1) == [] and told.offers == [SPOT, STEADY]
    told.pool.offers = (STEADY,)
    assert [event[0] for event in told.look(t + 2)] == ["OffersConfigured"] and told.offers == [STEADY]


def test_of_a_new_pool_the_prices_of_now_are_told_and_then_each_move_with_its_time():
    told = Told()
    t = told.hand.t
    told.look(t)
    for age_s, price in ((100.0, 0.01), (50.0, 0.02)):
        told.pool.move(t - age_s, price)
    assert told.look(t + 1) == [("PricesReported", [("spot", 0.02)], t - 50.0)]
    assert told.look(t + 2) == []
    told.pool.move(t + 3, 0.03)
    told.pool.move(t + 3, 0.2, "steady")
    told.pool.move(t + 4, 0.04)
    assert told.look(t + 10) == [
        ("PricesReported", [("spot", 0.03), ("steady", 0.2)], t + 3),
        ("PricesReported", [("spot", 0.04)], t + 4),
    ]
    assert [offer.price_usd for offer in told.offers] == [0.04, 0.2] and told.look(t + 11) == []


def test_a_move_that_appears_late_is_told_although_another_offer_has_moved_since():
    told = Told()
    t = told.hand.t
    told.pool.move(t - 10, 0.01)
    told.pool.move(t - 10, 0.1, "steady")
    told.look(t)
    told.pool.move(t + 5, 0.02)
    told.look(t + 6)
    told.pool.moves.insert(2, PriceMove("steady", 0.3, t + 4))
    told.pool.move(t + 4, 0.3, "steady")
    told.pool.moves.pop()
    assert told.look(t + 7) == [("PricesReported", [("steady", 0.3)], t + 4)] and told.look(t + 8) == []


def test_a_move_of_the_future_waits_for_its_time():
    told = Told()
    t = told.hand.t
    told.pool.move(t - 1, 0.01)
    told.look(t)
    told.pool.moves.append(PriceMove("spot", 0.5, t + 100))
    assert told.look(t + 1) == []


@pytest.mark.parametrize("price", [math.nan, math.inf, -0.1, 1e9])
def test_a_price_that_no_provider_asks_is_not_believed(price):
    told = Told()
    t = told.hand.t
    told.pool.move(t - 1, 0.01)
    told.look(t)
    told.pool.moves.append(PriceMove("spot", price, t))
    assert told.look(t + 1) == []
