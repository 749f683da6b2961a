"""The law of one offer at one moment, from the counts that the engine keeps. Pure: counts in, hazard rates out.

The same law as in `law`: rates by age of the spell, level of the market, hour of the day and regime, each layer
weighted by its observations. What a live server does not see every tick is filled in: a told rate is the prior; the
offers of one pool are the prior of each of them; machines that are still up count with their time so far; a recent
run of interruptions, or its absence, is the regime. Machines that are interrupted together count less than as many
independent ones.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from windfall.planning.contract import Market, Snapshot
from windfall.planning.counts import AGES_H, AWAY, CLASSES, DAY_H, HERE, HOUR_S, CountSettings, SpellCounts, count
from windfall.planning.offers import Offer
from windfall.planning.spot.law import LEARNING, PRIOR, Array, by_hour_of

USUAL_INTERRUPTIONS_PER_H = 0.5
USUAL_RESUMES_PER_H = 2.0
USUAL_WEIGHT = 0.3
"""Weight, in events, of the usual rates. It is small: real rates range from 0.1 to 10 per hour."""
USUAL_HIBERNATIONS_WEIGHT = 0.1
"""The same for hibernations, of which no series are published. A gamma law of this weight and a mean of 0.5 per hour
reaches up to about 5 per hour; one with a weight of 0.3 hardly to 2, and unlearns that too slowly."""
GUESS_WEIGHT = 4.0
"""Weight, in events, of a rate that the offer states."""
POOL_WEIGHT = 4.0
"""Weight, in events, of the rate of the pool in that of one offer."""
SHARED_FATE = 0.5
"""Share of the machines of one offer that are assumed to be interrupted together, before any has been."""
SHARED_FATE_OF_OFFERS = 0.25
"""The chance that another offer of a pool is interrupted together with an offer, before any pair has been seen."""
FATE_WEIGHT = 2.0
"""Weight, in interruptions, of what is assumed of a shared fate, and of its relatives' in that of one pair."""
MAX_MACHINES_AT_ONCE = 50.0
"""Above this, more machines at once do not lower the weight of an interruption further."""
REGIME_WEIGHT = 2.0
"""Weight, in events, of "as usual" in the present regime of an offer."""
MAX_REGIME = 4.0
"""A regime multiplies or divides the usual rate by at most this."""
USUAL_AGE = 4
"""Age class at which the usual rate holds: most spells were not seen to begin and are about an hour old or more."""


class HazardRates(Struct, frozen=True):
    """Hazard rates of an offer, per second, at one moment.

    `interrupts_per_s` is the mean over the next hour of a machine that is up now; `by_age` are the rates by age class
    of the spell, whose present age is `age_s`. `returns_by_age` are those at which absent capacity comes back, which
    has been absent for `away_s` (None: there is capacity, or nothing is known).
    """

    interrupts_per_s: float
    resumes_per_s: float
    by_age: tuple[float, ...] = ()
    age_s: float = 0.0
    returns_by_age: tuple[float, ...] = ()
    away_s: float | None = None

    def ahead(self, ahead_s: Array) -> Array:
        """Interruptions per second of a machine that is up now, this number of seconds ahead."""
        if not self.by_age:
            return np.full(len(ahead_s), self.interrupts_per_s)
        return at_ages(self.by_age, self.age_s + ahead_s)

    def back_within(self, seconds: float) -> float:
        """The chance that absent capacity is back after this number of seconds; 1.0 where it is not absent."""
        if self.away_s is None or not self.returns_by_age:
            return 1.0
        steps = self.away_s + (np.arange(64, dtype=np.float64) + 0.5) * (seconds / 64)
        return -math.expm1(-float(at_ages(self.returns_by_age, steps).sum()) * seconds / 64)


def at_ages(by_age: Sequence[float], ages_s: Array) -> Array:
    places = np.searchsorted(AGES_S, ages_s, side="right") - 1
    found: Array = np.asarray(by_age)[np.maximum(places, 0)]
    return found


AGES_S = np.array(AGES_H) * HOUR_S
NEXT_HOUR_S = (np.arange(12, dtype=np.float64) + 0.5) * (HOUR_S / 12)


def observed_markets(snapshot: Snapshot) -> dict[str, Market]:
    """What was seen of each offer, the present spell of machines that are up or hibernated included."""
    up: list[tuple[str, float]] = []
    hibernated: list[tuple[str, float]] = []
    for machine in snapshot.machines:
        if machine.hibernated_since_t is not None:
            hibernated.append((machine.offer.key, machine.hibernated_since_t))
        elif machine.up_since_t is not None:
            up.append((machine.offer.key, machine.up_since_t))
    return with_machines(snapshot.markets, up, hibernated, snapshot.t)


