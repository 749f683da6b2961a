"""Published series of availability and prices as counts of one offer. Pure: spells and prices in, counts out.

A series counts for at most `MOST_H` machine hours: it is of another time and often of another account, so what the
server sees itself must outweigh it soon.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from windfall.planning.counts import (
    AWAY,
    CLASSES,
    DAY_H,
    HERE,
    CountSettings,
    PriceCounts,
    SpellCounts,
    count,
    priced,
)

MOST_H = 200.0


class Spell(Struct, frozen=True):
    """A stretch with capacity (`HERE`) or without (`AWAY`); the first of a series was not seen to begin."""

    kind: int
    from_t: float
    to_t: float
    ended: bool
    is_first: bool = False


class Published(Struct, frozen=True):
    """A series as it is imported. `hours` and `ends` are those of spells with capacity, before they are weighted."""

    cells: list[tuple[int, float, float]]
    hours: float = 0.0
    ends: float = 0.0
    prices: PriceCounts | None = None


def spells_of_ticks(ticks: Sequence[float], tick_s: float, since_t: float = 0.0) -> list[Spell]:
    """Spells of every machine of a series of counts: machine k is there while more than k machines are."""
    return spells_of_counts(ticks, [since_t + tick * tick_s for tick in range(len(ticks) + 1)])


def spells_of_counts(counts: Sequence[float], times: Sequence[float]) -> list[Spell]:
    """The same of counts at any times: the k-th count holds from the k-th of `times` to the next."""
    found: list[Spell] = []
    for machine in range(max(1, round(max(counts)))):
        start = 0
        for place in range(1, len(counts) + 1):
            ended = place < len(counts) and (counts[place] > machine) != (counts[start] > machine)
            if ended or place == len(counts):
                kind = HERE if counts[start] > machine else AWAY
                found.append(Spell(kind, times[start], times[place], ended, start == 0))
                start = place
    return found


def from_spells(spells: Iterable[Spell], machines: int, has_clock: bool) -> Published:
    """Count spells of machines of one offer, which go together: each counts for one part of `machines`.

    Without `has_clock` the hour of the day is not known, and every hour gets an equal part.
    """
    counts, rules = SpellCounts(), CountSettings()
    for spell in spells:
        begun_t = spell.from_t - rules.unknown_age_s if spell.is_first else spell.from_t
        count(counts, spell.kind, begun_t, spell.from_t, spell.to_t, spell.ended)
    cells = [(place, ends / machines, hours / machines) for place, (ends, hours) in sorted(counts.cells.items())]
    cells = cells if has_clock else _every_hour(cells)
    here = [cell for cell in cells if cell[0] < CLASSES * DAY_H]
    hours, ends = sum(cell[2] for cell in here), sum(cell[1] for cell in here)
    weight = 1.0 / max(1.0, hours / MOST_H)
    return Published([(place, ends * weight, hours * weight) for place, ends, hours in cells], hours, ends)


def _every_hour(cells: Sequence[tuple[int, float, float]]) -> list[tuple[int, float, float]]:
    sums: dict[int, tuple[float, float]] = {}
    for place, ends, hours in cells:
        before = sums.get(place // DAY_H, (0.0, 0.0))
        sums[place // DAY_H] = before[0] + ends, before[1] + hours
    return [
        (row * DAY_H + hour, ends / DAY_H, hours / DAY_H)
        for row, (ends, hours) in sorted(sums.items())
        for hour in range(DAY_H)
    ]


def from_prices(steps: Sequence[tuple[float, float]]) -> Published:
    """Count prices per hour, each with the time from which it holds; the last one ends the series."""
    prices = PriceCounts()
    for t, usd in steps:
        priced(prices, t, usd)
    return Published([], prices=prices)


def per_cycle(prices: PriceCounts, cycle_s: float) -> PriceCounts:
    """Prices per hour as prices of a billing cycle. Only sums: the last price of a past series is not of now."""
    part = cycle_s / 3600.0
    return PriceCounts(
        prices.changes, prices.held_s, prices.sum_usd * part, prices.squares_usd * part**2, prices.low_usd * part,
        prices.high_usd * part, log_squares=prices.log_squares,
    )  # fmt: skip
