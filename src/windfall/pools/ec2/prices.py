"""Prices of what a pool may rent: the spot price history as it moves, and the price list of on-demand machines.

Prices are in dollars per hour, as AWS states them; offers are billed by the second. Touches the API only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from windfall.pools.contract import INVALID, PoolError
from windfall.pools.ec2.api import Account, Region
from windfall.pools.ec2.catalogue import Rentable, Rentables
from windfall.pools.ec2.settings import ON_DEMAND, SPOT, Ec2Settings

PRODUCT = "Linux/UNIX"
_TYPES_AT_ONCE = 100


class Move(Struct, frozen=True):
    """From `since_t` on, the spot price of an instance type in a zone."""

    name: str
    """Of the offer."""
    since_t: float
    usd_per_h: float


Moves = list[Move]


def spot_moves(account: Account, rentables: Rentables, since_t: float) -> Moves | PoolError:
    """Moves of the spot prices after `since_t`, and the price in effect at that time, the oldest first."""
    moves: Moves = []
    for region in account.regions.values():
        names = {
            (each.type.name, each.zone): each.name
            for each in rentables.values()
            if each.market == SPOT and each.region == region.name
        }
        types = sorted({type_ for type_, _ in names})
        for first in range(0, len(types), _TYPES_AT_ONCE):
            rows = region.pages(
                "describe_spot_price_history", "SpotPriceHistory",
                InstanceTypes=types[first : first + _TYPES_AT_ONCE], ProductDescriptions=[PRODUCT],
                StartTime=datetime.fromtimestamp(since_t, UTC),
            )  # fmt: skip
            if isinstance(rows, PoolError):
                return rows
            moves += [
                Move(names[key], row["Timestamp"].timestamp(), float(row["SpotPrice"]))
                for row in rows
                if (key := (row["InstanceType"], row["AvailabilityZone"])) in names
            ]
    return sorted(moves, key=lambda move: (move.since_t, move.name))


def on_demand_prices(
    account: Account, rentables: Rentables, settings: Ec2Settings, known: dict[str, float]
) -> dict[str, float] | PoolError:
    """Dollars per hour by offer: from the settings, else `known`, else the price list; an error if one has none."""
    prices: dict[str, float] = {}
    listed: Region | None = None
    asked: dict[tuple[str, str], float | PoolError | None] = {}
    for name, each in rentables.items():
        if each.market != ON_DEMAND:
            continue
        stated = settings.on_demand_prices.get(each.type.name, known.get(name))
        if stated is not None:
            prices[name] = stated
            continue
        key = (each.region, each.type.name)
        if key not in asked:
            listed = listed or account.price_list()
            asked[key] = _listed_price(listed, each)
        price = asked[key]
        if price is None or isinstance(price, PoolError):
            return _no_price(each, price)
        prices[name] = price
    return prices


def _no_price(each: Rentable, error: PoolError | None) -> PoolError:
    why = "the price list has none" if error is None else f"the price list cannot be read ({error.error})"
    said = (
        f"no on-demand price of {each.type.name} in {each.region} is known: {why}, and the settings state none; "
        f'allow pricing:GetProducts, or say on_demand_prices = {{ "{each.type.name}" = 0.1 }}, or markets = ["spot"]'
    )
    return PoolError(said, INVALID if error is None else error.kind)


def _listed_price(region: Region, each: Rentable) -> float | PoolError | None:
    fields = {
        "instanceType": each.type.name, "regionCode": each.region, "operatingSystem": "Linux", "tenancy": "Shared",
        "preInstalledSw": "NA", "capacitystatus": "Used", "marketoption": "OnDemand",
    }  # fmt: skip
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in fields.items()]
    rows = region.pages("get_products", "PriceList", ServiceCode="AmazonEC2", Filters=filters)
    return rows if isinstance(rows, PoolError) else next(_hourly(rows), None)


def _hourly(rows: Iterable[Any]) -> Iterator[float]:
    """Prices above 0 in dollars per hour among the terms of products."""
    for row in rows:
        product = json.loads(row) if isinstance(row, str) else row
        for term in product.get("terms", {}).get("OnDemand", {}).values():
            for dimension in term.get("priceDimensions", {}).values():
                price = float(dimension.get("pricePerUnit", {}).get("USD", 0.0))
                if dimension.get("unit") == "Hrs" and price > 0:
                    yield price
