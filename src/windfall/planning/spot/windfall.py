"""Windfall's own planner for spot and on-demand on one machine: learn the law of availability and plan by it. Pure.

`programme` is solved under the law of the present `Sight`; each choice weighs its tables by the belief in each regime.
`guarded` makes every choice safe. `choose` is a function of what it is given: the laboratory calls it tick by tick, the
live planner of bags calls it for every task that has a machine of its own (`planning.bags.serial`).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from windfall.planning.counts import AGES_H, DAY_H, HERE, CountSettings, SpellCounts, launched, refused, was_up
from windfall.planning.spot.law import LEARNING, PRIOR, Array, AvailabilityLaw, Learning, Prior, rates
from windfall.planning.spot.market import (
    Greedy,
    Market,
    OnDemand,
    Planner,
    State,
    Terms,
    UniformProgress,
    guarded,
    rescue_ticks,
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
from windfall.planning.spot.sight import Sight, Watcher, sight_of

MARKETS = {Market.IDLE: IDLE, Market.SPOT: SPOT, Market.ONDEMAND: ONDEMAND}
CHOICES = {place: market for market, place in MARKETS.items()}

REPLAN_H = 4.0
MAX_CHANGEOVER_STEPS = 6
"""Fine steps in a changeover. With `MAX_CELLS` it keeps one plan at some tenths of a second."""
MAX_CELLS = 700_000
"""Cells of the coarse tables."""
KEPT_BYTES = 96_000_000
"""Size of the plans that are kept in memory."""
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


class Forecast(Protocol):
    """Rates of the hours ahead, under a law that has been learned."""

    @property
    def learning(self) -> Learning: ...

    def rates(self, ahead_h: Array) -> Array: ...

    def replacement(self) -> float: ...


def make_plan(terms: Terms, grid: Grid, watcher: Forecast, steps: int, lows: int, high: int) -> Plan:
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
    terms: Terms, grid: Grid, watcher: Forecast, steps: int, factor: int, *, low: int, high: int, now: int
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


def standing(terms: Terms, grid: Grid, sight: Sight, state: State, steps: int) -> Standing:
    """The state of the work as a state of the programme, in steps."""
    return Standing(
        steps=steps,
        slack=min(slack(terms, state) // grid.step, steps - 1),
        market=MARKETS[state.market],
        warming=math.ceil(state.warming / grid.step),
        spell=sight.kind,
        age=sight.age_class(terms.tick_s),
    )


def best(weighed: tuple[float, float, float]) -> Market:
    """The cheapest market; ties go to on-demand, then spot, which make progress."""
    return CHOICES[min((ONDEMAND, SPOT, IDLE), key=lambda market: weighed[market])]


def steps_left(terms: Terms, grid: Grid, tick: int) -> int:
    return max(1, round((terms.deadline_ticks - tick) / grid.step))


class _Known(Struct, frozen=True):
    """A law whose hours count from `hour`, as a key of plans that have been made."""

    by_age: tuple[tuple[float, ...], ...]
    by_hour: tuple[tuple[float, ...], ...]
    learning: Learning
    hour: int
    replaced: float

    def rates(self, ahead_h: Array) -> Array:
        law = AvailabilityLaw(np.array(self.by_age), np.array(self.by_hour), np.ones(2))
        return rates(law, self.learning, (self.hour + ahead_h).astype(int) % DAY_H)

    def replacement(self) -> float:
        return self.replaced


class _Plans:
    """The plans that were made last; together they are at most `KEPT_BYTES` large, or only one is kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Terms, Grid, _Known, int, int, int], Plan] = OrderedDict()

    def made(self, terms: Terms, grid: Grid, known: _Known, steps: int, lows: int, high: int) -> Plan:
        # How much work there is and when it is due do not matter for the tables: tasks of different length share them.
        terms = replace(terms, work_ticks=0, deadline_ticks=0)
        key = terms, grid, known, steps, lows, high
        if key not in self._kept:
            self._kept[key] = make_plan(terms, grid, known, steps, lows, high)
            while len(self._kept) > 1 and sum(plan.tables.nbytes for plan in self._kept.values()) > KEPT_BYTES:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]


_PLANS = _Plans()


def plan_at(terms: Terms, grid: Grid, sight: Sight, state: State, t: float) -> Plan:
    """The plan for the hours around this moment. Their bounds do not depend on it, so that plans are made seldom."""
    step_h = grid.step * terms.tick_s / 3600.0
    span = max(1, round(REPLAN_H / step_h))
    most = steps_left(terms, grid, 0)
    first = min(most, math.ceil(steps_left(terms, grid, state.tick) / span) * span)
    low = slack(terms, state) // grid.step // span * span
    deadline_h = (t + (terms.deadline_ticks - state.tick) * terms.tick_s) / 3600.0
    hour = math.floor(round(deadline_h - first * step_h, 6)) % DAY_H
    by_age, by_hour = sight.law.by_age.tolist(), sight.law.by_hour.tolist()
    known = _Known(tuple(map(tuple, by_age)), tuple(map(tuple, by_hour)), sight.learning, hour, sight.replaced)
    return _PLANS.made(terms, grid, known, first, low, min(most, low + span))


