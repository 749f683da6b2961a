"""Offers of a pool: its catalogue with the prices of now. Touches the API through `catalogue` and `prices`."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from windfall.planning.offers import Offer
from windfall.pools.contract import PoolError, PriceMove
from windfall.pools.ec2.api import Account
from windfall.pools.ec2.catalogue import Rentable, Rentables, read_catalogue
from windfall.pools.ec2.prices import Move, on_demand_prices, spot_moves
from windfall.pools.ec2.settings import ON_DEMAND, SPOT, Ec2Settings
from windfall.pools.kinds import PoolConfig
from windfall.units import parse_duration

HISTORY_S = 86400.0
"""Seconds for which moves of prices are kept; the price in effect is kept in any case."""
LATE_S = 3600.0
"""Seconds of history that are read again: prices may appear in it after they took effect."""
FREE_IF_TAKEN_WITHIN_S = 3600.0
"""Machines are billed by the second; a spot machine that EC2 reclaims in its first hour is free."""


class Market(Struct):
    """What can be rented, and at which prices, in dollars per hour by the names of offers."""

    rentables: Rentables
    on_demand: dict[str, float] = {}
    moves: list[Move] = []
    """Of spot prices, the oldest first."""
    read_t: float = 0.0
    priced_t: float = 0.0

    def usd_per_h(self, name: str) -> float | None:
        """The price of an offer now; None if it is not for sale."""
        if name in self.on_demand:
            return self.on_demand[name]
        return next((move.usd_per_h for move in reversed(self.moves) if move.name == name), None)


def read_market(account: Account, settings: Ec2Settings, now: float, known: Market | None) -> Market | PoolError:
    """Catalogue and prices from the API. On-demand prices that are `known` are not asked for again."""
    rentables = read_catalogue(account, settings)
    if isinstance(rentables, PoolError):
        return rentables
    listed = on_demand_prices(account, rentables, settings, known.on_demand if known is not None else {})
    if isinstance(listed, PoolError):
        return listed
    found = Market(rentables, listed, [] if known is None else known.moves, read_t=now)
    return priced(account, found, now)


def priced(account: Account, market: Market, now: float) -> Market | PoolError:
    """The same market with the moves of spot prices since it was last looked at."""
    if not any(each.market == SPOT for each in market.rentables.values()):
        return replace(market, priced_t=now)
    since_t = max(market.priced_t - LATE_S, now - HISTORY_S)
    new = spot_moves(account, market.rentables, since_t)
    if isinstance(new, PoolError):
        return new
    return replace(market, moves=_joined(market.moves, new, now - HISTORY_S), priced_t=now)


def _joined(old: list[Move], new: list[Move], keep_t: float) -> list[Move]:
    """Both without repetition, the oldest first; of moves before `keep_t` only the last of each offer."""
    moves = sorted({*old, *new}, key=lambda move: (move.since_t, move.name))
    latest = {move.name: move for move in moves if move.since_t <= keep_t}
    return [move for move in moves if move.since_t > keep_t or latest[move.name] == move]


def offers_of(pool: PoolConfig, market: Market) -> tuple[Offer, ...]:
    """Offers of what has a price now, billed by the second."""
    found = []
    for name, each in market.rentables.items():
        usd_per_h = market.usd_per_h(name)
        if usd_per_h is not None and usd_per_h > 0:
            found.append(_offer(pool, each, usd_per_h))
    return tuple(found)


def _offer(pool: PoolConfig, each: Rentable, usd_per_h: float) -> Offer:
    settings: Ec2Settings = pool.settings
    is_spot = each.market != ON_DEMAND
    return Offer(
        name=each.name,
        price_usd=usd_per_h / 3600.0,
        cores=each.type.cores,
        memory_gb=each.type.memory_gb,
        speed=settings.speed_of(each.type.name),
        cycle_s=1.0,
        lag_s=parse_duration(settings.boot, "boot"),
        market=each.market,
        limit=pool.most,
        pool=pool.name,
        minimum_s=parse_duration(settings.minimum, "minimum"),
        free_if_taken=is_spot,
        free_if_taken_within_s=FREE_IF_TAKEN_WITHIN_S if is_spot else 0.0,
        when_taken=settings.interruption if is_spot else "terminate",
        interruptions_per_h=settings.interruptions_per_h if is_spot else None,
        pool_limit=pool.most,
        gpus=each.type.gpus,
        region=each.region,
        data_usd_per_gb=settings.data_usd_per_gb,
        data_mb_per_s=settings.data_mb_per_s,
    )


def price_moves(market: Market) -> list[PriceMove]:
    return [PriceMove(move.name, move.usd_per_h / 3600.0, move.since_t) for move in market.moves]
