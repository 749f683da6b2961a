"""How the price of an offer moves: a law learned from the prices that were seen, and paths drawn from it. Pure.

The logarithm of the price takes a step at each change and is drawn back to its level: the steps say how far prices get
within hours, the spread how far they ever get.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import count, takewhile
from statistics import NormalDist

from windfall.planning.counts import PriceCounts
from windfall.planning.offers import PriceLaw

MIN_CHANGES = 2
"""Changes of price from which a law is learned."""
MOST_STEP, MOST_SPREAD = 1.0, 3.0
"""No law goes beyond these, whatever was seen: a price is no random walk between nothing and infinity."""


def learned_law(parts: Sequence[PriceCounts]) -> PriceLaw | None:
    """The law of an offer's prices; None if they have hardly moved, or were not watched."""
    changes, held_s = sum(part.changes for part in parts), math.fsum(part.held_s for part in parts)
    squares = math.fsum(part.log_squares for part in parts)
    if changes < MIN_CHANGES or held_s <= 0.0 or squares <= 0.0:
        return None
    mean = math.fsum(part.sum_usd for part in parts) / held_s
    variance = max(0.0, math.fsum(part.squares_usd for part in parts) / held_s - mean**2)
    step = min(math.sqrt(squares / changes), MOST_STEP)
    # Watched for a short time, the price has not been everywhere: it gets at least as far as one step.
    spread = min(max(math.sqrt(variance) / mean if mean else 0.0, step), MOST_SPREAD)
    return PriceLaw(changes_per_h=3600.0 * changes / held_s, step=step, spread=spread)


def steps(law: PriceLaw, usd: float, chance: Callable[[int, int], float]) -> Iterator[tuple[float, float]]:
    """(hours from now, price) of each change, the present price first; only this one if prices stay.

    `chance(a, b)`: random numbers between 0 and 1.
    """
    yield 0.0, usd
    if law.changes_per_h <= 0.0 or law.spread <= 0.0:
        return
    kept = max(0.0, 1.0 - law.step**2 / (2.0 * law.spread**2))
    at_h, away = 0.0, 0.0
    for number in count():
        at_h -= math.log(1.0 - chance(number, 0)) / law.changes_per_h
        away = kept * away + law.step * NormalDist().inv_cdf(chance(number, 1))
        yield at_h, usd * math.exp(away)


def path(law: PriceLaw, usd: float, until_h: float, chance: Callable[[int, int], float]) -> list[tuple[float, float]]:
    """The steps until then."""
    return list(takewhile(lambda step: step[0] <= until_h, steps(law, usd, chance)))