def choose(terms: Terms, sight: Sight, state: State, t: float) -> Market:
    """The market for the next tick, which begins at t; never spot where the sight says that there is none."""
    if slack(terms, state) < 0:
        return Market.ONDEMAND
    return guarded(terms, state, sight.kind == HERE, best(_weighed(terms, sight, state, t)))


def expected_usd(terms: Terms, sight: Sight, state: State, t: float) -> float:
    """Expected dollars from now on with the best choices; on demand to the end if there is no time for a choice."""
    hours = terms.tick_s / 3600.0
    ondemand_usd = (state.left + rescue_ticks(terms, state)) * terms.ondemand_usd * hours
    if slack(terms, state) < 0:
        return ondemand_usd
    return min(ondemand_usd, min(_weighed(terms, sight, state, t)) * grid_of(terms).step * hours)


def _weighed(terms: Terms, sight: Sight, state: State, t: float) -> tuple[float, float, float]:
    """The expected cost of each choice, in prices of a step."""
    grid = grid_of(terms)
    plan = plan_at(terms, grid, sight, state, t)
    at = standing(terms, grid, sight, state, steps_left(terms, grid, state.tick))
    return costs(plan.programme, plan.tables, at, sight.belief)


class Windfall:
    """Counts every tick that it sees, and chooses by what the counts say; deterministic."""

    def __init__(self, terms: Terms, prior: Prior = PRIOR, learning: Learning = LEARNING) -> None:
        self.terms, self.watcher = terms, Watcher(terms.tick_s, prior, learning)

    def observe(self, available: bool) -> None:
        self.watcher.observe(available)

    def choose(self, state: State) -> Market:
        return choose(self.terms, self.watcher.sight(), state, self.watcher.t)


def choose_unseen(choose_if: Callable[[bool], Market], *, was_absent: bool) -> Market:
    """The choice where capacity is seen only by asking for it: `choose_if` chooses with capacity and without.

    Spot means to ask for it, and to choose again without it if it is refused.
    """
    choice = choose_if(True)
    return choice if choice is Market.SPOT or not was_absent else choose_if(False)


class WindfallByAsking:
    """The same planner where capacity is seen as live: on a machine that is held, and by asking for one.

    Ticks before the first choice are a published series. `boot_s`: the part of a changeover before a machine is up.
    """

    def __init__(
        self, terms: Terms, prior: Prior = PRIOR, learning: Learning = LEARNING, boot_s: float | None = None
    ) -> None:
        self.terms, self.prior = terms, prior
        self.boot_s = terms.changeover_ticks * terms.tick_s if boot_s is None else boot_s
        self.past, self.imported = Watcher(terms.tick_s, prior, learning), SpellCounts()
        self.counts, self.rules = SpellCounts(), CountSettings()
        self.available = self.has_begun = False
        self.tick, self.ordered_t = -1, -math.inf
        """When the machine that is held was ordered; minus infinity: none is held."""

    def observe(self, available: bool) -> None:
        if not self.has_begun and self.tick >= 0:
            self.past.observe(self.available)
        self.tick, self.available = self.tick + 1, available

    def choose(self, state: State) -> Market:
        if not self.has_begun:
            self.has_begun, self.tick, self.imported = True, 0, self.past.as_past()
        t = self.tick * self.terms.tick_s
        if self.ordered_t > -math.inf and not self.available:
            was_up(self.counts, self._up_since_t(t), t, True, self.rules)
            self.ordered_t = -math.inf
        if self.ordered_t > -math.inf:
            choice = self._choose_if(state, t, True)
        else:
            choice = choose_unseen(
                lambda is_here: self._choose_if(state, t, is_here), was_absent=self.counts.away_t is not None
            )
            if choice is Market.SPOT and not self.available:
                refused(self.counts, t)
                choice = self._choose_if(state, t, False)
        self._take(choice, t)
        return choice

    def _choose_if(self, state: State, t: float, is_here: bool) -> Market:
        up = [self._up_since_t(t)] if self.ordered_t > -math.inf else []
        sight = sight_of(
            self.counts, t, up_since_t=up, is_here=is_here, imported=self.imported, prior=self.prior,
            learning=self.past.learning, looks_every_s=self.terms.tick_s,
        )  # fmt: skip
        return choose(self.terms, sight, state, t)

    def _up_since_t(self, t: float) -> float:
        """Since when the machine is up: before its boot is over, since it was ordered."""
        ready_t = self.ordered_t + self.boot_s
        return ready_t if ready_t <= t else self.ordered_t

    def _take(self, choice: Market, t: float) -> None:
        if choice is Market.SPOT and self.ordered_t == -math.inf:
            launched(self.counts, t, self.rules)
            self.ordered_t = t
        elif choice is not Market.SPOT and self.ordered_t > -math.inf:
            was_up(self.counts, self._up_since_t(t), t, False, self.rules)
            self.ordered_t = -math.inf


PLANNERS: dict[str, Callable[[Terms], Planner]] = {
    "windfall": Windfall,
    "uniform-progress": UniformProgress,
    "greedy": Greedy,
    "ondemand": OnDemand,
}
