"""Prices of tasks by cell of time, which are sums kept up to date, against the sums themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import floats, integers, lists, sampled_from

from windfall.planning.bags.hibernated_prices import HibernatedPrices
from windfall.planning.bags.prices import Course
from windfall.planning.offers import Offer
from windfall.planning.spot.live import HazardRates

CELL_S = 60.0
RATES = floats(0.0, 0.05)
DOLLARS = lists(floats(0.01, 5.0), min_size=2, max_size=30)


def offer(when_taken: str = "hibernate") -> Offer:
    return Offer(name="spot", price_usd=0.03, cores=2, market="spot", when_taken=when_taken, cycle_s=3600.0)


@given(DOLLARS, RATES, RATES, floats(1.0, 3000.0), sampled_from(["hibernate", "stop"]))
def test_a_hibernated_task_costs_what_its_resumes_and_further_hibernations_cost(
    waiting_usd: list[float], interrupts: float, resumes: float, run_s: float, when_taken: str
) -> None:
    spot, cells, late_usd = offer(when_taken), len(waiting_usd), 20.0
    found = HibernatedPrices(
        [spot], {spot.key: HazardRates(interrupts, resumes)}, {spot.key: run_s}, CELL_S, cells, late_usd
    )
    for cell in range(cells - 1, -1, -1):
        found.step(cell, waiting_usd[cell])

    left_s = run_s / 2 if when_taken == "hibernate" else run_s
    left, stays, survives = int(np.ceil(left_s / CELL_S)), np.exp(-resumes * CELL_S), np.exp(-interrupts * CELL_S)
    usd = [0.0] * cells + [late_usd]
    for cell in range(cells - 1, -1, -1):
        again_usd = sum(
            survives**after * (1 - survives) * usd[cell + 1 + after] for after in range(min(left, cells - cell))
        )
        again_usd += spot.price_usd / spot.cores * (left_s // spot.cycle_s)
        resumed_usd = min(again_usd, waiting_usd[cell]) if cell + left <= cells else waiting_usd[cell]
        usd[cell] = min(waiting_usd[cell], stays * usd[cell + 1] + (1 - stays) * resumed_usd)
    assert found.usd[spot.key] == pytest.approx(usd, rel=1e-9)


@given(DOLLARS, lists(integers(1, 12), min_size=1, max_size=8), floats(0.0, 3.0), floats(0.1, 1.0))
def test_a_task_on_spot_costs_its_lease_and_its_interruptions(
    lost_usd: list[float], steps: list[int], hazard: float, share_left: float
) -> None:
    cells, ends = len(lost_usd), np.cumsum(steps)
    survival = np.exp(-hazard * np.arange(2.0 * cells + 2))
    leases_usd = np.linspace(0.1, 0.4, cells * len(ends)).reshape(cells, len(ends))
    course = Course(offer(), [len(ends)] * cells, ends, leases_usd, survival, share_left)
    found = [course.usd(cell, lost_usd[cell]) for cell in range(cells - 1, -1, -1)]

    for cell, usd in zip(range(cells - 1, -1, -1), found, strict=True):
        losses = [
            sum(
                (survival[c] - survival[c + 1]) / survival[cell] * lost_usd[c]
                for c in range(cell, min(cells, cell + end))
            )
            for end in ends
        ]
        rows = [leases_usd[cell, row] + share_left * sum(losses[: row + 1]) / (row + 1) for row in range(len(ends))]
        assert usd == pytest.approx(min(rows), rel=1e-9)
