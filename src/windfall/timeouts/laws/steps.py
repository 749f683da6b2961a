"""A survival curve from data, and the timeout it advises: the common ground of `fit` and the online sketch. Pure.

`survive` is the chance that an attempt has not come back by each time, outliers included, so nothing has to be known
about them: E_J(T) = (area under the curve up to T + overhead) / (1 - survive(T)).

The lowest point of the raw estimate is not the best timeout: its left end rests on few attempts, so its minimum is
often chance. So the curve is smoothed in the logarithm of time before it is searched, and each timeout is charged its
own standard error, which also leans to the long side, where an error costs less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from windfall.numeric import np
from windfall.timeouts.arrays import Array, as_array

# Standard errors charged to every timeout, and the width of the smoothing in units of Silverman's rule. Measured on
# eight kinds of law with 200 attempts each: neither is critical, both together halve the loss of the raw minimum.
CAUTION = 3.0
SMOOTHING = 1.1
# A timeout that fewer attempts than this have met says nothing about the shape of the curve.
LEAST_EVENTS = 12.0
# Beside fitted laws: what the curve counts, its standard errors, and attempts. The laws know more of few attempts, the
# curve is right whatever the law. Measured on twelve pools with 50 attempts each.
CURVE_SHARE, CURVE_CAUTION, CURVE_EVENTS = 0.15, 2.0, 6.0


class Steps(Struct, frozen=True):
    """Times, how many attempts had come back by then, and the share that had not. `worth`: how many uncensored attempts
    would know as much about that share (Greenwood). `smooth`: linear between times."""

    times: Array
    events: Array
    survive: Array
    worth: Array
    smooth: bool = False

    @property
    def left(self) -> float:
        """The share that had not come back at the last event: outliers, or waits still unseen."""
        return float(self.survive[-1])


def kaplan_meier(times: Array, events: Array, at_risk: Array) -> Steps:
    """The product-limit estimate; `at_risk` counts the attempts still waiting just before each time."""
    survive = as_array((1 - events / at_risk).clip(0.0, 1.0).cumprod())
    came_back = as_array(events.cumsum())
    with np.errstate(divide="ignore", invalid="ignore"):
        greenwood = (events / (at_risk * (at_risk - events))).cumsum()
        worth = np.where(survive > 0, (1 - survive) / (survive * greenwood), came_back)
    return Steps(times, came_back, survive, np.minimum(worth, float(at_risk[0])))


def smoothed(steps: Steps, width: float = SMOOTHING) -> Steps:
    """The same curve after a Gaussian kernel on the logarithm of time; a mass at 0 stays where it is."""
    mass = _differences(1 - steps.survive)
    positive = steps.times > 0
    # Latencies a million million times shorter than the longest are all the same "at once".
    logs = np.log(np.maximum(steps.times[positive], 1e-12 * steps.times[-1]))
    weight = mass[positive]
    bandwidth = width * _spread(logs, weight) * max(float(steps.events[-1]), 1.0) ** -0.2
    if bandwidth <= 0 or width <= 0:
        return steps
    step = max(bandwidth / 4, (logs[-1] - logs[0]) / 4000)
    reach = math.ceil(4 * bandwidth / step)
    cells = np.floor((logs - logs[0]) / step + 0.5).astype(np.int64) + reach
    binned = np.bincount(cells, weights=weight, minlength=int(cells[-1]) + reach + 1)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * step / bandwidth) ** 2)
    spread = np.convolve(binned, kernel / kernel.sum(), mode="same")
    # A cell's mass arrives by its right edge.
    times = np.exp(logs[0] + (np.arange(len(binned)) - reach + 0.5) * step)
    at_once = float(mass[~positive].sum())
    back = spread.cumsum() + at_once
    events = np.interp(times, steps.times, steps.events, left=0.0 if positive[0] else float(steps.events[0]))
    worth = np.interp(times, steps.times, steps.worth)
    if at_once:
        times, back = np.concatenate([[0.0], times]), np.concatenate([[at_once], back])
        events, worth = np.concatenate([steps.events[:1], events]), np.concatenate([steps.worth[:1], worth])
    return Steps(times, events, (1 - back).clip(0.0, 1.0), worth, smooth=True)


def _spread(logs: Array, weight: Array) -> float:
    """The smaller of the deviation and the normalised interquartile range: robust against a long tail."""
    total = float(weight.sum())
    if len(logs) < 2 or total <= 0:
        return 0.0
    share = weight / total
    centre = float((share * logs).sum())
    deviation = math.sqrt(max(float((share * (logs - centre) ** 2).sum()), 0.0))
    low, high = share.cumsum().searchsorted([0.25, 0.75])
    quartiles = float(logs[min(high, len(logs) - 1)] - logs[low]) / 1.349
    return min(deviation, quartiles) if quartiles > 0 else deviation


def _differences(values: Array) -> Array:
    """Each value less the one before it, the first less 0."""
    found = np.empty_like(values)
    found[0] = values[0]
    np.subtract(values[1:], values[:-1], out=found[1:])
    return found


def area(steps: Steps) -> Array:
    """E[min(R, T)] at each time, outliers included: the area under the curve."""
    before = np.empty_like(steps.survive)
    before[0], before[1:] = 1.0, steps.survive[:-1]
    height = (before + steps.survive) / 2 if steps.smooth else before
    return as_array((height * _differences(steps.times)).cumsum())


def gain_error(steps: Steps, wait_s: float, overhead_s: float) -> float:
    """Standard error of what this timeout gains over none, attempt by attempt, where everything came back."""
    mass = _differences(1 - steps.survive)
    whole = steps.times + overhead_s
    value, back = at(steps, wait_s, overhead_s), steps.times <= wait_s
    share = float(mass[back].sum())
    with_timeout = (np.minimum(steps.times, wait_s) + overhead_s - value * back) / share
    difference = with_timeout - (whole - float((mass * whole).sum()))
    return math.sqrt(float((mass * difference**2).sum()) / max(float(steps.events[-1]), 1.0))


def expected(steps: Steps, overhead_s: float) -> Array:
    """E_J with a timeout at each time (equation 6)."""
    back = 1 - steps.survive
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(back > 0, (area(steps) + overhead_s) / back, np.inf)


def standard_error(steps: Steps, overhead_s: float, value: Array) -> Array:
    """Of E_J (`value`), by the delta method: each attempt brings its length minus E_J x [it came back]."""
    back = 1 - steps.survive
    mass, wait = _differences(back), steps.times + overhead_s
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = wait**2
        first = (mass * wait).cumsum()
        second = (mass * squares).cumsum() + squares * steps.survive
        spread = np.maximum(second - 2 * value * first + value**2 * back, 0.0)
        return np.where((back > 0) & (steps.worth > 0), np.sqrt(spread / steps.worth) / back, np.inf)


def quantiles(steps: Steps, overhead_s: float, p: float) -> Array:
    """The p-quantile of J with a timeout at each time (equation 5 inverted)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rounds = np.floor(math.log1p(-p) / np.log(steps.survive) * (1 + 1e-12))
        rounds = np.where(steps.survive <= 0, 0.0, rounds)
        goal = np.exp(math.log1p(-p) - rounds * np.log(np.maximum(steps.survive, 1e-300)))
        # The first time whose survival is at most `goal`; survival falls, so search its negative.
        index = np.searchsorted(-steps.survive, -goal * (1 + 1e-12))
        reached = index < len(steps.times)
        latency = np.where(reached, steps.times[np.minimum(index, len(steps.times) - 1)], np.inf)
        failed = np.where(rounds > 0, rounds * (steps.times + overhead_s), 0.0)
    return np.where(steps.survive < 1, failed + overhead_s + latency, np.inf)


