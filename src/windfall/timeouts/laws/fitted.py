"""Laws fitted to the latencies of a pool that is still new, and the timeout that they advise together. Pure.

The curve of `steps` knows no law and needs some hundred attempts. A law knows its shape and needs fewer, if it is the
right one. So the shapes of `shapes` are fitted at once, and what a timeout loses is averaged over all shapes and
parameters that the attempts leave possible, each by its likelihood (Bayes, with a prior that is flat in the median, the
logarithm of the width and that of the share lost, and the same for each shape). If the likeliest law fails a test of
fit, none is used. A timeout loses what it costs beyond the best one of the same law, and never more than `WORST`: one
improbable law under which it would cost a hundred times as much must not decide.

A table of densities makes this fast: attempts are counted by the cell of the table into which they fall under each
median and width, and one product of matrices gives the likelihood of all shapes. It takes about two milliseconds.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from msgspec import Struct

from windfall.numeric import np
from windfall.timeouts.arrays import Array, as_array
from windfall.timeouts.laws.shapes import FAR, LOST, SILENT_STEP, STEP, Library, grid, library, only
from windfall.timeouts.laws.steps import Fitted, Steps

# Medians and widths first tried and then weighed, how many standard errors the first reach to either side, how often
# they are moved at most, and the share on an edge of the grid above which they are.
FIRST_POINTS, POINTS, REACH, MOVES, ON_EDGE = 7, 11, 4.0, 3, 0.05
# Those weighed reach this many standard deviations of what the first have shown.
DEVIATIONS = 3.2
# sqrt(n) sup |F - F_n| above which a law is refused: the 5 % point where the parameters come from the same attempts
# (Lilliefors, for the normal law).
REFUSED_ABOVE = 0.89
# Laws that a timeout is tried on, in proportion to their weight.
LAWS = 240
# Shapes that count this much less than the one that counts most are left out.
UNLIKELY = 0.02
# A shape is named if its likeliest law is at least this likely, as a share of the likeliest of all.
NAMED = 0.3
# The most that a timeout counts by one law, as a multiple of the best timeout's cost. None of 1.15 to 2 is critical.
WORST = 1.3
# Products of a multiplication of matrices up to which OpenBLAS does not use threads.
PRODUCTS = 200_000
# Timeouts compared: their number, and how far they reach below the fastest attempt, as a factor.
TIMEOUTS, BELOW = 64, 4.0


class Seen(Struct, frozen=True):
    """Latencies that were seen and ages at which attempts were cut short, as logarithms, with the weight of each."""

    seen: Array
    seen_weight: Array
    cut: Array
    cut_weight: Array


class _Weighed(Struct, frozen=True):
    """Medians and widths, and the logarithm of the likelihood of each with each shape and share lost."""

    middle: Array
    width: Array
    log_likelihood: Array


def fitted(latencies: Seen, steps: Steps, overhead_s: float) -> Fitted | None:
    """What each timeout loses by the laws that fit the curve; None where none does, or all latencies are alike."""
    curve = _middles(steps)
    middle, width = _begin(curve, steps)
    if width <= 0:
        return None
    shapes, weighed = _posterior(library(), latencies, middle, width)
    top = float(weighed.log_likelihood.max())
    if not _fits(shapes, weighed, curve, steps):
        return None
    weight = np.exp(weighed.log_likelihood - top)
    seen = latencies.seen
    logs = np.linspace(float(seen[0]) - math.log(BELOW), float(seen[-1]) + 0.25, TIMEOUTS)
    waits = np.exp(logs)
    return Fitted(waits, _losses(shapes, weighed, weight, logs, waits, overhead_s), _names(shapes, weight))


class _Curve(Struct, frozen=True):
    """The logarithms of the curve's times, and the share that had come back halfway up each of its steps.

    The curve has a step at each cell, a law does not: they are compared halfway up.
    """

    logs: Array
    back: Array


def _middles(steps: Steps) -> _Curve:
    after = 1 - steps.survive
    back = after / 2
    back[1:] += after[:-1] / 2
    return _Curve(np.log(steps.times), back)


def _begin(curve: _Curve, steps: Steps) -> tuple[float, float]:
    """Median and width where the search begins: of the log-normal law through two points of the curve.

    It takes half of those that have not come back for lost.
    """
    share = curve.back / (1 - steps.left / 2)
    top = min(float(share[-1]), 0.98)
    points = (0.25 * top, 0.85 * top)
    low, high = np.interp(points, share, curve.logs)
    normal = NormalDist()
    z_low, z_high = (normal.inv_cdf(point) for point in points)
    width = float(high - low) / (z_high - z_low)
    return float(high) - width * z_high, width


def _posterior(shapes: Library, latencies: Seen, middle: float, width: float) -> tuple[Library, _Weighed]:
    """Shapes that may be right, and the likelihood of their laws: a coarse grid finds them, a fine one weighs them."""
    error = REACH / math.sqrt(float(latencies.seen_weight.sum()))
    reach, stretch = 1.25 * error * width, error
    for _ in range(MOVES):
        middles = middle + np.linspace(-reach, reach, FIRST_POINTS)
        widths = math.log(width) + np.linspace(-stretch, stretch, FIRST_POINTS)
        found = _weigh(shapes, latencies, middles, np.exp(widths))
        weight = np.exp(found.log_likelihood - found.log_likelihood.max())
        share = (weight.sum(axis=(1, 2)) / weight.sum()).reshape(FIRST_POINTS, FIRST_POINTS)
        by_middle, by_width = share.sum(axis=1), share.sum(axis=0)
        middle, middle_error = _moments(middles, by_middle)
        log_width, width_error = _moments(widths, by_width)
        width = math.exp(log_width)
        if max(by_middle[0], by_middle[-1], by_width[0], by_width[-1]) < ON_EDGE:
            break
    middles = middle + DEVIATIONS * middle_error * np.linspace(-1.0, 1.0, POINTS)
    widths = log_width + DEVIATIONS * width_error * np.linspace(-1.0, 1.0, POINTS)
    by_shape = weight.sum(axis=(0, 2))
    shapes = only(shapes, np.flatnonzero(by_shape > UNLIKELY * by_shape.max()))
    return shapes, _weigh(shapes, latencies, middles, np.exp(widths))


def _moments(values: Array, share: Array) -> tuple[float, float]:
    """Mean and deviation, at least a third of a step: the grid does not see less."""
    mean = float(share @ values)
    return mean, max(math.sqrt(float(share @ (values - mean) ** 2)), float(values[1] - values[0]) / 3)


def _weigh(shapes: Library, latencies: Seen, middles: Array, widths: Array) -> _Weighed:
    middle, width = np.repeat(middles, len(widths)), np.tile(widths, len(middles))
    count = float(latencies.seen_weight.sum())
    seen = _sum_over(latencies.seen, latencies.seen_weight, middle, width, STEP, shapes.log_density)
    seen -= count * np.log(width)[:, None]
    # An attempt that was cut short is slow, or never comes.
    silent = _sum_over(latencies.cut, latencies.cut_weight, middle, width, SILENT_STEP, shapes.silent)
    by_lost = silent.reshape(len(middle), len(shapes.names), len(LOST))
    return _Weighed(middle, width, seen[:, :, None] + by_lost + count * np.log1p(-np.array(LOST)))


def _sum_over(logs: Array, weight: Array, middle: Array, width: Array, step: float, table: Array) -> Array:
    """The sum of a table over all logarithms of time by weight, under each median and width; linear between rows."""
    place = ((logs - middle[:, None]) / width[:, None] + FAR) / step
    place = np.clip(place, 0.0, len(table) - 1.000001)
    below = place.astype(np.int64)
    above = (place - below) * weight
    first = int(below.min())
    rows = int(below.max()) - first + 2
    below += rows * np.arange(len(middle))[:, None] - first
    by_row = np.bincount(below.ravel(), (weight - above).ravel(), rows * len(middle))
    by_row[1:] += np.bincount(below.ravel(), above.ravel(), rows * len(middle))[:-1]
    return _product(as_array(by_row.reshape(len(middle), rows)), table[first : first + rows])


def _product(left: Array, right: Array) -> Array:
    """`left @ right`, in parts that BLAS multiplies in this thread: to wake others costs more than they save."""
    most = max(1, PRODUCTS // right.size)
    return as_array(np.concatenate([left[row : row + most] @ right for row in range(0, len(left), most)]))


def _fits(shapes: Library, weighed: _Weighed, curve: _Curve, steps: Steps) -> bool:
    """Whether the likeliest law passes the test of Kolmogorov and Smirnov against the curve."""
    best, shape, lost = np.unravel_index(int(weighed.log_likelihood.argmax()), weighed.log_likelihood.shape)
    z = (curve.logs - weighed.middle[best]) / weighed.width[best]
    law = (1 - LOST[int(lost)]) * (1 - np.interp(z, grid(), shapes.survive[:, shape]))
    return math.sqrt(float(steps.events[-1])) * float(np.abs(law - curve.back).max()) <= REFUSED_ABOVE


def _names(shapes: Library, weight: Array) -> tuple[str, ...]:
    """Shapes that are nearly as likely as the likeliest, in that order."""
    best = weight.max(axis=(0, 2))
    order = sorted((place for place in range(len(best)) if best[place] >= NAMED), key=lambda place: -float(best[place]))
    return tuple(dict.fromkeys(shapes.names[place] for place in order))


def _losses(shapes: Library, weighed: _Weighed, weight: Array, logs: Array, waits: Array, overhead_s: float) -> Array:
    """What each timeout costs as a multiple of the best, on average over laws taken in proportion to their weight."""
    by_shape = weight.transpose(1, 0, 2)
    sums = by_shape.ravel().cumsum()
    picked, times = np.unique(
        sums.searchsorted((np.arange(LAWS) + 0.5) / LAWS * sums[-1]), return_counts=True
    )  # fmt: skip
    shape, law, lost = np.unravel_index(picked, by_shape.shape)
    place = ((logs - weighed.middle[law][:, None]) / weighed.width[law][:, None] + FAR) / STEP
    place = np.clip(place, 0.0, len(shapes.survive) - 1.000001)
    below = place.astype(np.int64)
    part, column = place - below, shape[:, None]
    survive = shapes.survive[below, column] * (1 - part) + shapes.survive[below + 1, column] * part
    area = np.empty_like(survive)
    area[:, 0] = waits[0]
    area[:, 1:] = waits[0] + np.cumsum((survive[:, 1:] + survive[:, :-1]) / 2 * np.diff(waits), axis=1)
    share = np.array(LOST)[lost][:, None]
    # Those that are lost wait to the end, and more attempts are made for each that comes back.
    cost = ((1 - share) * area + share * waits + overhead_s) / ((1 - share) * np.maximum(1 - survive, 1e-12))
    return as_array(times @ np.minimum(cost / cost.min(axis=1, keepdims=True), WORST)) / LAWS