def with_machines(
    markets: Mapping[str, Market], up: Sequence[tuple[str, float]], hibernated: Sequence[tuple[str, float]], t: float
) -> dict[str, Market]:
    """The markets with the time so far of machines that are there: (key of the offer, up or hibernated since)."""
    found = dict(markets)
    for key, since_t in hibernated:
        seen = found.get(key, Market())
        found[key] = replace(seen, hibernated_s=seen.hibernated_s + t - since_t)
    for key, since_t in up:
        seen = found.get(key, Market())
        found[key] = replace(seen, up_s=seen.up_s + t - since_t)
    for (key, since_t), machines in Counter(up).items():
        if (counts := found[key].counts) is not None:
            found[key] = replace(found[key], counts=_censored(counts, since_t, t, machines))
    return found


def _censored(counts: SpellCounts, since_t: float, t: float, machines: int) -> SpellCounts:
    """The counts with the time so far of machines that are up since the same moment."""
    more = SpellCounts()
    begun_t = since_t if counts.here_t is None else min(counts.here_t, since_t)
    count(more, HERE, begun_t, since_t, t, ended=False)
    cells = dict(counts.cells)
    for place, (_, hours) in more.cells.items():
        ends, before_h = cells.get(place, (0.0, 0.0))
        cells[place] = (ends, before_h + machines * hours)
    return replace(counts, cells=cells, recent_h=counts.recent_h + machines * (t - since_t) / HOUR_S, seen_t=t)


class Learner:
    """Learns the rates of all offers at one moment; what the offers of a pool share is computed once.

    `since_s`: seconds of observation.
    """

    def __init__(self, markets: Mapping[str, Market], since_s: float = math.inf, t: float | None = None) -> None:
        self.markets, self.since_s, self.t = markets, since_s, t
        self._seen: dict[tuple[str, bool], _Seen] = {}
        self._pools: dict[tuple[str, bool], _Seen] = {}
        self._returns: dict[str, tuple[float, ...]] = {}
        self._fates: dict[str, dict[int, tuple[int, int]]] = {}

    def rates(self, offer: Offer) -> HazardRates:
        """Rates of an offer: its stated rate or the usual one, updated by its pool's events and then its own."""
        own, known = self.markets.get(offer.key, Market()), offer.interruptions_per_h is not None
        guess = max(offer.interruptions_per_h or 0.0, 1e-3) if known else USUAL_INTERRUPTIONS_PER_H
        is_flat = known or offer.when_taken != "terminate"
        seen, pool = self._of(offer.key, own, is_flat), self._pool(offer.pool, is_flat)
        usual_weight = USUAL_WEIGHT if offer.when_taken == "terminate" else USUAL_HIBERNATIONS_WEIGHT
        level = _two_layers(guess / HOUR_S, GUESS_WEIGHT if known else usual_weight, pool.total, seen.total)
        by_age = _by_age(level, _shape(is_flat), pool, seen)
        now_t = self.t if self.t is not None else own.counts.seen_t or 0.0 if own.counts is not None else 0.0
        by_age = by_age * _now_factor(own, by_age, seen.weight, now_t)
        away_t = None if own.counts is None else own.counts.away_t
        rates = HazardRates(
            0.0, 0.0, tuple(map(float, by_age)), _age_s(own.counts, now_t), self._back(offer.pool),
            None if away_t is None else max(0.0, now_t - away_t),
        )  # fmt: skip
        rates = replace(rates, interrupts_per_s=float(rates.ahead(NEXT_HOUR_S).mean()))
        return rates if offer.when_taken == "terminate" else replace(rates, resumes_per_s=self._resumes(offer, own))

    def shared_fate(self, offer: Offer, other: Offer) -> float:
        """The chance that a machine of another offer, or another one of the same, is interrupted with one of `offer`.

        Pairs of offers whose names share as many words (a zone, a type, a family) are the prior of each pair.
        """
        if offer.pool != other.pool:
            return 0.0
        seen = self.markets.get(offer.key)
        if offer.key == other.key:
            counts = SpellCounts() if seen is None or seen.counts is None else seen.counts
            peers = max(counts.peers, counts.peers_lost)
            return (counts.peers_lost + FATE_WEIGHT * SHARED_FATE) / (peers + FATE_WEIGHT)
        kin_went, kin_beside = self._kin(offer.pool).get(_words_shared(offer.key, other.key), (0, 0))
        usual = (kin_went + FATE_WEIGHT * SHARED_FATE_OF_OFFERS) / (kin_beside + FATE_WEIGHT)
        went, beside = _pair(seen, other.key)
        return (went + FATE_WEIGHT * usual) / (beside + FATE_WEIGHT)

    def _kin(self, pool: str) -> dict[int, tuple[int, int]]:
        """By number of words that two names share: interruptions of both together, and of one beside the other."""
        if pool not in self._fates:
            found: dict[int, tuple[int, int]] = {}
            for key, market in self._members(pool):
                counts = market.counts or SpellCounts()
                for other in sorted({*counts.beside, *counts.together}):
                    words, pair = _words_shared(key, other), _pair(market, other)
                    before = found.get(words, (0, 0))
                    found[words] = before[0] + pair[0], before[1] + pair[1]
            self._fates[pool] = found
        return self._fates[pool]

    def _resumes(self, offer: Offer, own: Market) -> float:
        known = offer.resumes_per_h is not None
        guess = max(offer.resumes_per_h or 0.0, 1e-3) if known else USUAL_RESUMES_PER_H
        pool = [market for _, market in self._members(offer.pool)]
        total = sum(m.resumed for m in pool), math.fsum(m.hibernated_s for m in pool)
        weight = GUESS_WEIGHT if known else USUAL_WEIGHT
        return _two_layers(guess / HOUR_S, weight, total, (own.resumed, own.hibernated_s))

    def _members(self, pool: str) -> list[tuple[str, Market]]:
        return [(key, market) for key, market in sorted(self.markets.items()) if key.rpartition("/")[0] == pool]

    def _of(self, key: str, market: Market, is_flat: bool) -> _Seen:
        if (key, is_flat) not in self._seen:
            self._seen[key, is_flat] = _independent(market, self.since_s, _shape(is_flat))
        return self._seen[key, is_flat]

    def _pool(self, pool: str, is_flat: bool) -> _Seen:
        if (pool, is_flat) not in self._pools:
            parts = [_for_pool(self._of(key, market, is_flat)) for key, market in self._members(pool)]
            self._pools[pool, is_flat] = _Seen(
                (math.fsum(part.total[0] for part in parts), math.fsum(part.total[1] for part in parts)),
                sum((part.ends for part in parts), np.zeros(CLASSES)),
                sum((part.up_s for part in parts), np.zeros(CLASSES)), 1.0,
            )  # fmt: skip
        return self._pools[pool, is_flat]

    def _back(self, pool: str) -> tuple[float, ...]:
        """By age of an absence: the rate per second at which capacity comes back, in this pool."""
        if pool not in self._returns:
            table, weight = PRIOR.table()[AWAY] / HOUR_S, LEARNING.level_weight
            parts = [
                by_age_and_hour(counts, AWAY)
                for _, market in self._members(pool)
                for counts in (market.counts, market.imported)
            ]
            ends = sum((part[0].sum(axis=1) for part in parts), np.zeros(CLASSES))
            seconds = sum((part[1].sum(axis=1) for part in parts), np.zeros(CLASSES))
            usual = table * (ends.sum() + weight) / (float(seconds @ table) + weight)
            found = (ends + LEARNING.age_weight) / (seconds + LEARNING.age_weight / usual)
            self._returns[pool] = tuple(map(float, found))
        return self._returns[pool]