class Fitted(Struct, frozen=True):
    """What each timeout costs by the laws that fit, as a multiple of the best, and their names, the likeliest first."""

    waits_s: Array
    costs: Array
    names: tuple[str, ...]


class Choice(Struct, frozen=True):
    """The timeout chosen on a smoothed curve, and its expected effect."""

    wait_s: float
    expected_s: float
    error_s: float
    curve: Steps


def choose(
    steps: Steps,
    overhead_s: float,
    quantile: float | None = None,
    caution: float = CAUTION,
    width: float = SMOOTHING,
    law: Fitted | None = None,
) -> Choice:
    """The timeout with the least expectation (or quantile) plus `caution` standard errors, on the smoothed curve.

    `law`: what fitted laws say of the expectation; they and the curve then choose together.
    """
    least = LEAST_EVENTS
    if law is not None:
        caution, least = CURVE_CAUTION, CURVE_EVENTS
    curve = smoothed(steps, width)
    mean = expected(curve, overhead_s)
    value = mean if quantile is None else quantiles(curve, overhead_s, quantile)
    error = standard_error(curve, overhead_s, mean)
    enough = curve.events >= min(least, float(curve.events[-1]))
    # Uncertainty beyond the present timeout is not charged: it exists because that timeout censors, and an error there
    # is cheap. With the charge a learner would only ever shorten its timeout.
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = np.where(enough & (value > 0), error / mean, np.inf)
    relative = np.where(enough & (value == 0), 0.0, np.minimum.accumulate(relative))
    # A share that is too high by chance looks too certain; the square-root scale corrects that.
    room = np.maximum(1 - caution * relative / 2, 0.0) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        charged = np.where(enough & (room > 0), value / room, np.inf)
    if law is not None:
        charged = _beside(charged, curve.times, law)
    # With too few attempts to tell anything apart, the longest wait seen is the safe side.
    index = int(np.argmin(charged)) if np.isfinite(charged).any() else len(charged) - 1
    # No result was observed after the last event: longer timeouts would only follow the smoothing.
    wait_s = min(float(curve.times[index]), float(steps.times[-1]))
    return Choice(wait_s, float(value[index]), float(error[index]), curve)


def _beside(charged: Array, times: Array, law: Fitted) -> Array:
    """What each timeout costs by curve and laws, each as a multiple of its own least."""
    least = float(charged.min())
    if not 0 < least < math.inf:
        return charged
    by_law = np.interp(times, law.waits_s, law.costs, left=np.inf, right=np.inf) / float(law.costs.min())
    return CURVE_SHARE * charged / least + (1 - CURVE_SHARE) * by_law


def at(steps: Steps, wait_s: float, overhead_s: float) -> float:
    """E_J with a timeout anywhere, not only at a step."""
    return at_each(steps, (wait_s,), overhead_s)[0]


def at_each(steps: Steps, waits_s: Sequence[float], overhead_s: float) -> list[float]:
    """E_J with each of these timeouts."""
    below = area(steps)
    return [_at(steps, below, wait_s, overhead_s) for wait_s in waits_s]


def _at(steps: Steps, below: Array, wait_s: float, overhead_s: float) -> float:
    index = int(steps.times.searchsorted(wait_s, side="right")) - 1
    if index < 0:
        return math.inf
    survive = float(steps.survive[index])
    inside = float(below[index]) + (wait_s - float(steps.times[index])) * survive
    return (inside + overhead_s) / (1 - survive) if survive < 1 else math.inf
