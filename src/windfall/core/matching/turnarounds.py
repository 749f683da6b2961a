"""How long attempts of a bag took from handing out to result, counted in cells of a sixteenth of an octave. Pure.

A few dozen counters whatever the length of the bag; a quantile is right within 6 %. Only exact arithmetic, so that the
same results fall into the same cells on every machine.
"""

from __future__ import annotations

from math import frexp, ldexp

PER_OCTAVE = 16
LEAST_S = 1e-6


def cell_of(seconds: float) -> int:
    mantissa, exponent = frexp(seconds if seconds > LEAST_S else LEAST_S)
    return exponent * PER_OCTAVE + int((mantissa - 0.5) * 2 * PER_OCTAVE)


def upper_edge_s(cell: int) -> float:
    exponent, place = divmod(cell, PER_OCTAVE)
    return ldexp(0.5 + (place + 1) / (2 * PER_OCTAVE), exponent)


def quantile_s(cells: dict[int, int], share: float) -> float:
    """The time by which this share of the attempts was back; the upper edge of its cell."""
    left = share * sum(cells.values())
    edge = 0
    for edge in sorted(cells):
        left -= cells[edge]
        if left <= 0:
            break
    return upper_edge_s(edge)
