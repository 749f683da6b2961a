"""What a law of availability promises: how long spot lasts, how long one waits, how much of it a time holds. Pure.

For planners of bags: a task that needs `need_h` without a break can be weighed against on-demand by `spot_or_not`.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from windfall.planning.spot.law import AGES_H, AWAY, HERE, Watcher

STEP_H = 0.1
Array = NDArray[np.float64]


class Outlook(Struct, frozen=True):
    """Of the hours ahead, in steps of `STEP_H`: the chance that there is spot then, and that it never went from now on.

    `survives` is of the spot that is here, or of spot that has just come where there is none.
    """

    available: Array
    survives: Array

    def hours_of_spot(self, horizon_h: float) -> float:
        """Expected hours with spot within the horizon."""
        return float(self.available[: _steps(horizon_h)].sum() * STEP_H)

    def uninterrupted_h(self, need_h: float) -> float:
        """Expected hours of use until it goes or `need_h` are done."""
        return float(self.survives[: _steps(need_h)].sum() * STEP_H)

    def chance(self, need_h: float) -> float:
        """The chance that spot lasts `need_h` without a break."""
        return float(self.survives[min(_steps(need_h), self.survives.size - 1)])


def _steps(hours: float) -> int:
    return max(1, math.ceil(hours / STEP_H - 1e-9))


def outlook(watcher: Watcher, horizon_h: float) -> Outlook:
    """Carry the belief forward: the chance of each regime, kind of spell and age, step by step."""
    steps = _steps(horizon_h)
    rates = watcher.rates(np.arange(steps + 1, dtype=np.float64) * STEP_H)
    ends = 1.0 - np.exp(-rates * STEP_H)
    older = np.minimum(1.0, STEP_H / np.diff(np.array([*AGES_H, math.inf])))
    older[-1] = 0.0
    switching = watcher.learning.switching(STEP_H)
    now = np.zeros(rates.shape[1:])
    now[:, watcher.kind, watcher.age] = watcher.belief
    alone = np.zeros_like(now)
    alone[:, HERE, watcher.age if watcher.kind == HERE else 0] = watcher.belief
    available, survives = np.empty(steps + 1), np.empty(steps + 1)
    for step in range(steps + 1):
        available[step], survives[step] = now[:, HERE].sum(), alone.sum()
        now = switching.T @ _forward(now, ends[step], older, begins=True).reshape(len(now), -1)
        alone = switching.T @ _forward(alone, ends[step], older, begins=False).reshape(len(alone), -1)
        now, alone = now.reshape(rates.shape[1:]), alone.reshape(rates.shape[1:])
    return Outlook(available, survives)


def _forward(chance: Array, ends: Array, older: Array, *, begins: bool) -> Array:
    """One step: spells end, and others begin if asked for; the rest stay or grow older."""
    goes_on = chance * (1.0 - ends)
    after: Array = goes_on * (1.0 - older)
    after[..., 1:] += (goes_on * older)[..., :-1]
    if begins:
        ended = (chance * ends).sum(axis=-1)
        after[:, AWAY, 0] += ended[:, HERE]
        after[:, HERE, 0] += ended[:, AWAY]
    return after


def spot_or_not(found: Outlook, need_h: float, spot_usd: float, ondemand_usd: float) -> float:
    """USD that trying spot first saves on a task of `need_h` without checkpoints; negative where on-demand is cheaper.

    What was done is lost when spot goes; then the task is done on demand from its beginning.
    """
    used_h, lasts = found.uninterrupted_h(need_h), found.chance(need_h)
    return need_h * ondemand_usd - (used_h * spot_usd + (1.0 - lasts) * need_h * ondemand_usd)
