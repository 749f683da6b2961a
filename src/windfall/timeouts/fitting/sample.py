"""Observed latencies, some of them censored, and estimates that assume no law. Pure.

A job that still waits, or that was killed while waiting, is a right-censored observation: its latency is at least the
time waited. Leaving it out would bias every estimate towards the fast hosts.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike
from scipy import special

from windfall.errors import BadInput
from windfall.timeouts.arrays import Array, as_array
from windfall.timeouts.laws.steps import Steps, kaplan_meier

# Above this many values, times are rounded to 1 part in 1,024 before sorting: 10 mantissa bits of a double.
COMPRESS_ABOVE = 200_000
_DROPPED_BITS = 42


class Sample(Struct, frozen=True):
    """Distinct times in order, with how many attempts came back and how many were cut short at each."""

    times: Array
    events: Array
    censored: Array

    @property
    def count(self) -> int:
        return int(self.events.sum() + self.censored.sum())

    @property
    def came_back(self) -> int:
        return int(self.events.sum())

    @property
    def cut_short(self) -> int:
        return int(self.censored.sum())

    def mean(self) -> float:
        """Mean of those that came back."""
        return float((self.times * self.events).sum() / self.events.sum())

    def deviation(self) -> float:
        return math.sqrt(float((self.events * (self.times - self.mean()) ** 2).sum() / self.events.sum()))


def make_sample(values: ArrayLike, censored: ArrayLike | None = None, outlier_after_s: float | None = None) -> Sample:
    """Check and sort observations. Latencies above `outlier_after_s` are censored there."""
    values = as_array(values).ravel()
    cut = np.zeros(len(values), dtype=bool) if censored is None else np.asarray(censored, dtype=bool).ravel()
    _check(values, cut)
    if outlier_after_s is not None:
        if not outlier_after_s > 0:
            raise BadInput(f"the time after which a job counts as an outlier must be above 0, not {outlier_after_s:g}")
        late = values > outlier_after_s
        values, cut = np.where(late, outlier_after_s, values), cut | late
    if cut.all():
        raise BadInput(
            f"all {len(values)} observations are censored: nothing came back, so how long it takes is unknown",
            hint="wait until some jobs have come back",
        )
    sample = _gather(values, cut)
    if sample.came_back < 2:
        raise BadInput(
            f"{sample.came_back} completed observation{'s' if sample.came_back != 1 else ''} cannot show a law",
            hint="at least 2 are needed, and a timeout from fewer than 30 is a guess",
        )
    return sample


def _check(values: Array, cut: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> None:
    if not len(values):
        raise BadInput("there are no observations", hint="give at least 2 completed latencies")
    if len(cut) != len(values):
        raise BadInput(f"{len(values)} values but {len(cut)} censoring flags")
    for bad, what in ((~np.isfinite(values), "is not a finite number"), (values < 0, "is negative")):
        if bad.any():
            first = int(np.argmax(bad))
            raise BadInput(f"observation {first + 1} ({values[first]:g}) {what}", hint="a latency is 0 s or more")


def _gather(values: Array, cut: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Sample:
    """Distinct times with their counts; a large sample is gathered into narrow cells instead of being sorted."""
    if len(values) <= COMPRESS_ABOVE:
        times, index = np.unique(values, return_inverse=True)
        events = as_array(np.bincount(index, weights=~cut, minlength=len(times)))
        return Sample(times, events, as_array(np.bincount(index, minlength=len(times)) - events))
    # The bits of a non-negative double order as the number does; dropping the last ones makes cells of equal ratio.
    cells = (values + 0.0).view(np.int64) >> _DROPPED_BITS
    cells -= cells.min()
    filled = np.bincount(cells)
    used = np.flatnonzero(filled)
    times = np.bincount(cells, weights=values)[used] / filled[used]
    censored = as_array(np.bincount(cells[cut], minlength=len(filled))[used])
    return Sample(times, as_array(filled[used] - censored), censored)


def coarse(sample: Sample) -> Sample:
    """The same sample in cells of 1 part in 128: enough for a likelihood, and a hundred times quicker."""
    if len(sample.times) <= 4000:
        return sample
    cells = sample.times.view(np.int64) >> 45
    _, index = np.unique(cells, return_inverse=True)
    count = sample.events + sample.censored
    times = np.bincount(index, weights=sample.times * count) / np.bincount(index, weights=count)
    events, censored = (as_array(np.bincount(index, weights=part)) for part in (sample.events, sample.censored))
    return Sample(times, events, censored)


def _at_risk(sample: Sample) -> tuple[Array, Array, Array]:
    """Times at which attempts came back, how many did, and how many were waiting just before, as far as that can be
    trusted: after most were cut short, one late return would stand for all of them, and rho would vanish with it."""
    leaving = sample.events + sample.censored
    waiting = leaving.sum() - np.concatenate([[0.0], np.cumsum(leaving)[:-1]])
    some = sample.events > 0
    times, events, risk = sample.times[some], sample.events[some], waiting[some]
    before = np.concatenate([[1.0], np.cumprod(1 - events / risk)[:-1]])
    stands_for = before / risk * sample.count
    weak = (risk < max(5.0, 0.01 * sample.count)) & (stands_for > 5)
    keep = len(times) if not weak.any() else max(int(np.argmax(weak)), 1)
    return times[:keep], events[:keep], risk[:keep]


def survival(sample: Sample) -> Steps:
    """Kaplan and Meier's estimate at the times at which attempts came back."""
    return kaplan_meier(*_at_risk(sample))


class Share(Struct, frozen=True):
    """An estimated share with its 95 % interval."""

    value: float
    low: float
    high: float


def outlier_share(sample: Sample) -> Share:
    """rho: what Kaplan-Meier leaves waiting after the last job that came back, with an exact binomial interval.

    Censoring makes some observations count for less: Greenwood's variance says how many whole ones they are worth.
    """
    _, events, risk = _at_risk(sample)
    survive = float(np.prod(1 - events / risk))
    if survive <= 0:
        worth = float(sample.came_back)
    else:
        greenwood = float((events / (risk * (risk - events))).sum())
        worth = (1 - survive) / (survive * greenwood)
    lost = survive * worth
    low = float(special.betaincinv(lost, worth - lost + 1, 0.025)) if lost > 1e-9 else 0.0
    high = float(special.betaincinv(lost + 1, worth - lost, 0.975)) if worth > lost else 1.0
    return Share(survive, low, high)
