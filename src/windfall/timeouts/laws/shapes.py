"""The shapes that laws of latencies may have on the logarithm of time, tabulated once. Pure.

Most are members of the generalised F family (Prentice 1975), which spans the laws that survival analysis uses: with
ends `left` and `right` the density falls like exp(left z) to the left and like exp(-right z) to the right. Log-logistic
is (1, 1), Weibull (1, infinite), Fréchet (infinite, 1), log-normal (infinite, infinite), Burr (1, right), Dagum
(left, 1), generalised gamma (left, infinite). Two shapes outside the family are added: one with light tails, and two
log-normals at once.

All have median 0 and the quartiles of the standard normal law, so one grid of medians and widths does for all.
It needs numpy, not scipy: a shape is a density up to a factor, the rest is summed.
"""

from __future__ import annotations

import math
from functools import cache

from msgspec import Struct

from windfall.numeric import Ints, np
from windfall.timeouts.arrays import Array, as_array

# The ends of the generalised F shapes; the last stands for an infinite one.
ENDS = (0.4, 1.0, 2.5, 40.0)
# The table reaches this far to either side, in steps of `STEP`; what silent attempts say is smoother: `SILENT_STEP`.
FAR, STEP, SILENT_STEP = 14.0, 0.05, 0.2
# Points at which a density is summed.
POINTS = 4001
# Shares of attempts that never come back.
LOST = (0.0025, 0.005, 0.01, 0.02, 0.035, 0.055, 0.085, 0.13, 0.2, 0.3, 0.45)
# The quartiles of the standard normal law lie this far apart.
QUARTILES = 1.3489795003921634
# The logarithm of a density below which all are alike.
NEVER = -400.0


class Library(Struct, frozen=True):
    """Shapes in columns: the logarithm of the density and the survival by z, and the logarithm of the chance to be
    silent at z by shape and share lost (shape first)."""

    names: tuple[str, ...]
    log_density: Array
    survive: Array
    silent: Array


@cache
def library() -> Library:
    names, densities, survivals = [], [], []
    for name, z, log_density in (*_generalised_f(), _light_tails(), _two_heaps()):
        density, survive = _standard(z, log_density)
        names.append(name)
        densities.append(density)
        survivals.append(survive)
    survive = np.array(survivals).T
    lost = np.array(LOST)
    coarse = survive[:: round(SILENT_STEP / STEP)]
    silent = np.log(lost + (1 - lost) * coarse[:, :, None]).reshape(len(coarse), -1)
    return Library(tuple(names), np.ascontiguousarray(np.array(densities).T), np.ascontiguousarray(survive), silent)


def only(shapes: Library, places: Ints) -> Library:
    """Some of the shapes."""
    silent = shapes.silent.reshape(len(shapes.silent), -1, len(LOST))[:, places]
    return Library(
        names=tuple(shapes.names[place] for place in places),
        log_density=shapes.log_density[:, places],
        survive=shapes.survive[:, places],
        silent=silent.reshape(len(silent), -1),
    )


def _generalised_f() -> list[tuple[str, Array, Array]]:
    found = []
    for left in ENDS:
        for right in ENDS:
            width = math.sqrt(_trigamma(left) + _trigamma(right))
            z = math.log(left / right) + width * np.linspace(-FAR, FAR, POINTS)
            found.append((_name(left, right), z, as_array(left * z - (left + right) * np.logaddexp(0.0, z))))
    return found


def _name(left: float, right: float) -> str:
    infinite = ENDS[-1]
    special = {
        (1.0, 1.0): "log-logistic",
        (1.0, infinite): "Weibull",
        (infinite, 1.0): "Fréchet",
        (infinite, infinite): "log-normal",
    }
    if (left, right) in special:
        return special[left, right]
    if right == infinite:
        return "generalised gamma"
    if left == infinite:
        return "inverse generalised gamma"
    return "Burr" if left == 1.0 else "Dagum" if right == 1.0 else "generalised F"


def _trigamma(x: float) -> float:
    """The variance of the logarithm of a gamma variable."""
    found = 0.0
    while x < 6:
        found, x = found + 1 / x**2, x + 1
    return found + 1 / x + 1 / (2 * x**2) + 1 / (6 * x**3)


def _light_tails() -> tuple[str, Array, Array]:
    """Jones and Pewsey's sinh-arcsinh law: lighter on both sides than the normal one, and more so on the right."""
    skew, tails = 0.45, 2.0
    z = np.linspace(-8.0, 8.0, POINTS)
    bent = np.clip(tails * np.arcsinh(z) - skew, -6.0, 6.0)
    return (
        "log-normal with light tails",
        z,
        as_array(-(np.sinh(bent) ** 2) / 2 + np.log(np.cosh(bent)) - np.log1p(z * z) / 2),
    )


def _two_heaps() -> tuple[str, Array, Array]:
    share, (a, a_width), (b, b_width) = 0.35, (-1.3, 0.45), (0.7, 0.8)
    z = np.linspace(-6.0, 8.0, POINTS)
    first = math.log(share / a_width) - ((z - a) / a_width) ** 2 / 2
    second = math.log((1 - share) / b_width) - ((z - b) / b_width) ** 2 / 2
    return "two log-normals", z, as_array(np.logaddexp(first, second))


def grid() -> Array:
    """The z of the table's rows."""
    return as_array(STEP * np.arange(-round(FAR / STEP), round(FAR / STEP) + 1))


def _standard(z: Array, log_density: Array) -> tuple[Array, Array]:
    """The logarithm of the density and the survival on `grid`, with median 0 and width 1. Beyond `z` the logarithm goes
    on in a straight line."""
    step = float(z[1] - z[0])
    back = _summed(np.exp(log_density - log_density.max()))
    low, middle, high = np.interp(np.array([0.25, 0.5, 0.75]) * back[-1], back, z)
    width = float(high - low) / QUARTILES
    at = middle + width * grid()
    found = np.interp(at, z, log_density)
    left, right = (log_density[1] - log_density[0]) / step, (log_density[-1] - log_density[-2]) / step
    found += left * np.minimum(at - z[0], 0.0) + right * np.maximum(at - z[-1], 0.0)
    density = np.exp(found - found.max())
    after = _summed(density[::-1])[::-1]
    whole = float(after[0]) * STEP
    return as_array(np.maximum(found - found.max() - math.log(whole), NEVER)), as_array(after / after[0])


def _summed(density: Array) -> Array:
    """The sum of a density up to each point, in units of its step (trapezia)."""
    found = np.zeros(len(density))
    np.add.accumulate((density[1:] + density[:-1]) / 2, out=found[1:])
    return found
