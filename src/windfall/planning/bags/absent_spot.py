"""Whether spot can be had now, and the chance that it can be had again soon. Pure."""

from __future__ import annotations

import math
from collections.abc import Set

from windfall.planning.bags.prices import Prices
from windfall.planning.contract import SPOT, Snapshot
from windfall.planning.room import Room, market_key

USUAL_SPOT_OUTAGE_S = 1800.0
"""Expected wait for refused spot capacity: this, and as long again as it has been refused so far."""


def spot_is_refused(snapshot: Snapshot, noticed_offers: Set[tuple[str, str]], left: Room) -> bool:
    """Whether spot is on offer and every spot offer was refused, or is being reclaimed, at last sight."""
    spot = [offer for offer in snapshot.offers if offer.market == SPOT]
    seen = [snapshot.markets.get(offer.key) for offer in spot]
    refused = [
        market_key(offer) in noticed_offers
        or (market is not None and market.refused_t is not None and market.refused_t >= (market.started_t or -math.inf))
        for offer, market in zip(spot, seen, strict=True)
    ]
    return bool(spot) and all(refused) and not any(left.of(offer) > 0 for offer in spot)


def spot_is_back(snapshot: Snapshot, prices: Prices, within_s: float) -> float:
    """The chance that some refused spot offer has capacity again, by the law of absences where one is learned."""
    keys = [offer.key for offer in snapshot.offers if offer.market == SPOT]
    known = [rates for key in keys if (rates := prices.rates[key]).away_s is not None]
    if not known:
        return -math.expm1(-within_s / (USUAL_SPOT_OUTAGE_S + _outage_s(snapshot)))
    return 1.0 - math.prod(1.0 - rates.back_within(within_s) for rates in known)


def _outage_s(snapshot: Snapshot) -> float:
    """Seconds since a spot machine last started, or since the job began."""
    seen = [snapshot.markets.get(offer.key) for offer in snapshot.offers if offer.market == SPOT]
    started = [market.started_t for market in seen if market is not None and market.started_t is not None]
    return max(0.0, snapshot.t - max(started, default=snapshot.begun_t))
