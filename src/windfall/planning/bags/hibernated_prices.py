"""Expected cost of a task on a hibernated machine, by offer and as a function of time. Pure.

A machine that resumes may hibernate again before the task is done, and the rest of the run is billed. An offer that
hibernates again and again is therefore worth waiting for only while that costs less than to begin elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from windfall.planning.offers import Offer
from windfall.planning.spot.live import HazardRates


class HibernatedPrices:
    """Dollars for a task on a hibernated machine (`usd`), by key of the offer and cell of time, the last cell first.

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
        self.usd = {offer.key: [late_usd] * (cells + 1) for offer in offers}
        self._each = [_OfOffer(o, rates[o.key], run_s[o.key], cell_s, self.usd[o.key]) for o in offers]

    def step(self, cell: int, waiting_usd: float) -> None:
        """Fill in this cell; all later ones are filled. `waiting_usd`: dollars for a task that begins elsewhere."""
        for offer in self._each:
            offer.step(cell, waiting_usd)


class _OfOffer:
    """The same for one offer. A cell costs the same however many cells a task takes: see `step`."""

    def __init__(self, offer: Offer, rates: HazardRates, run_s: float, cell_s: float, usd: list[float]) -> None:
        self._usd = usd
        self._stays = math.exp(-rates.resumes_per_s * cell_s)
        # A hibernated task is half done on average; one on a stopped machine begins again.
        left_s = run_s * (0.5 if offer.when_taken == "hibernate" else 1.0)
        self._left = math.ceil(left_s / cell_s)
        self._rest_usd = offer.price_usd / offer.cores * math.floor(left_s / offer.cycle_s)
        self._survives = math.exp(-rates.interrupts_per_s * cell_s)
        self._survives_all = self._survives**self._left
        self._again_usd = 0.0
        """Expected dollars of hibernating again before the task is done, for a machine that resumes in a cell."""

    def step(self, cell: int, waiting_usd: float) -> None:
        usd, ended = self._usd, cell + 1 + self._left
        # Of a task of n cells: the sum over k < n of s^k (1 - s) usd[cell + 1 + k], for s = the chance to survive one
        # cell. It is that of the cell after, times s, with one summand more in front and one less at the end.
        gone = self._survives_all * usd[ended] if ended < len(usd) else 0.0
        self._again_usd = self._survives * self._again_usd + (1.0 - self._survives) * (usd[cell + 1] - gone)
        resumed_usd = waiting_usd
        if ended <= len(usd):  # otherwise it is too late to be done after a resume: begin elsewhere
            resumed_usd = min(self._again_usd + self._rest_usd, waiting_usd)
        stayed_usd = self._stays * usd[cell + 1] + (1.0 - self._stays) * resumed_usd
        usd[cell] = min(waiting_usd, stayed_usd)
