"""Expected cost of a task on a hibernated machine, by offer and as a function of time. Pure.

A machine that resumes may hibernate again before the task is done, and the rest of the run is billed. An offer that
hibernates again and again is therefore worth waiting for only while that costs less than to begin elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from windfall.planning.offers import Offer
from windfall.planning.spot.live import HazardRates

Array = NDArray[np.float64]


class Sleepers:
    """Dollars for a task on a hibernated machine, by offer and cell of time; filled in from the last cell backwards.

    `run_s` holds the seconds of a mean task by key of the offer, `late_usd` is the price of a late task.
    """

    def __init__(
        self,
        offers: Sequence[Offer],
        rates: Mapping[str, HazardRates],
        run_s: Mapping[str, float],
        cell_s: float,
        cells: int,
        late_usd: float,
    ) -> None:
        self._cells = cells
        self._usd = np.full((len(offers), cells + 1), late_usd)
        self.by_offer: dict[str, Array] = {offer.key: self._usd[row] for row, offer in enumerate(offers)}
        resumes = np.array([rates[offer.key].resumes_per_s for offer in offers])
        self._stays = np.exp(-resumes * cell_s)
        # A hibernated task is half done on average; one on a stopped machine begins again.
        left_s = np.array([run_s[o.key] * (0.5 if o.when_taken == "hibernate" else 1.0) for o in offers])
        self._left = np.ceil(left_s / cell_s).astype(int)
        self._rest_usd = np.array(
            [
                offer.price_usd / offer.cores * math.floor(seconds / offer.cycle_s)
                for offer, seconds in zip(offers, left_s, strict=True)
            ]
        )
        hazard = np.array([rates[offer.key].interrupts_per_s * cell_s for offer in offers])
        self._again = self._chances(hazard)

    def _chances(self, hazard: Array) -> Array:
        """By offer and cells after a resume: the chance that the machine hibernates then, before the task is done."""
        most = int(self._left.max(initial=0))
        after = np.arange(most, dtype=np.float64)
        chances: Array = np.exp(-np.outer(hazard, after)) * -np.expm1(-hazard)[:, None]
        return np.where(after < self._left[:, None], chances, 0.0)

    def step(self, cell: int, waiting_usd: float) -> None:
        """Fill in this cell; all later ones are filled. `waiting_usd`: dollars for a task that begins elsewhere."""
        if not len(self._usd):
            return
        later = self._usd[:, cell + 1 : cell + 1 + self._again.shape[1]]
        again_usd = (self._again[:, : later.shape[1]] * later).sum(axis=1) + self._rest_usd
        # Too late to be done after a resume: begin elsewhere.
        resumed_usd = np.where(cell + self._left <= self._cells, np.minimum(again_usd, waiting_usd), waiting_usd)
        stayed_usd = self._stays * self._usd[:, cell + 1] + (1.0 - self._stays) * resumed_usd
        self._usd[:, cell] = np.minimum(waiting_usd, stayed_usd)
