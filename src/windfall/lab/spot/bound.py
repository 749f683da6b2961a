"""The cost of an omniscient planner on a series: the exact bound, by dynamic programming. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from windfall.planning.spot.market import Terms

Row = NDArray[np.float64]


def _stretches(available: Sequence[bool], ticks: int) -> list[int]:
    """For each tick, the number of ticks from it on with spot and without a gap."""
    stretches = [0] * (ticks + 1)
    for tick in range(ticks - 1, -1, -1):
        if tick < len(available) and available[tick]:
            stretches[tick] = stretches[tick + 1] + 1
    return stretches


def omniscient_usd(terms: Terms, future: Sequence[bool]) -> float:
    """The least cost of meeting the deadline if the future is known; infinite if it cannot be met.

    States: (tick, slack) and what runs: nothing, a warm spot machine, a warm on-demand one. An omniscient planner
    starts a spot machine only if it lasts through its changeover, so a changeover is one step.
    """
    room = terms.deadline_ticks - terms.work_ticks
    if room < terms.changeover_ticks:
        return float("inf")
    change, end = terms.changeover_ticks, terms.deadline_ticks
    spot, ondemand = (price * terms.tick_s / 3600.0 for price in (terms.spot_usd, terms.ondemand_usd))
    stretches = _stretches(future, end)
    done = np.full(room + 1, np.inf)
    done[0] = 0.0
    nothing: list[Row] = [done] * (end + 1)
    on_spot: list[Row] = [done] * (end + 1)
    on_demand: list[Row] = [done] * (end + 1)
    for tick in range(end - 1, -1, -1):
        keeps_spot = on_spot[tick + 1] + spot if stretches[tick] else np.full(room + 1, np.inf)
        keeps_ondemand = on_demand[tick + 1] + ondemand
        least = np.full(room + 1, np.inf)
        least[1:] = nothing[tick + 1][:-1]
        if change == 0:
            least = np.minimum(least, np.minimum(keeps_spot, keeps_ondemand))
        elif tick + change <= end:
            least[change:] = np.minimum(least[change:], on_demand[tick + change][:-change] + change * ondemand)
            if stretches[tick] >= change:
                least[change:] = np.minimum(least[change:], on_spot[tick + change][:-change] + change * spot)
        rows = least, np.minimum(least, keeps_spot), np.minimum(least, keeps_ondemand)
        if end - tick <= room:
            for row in rows:
                row[end - tick] = 0.0  # slack equals the time left: the work is done
        nothing[tick], on_spot[tick], on_demand[tick] = rows
        if tick + change + 1 <= end:
            # No step reaches further than one changeover: drop older rows.
            nothing[tick + change + 1] = on_spot[tick + change + 1] = on_demand[tick + change + 1] = done
    return float(nothing[0][room])
