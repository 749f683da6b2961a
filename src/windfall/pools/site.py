"""Kind `site`: what a pools.toml says of a site. Pure."""

from __future__ import annotations

from msgspec import Struct

from windfall.core.sites.checks import check_site
from windfall.core.sites.instances import ReviewRules, SiteRules
from windfall.pools.kinds import INSTANCES, Kind, PoolConfig
from windfall.units import parse_duration


class SiteSettings(Struct, forbid_unknown_fields=True):
    """Fields of a [[pool]] of kind `site`."""

    instance: dict[str, float] = {}
    """Resources of one preemptible instance."""
    grace: str | float = "10s"
    cost: str = "work"
    weighers: dict[str, float] = {}
    """How hosts are ranked: names and multipliers, as in { pack = 1, overcommit = 2 }."""
    only_tags: list[str] = []
    """Tags that a host must have to run preemptible instances, as in ["disk=ssd"]."""
    market: bool = False
    reserve: float = 0.0
    bid: float = 0.0
    consolidate: str | float | None = None
    power: float = 0.0
    review: str | float = "1m"
    cycle: str | float = "1h"


def site_rules(pool: PoolConfig) -> SiteRules:
    settings: SiteSettings = pool.settings
    return SiteRules(
        pool.name,
        settings.instance,
        pool.most,
        parse_duration(settings.grace, "grace"),
        settings.cost,
        pool.idle_exit_s,
        float(pool.price),
        float(pool.per_minute),
        dict(settings.weighers),
        list(settings.only_tags),
        review_rules(
            settings.market,
            settings.reserve,
            settings.bid,
            settings.consolidate,
            settings.power,
            settings.review,
            settings.cycle,
        ),
    )


def review_rules(
    market: bool,
    reserve: float,
    bid: float,
    consolidate: str | float | None,
    power: float,
    review: str | float,
    cycle: str | float,
) -> ReviewRules:
    """What is switched on beside making way: times may be texts, as in a file or a request."""
    moves_lose_s = None if consolidate in (None, "never") else parse_duration(consolidate, "consolidate")
    every_s, cycle_s = parse_duration(review, "review"), parse_duration(cycle, "cycle")
    return ReviewRules(market, reserve, bid, moves_lose_s, power, every_s, cycle_s)


def _check(pool: PoolConfig, where: str) -> None:
    check_site(site_rules(pool), where)


KIND = Kind(gives=INSTANCES, settings=SiteSettings, check=_check, limit=1000)
