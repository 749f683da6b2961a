"""What was learned of each offer, and what it rests on. Reads a state; decides nothing."""

from __future__ import annotations

import math
from typing import Any

from msgspec import to_builtins

from windfall.api.market import ByAge, ByHour, Capacity, LearnedOffer, PricesSeen
from windfall.core.state.renting.fleet import HIBERNATED, MachineState, Seen, awake_since
from windfall.core.state.state import State
from windfall.planning.contract import SPOT, Market
from windfall.planning.counts import AGES_H, AWAY, CLASSES, DAY_H, HERE, HOUR_S
from windfall.planning.offers import Offer, PriceLaw
from windfall.planning.price_law import learned_law
from windfall.planning.spot.live import HazardRates, Learner, by_age_and_hour, with_machines


def market_rows(state: State, now: float) -> list[LearnedOffer]:
    """One row for each offer that is known or was seen. A public contract: docs/reference/cli.md, `market show`."""
    offers, learner = _offers(state), learner_of(state, now)
    markets = _markets(state, now)
    keys = sorted({*offers, *state.fleet.markets})
    return [_row(state, key, offers, markets.get(key, Market()), learner, now) for key in keys]


def learner_of(state: State, now: float) -> Learner:
    """What is learned at a moment of all spot offers. On-demand machines say nothing of interruptions."""
    offers, markets = _offers(state), _markets(state, now)
    return Learner({key: market for key, market in markets.items() if _is_spot(offers.get(key), market)}, t=now)


def _offers(state: State) -> dict[str, Offer]:
    return {offer.key: offer for each in state.fleet.offers.values() for offer in each}


def _is_spot(offer: Offer | None, market: Market) -> bool:
    return offer.market == SPOT if offer is not None else market.imported is not None or market.reclaimed > 0


def _markets(state: State, now: float) -> dict[str, Market]:
    """What was seen of every offer, the machines that are there included."""
    there = state.fleet.there.values()
    up = [(machine.offer.key, awake_since(machine)) for machine in there if machine.phase != HIBERNATED]
    hibernated = [(machine.offer.key, machine.sleeps[-1][0]) for machine in there if machine.phase == HIBERNATED]
    return with_machines({key: seen.market() for key, seen in state.fleet.markets.items()}, up, hibernated, now)


def _row(
    state: State, key: str, offers: dict[str, Offer], market: Market, learner: Learner, now: float
) -> LearnedOffer:
    seen, offer = state.fleet.markets.get(key, Seen()), offers.get(key)
    pool, _, name = key.rpartition("/")
    machines: list[MachineState] = [one for one in state.fleet.there.values() if one.offer.key == key]
    rates = learner.rates(offer) if offer is not None and offer.market == SPOT else None
    return {
        "pool": pool,
        "offer": name,
        "market": None if offer is None else offer.market,
        "price_usd": None if offer is None else offer.price_usd,
        "cycle_s": None if offer is None else offer.cycle_s,
        "machines": len(machines),
        "launches": seen.started,
        "refused": seen.refused,
        "notices": seen.counts.notices,
        "reclaimed": seen.reclaimed,
        "hibernated": seen.hibernated,
        "resumed": seen.resumed,
        "interruptions": seen.spells,
        "up_s": market.up_s,
        "hibernated_s": market.hibernated_s,
        "told_per_h": None if offer is None else offer.interruptions_per_h,
        "interrupted_per_h": None if rates is None else HOUR_S * rates.interrupts_per_s,
        "resumed_per_h": HOUR_S * rates.resumes_per_s if rates is not None and rates.resumes_per_s else None,
        "capacity": _capacity(seen, now),
        "by_age": [] if rates is None else _by_age(market, rates),
        "by_hour": [] if rates is None else _by_hour(market),
        "prices": _prices(seen),
        "price_moves": None if (law := price_law(seen)) is None else to_builtins(law),
        "together": dict(sorted(seen.counts.together.items())),
        "shared_fate": {} if offer is None or rates is None else _shared_fate(offer, offers, learner),
        "sources": [
            {"source": one.name, "digest": one.digest[:12], "up_h": one.hours, "interruptions": one.ends,
             "price_changes": one.price_changes}
            for one in seen.sources
        ],
    }  # fmt: skip


def _shared_fate(offer: Offer, offers: dict[str, Offer], learner: Learner) -> dict[str, float]:
    """By key of a spot offer of its pool, itself included: the chance that it is interrupted with this one."""
    spot = [other for _, other in sorted(offers.items()) if other.market == SPOT and other.pool == offer.pool]
    return {other.key: round(learner.shared_fate(offer, other), 4) for other in spot}


def _capacity(seen: Seen, now: float) -> Capacity:
    counts = seen.counts
    if counts.seen_t is None or (counts.here_t is None and counts.away_t is None):
        return {"state": "unknown", "since_s": None, "seen_s_ago": None}
    since_t = counts.away_t if counts.away_t is not None else counts.here_t
    assert since_t is not None
    state = "absent" if counts.away_t is not None else "there"
    return {"state": state, "since_s": max(0.0, now - since_t), "seen_s_ago": max(0.0, now - counts.seen_t)}


def _evidence(market: Market, kind: int) -> tuple[Any, Any]:
    own, imported = by_age_and_hour(market.counts, kind), by_age_and_hour(market.imported, kind)
    return own[0] + imported[0], (own[1] + imported[1]) / HOUR_S


def _by_age(market: Market, rates: HazardRates) -> list[ByAge]:
    """By age of the spell: learned rates, and the ends and hours (imported ones included) that they rest on."""
    (ends, up_h), (returns, away_h) = _evidence(market, HERE), _evidence(market, AWAY)
    return [
        {
            "from_s": AGES_H[age] * HOUR_S,
            "to_s": AGES_H[age + 1] * HOUR_S if age + 1 < CLASSES else None,
            "interrupted_per_h": HOUR_S * rates.by_age[age],
            "ends": float(ends[age].sum()),
            "up_h": float(up_h[age].sum()),
            "returns_per_h": HOUR_S * rates.returns_by_age[age],
            "returns": float(returns[age].sum()),
            "absent_h": float(away_h[age].sum()),
        }
        for age in range(CLASSES)
    ]


def _by_hour(market: Market) -> list[ByHour]:
    """By hour of the day (UTC): interruptions, and hours up."""
    ends, up_h = _evidence(market, HERE)
    return [
        {"hour": hour, "ends": float(ends[:, hour].sum()), "up_h": float(up_h[:, hour].sum())} for hour in range(DAY_H)
    ]


def price_law(seen: Seen | None) -> PriceLaw | None:
    """How the prices of an offer move, by what was watched and imported."""
    if seen is None:
        return None
    return learned_law([seen.counts.prices, *([] if seen.imported is None else [seen.imported.prices])])


def _prices(seen: Seen) -> PricesSeen | None:
    """Prices of a cycle over the time for which they were watched or imported."""
    parts = [seen.counts.prices, *([] if seen.imported is None else [seen.imported.prices])]
    held_s = math.fsum(part.held_s for part in parts)
    if not held_s:
        return None
    mean = math.fsum(part.sum_usd for part in parts) / held_s
    variance = max(0.0, math.fsum(part.squares_usd for part in parts) / held_s - mean**2)
    return {
        "mean_usd": mean,
        "spread_usd": math.sqrt(variance),
        "low_usd": min(part.low_usd for part in parts),
        "high_usd": max(part.high_usd for part in parts),
        "changes": sum(part.changes for part in parts),
        "watched_s": held_s,
    }