def learned_rates(
    offer: Offer, markets: Mapping[str, Market], since_s: float = math.inf, t: float | None = None
) -> HazardRates:
    """The rates of one offer: see `Learner`."""
    return Learner(markets, since_s, t).rates(offer)


def _pair(market: Market | None, other: str) -> tuple[int, int]:
    """Interruptions of an offer that hit another one as well, and those at which that one had machines up."""
    counts = SpellCounts() if market is None or market.counts is None else market.counts
    went = counts.together.get(other, 0)
    return went, max(went, counts.beside.get(other, 0))


def _words_shared(key: str, other: str) -> int:
    """How many words the names of two offers of a pool have in common: `spot-m5-1a` and `spot-m5-1b` two."""
    return len({*re.findall(r"\w+", key.rpartition("/")[2])} & {*re.findall(r"\w+", other.rpartition("/")[2])})


def _shape(is_flat: bool) -> Array:
    """Prior rates by age over the usual rate: constant, or as in published series."""
    return np.ones(CLASSES) if is_flat else PRIOR.table()[HERE] / PRIOR.here[USUAL_AGE]


class _Seen(Struct, frozen=True):
    """Independent interruptions of one offer: their number and the seconds up, in all and by age class."""

    total: tuple[float, float]
    ends: Array
    up_s: Array
    weight: float


