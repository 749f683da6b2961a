"""The cheapest way to the deadline under a law of availability: a dynamic programme. Pure: rates in, choices out.

The state is (steps to the deadline, slack, market and what is left of its changeover, spell and its age). Slack instead
of work keeps the tables small: it only falls. Choices after which on-demand could not make the deadline cost infinity,
so the plan lives inside the safety net instead of being cut off by it.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Table = NDArray[np.float32]
IDLE, SPOT, ONDEMAND = 0, 1, 2
HERE = 0
NEVER = np.float32(1e9)


class Programme(Struct, frozen=True, kw_only=True):
    """A problem in steps: `ends[n]` and `ages` are probabilities per step, n steps before the deadline."""

    steps: int
    slack: int
    changeover: int
    spot_price: float
    ondemand_price: float
    ends: NDArray[np.float64]  # (steps + 1, 2, classes): a spell of this age ends within the step
    ages: NDArray[np.float64]  # (classes,): a spell that does not end moves on to the next age class

    def row(self, market: int, warming: int) -> int:
        """The place of a market in the tables: idle, spot by the rest of its changeover, on-demand likewise.

        A machine has paid the first step of its changeover before it can be met in a table.
        """
        begun = max(1, self.changeover)
        return 0 if market == IDLE else 1 + min(warming, begun - 1) + (market - 1) * begun

    @property
    def rows(self) -> int:
        return 1 + 2 * max(1, self.changeover)


def _expect(problem: Programme, steps: int, value: Table, mean: Table) -> None:
    """Write the mean of the next step's value, by (spell, age, market, slack), into `mean`."""
    ends = problem.ends[steps]
    moves = problem.ages.copy()
    moves[-1] = 0.0  # the oldest class has no older one
    stays = ((1.0 - ends) * (1.0 - moves)).astype(np.float32)[:, :, None, None]
    older = ((1.0 - ends) * moves).astype(np.float32)[:, :-1, None, None]
    np.multiply(value, stays, out=mean)
    mean[:, :-1] += older * value[:, 1:]
    mean += ends.astype(np.float32)[:, :, None, None] * value[::-1, :1]


def _idle(problem: Programme, mean: Table, option: Table) -> None:
    least = problem.changeover
    option[...] = NEVER
    option[..., least + 1 :] = mean[:, :, :1, least:-1]


def _market(problem: Programme, mean: Table, option: Table, market: int, left_one: int) -> None:
    """Write the cost of a step in one market: go on with its machine, or start one from the other rows."""
    change = problem.changeover
    price = np.float32(problem.spot_price if market == SPOT else problem.ondemand_price)
    first, spells = problem.row(market, 0), slice(HERE, HERE + 1) if market == SPOT else slice(0, 2)
    option[...] = NEVER
    # Spot must leave room for a rescue by on-demand with its changeover; on-demand only for what is left of its own.
    room = change if market == SPOT else 0
    done = price + mean[spells, :, first, room:]
    option[spells, :, first, room:] = done
    if left_one < option.shape[-1]:
        option[spells, :, first, left_one] = price
    for warming in range(1, change):
        least = change if market == SPOT else warming - 1
        option[spells, :, first + warming, least + 1 :] = price + mean[spells, :, first + warming - 1, least:-1]
    others = [row for row in range(problem.rows) if not first <= row < first + max(1, change)]
    if change == 0:
        option[spells, :, others] = option[spells, :, [first]]
        return
    least = change if market == SPOT else change - 1
    fresh = price + mean[spells, :, first + change - 1, least:-1]
    for row in others:
        option[spells, :, row, least + 1 :] = fresh


def solve(problem: Programme, keep: int) -> NDArray[np.int8]:
    """The best choices for the first `keep` steps, by (step from now, spell, age, market row, slack)."""
    shape = (2, problem.ages.size, problem.rows, problem.slack + 1)
    value = np.full(shape, NEVER, np.float32)
    value[..., 0] = 0.0
    mean, options = np.empty_like(value), np.empty((3, *shape), np.float32)
    keep = min(keep, problem.steps)
    choices = np.zeros((keep, *shape), np.int8)
    for steps in range(1, problem.steps + 1):
        _expect(problem, steps, value, mean)
        _idle(problem, mean, options[IDLE])
        _market(problem, mean, options[SPOT], SPOT, steps - 1)
        _market(problem, mean, options[ONDEMAND], ONDEMAND, steps - 1)
        np.minimum(options[IDLE], options[SPOT], out=value)
        np.minimum(value, options[ONDEMAND], out=value)
        np.minimum(value, NEVER, out=value)
        if steps <= problem.slack:
            value[..., steps] = 0.0  # all done
            value[..., steps + 1 :] = NEVER
        if problem.steps - steps < keep:
            # Ties go to on-demand, then spot: to what makes progress.
            choices[problem.steps - steps] = 2 - options[::-1].argmin(axis=0)
    return choices
