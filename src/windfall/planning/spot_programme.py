"""The cheapest way to the deadline under a law of availability: a dynamic programme. Pure: rates in, choices out.

The state is (steps to the deadline, slack, market and what is left of its changeover, spell and its age). Slack instead
of work keeps the tables small: it only falls. Choices after which on-demand could not make the deadline cost infinity,
so the plan lives inside the safety net instead of being cut off by it.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Array = NDArray[np.float64]
IDLE, SPOT, ONDEMAND = 0, 1, 2
NEVER = 1e9


class Programme(Struct, frozen=True, kw_only=True):
    """A problem in steps: `ends[n]` and `ages` are probabilities per step, n steps before the deadline."""

    steps: int
    slack: int
    changeover: int
    spot_price: float
    ondemand_price: float
    ends: Array  # (steps + 1, 2, classes): a spell of this age ends within the step
    ages: Array  # (classes,): a spell that does not end moves on to the next age class


def row(changeover: int, market: int, warming: int) -> int:
    """The place of a market in the tables: idle, spot by what is left of its changeover, on-demand likewise."""
    return 0 if market == IDLE else 1 + warming + (market - 1) * (changeover + 1)


def expected(value: Array, ends: Array, ages: Array) -> Array:
    """The mean of the next step's value, by (spell, age, market, slack)."""
    older = np.concatenate([value[:, 1:], value[:, -1:]], axis=1)
    fresh = value[::-1, :1]
    ends, ages = ends[:, :, None, None], ages[None, :, None, None]
    result: Array = (1 - ends) * ((1 - ages) * value + ages * older) + ends * fresh
    return result


def _later(cost: Array, least: int) -> Array:
    """The cost when a step passes without progress: slack falls by one and must not fall below `least`."""
    shifted = np.full_like(cost, NEVER)
    shifted[..., least + 1 :] = cost[..., least:-1]
    return shifted


def _spot(problem: Programme, mean: Array, warming: int, last: int) -> Array:
    change, width = problem.changeover, mean.shape[-1]
    if warming:
        cost = problem.spot_price + _later(mean[:, :, row(change, SPOT, warming - 1)], change)
    else:
        cost = problem.spot_price + mean[:, :, row(change, SPOT, 0)]
        cost[..., : min(change, width)] = NEVER
        if 0 <= last < width:
            cost[..., last] = problem.spot_price
    cost[1] = NEVER
    return cost


def _ondemand(problem: Programme, mean: Array, warming: int) -> Array:
    change = problem.changeover
    if warming:
        return problem.ondemand_price + _later(mean[:, :, row(change, ONDEMAND, warming - 1)], warming - 1)
    result: Array = problem.ondemand_price + mean[:, :, row(change, ONDEMAND, 0)]
    return result


def solve(problem: Programme, keep: int) -> NDArray[np.int8]:
    """The best choice by (steps before the last `keep`, spell, age, market row, slack); index 0 is `steps` itself."""
    change, classes = problem.changeover, problem.ages.size
    rows, width = 2 * change + 3, problem.slack + 1
    value = np.full((2, classes, rows, width), NEVER)
    value[..., 0] = 0.0
    choices = np.zeros((min(keep, problem.steps), 2, classes, rows, width), np.int8)
    options = np.empty((3, 2, classes, rows, width))
    for steps in range(1, problem.steps + 1):
        mean = expected(value, problem.ends[steps], problem.ages)
        options[IDLE] = _later(mean[:, :, 0], change)[:, :, None]
        options[SPOT] = _spot(problem, mean, change, steps - 1)[:, :, None]
        options[ONDEMAND] = _ondemand(problem, mean, change)[:, :, None]
        for warming in range(change + 1):
            options[SPOT, :, :, row(change, SPOT, warming)] = _spot(problem, mean, warming, steps - 1)
            options[ONDEMAND, :, :, row(change, ONDEMAND, warming)] = _ondemand(problem, mean, warming)
        value = options.min(axis=0)
        np.minimum(value, NEVER, out=value)
        if steps < width:
            value[..., steps] = 0.0
            value[..., steps + 1 :] = NEVER
        place = problem.steps - steps
        if place < len(choices):
            # Ties go to on-demand, then spot: what makes progress.
            choices[place] = 2 - options[::-1].argmin(axis=0)
    return choices
