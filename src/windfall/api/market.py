"""What was learned of offers: interruptions, returns, prices, and what that rests on. Pure."""

from __future__ import annotations

from typing import TypedDict

from windfall.api.asking import PriceMoves


class Capacity(TypedDict):
    """`state`: there, absent or unknown."""

    state: str
    since_s: float | None
    seen_s_ago: float | None


class ByAge(TypedDict):
    """Rates of spells of one age, and the ends and hours that they rest on. `to_s` is null of the last class."""

    from_s: float
    to_s: float | None
    interrupted_per_h: float
    ends: float
    up_h: float
    returns_per_h: float
    returns: float
    absent_h: float


class ByHour(TypedDict):
    """By hour of the day (UTC)."""

    hour: int
    ends: float
    up_h: float


class PricesSeen(TypedDict):
    mean_usd: float
    spread_usd: float
    low_usd: float
    high_usd: float
    changes: int
    watched_s: float


class PublishedSource(TypedDict):
    """A published series that was imported."""

    source: str
    digest: str
    up_h: float
    interruptions: float
    price_changes: int


class LearnedOffer(TypedDict):
    """One offer that is known or was seen; what its pool says of it is null if the pool is gone."""

    pool: str
    offer: str
    market: str | None
    price_usd: float | None
    cycle_s: float | None
    machines: int
    launches: int
    refused: int
    notices: int
    reclaimed: int
    hibernated: int
    resumed: int
    interruptions: int
    up_s: float
    hibernated_s: float
    told_per_h: float | None
    interrupted_per_h: float | None
    resumed_per_h: float | None
    capacity: Capacity
    by_age: list[ByAge]
    by_hour: list[ByHour]
    prices: PricesSeen | None
    price_moves: PriceMoves | None
    together: dict[str, int]
    shared_fate: dict[str, float]
    sources: list[PublishedSource]


class Learned(TypedDict):
    offers: list[LearnedOffer]


class ImportedSeries(TypedDict):
    offer: str
    source: str
    up_h: float
    interruptions: float
