"""What was observed of one spot offer, as counts that stay small. Pure counting: nothing here estimates or chooses.

A spell is a stretch of time with capacity (`HERE`) or without (`AWAY`). Launches and machines that are up show the
first, refusals and interruptions the second. Ends of spells and hours are counted by kind of spell, age of the spell
and hour of the day; `planning.spot.law` turns the counts into hazard rates. Live servers, the simulator and imported
series all count here.
"""

from __future__ import annotations

import math
from bisect import bisect_right

from msgspec import Struct, field
from msgspec.structs import replace

# Ages in hours at which the rate may change; coarser with age because the rate is roughly a power of it.
AGES_H = (0.0, 0.17, 0.34, 0.6, 1.0, 1.7, 3.0, 5.0, 8.0, 13.0, 21.0)
CLASSES = len(AGES_H)
DAY_H = 24
HERE, AWAY = 0, 1
HOUR_S = 3600.0
# Ends per hour by age of a spell, with capacity and without: the prior of every market (`planning.spot.law`).
# Fitted by `fit_prior` to 17 public series of GPU and CPU machines on two clouds, 2022 and 2023.
USUAL_ENDS_PER_H = (
    (1.844, 1.3562, 0.9668, 0.7113, 0.4254, 0.3009, 0.1852, 0.1502, 0.0955, 0.0868, 0.0353),
    (2.3137, 1.6966, 1.1804, 0.8143, 0.5037, 0.4337, 0.248, 0.1391, 0.1189, 0.1188, 0.0459),
)
CLOCK_ERROR_S = 1e-6
LATELY_HALF_LIFE_H = 16.0
"""Of what is compared with the usual rates, to see whether a market has better or worse days."""


class CountSettings(Struct, frozen=True, array_like=True):
    """Parameters of the counting; the engine records them, so that a replay counts as it was counted then."""

    gap_s: float = 1800.0
    """Seconds without any sign of an offer after which its spell counts as unknown."""
    recent_s: float = 7200.0
    """Half-life of what counts as recent."""
    unknown_age_s: float = 3600.0
    """Age of a spell with capacity that was not seen to begin: most are old, because a long one is met more often."""
    partners: int = 32
    """Offers for which it is counted that they are interrupted together with one offer."""


class PriceCounts(Struct, array_like=True):
    """Prices of one offer, weighted by the seconds for which each held."""

    changes: int = 0
    held_s: float = 0.0
    sum_usd: float = 0.0
    squares_usd: float = 0.0
    low_usd: float = math.inf
    high_usd: float = 0.0
    last_usd: float = 0.0
    last_t: float | None = None
    log_squares: float = 0.0
    """Squares of the changes of the logarithm of the price."""


class SpellCounts(Struct, array_like=True):
    """Everything that was counted of one offer."""

    cells: dict[int, tuple[float, float]] = field(default_factory=dict)
    """(ends, hours) by place: see `place_of`. Only places that were observed."""
    launches: int = 0
    notices: int = 0
    here_t: float | None = None
    """When the present spell with capacity began, or is assumed to have begun."""
    away_t: float | None = None
    """When capacity was first seen to be gone; None while there is some."""
    seen_t: float | None = None
    """The last sign of either."""
    recent_ends: float = 0.0
    recent_h: float = 0.0
    recent_t: float = 0.0
    together: dict[str, int] = field(default_factory=dict)
    """Interruptions that hit another offer at the same time, by its key."""
    prices: PriceCounts = field(default_factory=PriceCounts)
    imported_h: float = 0.0
    """Hours that come from imported series."""
    beside: dict[str, int] = field(default_factory=dict)
    """Interruptions at which another offer had machines up, by its key: `together` says at how many of them it was
    interrupted as well."""
    peers: int = 0
    """Other machines of the same offer that were up when an interruption began."""
    peers_lost: int = 0
    """Those of them that were interrupted as well."""
    lately: tuple[float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0)
    """Ends of spells with capacity and their number by the usual rates, the same of spells without, and the moment.
    What lies back counts less, by `LATELY_HALF_LIFE_H`."""


def place_of(kind: int, age_h: float, hour: int) -> int:
    """The place of a kind of spell, an age in hours and an hour of the day in `SpellCounts.cells`."""
    return (kind * CLASSES + bisect_right(AGES_H, age_h) - 1) * DAY_H + hour


def count(counts: SpellCounts, kind: int, begun_t: float, from_t: float, to_t: float, ended: bool) -> None:
    """Add the part of a spell from `from_t` to `to_t`; the spell began at `begun_t` and may have `ended` at `to_t`."""
    at_t, usual = max(from_t, begun_t), 0.0
    while at_t < to_t:
        age_h = (at_t - begun_t) / HOUR_S
        older = bisect_right(AGES_H, age_h)
        next_age_t = begun_t + AGES_H[older] * HOUR_S if older < CLASSES else math.inf
        next_hour_t = (math.floor(at_t / HOUR_S) + 1.0) * HOUR_S
        until_t = min(to_t, max(next_age_t, math.nextafter(at_t, math.inf)), next_hour_t)
        _add(counts, place_of(kind, age_h, int(at_t / HOUR_S % DAY_H)), 0.0, (until_t - at_t) / HOUR_S)
        usual += USUAL_ENDS_PER_H[kind][older - 1] * (until_t - at_t) / HOUR_S
        at_t = until_t
    if ended:
        # At the middle of the last second: an end at the edge of an age class belongs to the younger one.
        last_t = max(begun_t, to_t - 0.5)
        _add(counts, place_of(kind, (last_t - begun_t) / HOUR_S, int(last_t / HOUR_S % DAY_H)), 1.0, 0.0)
    _add_lately(counts, kind, float(ended), usual, to_t)


