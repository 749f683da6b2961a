"""The least expected cost to the deadline under a law of availability: a dynamic programme. Pure.

The state is (steps to the deadline, slack, market and what is left of its changeover, regime, spell and its age). Slack
instead of work keeps the tables small, because it only falls. A choice after which on-demand could not meet the
deadline costs infinity, so every plan is inside the safety net.

The tables assume that the regime is known from the next step on; `costs` weighs them by the belief in each regime.
Only the next hours need fine steps: `values` solves the far future in coarse ones, `refine` interpolates its result,
and `tables` works backwards from there.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Table = NDArray[np.float32]
IDLE, SPOT, ONDEMAND = 0, 1, 2
HERE, AWAY = 0, 1
NEVER = np.float32(1e9)


class Programme(Struct, frozen=True, kw_only=True):
    """A problem in steps; its tables go by (regime, spell, age, market row, slack from `low` to `high`).

    `ends[n]`, `ages` and `switching` are probabilities per step, n steps before the deadline; prices are per step.
    """

    steps: int
    low: int
    high: int
    changeover: int
    spot_price: float
    ondemand_price: float
    ends: NDArray[np.float64]  # (steps + 1, regimes, 2, classes): a spell of this age ends within the step
    ages: NDArray[np.float64]  # (classes,): a spell that does not end moves on to the next age class
    switching: NDArray[np.float64]  # (regimes, regimes): from one regime to another
    replaced: float = 0.0  # spot that ends is replaced at once by spot in another zone: a new start, but no wait
    replaced_age: int = 0

    @property
    def begun(self) -> int:
        """Rows of one market. The first step of a changeover is paid before a table can meet the machine."""
        return max(1, self.changeover)

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        return (len(self.switching), 2, self.ages.size, 1 + 2 * self.begun, self.high - self.low + 1)

    def row(self, market: int, warming: int) -> int:
        """The row of a market in the tables: idle, then spot and on-demand by what is left of their changeover."""
        return 0 if market == IDLE else 1 + min(warming, self.begun - 1) + (market - 1) * self.begun

    def place(self, slack: int) -> int:
        """The index of a slack in the tables, or of the least one above it."""
        return max(0, slack - self.low)

    def price(self, market: int) -> float:
        return (0.0, self.spot_price, self.ondemand_price)[market]


def _moves(problem: Programme) -> NDArray[np.float64]:
    moves = problem.ages.copy()
    moves[-1] = 0.0  # the oldest class has no older one
    return moves


def _expect(problem: Programme, steps: int, value: Table, mean: Table) -> None:
    """Write the mean of the next step's value into `mean`: the regime may switch, the spell end or grow older."""
    ends, moves = problem.ends[steps], _moves(problem)
    stays = ((1.0 - ends) * (1.0 - moves)).astype(np.float32)[..., None, None]
    older = ((1.0 - ends) * moves).astype(np.float32)[:, :, :-1, None, None]
    if len(value) > 1:
        switching = problem.switching.astype(np.float32)
        value = (switching @ value.reshape(len(value), -1)).reshape(value.shape)
    np.multiply(value, stays, out=mean)
    mean[:, :, :-1] += older * value[:, :, 1:]
    ended = ends.astype(np.float32)[..., None, None]
    if not problem.replaced:
        mean += ended * value[:, ::-1, :1]
        return
    replacement = value[:, HERE, problem.replaced_age].copy()
    replacement[:, 1 : 1 + problem.begun] = replacement[:, :1]  # the old machine is lost
    lost_value = np.float32(1.0 - problem.replaced) * value[:, AWAY, 0] + np.float32(problem.replaced) * replacement
    mean[:, HERE] += ended[:, HERE] * lost_value[:, None]
    mean[:, AWAY] += ended[:, AWAY] * value[:, HERE, :1]


def _go_on(problem: Programme, mean: Table, market: int, left_one: int) -> Table:
    """The cost of a step with the present machine, by what is left of its changeover."""
    change, first = problem.changeover, problem.row(market, 0)
    price = np.float32(problem.price(market))
    option = np.full((*mean.shape[:3], problem.begun, mean.shape[4]), NEVER, np.float32)
    # Spot must keep the slack of a whole changeover to on-demand; on-demand only what is left of its own.
    room = problem.place(change) if market == SPOT else 0
    option[..., 0, room:] = mean[..., first, room:] + price
    if problem.low <= left_one <= problem.high:
        option[..., 0, left_one - problem.low] = price
    for warming in range(1, change):
        least = problem.place(change if market == SPOT else warming - 1)
        option[..., warming, least + 1 :] = mean[..., first + warming - 1, least:-1] + price
    if market == SPOT:
        option[:, AWAY] = NEVER
    return option


def _start(problem: Programme, mean: Table, market: int, go_on: Table) -> Table:
    """The cost of a step that starts a machine."""
    change = problem.changeover
    if change == 0:
        return go_on[..., 0, :]
    option = np.full((*mean.shape[:3], mean.shape[4]), NEVER, np.float32)
    least = problem.place(change if market == SPOT else change - 1)
    option[..., least + 1 :] = mean[..., problem.row(market, change - 1), least:-1] + np.float32(problem.price(market))
    if market == SPOT:
        option[:, AWAY] = NEVER
    return option


