"""How long a machine takes from the decision to rent it until it works: as its offer says, or as was seen. Pure.

Boots that took longer than told, and on-demand machines that were refused, make every later rescue slower. The safety
net reckons with that as soon as it has been seen.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from windfall.core.renting.machines import pause_s
from windfall.core.state.renting.fleet import Seen
from windfall.core.state.state import State
from windfall.planning.contract import ONDEMAND
from windfall.planning.offers import Offer

DELAY_QUANTILE = 0.9
"""Quantile of the seen boot delays that plans reckon with."""
AS_TOLD_SAMPLES = 2
"""Weight of the told boot time, in boots without a delay."""
REFUSED_CHANCE = 0.05
"""Plans reckon with as many refusals in a row as happen with this chance."""
MAX_REFUSALS = 5


def with_lead_time(state: State, offer: Offer) -> Offer:
    """The offer with the lead time that was seen as its boot time, if that is longer than told."""
    delay_s = _boot_delay_s(state, offer) + _refusal_delay_s(state.fleet.markets.get(offer.key), offer)
    return offer if delay_s <= 0.0 else replace(offer, lag_s=offer.lag_s + delay_s)


def _boot_delay_s(state: State, offer: Offer) -> float:
    """By how much machines of this pool take longer to boot than their offers say; 0.0 if they do not."""
    delays = [
        max(0.0, delay_s)
        for key, seen in state.fleet.markets.items()
        if key.rpartition("/")[0] == offer.pool
        for delay_s in seen.boot_delays_s
    ]
    if not any(delays):
        return 0.0
    ordered = sorted([0.0] * AS_TOLD_SAMPLES + delays)
    return ordered[math.ceil(DELAY_QUANTILE * len(ordered)) - 1]


def _refusal_delay_s(seen: Seen | None, offer: Offer) -> float:
    """Seconds lost to refusals of an on-demand machine before one starts."""
    if seen is None or not seen.refused or offer.market != ONDEMAND:
        return 0.0
    chance = seen.refused / (seen.refused + seen.started + 1)
    refusals = min(MAX_REFUSALS, math.ceil(math.log(REFUSED_CHANCE) / math.log(chance)) - 1)
    return math.fsum(pause_s(offer, number) for number in range(1, refusals + 1))