def lately(counts: SpellCounts, t: float) -> list[float]:
    """What was counted lately, as it weighs at t: see `SpellCounts.lately`."""
    *sums, before_t = counts.lately
    kept: float = 0.5 ** (max(0.0, t - before_t) / HOUR_S / LATELY_HALF_LIFE_H)
    return [kept * value for value in sums]


def _add_lately(counts: SpellCounts, kind: int, ends: float, usual: float, t: float) -> None:
    sums = lately(counts, t)
    sums[2 * kind] += ends
    sums[2 * kind + 1] += usual
    counts.lately = (sums[0], sums[1], sums[2], sums[3], max(t, counts.lately[4]))


def _add(counts: SpellCounts, place: int, ends: float, hours: float) -> None:
    before = counts.cells.get(place, (0.0, 0.0))
    counts.cells[place] = (before[0] + ends, before[1] + hours)


def launched(counts: SpellCounts, t: float, rules: CountSettings) -> None:
    """An order was taken: there is capacity."""
    counts.launches += 1
    came_back(counts, t, rules)


def came_back(counts: SpellCounts, t: float, rules: CountSettings) -> None:
    """There is capacity now: an order was taken or a machine resumed."""
    # Less a rounding error of the clock: signs that lie just the gap apart must count alike everywhere.
    silent_s = 0.0 if counts.seen_t is None else t - counts.seen_t - CLOCK_ERROR_S
    if counts.away_t is not None and silent_s <= rules.gap_s:
        count(counts, AWAY, counts.away_t, counts.away_t, t, ended=True)
        counts.here_t = t
    elif counts.away_t is not None or counts.here_t is None or silent_s > rules.gap_s:
        # Nobody has looked for long: when the spell began is not known, nor when the one before ended.
        counts.here_t = t - rules.unknown_age_s
    counts.away_t, counts.seen_t = None, t


def refused(counts: SpellCounts, t: float) -> None:
    """An order was refused for want of capacity."""
    _gone(counts, t)


def _gone(counts: SpellCounts, t: float) -> None:
    if counts.away_t is None:
        counts.away_t = t
    counts.seen_t = t


def was_up(counts: SpellCounts, since_t: float, until_t: float, interrupted: bool, rules: CountSettings) -> None:
    """A machine was up between two moments; the provider interrupted it at the second one, or we gave it back."""
    begun_t = since_t if counts.here_t is None else min(counts.here_t, since_t)
    count(counts, HERE, begun_t, since_t, until_t, interrupted)
    kept = 0.5 ** (max(0.0, until_t - counts.recent_t) / rules.recent_s)
    counts.recent_ends = kept * counts.recent_ends + interrupted
    counts.recent_h = kept * counts.recent_h + max(0.0, until_t - since_t) / HOUR_S
    counts.recent_t = max(until_t, counts.recent_t)
    if interrupted:
        _gone(counts, until_t)
    else:
        counts.seen_t = max(until_t, counts.seen_t or until_t)


def went_together(counts: SpellCounts, other: str, rules: CountSettings) -> None:
    """Another offer was interrupted at the same time; of very many offers only the first are counted."""
    _add_partner(counts.together, other, rules)


def was_beside(counts: SpellCounts, other: str, rules: CountSettings) -> None:
    """An interruption began while another offer had machines up."""
    _add_partner(counts.beside, other, rules)


def _add_partner(partners: dict[str, int], other: str, rules: CountSettings) -> None:
    if other in partners or len(partners) < rules.partners:
        partners[other] = partners.get(other, 0) + 1


def priced(prices: PriceCounts, t: float, usd: float) -> None:
    """A price holds from now on; the one before has held until now."""
    if prices.last_t is not None:
        held_s = max(0.0, t - prices.last_t)
        prices.held_s += held_s
        prices.sum_usd += held_s * prices.last_usd
        prices.squares_usd += held_s * prices.last_usd**2
        prices.changes += usd != prices.last_usd
        if usd > 0.0 and prices.last_usd > 0.0:
            prices.log_squares += math.log(usd / prices.last_usd) ** 2
    prices.low_usd, prices.high_usd = min(prices.low_usd, usd), max(prices.high_usd, usd)
    prices.last_usd, prices.last_t = usd, t


class SeriesSource(Struct, frozen=True, array_like=True):
    """A published series that was imported: its name and digest, and what it holds, before it is weighted."""

    name: str
    digest: str
    hours: float
    """Machine hours with capacity."""
    ends: float
    """Interruptions."""
    price_changes: int = 0


def add_series(counts: SpellCounts, cells: list[tuple[int, float, float]], prices: PriceCounts | None) -> None:
    """Add (place, ends, hours) of a published series, and its prices of a cycle."""
    for place, ends, hours in cells:
        _add(counts, place, ends, hours)
        if place < CLASSES * DAY_H:
            counts.imported_h += hours
    if prices is not None:
        sums, low, high = counts.prices, prices.low_usd, prices.high_usd
        sums.changes, sums.held_s = sums.changes + prices.changes, sums.held_s + prices.held_s
        sums.sum_usd, sums.squares_usd = sums.sum_usd + prices.sum_usd, sums.squares_usd + prices.squares_usd
        sums.low_usd, sums.high_usd = min(sums.low_usd, low), max(sums.high_usd, high)
        sums.log_squares += prices.log_squares


def copied(counts: SpellCounts) -> SpellCounts:
    """A copy that later events do not change."""
    return replace(
        counts, cells=dict(counts.cells), together=dict(counts.together), prices=replace(counts.prices),
        beside=dict(counts.beside),
    )  # fmt: skip