def _step(problem: Programme, steps: int, value: Table, mean: Table) -> None:
    """Turn the value of `steps - 1` before the deadline into that of `steps`."""
    _expect(problem, steps, value, mean)
    least, begun = problem.place(problem.changeover), problem.begun
    idle = np.full((*mean.shape[:3], mean.shape[4]), NEVER, np.float32)
    idle[..., least + 1 :] = mean[..., 0, least:-1]
    on_spot, on_demand = (_go_on(problem, mean, market, steps - 1) for market in (SPOT, ONDEMAND))
    to_spot = np.minimum(idle, _start(problem, mean, SPOT, on_spot))
    to_demand = np.minimum(idle, _start(problem, mean, ONDEMAND, on_demand))
    np.minimum(to_spot, to_demand, out=value[..., 0, :])
    np.minimum(on_spot, to_demand[..., None, :], out=value[..., 1 : 1 + begun, :])
    np.minimum(on_demand, to_spot[..., None, :], out=value[..., 1 + begun :, :])
    np.minimum(value, NEVER, out=value)
    if steps <= problem.high:
        value[..., problem.place(steps) :] = NEVER
        if steps >= problem.low:
            value[..., steps - problem.low] = 0.0  # as much slack as time: all done


def at_deadline(problem: Programme) -> Table:
    """The values at the deadline: 0 where the work is done, which is at slack 0."""
    value = np.full(problem.shape, NEVER, np.float32)
    if problem.low == 0:
        value[..., 0] = 0.0
    return value


def values(problem: Programme) -> Table:
    """The least expected cost from `problem.steps` before the deadline on."""
    value = at_deadline(problem)
    mean = np.empty_like(value)
    for steps in range(1, problem.steps + 1):
        _step(problem, steps, value, mean)
    return value


def tables(problem: Programme, value: Table, keep: int) -> Table:
    """The values after each of the first `keep` steps; `value` is the last of them."""
    found = np.empty((keep, *problem.shape), np.float32)
    found[-1] = value
    mean = np.empty_like(value)
    for place in range(keep - 2, -1, -1):
        found[place] = found[place + 1]
        _step(problem, problem.steps - place - 1, found[place], mean)
    return found


class Standing(Struct, frozen=True):
    """A state of the programme: steps before the deadline, slack, market, and kind and age class of the spell."""

    steps: int
    slack: int
    market: int
    warming: int
    spell: int
    age: int


def costs(
    problem: Programme, found: Table, at: Standing, belief: NDArray[np.float64]
) -> tuple[float, float, float]:  # fmt: skip
    """Expected costs of idling, spot and on-demand in the next step, with the best choices from there on."""
    after, moves = found[problem.steps - at.steps], _moves(problem)[at.age]
    ends = problem.ends[at.steps, :, at.spell, at.age]
    older = min(at.age + 1, problem.ages.size - 1)

    def ahead(row: int, slack: int) -> float:
        if not problem.low <= slack <= problem.high:
            return float(NEVER)
        value = problem.switching @ after[..., row, slack - problem.low].reshape(len(belief), -1)
        value = value.reshape(after.shape[:3])
        goes_on = (1.0 - moves) * value[:, at.spell, at.age] + moves * value[:, at.spell, older]
        lost_value = value[:, 1 - at.spell, 0]
        if at.spell == HERE and problem.replaced:
            lost = 0 if 1 <= row <= problem.begun else row
            replacement = problem.switching @ after[:, HERE, problem.replaced_age, lost, slack - problem.low]
            lost_value = (1.0 - problem.replaced) * lost_value + problem.replaced * replacement
        return float(belief @ ((1.0 - ends) * goes_on + ends * lost_value))

    def cost(market: int) -> float:
        if market == IDLE:
            return ahead(0, at.slack - 1)
        warming = at.warming if market == at.market else problem.changeover
        spent = 1 if warming else 0
        return problem.price(market) + ahead(problem.row(market, max(0, warming - 1)), at.slack - spent)

    return cost(IDLE), cost(SPOT) if at.spell == HERE else float(NEVER), cost(ONDEMAND)


def refine(coarse: Programme, value: Table, fine: Programme, factor: int, steps: int) -> Table:
    """A coarse table at fine slacks and changeovers, `steps` fine steps before the deadline; a coarse step is `factor`.

    What is left of a changeover beyond whole coarse steps is paid and taken off the slack.
    """
    slacks = np.arange(fine.low, fine.high + 1)
    table = np.full(fine.shape, NEVER, np.float32)
    for market in (IDLE, SPOT, ONDEMAND):
        for warming in range(1 if market == IDLE else fine.begun):
            rest = warming % factor
            source = value[..., coarse.row(market, warming // factor), :]
            spread = np.clip((slacks - rest) / factor, 0.0, source.shape[-1] - 1.0)
            below = np.floor(spread).astype(int)
            above = np.minimum(below + 1, source.shape[-1] - 1)
            part = (spread - below).astype(np.float32)
            mixed = (1 - part) * source[..., below] + part * source[..., above]
            mixed += np.float32(rest * fine.price(market))
            # On-demand to the end is always open where there is room for its changeover; coarse steps may miss that.
            needs = warming if market == ONDEMAND else fine.changeover
            rescue = (steps - slacks + needs) * fine.ondemand_price
            table[..., fine.row(market, warming), :] = np.where(slacks >= needs, np.minimum(mixed, rescue), NEVER)
    done = steps - fine.low
    if done <= fine.high - fine.low:
        table[..., max(0, done) :] = NEVER
        if done >= 0:
            table[..., done] = 0.0
    return table


def coarse_slack(high: int, factor: int) -> int:
    """The slack that a coarse table must reach to contain a fine one."""
    return math.ceil(high / factor) + 1
