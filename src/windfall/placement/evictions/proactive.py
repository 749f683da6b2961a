"""End preemptible instances ahead of need, at the end of a billing period, when it costs nothing. Pure.

An eviction in the middle of a period earns nothing for the consumed part. The paper leaves ending instances ahead
of time as future work. Two reasons to do it: room that will be needed (`headroom`), and instances whose next period
is not expected to pay for the power it takes (`unprofitable`).
"""

from __future__ import annotations

import math

from msgspec import Struct

from windfall.numeric import Ints, np
from windfall.placement.evictions.costs import HOUR_US, micros
from windfall.placement.evictions.victims import cheapest_cover
from windfall.placement.model import Request
from windfall.placement.site import Site


class Termination(Struct, frozen=True):
    """End an instance at `at_s`, when its billed period is complete."""

    instance: str
    host: str
    at_s: float


def period_ends_us(site: Site, now_us: int, period_us: int = HOUR_US) -> Ints:
    """When the present billing period of every slot ends; now, not a period later, if it ends now."""
    return now_us + (-(now_us - site.start_us)) % period_us


def headroom(
    site: Site, request: Request, copies: int, now_s: float, horizon_s: float, period_us: int = HOUR_US
) -> tuple[Termination, ...] | None:
    """Instances to end, each at the end of a period within the horizon, so that `count` requests fit without eviction.

    Host by host the set that earns least goes. None where that much room cannot be had in time.
    """
    need, now_us = site.units(request.resources), micros(now_s)
    ends_us = period_ends_us(site, now_us, period_us)
    in_time = site.used & (ends_us <= now_us + micros(horizon_s))
    free = site.free_f.copy()
    going = np.zeros_like(in_time)
    result: list[Termination] = []
    for _ in range(copies):
        best: tuple[int, int, list[int]] | None = None
        for h in range(len(site.names)):
            slots = np.flatnonzero(in_time[h] & ~going[h]).tolist()
            short = np.where(need > 0, np.maximum(need - free[:, h], 0), 0).tolist()
            prices = site.price_microusd_per_h[h, slots].tolist()
            found = cheapest_cover(site.size[:, h, slots].T.tolist(), prices, short)
            if found is not None and (best is None or found.cost < best[0]):
                best = (found.cost, h, [slots[i] for i in found.chosen])
                if not found.chosen:
                    break
        if best is None:
            return None
        _, h, chosen = best
        going[h, chosen] = True
        free[:, h] += site.size[:, h, chosen].sum(axis=1) - need
        result += [Termination(site.slot_ids[h][slot], site.names[h], int(ends_us[h, slot]) / 1e6) for slot in chosen]
    return tuple(sorted(result, key=lambda one: (one.at_s, one.instance)))


def unprofitable(
    site: Site,
    now_s: float,
    horizon_s: float,
    evictions_per_h: float,
    power_usd_per_host_h: float,
    period_us: int = HOUR_US,
) -> tuple[Termination, ...]:
    """Instances whose next period, if it begins within the horizon, costs more power than it is expected to earn.

    An instance is paid for a period only if it survives it: with probability exp(-evictions per hour x period). Its
    power is its share of its host's. How often instances like it are evicted is for the caller to estimate.
    """
    now_us = micros(now_s)
    ends_us = period_ends_us(site, now_us, period_us)
    survival = math.exp(-evictions_per_h * period_us / HOUR_US)
    result = []
    for h, slot in np.argwhere(site.used & (ends_us <= now_us + micros(horizon_s))).tolist():
        share = float((site.size[:, h, slot] / np.maximum(site.capacity[:, h], 1)).max())
        earns_microusd_per_h = float(site.price_microusd_per_h[h, slot]) * survival
        if earns_microusd_per_h < share * power_usd_per_host_h * 1e6:
            result.append(Termination(site.slot_ids[h][slot], site.names[h], int(ends_us[h, slot]) / 1e6))
    return tuple(sorted(result, key=lambda one: (one.at_s, one.instance)))
