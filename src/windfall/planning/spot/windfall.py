"""Windfall's own planner for spot and on-demand on one machine: learn the law of availability and plan by it. Pure.

Every `REPLAN_H` hours `programme` is solved under the law that `law` has learned; in between, each choice weighs its
tables by the present belief. `guarded` makes every choice safe.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from msgspec import Struct

from windfall.planning.counts import AGES_H
from windfall.planning.spot.law import LEARNING, PRIOR, Learning, Prior, Watcher
from windfall.planning.spot.market import (
    Greedy,
    Market,
    OnDemand,
    Planner,
    State,
    Terms,
    UniformProgress,
    guarded,
    slack,
)
from windfall.planning.spot.programme import (
    IDLE,
    ONDEMAND,
    SPOT,
    Programme,
    Standing,
    Table,
    at_deadline,
    coarse_slack,
    costs,
    refine,
    tables,
    values,
)

MARKETS = {Market.IDLE: IDLE, Market.SPOT: SPOT, Market.ONDEMAND: ONDEMAND}
CHOICES = {place: market for market, place in MARKETS.items()}

REPLAN_H = 4.0
MAX_CHANGEOVER_STEPS = 6
"""Fine steps in a changeover. With `MAX_CELLS` it keeps one plan at some tenths of a second."""
MAX_CELLS = 700_000
"""Cells of the coarse tables."""
REPLACED_AGE = 4
"""Age class of spot that replaces interrupted spot: it has usually been available for some time."""


class Grid(Struct, frozen=True):
    """Ticks of a fine step, and fine steps of a coarse one."""

    step: int
    factor: int


def grid_of(terms: Terms, tables: int = 1) -> Grid:
    """The finest grid whose tables fit: fine steps by the changeover, coarse ones by `MAX_CELLS`.

    `tables`: how many tables share `MAX_CELLS`.
    """
    step = max(1, math.ceil(terms.changeover_ticks / MAX_CHANGEOVER_STEPS))
    steps, slack_steps = terms.deadline_ticks / step, max(1, terms.deadline_ticks - terms.work_ticks) / step
    changeover = math.ceil(terms.changeover_ticks / step)

    def fits(factor: int) -> bool:
        rows = 2 * math.ceil(changeover / factor) + 1
        return steps / factor * (slack_steps / factor + 2) * rows * tables <= MAX_CELLS

    # A changeover must be a whole number of coarse steps, or the far future would overprice it.
    sizes = [max(1, math.ceil(changeover / parts)) for parts in (changeover or 1, 4, 2, 1)]
    factor = next((size for size in sizes if fits(size)), changeover + 1)
    while not fits(factor):
        factor += max(1, factor // 2)
    return Grid(step, factor)


class Plan(Struct, frozen=True):
    """A programme and the values after each of its first steps."""

    programme: Programme
    tables: Table


def make_plan(terms: Terms, grid: Grid, watcher: Watcher, steps: int, lows: int, high: int) -> Plan:
    """The plan for the next `REPLAN_H` hours under the present law: fine until then, coarse beyond.

    Its tables hold slacks from `lows` less what can be lost in these hours up to `high` steps.
    """
    factor = grid.factor
    step_h = grid.step * terms.tick_s / 3600.0
    far = max(0, steps - max(1, round(REPLAN_H / step_h))) // factor
    keep = steps - far * factor
    fine = _programme(terms, grid, watcher, steps, 1, low=max(0, lows - keep - 1), high=high, now=steps)
    if far == 0:
        return Plan(fine, tables(fine, at_deadline(fine), keep))
    coarse = _programme(terms, grid, watcher, far, factor, low=0, high=coarse_slack(high, factor), now=steps)
    tail = refine(coarse, values(coarse), fine, factor, far * factor)
    return Plan(fine, tables(fine, tail, keep))


def _programme(
    terms: Terms, grid: Grid, watcher: Watcher, steps: int, factor: int, *, low: int, high: int, now: int
) -> Programme:
    """The problem in steps of `factor` fine ones; `now` is the present in fine steps before the deadline."""
    step_h = factor * grid.step * terms.tick_s / 3600.0
    ahead_h = np.maximum(0.0, now / factor - np.arange(steps + 1, dtype=np.float64)) * step_h
    return Programme(
        steps=steps,
        low=low,
        high=high,
        changeover=math.ceil(terms.changeover_ticks / (factor * grid.step)),
        spot_price=factor * terms.spot_usd,
        ondemand_price=factor * terms.ondemand_usd,
        ends=1.0 - np.exp(-watcher.rates(ahead_h) * step_h),
        ages=np.minimum(1.0, step_h / np.diff(np.array([*AGES_H, math.inf]))),
        switching=watcher.learning.switching(step_h),
        replaced=watcher.replacement(),
        replaced_age=REPLACED_AGE,
    )


def standing(terms: Terms, grid: Grid, watcher: Watcher, state: State, steps: int) -> Standing:
    """The state of the work as a state of the programme, in steps."""
    return Standing(
        steps=steps,
        slack=min(slack(terms, state) // grid.step, steps - 1),
        market=MARKETS[state.market],
        warming=math.ceil(state.warming / grid.step),
        spell=watcher.kind,
        age=watcher.age,
    )


def best(weighed: tuple[float, float, float]) -> Market:
    """The cheapest market; ties go to on-demand, then spot, which make progress."""
    return CHOICES[min((ONDEMAND, SPOT, IDLE), key=lambda market: weighed[market])]


def steps_left(terms: Terms, grid: Grid, tick: int) -> int:
    return max(1, round((terms.deadline_ticks - tick) / grid.step))


class Windfall:
    """Learns, plans and replans; deterministic."""

    def __init__(self, terms: Terms, prior: Prior = PRIOR, learning: Learning = LEARNING) -> None:
        self.terms = terms
        self.watcher = Watcher(terms.tick_s, prior, learning)
        self.grid = grid_of(terms)
        self.plan: Plan | None = None

    def observe(self, available: bool) -> None:
        self.watcher.observe(available)

    def choose(self, state: State) -> Market:
        if slack(self.terms, state) < 0:
            return Market.ONDEMAND
        steps = steps_left(self.terms, self.grid, state.tick)
        if self.plan is None or self.plan.programme.steps - steps >= len(self.plan.tables):
            room = slack(self.terms, state) // self.grid.step
            self.plan = make_plan(self.terms, self.grid, self.watcher, steps, room, room)
        at = standing(self.terms, self.grid, self.watcher, state, steps)
        wish = best(costs(self.plan.programme, self.plan.tables, at, self.watcher.belief))
        return guarded(self.terms, state, self.watcher.available, wish)


PLANNERS: dict[str, Callable[[Terms], Planner]] = {
    "windfall": Windfall,
    "uniform-progress": UniformProgress,
    "greedy": Greedy,
    "ondemand": OnDemand,
}
