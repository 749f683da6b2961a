"""A few laws fitted to the latencies of a pool that is still new, and the timeout that they advise together. Pure.

The curve of `steps` knows no law and needs some hundred attempts. A law knows its shape and needs fewer, if it is the
right one. So five are fitted at once (log-normal, also with light tails and with two heaps, log-logistic, Weibull),
those that a test of fit refuses are dropped, and what a timeout loses is averaged over all parameters that the attempts
leave possible, each by its likelihood (Bayes, with a prior that is flat in the location, the logarithm of the width and
that of the share lost). A timeout loses what it costs beyond the best one of the same law, and never more than `WORST`:
one improbable law under which it would cost a hundred times as much must not decide.

On the logarithm of time each is one shape, moved and stretched, so one grid of locations and widths does for
each. It needs numpy, not scipy, and takes about three milliseconds; a straight line through the logarithms of time,
drawn first, refuses most laws that do not fit in a tenth of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from msgspec import Struct

from windfall.numeric import np
from windfall.timeouts.arrays import Array, as_array
from windfall.timeouts.laws.steps import Fitted, Steps

# Grid: locations and widths of each law, and how many standard errors it reaches to either side.
POINTS, REACH, MOVES = 9, 3.2, 3
# Shares of attempts that never come back.
LOST = (0.0025, 0.005, 0.01, 0.02, 0.035, 0.055, 0.085, 0.13, 0.2, 0.3, 0.45)
# sqrt(n) sup |F - F_n| above which a law is refused: the 5 % point where the parameters come from the same attempts
# (Lilliefors, for the normal law).
REFUSED_ABOVE = 0.89
# The same for the line drawn first, which lies further off than the likeliest law where that one is accepted: of 1,116
# laws fitted in simulations it refuses 95 of 100 that the test refuses, and 7 of 100 that it accepts.
LINE_REFUSED_ABOVE = 1.2
# The upper quartile of the standard normal law.
QUARTILE = 0.6744897501960817
# Quantiles at which a shape is tabulated, to invert it, and how far the line looks into the tails.
TABLE, TAIL = 601, 0.005
# Parameters this much less likely than the best do not count.
UNLIKELY = 0.03
# The most that a timeout counts by one law, as a multiple of the best timeout's cost. It was chosen on 14 pools, the
# shapes on 74, with other laws than those that the laboratory holds back: none is critical.
WORST = 1.3
# Timeouts compared: their number, and how far they reach below the fastest attempt, as a factor.
TIMEOUTS, BELOW = 80, 4.0


class Seen(Struct, frozen=True):
    """Latencies that were seen and ages at which attempts were cut short, as logarithms, with the weight of each."""

    seen: Array
    seen_weight: Array
    cut: Array
    cut_weight: Array


class Shape(Struct, frozen=True):
    """A law of the logarithm of time with location 0 and width 1."""

    name: str
    survive: Callable[[Array], Array]
    log_density: Callable[[Array], Array]
    median: float
    deviation: float


class _Grid(Struct, frozen=True):
    """Locations and widths, and the logarithm of the likelihood of each with each share lost."""

    shape: Shape
    place: Array
    width: Array
    log_likelihood: Array


def _normal_survive(z: Array) -> Array:
    # Abramowitz and Stegun 7.1.26: right to 1.5e-7, which no sample of attempts can tell from the truth.
    t = 1 / (1 + 0.3275911 / math.sqrt(2) * np.abs(z))
    series = 0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
    tail = series * t * np.exp(-z * z / 2) / 2
    return as_array(np.where(z >= 0, tail, 1 - tail))


def _normal_density(z: Array) -> Array:
    return -z * z / 2 - math.log(2 * math.pi) / 2


def _logistic_survive(z: Array) -> Array:
    return 1 / (1 + np.exp(np.minimum(z, 700.0)))


def _logistic_density(z: Array) -> Array:
    size = np.abs(z)
    return as_array(-size - 2 * np.log1p(np.exp(-size)))


def _gumbel_survive(z: Array) -> Array:
    return np.exp(-np.exp(np.minimum(z, 50.0)))


def _gumbel_density(z: Array) -> Array:
    return z - np.exp(np.minimum(z, 50.0))


def _bent(name: str, skew: float, tails: float) -> Shape:
    """A log-normal law with another tail on each side (Jones and Pewsey, sinh-arcsinh): `tails` below 1 makes both
    heavier, `skew` below 0 the left one."""

    def bend(z: Array) -> Array:
        return as_array(np.clip(tails * np.arcsinh(z) - skew, -6.0, 6.0))

    def survive(z: Array) -> Array:
        return _normal_survive(np.sinh(bend(z)))

    def log_density(z: Array) -> Array:
        bent = bend(z)
        return as_array(_normal_density(np.sinh(bent)) + np.log(np.cosh(bent)) + math.log(tails) - np.log1p(z * z) / 2)

    def quantile(normal: float) -> float:
        return math.sinh((math.asinh(normal) + skew) / tails)

    return Shape(name, survive, log_density, quantile(0.0), (quantile(QUARTILE) - quantile(-QUARTILE)) / 1.349)


def _two_heaps(name: str, share: float, first: tuple[float, float], second: tuple[float, float]) -> Shape:
    """Two log-normal laws, each with its location and width: `share` of the attempts are of the first."""
    (a, a_width), (b, b_width) = first, second

    def survive(z: Array) -> Array:
        return share * _normal_survive((z - a) / a_width) + (1 - share) * _normal_survive((z - b) / b_width)

    def log_density(z: Array) -> Array:
        return as_array(
            np.logaddexp(
                _normal_density((z - a) / a_width) + math.log(share / a_width),
                _normal_density((z - b) / b_width) + math.log((1 - share) / b_width),
            )
        )

    def quantile(wanted: float) -> float:
        """By halves, with plain numbers: numpy is not loaded before a law is fitted."""
        low, high = a - 6 * a_width, b + 6 * b_width
        for _ in range(60):
            z = (low + high) / 2
            below = share * math.erfc((a - z) / a_width / math.sqrt(2)) / 2
            below += (1 - share) * math.erfc((b - z) / b_width / math.sqrt(2)) / 2
            low, high = (z, high) if below < wanted else (low, z)
        return (low + high) / 2

    return Shape(name, survive, log_density, quantile(0.5), (quantile(0.75) - quantile(0.25)) / 1.349)


SHAPES = (
    Shape("log-normal", _normal_survive, _normal_density, 0.0, 1.0),
    Shape("log-logistic", _logistic_survive, _logistic_density, 0.0, math.pi / math.sqrt(3)),
    Shape("Weibull", _gumbel_survive, _gumbel_density, math.log(math.log(2)), math.pi / math.sqrt(6)),
    _bent("log-normal with light tails", 0.45, 2.0),
    _two_heaps("two log-normals", 0.35, (-1.3, 0.45), (0.7, 0.8)),
)


def fitted(latencies: Seen, steps: Steps, overhead_s: float) -> Fitted | None:
    """What each timeout loses by the laws that fit the curve; None where none does, or all latencies are alike."""
    centre, spread = _middle(latencies)
    if spread <= 0:
        return None
    curve = _middles(steps)
    shapes = [shape for shape in SHAPES if _may_fit(shape, curve, steps)]
    grids = [_likelihood(shape, latencies, centre, spread) for shape in shapes]
    grids = [grid for grid in grids if _fits(grid, curve, steps)]
    if not grids:
        return None
    grids.sort(key=lambda grid: -float(grid.log_likelihood.max()))
    seen = latencies.seen
    logs = np.linspace(float(seen[0]) - math.log(BELOW), float(seen[-1]) + 0.25, TIMEOUTS)
    waits = np.exp(logs)
    top = float(grids[0].log_likelihood.max())
    losses, weight = np.zeros(TIMEOUTS), 0.0
    for grid in grids:
        loss, part = _loss(grid, logs, waits, overhead_s, top)
        losses, weight = losses + loss, weight + part
    return Fitted(waits, losses / weight, tuple(grid.shape.name for grid in grids))


def _middle(latencies: Seen) -> tuple[float, float]:
    """Median and width of what was seen: where the search begins."""
    seen, share = latencies.seen, np.cumsum(latencies.seen_weight)
    low, middle, high = np.searchsorted(share, np.array([0.25, 0.5, 0.75]) * share[-1])
    spread = float(seen[min(high, len(seen) - 1)] - seen[low]) / 1.349
    return float(seen[middle]), spread


def _likelihood(shape: Shape, latencies: Seen, centre: float, spread: float) -> _Grid:
    """The likelihood around its top; the grid moves there while the top lies on its edge."""
    count = float(latencies.seen_weight.sum())
    width = spread / shape.deviation
    place = centre - shape.median * width
    moves = MOVES
    while True:
        reach = REACH * width * shape.deviation / math.sqrt(count)
        stretch = REACH / math.sqrt(1.4 * count)
        places = place + np.linspace(-reach, reach, POINTS)
        widths = width * np.exp(np.linspace(-stretch, stretch, POINTS))
        grid = _on_grid(shape, latencies, np.repeat(places, POINTS), np.tile(widths, POINTS))
        row, column = divmod(int(grid.log_likelihood.max(axis=1).argmax()), POINTS)
        moves -= 1
        if moves == 0 or (0 < row < POINTS - 1 and 0 < column < POINTS - 1):
            return grid
        place, width = float(places[row]), float(widths[column])


def _on_grid(shape: Shape, latencies: Seen, place: Array, width: Array) -> _Grid:
    lost = np.array(LOST)
    z = (latencies.seen - place[:, None]) / width[:, None]
    count = float(latencies.seen_weight.sum())
    seen = shape.log_density(z) @ latencies.seen_weight - count * np.log(width)
    survive = shape.survive((latencies.cut - place[:, None]) / width[:, None])
    # An attempt that was cut short is slow, or never comes.
    silent = np.log(lost[None, :, None] + (1 - lost)[None, :, None] * survive[:, None, :]) @ latencies.cut_weight
    return _Grid(shape, place, width, seen[:, None] + count * np.log1p(-lost)[None, :] + silent)


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


@cache
def _table(shape: Shape) -> tuple[Array, Array]:
    """The share that has come back, rising, and the logarithm of time at which it has."""
    times = np.linspace(-9.0, 6.0, TABLE)
    return as_array(1 - shape.survive(times)), as_array(times)


def _may_fit(shape: Shape, curve: _Curve, steps: Steps) -> bool:
    """Whether a straight line through the curve, on the paper where this law is straight, comes near to it.

    It takes half of those that have not come back for lost.
    """
    lost = steps.left / 2
    share = curve.back / (1 - lost)
    inner = (share > TAIL) & (share < 1 - TAIL)
    z, logs = np.interp(share[inner], *_table(shape)), curve.logs[inner]
    mass = -np.diff(steps.survive, prepend=1.0)[inner]
    whole = float(mass.sum())
    if whole <= 0:
        return True
    z_mean, log_mean = float(mass @ z) / whole, float(mass @ logs) / whole
    spread = float(mass @ (z - z_mean) ** 2)
    width = float(mass @ ((z - z_mean) * (logs - log_mean))) / spread if spread > 0 else 0.0
    if width <= 0:
        return True
    return _distance(shape, curve, steps, log_mean - width * z_mean, width, lost) <= LINE_REFUSED_ABOVE


def _fits(grid: _Grid, curve: _Curve, steps: Steps) -> bool:
    """Whether the likeliest law of this shape passes the test of Kolmogorov and Smirnov against the curve."""
    best, share = divmod(int(grid.log_likelihood.argmax()), len(LOST))
    place, width = float(grid.place[best]), float(grid.width[best])
    return _distance(grid.shape, curve, steps, place, width, LOST[share]) <= REFUSED_ABOVE


def _distance(shape: Shape, curve: _Curve, steps: Steps, place: float, width: float, lost: float) -> float:
    """sqrt(n) sup |F - F_n|."""
    law = (1 - lost) * (1 - shape.survive((curve.logs - place) / width))
    return math.sqrt(float(steps.events[-1])) * float(np.abs(law - curve.back).max())


def _loss(grid: _Grid, logs: Array, waits: Array, overhead_s: float, top: float) -> tuple[Array, float]:
    """What each timeout costs as a multiple of the best, summed over the grid by weight; and the sum of the weights."""
    weight = np.exp(grid.log_likelihood - top)
    likely, lost = np.nonzero(weight > UNLIKELY)
    if not len(likely):
        return np.zeros(len(waits)), 0.0
    laws, of = np.unique(likely, return_inverse=True)
    survive = grid.shape.survive((logs - grid.place[laws][:, None]) / grid.width[laws][:, None])
    area = np.empty_like(survive)
    area[:, 0] = waits[0]
    area[:, 1:] = waits[0] + np.cumsum((survive[:, 1:] + survive[:, :-1]) / 2 * np.diff(waits), axis=1)
    back = np.maximum(1 - survive, 1e-300)
    share = np.array(LOST)[lost][:, None]
    # Those that are lost wait to the end, and more attempts are made for each that comes back.
    cost = (area / back)[of] + (waits * (share / (1 - share)) + overhead_s / (1 - share)) / back[of]
    loss = np.minimum(cost / cost.min(axis=1, keepdims=True), WORST)
    found = weight[likely, lost]
    return as_array(found @ loss), float(found.sum())
