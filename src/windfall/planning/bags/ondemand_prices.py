"""What a set of tasks costs on on-demand machines that are requested at a given moment. Pure.

The cheapest set of machines may mix offers and leases: what large machines do not hold needs a small one, or a shorter
lease, and not another large one. So the price of few tasks rises in steps as the deadline comes nearer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from windfall.planning.bags.packing import CORE_FILL_RATIO, lease_usd
from windfall.planning.offers import Offer

Array = NDArray[np.float64]

MAX_TASKS_COVERED_EXACTLY = 60
"""Of more tasks, machines that are only partly filled no longer matter."""
MAX_LEASES = 12
"""Lengths of leases that are tried for an offer."""


def ondemand_usd(
    offers: Sequence[Offer], count: float, run_s: Mapping[str, float], mean_cores: float, left_s: Array
) -> Array:
    """Dollars per task by the seconds that are left when the machines are requested; infinite where none is in time.

    `run_s`: seconds of a task by key of the offer. `mean_cores`: cores that a task occupies on average.
    """
    leases = [lease for offer in offers for lease in _leases(offer, run_s[offer.key], mean_cores, left_s)]
    if not leases:
        return np.full(len(left_s), math.inf)
    holds = np.array([held for held, _ in leases])
    usd = np.where(holds >= 1.0, np.array([price for _, price in leases])[:, None], math.inf)
    if count > MAX_TASKS_COVERED_EXACTLY:
        dense: Array = (usd / np.maximum(holds, 1.0)).min(axis=0)
        return dense
    most, moments = math.ceil(count), np.arange(len(left_s))
    whole = np.minimum(holds, most).astype(int)
    least = np.zeros((most + 1, len(left_s)))
    for number in range(1, most + 1):
        least[number] = (least[np.maximum(number - whole, 0), moments] + usd).min(axis=0)
    result: Array = least[most] / count
    return result


def _leases(offer: Offer, run_s: float, mean_cores: float, left_s: Array) -> list[tuple[Array, float]]:
    """Leases of different lengths: the tasks that each holds by seconds left, and its price."""
    boot_s = offer.lag_s if offer.bills_boot else 0.0
    rows = math.floor((float(left_s.max(initial=0.0)) - offer.lag_s) / run_s + 1e-9)
    if rows < 1:
        return []
    lengths = np.unique(np.ceil(np.geomspace(1, rows, min(rows, 4 * MAX_LEASES)) - 1e-9))
    cycles = sorted({offer.cycles(max(boot_s + row * run_s, offer.minimum_s)) for row in lengths.tolist()})
    if len(cycles) > MAX_LEASES:
        cycles = [cycles[round(place)] for place in np.linspace(0, len(cycles) - 1, MAX_LEASES).tolist()]
    found = []
    for number in cycles:
        up_s = np.minimum(left_s - offer.lag_s, number * offer.cycle_s - boot_s)
        row = np.maximum(up_s / run_s + 1e-9, 0.0)
        # Tasks of unequal length fill a row beyond its whole number, but never all of it.
        held = np.where(row >= 1.0, np.maximum(np.floor(row), CORE_FILL_RATIO * row), 0.0)
        price_usd = lease_usd(offer, number * offer.cycle_s + offer.lag_s - boot_s)
        found.append((held * max(1.0, offer.cores / mean_cores), price_usd))
    return found
