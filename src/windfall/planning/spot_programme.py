"""The cheapest way to the deadline under a law of availability: a dynamic programme. Pure: rates in, choices out.

The state is (steps to the deadline, slack, market and what is left of its changeover, spell and its age). Slack instead
of work keeps the tables small: it only falls. Choices after which on-demand could not make the deadline cost infinity,
so the plan lives inside the safety net instead of being cut off by it.

Only the next hours are worth fine steps. `values` solves the far future in coarse ones, `refine` carries its result
over, and `choices` works back from there.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Table = NDArray[np.float32]
IDLE, SPOT, ONDEMAND = 0, 1, 2
HERE = 0
NEVER = np.float32(1e9)


class Programme(Struct, frozen=True, kw_only=True):
    """A problem in steps; its tables go by (spell, age, market row, slack from `low` to `high`).

    `ends[n]` and `ages` are probabilities per step, n steps before the deadline; prices are per step.
    """

    steps: int
    low: int
    high: int
    changeover: int
    spot_price: float
    ondemand_price: float
    ends: NDArray[np.float64]  # (steps + 1, 2, classes): a spell of this age ends within the step
    ages: NDArray[np.float64]  # (classes,): a spell that does not end moves on to the next age class

    @property
    def begun(self) -> int:
        """Rows of one market. The first step of a changeover is paid before a table can meet the machine."""
        return max(1, self.changeover)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (2, self.ages.size, 1 + 2 * self.begun, self.high - self.low + 1)

    def row(self, market: int, warming: int) -> int:
        """The place of a market in the tables: idle, spot by the rest of its changeover, on-demand likewise."""
        return 0 if market == IDLE else 1 + min(warming, self.begun - 1) + (market - 1) * self.begun

    def place(self, slack: int) -> int:
        """The place of a slack in the tables, or of the least one above it."""
        return max(0, slack - self.low)


def _expect(problem: Programme, steps: int, value: Table, mean: Table) -> None:
    """Write the mean of the next step's value into `mean`."""
    ends = problem.ends[steps]
    moves = problem.ages.copy()
    moves[-1] = 0.0  # the oldest class has no older one
    stays = ((1.0 - ends) * (1.0 - moves)).astype(np.float32)[:, :, None, None]
    older = ((1.0 - ends) * moves).astype(np.float32)[:, :-1, None, None]
    np.multiply(value, stays, out=mean)
    mean[:, :-1] += older * value[:, 1:]
    mean += ends.astype(np.float32)[:, :, None, None] * value[::-1, :1]


def _idle(problem: Programme, mean: Table, option: Table) -> None:
    least = problem.place(problem.changeover)
    option[...] = NEVER
    option[..., least + 1 :] = mean[:, :, :1, least:-1]


def _market(problem: Programme, mean: Table, option: Table, market: int, left_one: int) -> None:
    """Write the cost of a step in one market: go on with its machine, or start one from the other rows."""
    change, first = problem.changeover, problem.row(market, 0)
    price = np.float32(problem.spot_price if market == SPOT else problem.ondemand_price)
    spells = slice(HERE, HERE + 1) if market == SPOT else slice(0, 2)
    option[...] = NEVER
    # Spot must leave room for a rescue by on-demand with its changeover; on-demand only for what is left of its own.
    room = problem.place(change) if market == SPOT else 0
    option[spells, :, first, room:] = price + mean[spells, :, first, room:]
    if problem.low <= left_one <= problem.high:
        option[spells, :, first, left_one - problem.low] = price
    for warming in range(1, change):
        least = problem.place(change if market == SPOT else warming - 1)
        option[spells, :, first + warming, least + 1 :] = price + mean[spells, :, first + warming - 1, least:-1]
    others = [row for row in range(option.shape[2]) if not first <= row < first + problem.begun]
    least = problem.place(change if market == SPOT else change - 1)
    fresh = price + mean[spells, :, first + change - 1, least:-1] if change else None
    for row in others:
        if fresh is None:
            option[spells, :, row] = option[spells, :, first]
        else:
            option[spells, :, row, least + 1 :] = fresh


def _back(problem: Programme, value: Table, first: int, choices: NDArray[np.int8] | None) -> Table:
    """Work back from `value`, which holds `first - 1` steps before the deadline, to `problem.steps`."""
    value, mean, options = value.copy(), np.empty_like(value), np.empty((3, *value.shape), np.float32)
    for steps in range(first, problem.steps + 1):
        _expect(problem, steps, value, mean)
        _idle(problem, mean, options[IDLE])
        _market(problem, mean, options[SPOT], SPOT, steps - 1)
        _market(problem, mean, options[ONDEMAND], ONDEMAND, steps - 1)
        np.minimum(options[IDLE], options[SPOT], out=value)
        np.minimum(value, options[ONDEMAND], out=value)
        np.minimum(value, NEVER, out=value)
        if steps <= problem.high:
            value[..., problem.place(steps) :] = NEVER
            if steps >= problem.low:
                value[..., steps - problem.low] = 0.0  # as much slack as time: all done
        if choices is not None:
            # Ties go to on-demand, then spot: to what makes progress.
            choices[problem.steps - steps] = 2 - options[::-1].argmin(axis=0)
    return value


def at_deadline(problem: Programme) -> Table:
    """The value when the time is over: nothing where the work is done, which is where no slack is left over."""
    value = np.full(problem.shape, NEVER, np.float32)
    if problem.low == 0:
        value[..., 0] = 0.0
    return value


def values(problem: Programme) -> Table:
    """The cost of going on as well as possible, `problem.steps` before the deadline."""
    return _back(problem, at_deadline(problem), 1, None)


def choices(problem: Programme, value: Table, keep: int) -> NDArray[np.int8]:
    """The best choice in each of the first `keep` steps, by (step from now, spell, age, market row, slack)."""
    found = np.zeros((keep, *problem.shape), np.int8)
    _back(problem, value, problem.steps - keep + 1, found)
    return found


def refine(coarse: Programme, value: Table, fine: Programme, factor: int, steps: int) -> Table:
    """A coarse table at fine slacks and changeovers, `steps` fine steps before the deadline; a coarse step is `factor`.

    What is left of a changeover beyond whole coarse steps is paid and taken off the slack.
    """
    slacks = np.arange(fine.low, fine.high + 1)
    table = np.full(fine.shape, NEVER, np.float32)
    for market, price in ((IDLE, 0.0), (SPOT, fine.spot_price), (ONDEMAND, fine.ondemand_price)):
        for warming in range(1 if market == IDLE else fine.begun):
            rest = warming % factor
            source = value[:, :, coarse.row(market, warming // factor)]
            spread = np.clip((slacks - rest) / factor, 0.0, source.shape[-1] - 1.0)
            below = np.floor(spread).astype(int)
            above = np.minimum(below + 1, source.shape[-1] - 1)
            part = (spread - below).astype(np.float32)
            mixed = (1 - part) * source[..., below] + part * source[..., above] + np.float32(rest * price)
            # On-demand to the end is always open where there is room for its changeover; coarse steps may miss that.
            needs = warming if market == ONDEMAND else fine.changeover
            rescue = (steps - slacks + needs) * fine.ondemand_price
            table[:, :, fine.row(market, warming)] = np.where(slacks >= needs, np.minimum(mixed, rescue), NEVER)
    done = steps - fine.low
    if done <= fine.high - fine.low:
        table[..., max(0, done) :] = NEVER
        if done >= 0:
            table[..., done] = 0.0
    return table


def coarse_slack(high: int, factor: int) -> int:
    """The slack that a coarse table must reach for a fine one to lie inside it."""
    return math.ceil(high / factor) + 1