def _independent(market: Market, since_s: float, shape: Array) -> _Seen:
    """Interruptions and seconds up, weighted down to independent ones: lack of capacity hits many machines at once.

    How many at once is learned from the spells of interruptions; before the first, it follows from `SHARED_FATE`.
    Seconds at ages with a high prior rate count more.
    """
    events = market.reclaimed + market.hibernated
    at_once = market.up_s / since_s if since_s > 0.0 else 1.0
    assumed = 1.0 + SHARED_FATE * (min(max(at_once, 1.0), MAX_MACHINES_AT_ONCE) - 1.0)
    weight = (market.spells + 1.0) / (max(events, market.spells) + assumed)
    ends, up_s = by_age_and_hour(market.counts, HERE)
    by_age = up_s.sum(axis=1)
    exposed_s = max(0.0, market.up_s + float(by_age @ (shape - 1.0)))
    # Published series follow one machine, so their ends are independent already.
    more_ends, more_s = (each.sum(axis=1) for each in by_age_and_hour(market.imported, HERE))
    total = events * weight + float(more_ends.sum()), exposed_s * weight + float(more_s @ shape)
    return _Seen(total, ends.sum(axis=1) * weight + more_ends, by_age * weight + more_s, weight)


def _for_pool(seen: _Seen) -> _Seen:
    """What one offer says of the others of its pool: never more than `POOL_WEIGHT` interruptions.

    Offers differ from their pool as much as `POOL_WEIGHT` says, so that one of them, however long it was watched, tells
    little of those that were not: an offer that has turned bad must not make the others look as bad.
    """
    share = POOL_WEIGHT / (POOL_WEIGHT + seen.total[0])
    ends, up_s = seen.total
    return _Seen((ends * share, up_s * share), seen.ends * share, seen.up_s * share, seen.weight)


def by_age_and_hour(counts: SpellCounts | None, kind: int) -> tuple[Array, Array]:
    """Ends and seconds of one kind of spell, by age class and hour of the day."""
    ends, seconds = np.zeros((CLASSES, DAY_H)), np.zeros((CLASSES, DAY_H))
    for place, (ended, hours) in counts.cells.items() if counts is not None else ():
        age, hour = divmod(place - kind * CLASSES * DAY_H, DAY_H)
        if 0 <= age < CLASSES:
            ends[age, hour], seconds[age, hour] = ended, hours * HOUR_S
    return ends, seconds


def _two_layers(guess: float, weight: float, pool: tuple[float, float], own: tuple[float, float]) -> float:
    """A rate from (events, seconds) of a pool and of one of its offers. The guess is the prior of the pool's rate,
    which is the prior of the offer's.
    """
    rate = (weight + pool[0]) / (weight / guess + pool[1])
    return (POOL_WEIGHT + own[0]) / (POOL_WEIGHT / rate + own[1])


def _by_age(level: float, shape: Array, pool: _Seen, own: _Seen) -> Array:
    """Rates by age: the shape is learned from the pool, then from the offer itself."""
    weight, usual = LEARNING.age_weight, level * shape
    expected = pool.up_s * usual
    # Only the shape: that the pool as a whole is better or worse than this offer says nothing here.
    ratio = (pool.ends.sum() + weight) / (expected.sum() + weight)
    usual = usual * (pool.ends + weight) / (expected * ratio + weight)
    found: Array = (own.ends + weight) / (own.up_s + weight / usual)
    return found


def _now_factor(market: Market, by_age: Array, weight: float, t: float) -> float:
    """Factor on the rates at this moment: the hour of the day, and whether interruptions were recently frequent."""
    counts = market.counts or SpellCounts()
    ends, seconds = by_age_and_hour(counts, HERE)
    more_ends, more_s = by_age_and_hour(market.imported, HERE)
    by_hour = ends.sum(axis=0) * weight + more_ends.sum(axis=0)
    expected_by_hour = ((seconds * weight + more_s) * by_age[:, None]).sum(axis=0)
    daily = by_hour_of(by_hour, expected_by_hour, LEARNING)
    mean = float(seconds.sum(axis=1) @ by_age) / max(1.0, float(seconds.sum()))
    kept: float = weight * 0.5 ** (max(0.0, t - counts.recent_t) / CountSettings().recent_s)
    expected = counts.recent_h * HOUR_S * mean
    regime = (REGIME_WEIGHT + kept * counts.recent_ends) / (REGIME_WEIGHT + kept * expected)
    hour = int(t / HOUR_S % DAY_H)
    return float(daily[hour]) * min(MAX_REGIME, max(1.0 / MAX_REGIME, regime))


def _age_s(counts: SpellCounts | None, t: float) -> float:
    """The age of the spell that a machine started now would belong to."""
    usual_s = AGES_H[USUAL_AGE] * HOUR_S
    if counts is None or (counts.here_t is None and counts.away_t is None):
        return usual_s
    if counts.away_t is not None:
        return 0.0 if t - (counts.seen_t or t) <= CountSettings().gap_s else usual_s
    return max(0.0, t - (counts.here_t or t)) if t - (counts.seen_t or t) <= CountSettings().gap_s else usual_s
