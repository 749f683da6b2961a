"""The beat of a market that changes only every so many ticks, found in its changes. Pure: ticks in, factors out.

Many markets are asked less often than they are written down: every ten minutes, say, in ticks of three. What they show
then changes only on that beat. Who knows it knows that spot which has just gone will not be back before the next beat,
and that spot which is there stays until then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Array = NDArray[np.float64]

# The beat drifts: only the latest changes count, and only pairs of them so many ticks apart tell its period.
MOST_CHANGES = 80
REACH_TICKS = 200
PERIODS = 200
# Fewer pairs, or less agreement among them, are as likely an accident.
LEAST_PAIRS = 24
LEAST_AGREEMENT = 0.45
MOST_AGREEMENT = 0.87
# How much an older change says about where the beat is now, against the one after it.
FADING = 0.7


class Beat(Struct, frozen=True):
    """Every `period` ticks, one of them at tick `phase`; the larger `sharpness`, the less beside it."""

    period: float
    phase: float
    sharpness: float

    def factors(self, ticks: Array) -> Array:
        """By how much a change is likelier at each of these ticks than on average: the density on a circle."""
        angle = 2.0 * np.pi * (ticks - self.phase) / self.period
        result: Array = np.exp(self.sharpness * np.cos(angle)) / np.i0(self.sharpness)
        return result


def find_beat(changes: Sequence[int]) -> Beat | None:
    """The beat of changes at these ticks, oldest first; None where there is none to be seen.

    The shortest spell is one beat, rounded down to whole ticks; so the period lies within a tick above it, and is the
    one of which all times between two changes are nearest to whole multiples.
    """
    ticks = np.array(changes[-MOST_CHANGES:], dtype=np.float64)
    shortest = np.diff(ticks).min(initial=np.inf)
    apart = np.subtract.outer(ticks, ticks)
    apart = apart[(apart > 0) & (apart <= REACH_TICKS)]
    if not 2 <= shortest <= REACH_TICKS or apart.size < LEAST_PAIRS:
        return None
    periods = shortest + np.arange(PERIODS) / PERIODS
    agreement = np.cos(2.0 * np.pi * apart / periods[:, None]).mean(axis=1)
    place = int(agreement.argmax())
    if agreement[place] < LEAST_AGREEMENT:
        return None
    period = float(periods[place])
    weights = FADING ** np.arange(len(ticks))[::-1]
    phase = float(np.angle(weights @ np.exp(2j * np.pi * ticks / period))) / (2.0 * np.pi) * period
    # Two changes agree as the square of how one agrees with the beat; from that, the density that would be as sharp.
    single = min(MOST_AGREEMENT, math.sqrt(agreement[place]))
    return Beat(period, phase, single * (2.0 - single**2) / (1.0 - single**2))
