"""Windfall's own planner for spot and on-demand: learn the law of availability, plan by it, plan again. Pure.

Every few hours the programme of `spot_programme` is solved under the law of `spot_law` as it is known by then; in
between, the choice for each tick is looked up. `guarded` has the last word.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from windfall.planning.spot import Greedy, Market, OnDemand, Planner, State, Terms, UniformProgress, guarded, slack
from windfall.planning.spot_law import AGES_H, Learning, Memory, Prior, age_class, rates, remember
from windfall.planning.spot_programme import IDLE, ONDEMAND, SPOT, Programme, solve

MARKETS = {Market.IDLE: IDLE, Market.SPOT: SPOT, Market.ONDEMAND: ONDEMAND}
CHOICES = {place: market for market, place in MARKETS.items()}

# Fitted by `spot_law.fit_prior` to 17 public series of GPU and CPU machines on two clouds, 2022 and 2023.
PRIOR = Prior(
    here=(1.844, 1.3562, 0.9668, 0.7113, 0.4254, 0.3009, 0.1852, 0.1502, 0.0955, 0.0868, 0.0353),
    away=(2.3137, 1.6966, 1.1804, 0.8143, 0.5037, 0.4337, 0.248, 0.1391, 0.1189, 0.1188, 0.0459),
)
LEARNING = Learning(prior_weight=5.0, series_weight=3.0, recent_weight=2.0, recent_half_life_h=8.0, recent_fades_h=8.0)
REPLAN_H = 3.0
# Cells of one programme; what they cost is a tenth of a second or so, and a deadline of days needs a few dozen of them.
MOST_CELLS = 1_000_000


def step_ticks(terms: Terms) -> int:
    """Ticks of one planning step: a fraction of the changeover, as small as the size of the programme allows."""
    change = terms.changeover_ticks
    for parts in (4, 3, 2, 1):
        step = max(1, round(change / parts))
        rows = 2 * math.ceil(change / step) + 1
        if terms.deadline_ticks / step * (terms.deadline_ticks - terms.work_ticks) / step * rows <= MOST_CELLS:
            return step
    return max(1, change)


class Plan(Struct, frozen=True):
    """A programme and its choices for the first steps."""

    programme: Programme
    choices: NDArray[np.int8]


class Windfall:
    """Learns, plans and replans; deterministic."""

    def __init__(self, terms: Terms, prior: Prior = PRIOR, learning: Learning = LEARNING) -> None:
        self.terms, self.prior, self.learning = terms, prior, learning
        self.memory = Memory()
        self.step = step_ticks(terms)
        self.plan: Plan | None = None

    def observe(self, available: bool) -> None:
        remember(self.memory, available, self.terms.tick_s, self.learning.recent_half_life_h)

    def choose(self, state: State) -> Market:
        if slack(self.terms, state) <= 0:
            return Market.ONDEMAND
        steps = max(1, round((self.terms.deadline_ticks - state.tick) / self.step))
        if self.plan is None or self.plan.programme.steps - steps >= len(self.plan.choices):
            self.plan = self._make_plan(state, steps)
        wish = self._look_up(self.plan, state, steps)
        return guarded(self.terms, state, bool(self.memory.available), wish)

    def _make_plan(self, state: State, steps: int) -> Plan:
        """The plan for the next hours under what is known now."""
        step_h = self.step * self.terms.tick_s / 3600.0
        ahead_h = np.arange(steps, -1, -1, dtype=np.float64) * step_h
        law = rates(self.memory, self.prior, self.learning, ahead_h)
        widths_h = np.diff(np.array([*AGES_H, math.inf]))
        programme = Programme(
            steps=steps,
            slack=slack(self.terms, state) // self.step,
            changeover=math.ceil(self.terms.changeover_ticks / self.step),
            spot_price=self.terms.spot_usd,
            ondemand_price=self.terms.ondemand_usd,
            ends=1.0 - np.exp(-law * step_h),
            ages=np.minimum(1.0, step_h / widths_h),
        )
        return Plan(programme, solve(programme, keep=max(1, round(REPLAN_H / step_h))))

    def _look_up(self, plan: Plan, state: State, steps: int) -> Market:
        programme, spell = plan.programme, 0 if self.memory.available else 1
        row = programme.row(MARKETS[state.market], math.ceil(state.warming / self.step))
        room = min(slack(self.terms, state) // self.step, steps - 1)
        age = age_class(self.memory.age_ticks, self.terms.tick_s)
        return CHOICES[int(plan.choices[programme.steps - steps, spell, age, row, room])]


PLANNERS: dict[str, Callable[[Terms], Planner]] = {
    "windfall": Windfall,
    "uniform-progress": UniformProgress,
    "greedy": Greedy,
    "ondemand": OnDemand,
}
