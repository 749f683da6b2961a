"""Moving data to machines: the time and the price of it, by where data and machines are. Pure.

What every task of a job reads is fetched once by each machine: it makes a machine ready later, and costs once. Offers
say what a gigabyte costs and how fast it comes, for data of each region.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from windfall.planning.contract import Snapshot
from windfall.planning.offers import Offer

MB_PER_GB = 1000.0
Table = float | dict[str, float]


def _of_region(table: Table, region: str, otherwise: float) -> float:
    if isinstance(table, dict):
        return table.get(region, table.get("default", otherwise))
    return table


def moved(offer: Offer, gb_by_region: Mapping[str, float]) -> tuple[float, float]:
    """Seconds and dollars for fetching data to one machine of an offer. Within a region data costs nothing by default.

    The empty region is one that is not known: the entry `default` counts for it.
    """
    seconds = usd = 0.0
    for region, gb in sorted(gb_by_region.items()):
        is_near = region != "" and region == offer.region
        said = isinstance(offer.data_usd_per_gb, dict) and region in offer.data_usd_per_gb
        if not is_near or said:
            usd += gb * _of_region(offer.data_usd_per_gb, region, 0.0)
        rate = 0.0 if offer.data_mb_per_s is None else _of_region(offer.data_mb_per_s, region, 0.0)
        seconds += gb * MB_PER_GB / rate if rate > 0.0 else 0.0
    return seconds, usd


def with_data(offer: Offer, gb_by_region: Mapping[str, float]) -> Offer:
    """The offer for a job whose machines fetch these gigabytes, by region, before their first task."""
    if not gb_by_region:
        return offer
    seconds, usd = moved(offer, gb_by_region)
    return replace(offer, lag_s=offer.lag_s + seconds, start_usd=usd) if seconds or usd else offer


def with_task_data(offer: Offer, gb_by_region: Mapping[str, float], run_s: float, width: int) -> Offer:
    """The offer for tasks that fetch these gigabytes each, for plans: as much slower and dearer as that makes a task.

    `run_s`: the mean run time at speed 1. `width`: cores of a task. The price is that of full machines.
    """
    seconds, usd = moved(offer, gb_by_region)
    if not seconds and not usd:
        return offer
    run_s = max(run_s, 1e-3)
    speeds = offer.speed if isinstance(offer.speed, dict) else {"default": offer.speed}
    slowed = {name: run_s / (run_s / speed + seconds) for name, speed in speeds.items()}
    at_once = max(1, offer.cores // max(1, width))
    each_s = run_s / (sum(slowed.values()) / len(slowed))
    price_usd = offer.price_usd + usd * at_once * offer.cycle_s / each_s
    return replace(offer, price_usd=price_usd, speed=slowed if isinstance(offer.speed, dict) else slowed["default"])


def spread(snapshot: Snapshot) -> Snapshot:
    """The snapshot for planners that know prices of cycles only: the price of data is spread over an hour of them."""
    if not any(offer.start_usd for offer in snapshot.offers):
        return snapshot
    return replace(
        snapshot,
        offers=tuple(replace(offer, price_usd=offer.compared_usd, start_usd=0.0) for offer in snapshot.offers),
    )
