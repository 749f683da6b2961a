"""Offers and prices of a pool as far as the engine does not know them yet. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from msgspec.structs import replace

from windfall.core import events as ev
from windfall.core.state.state import State
from windfall.pools.contract import MovingPrices, Pool, PriceMove

MOST_USD = 1e6
"""A price of a cycle beyond this, or below zero, is not believed."""


def market_news(state: State, name: str, pool: Pool, now: float) -> list[ev.AnyEvent]:
    """Prices in the order in which they took effect, then the offers if they differ in anything else."""
    moves = pool.price_moves() if isinstance(pool, MovingPrices) else []
    told = _told(moves, state.fleet.priced_t, name, now)
    prices = {offer: price for event in told for offer, price in event.prices}
    known = [
        replace(offer, price_usd=prices.get(offer.name, offer.price_usd)) for offer in state.fleet.offers.get(name, ())
    ]
    offered = [] if known == list(pool.offers) else [ev.OffersConfigured(now, name, list(pool.offers))]
    return [*told, *offered]


def _told(moves: list[PriceMove], told_t: Mapping[str, float], name: str, now: float) -> list[ev.PricesReported]:
    """One event for each time at which prices moved; of an offer that is new to the engine, only the price of now."""
    past = [move for move in moves if move.since_t <= now and 0 <= move.price_usd <= MOST_USD]
    latest = {move.offer: move for move in past}
    new = [
        move
        for move in past
        if (move.since_t > told_t[key] if (key := f"{name}/{move.offer}") in told_t else latest[move.offer] == move)
    ]
    return [
        ev.PricesReported(now, name, [(move.offer, move.price_usd) for move in together], since_t)
        for since_t, together in groupby(new, key=lambda move: move.since_t)
    ]
