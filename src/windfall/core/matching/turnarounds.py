"""How long attempts of a bag took from handing out to result, counted in cells, 16 of an octave. Pure.

A few dozen counters whatever the length of the bag; a quantile is right within 6 %. Only exact arithmetic, so that the
same results fall into the same cells on every machine.
"""

from __future__ import annotations

from math import frexp, ldexp


def cell_of(seconds: float, per_octave: int) -> int:
    """A microsecond and less are all the same."""
    mantissa, exponent = frexp(seconds if seconds > 1e-6 else 1e-6)
    return exponent * per_octave + int((mantissa - 0.5) * 2 * per_octave)


def upper_edge_s(cell: int, per_octave: int) -> float:
    exponent, place = divmod(cell, per_octave)
    return ldexp(0.5 + (place + 1) / (2 * per_octave), exponent)


def quantile_s(cells: dict[int, int], share: float, per_octave: int) -> float:
    """The time by which this share of the attempts was back; the upper edge of its cell."""
    left = share * sum(cells.values())
    edge = 0
    for edge in sorted(cells):
        left -= cells[edge]
        if left <= 0:
            break
    return upper_edge_s(edge, per_octave)
