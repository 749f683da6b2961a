"""Published rules for one machine over several zones or regions, as rivals of `FleetWindfall`. Pure.

Both are of the follow-up of "Can't Be Late" (SkyNomad, arXiv 2601.06520). `EagerFailover` is its baseline UP(S):
Uniform Progress on whatever spot there is, in the cheapest zone, and last in the zone where it was lost. `SkyNomad`
weighs zones, on-demand and waiting by money: progress has a value that grows as the work falls behind its line, and a
zone is worth the value of the progress in its expected life less its price.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from windfall.planning.counts import AGES_H, HERE
from windfall.planning.spot.fleet import FleetPlanner, FleetTerms, Pick, Seat, Zone
from windfall.planning.spot.law import LEARNING, PRIOR, Prior
from windfall.planning.spot.market import Market, State, UniformProgress, guarded
from windfall.planning.spot.sight import Watcher


class EagerFailover:
    """Uniform Progress; a lost machine is replaced in the cheapest other zone that has capacity."""

    def __init__(self, terms: FleetTerms, zones: int) -> None:
        self.terms = terms.of_seat(0.0)
        self.progress = UniformProgress(self.terms)
        self.sight: tuple[Zone, ...] = ()
        self.last_zone = -1

    def observe(self, sight: Sequence[Zone], seats: Sequence[Seat]) -> None:
        self.sight = tuple(sight)
        self.progress.observe(any(zone.count for zone in sight))

    def choose(self, tick: int, left: int, seats: Sequence[Seat]) -> tuple[Pick, ...]:
        seat = seats[0]
        state = State(tick, left, seat.market, seat.warming)
        able = [zone for zone, offer in enumerate(self.sight) if offer.count]
        market = guarded(self.terms, state, bool(able), self.progress.choose(state))
        if market is not Market.SPOT:
            return (Pick(market),)
        if seat.market is not Market.SPOT:
            self.last_zone = min(able, key=lambda zone: (zone == self.last_zone, self.sight[zone].usd, zone))
        return (Pick(market, self.last_zone),)


class SkyNomad:
    """The market of the highest net value per hour: V (L - d) / L - price for a zone of expected life L and restart d.

    V is the price on demand times the speed that is needed from now on over the speed that was planned. Lives are
    predicted by the law of `law`, in place of the paper's own predictor, and capacity of all zones is seen for nothing.
    """

    def __init__(self, terms: FleetTerms, zones: int, prior: Prior = PRIOR) -> None:
        self.fleet_terms, self.terms = terms, terms.of_seat(0.0)
        self.watchers = [Watcher(terms.tick_s, prior, LEARNING) for _ in range(zones)]
        self.sight: tuple[Zone, ...] = ()

    def observe(self, sight: Sequence[Zone], seats: Sequence[Seat]) -> None:
        self.sight = tuple(sight)
        for watcher, zone in zip(self.watchers, sight, strict=True):
            watcher.observe(zone.count > 0)

    def choose(self, tick: int, left: int, seats: Sequence[Seat]) -> tuple[Pick, ...]:
        seat, terms = seats[0], self.terms
        state = State(tick, left, seat.market, seat.warming)
        time_left = max(1, terms.deadline_ticks - tick)
        value = terms.ondemand_usd * (terms.deadline_ticks / time_left) * (left / terms.work_ticks)
        options = [(value - terms.ondemand_usd, Market.ONDEMAND, -1)]
        ahead = terms.work_ticks - left - terms.work_ticks * tick / terms.deadline_ticks
        if seat.market is not Market.ONDEMAND or ahead >= 2 * terms.changeover_ticks:
            # As in Uniform Progress, a machine on demand is given up only with a lead of two changeovers.
            options.append((0.0, Market.IDLE, -1))
        for zone, offer in enumerate(self.sight):
            if offer.count:
                stays = seat.market is Market.SPOT and seat.zone == zone
                options.append((self._net_usd(zone, offer.usd, value, time_left, seat if stays else None),
                                Market.SPOT, zone))  # fmt: skip
        _, wish, zone = max(options, key=lambda option: (option[0], option[1] is Market.SPOT, -option[2]))
        market = guarded(terms, state, any(offer.count for offer in self.sight), wish)
        return (Pick(market, zone if market is Market.SPOT else -1),)

    def _net_usd(self, zone: int, usd: float, value: float, time_left: int, running: Seat | None) -> float:
        hours = self.fleet_terms.tick_s / 3600.0
        restart_h = hours * (self.terms.changeover_ticks if running is None else running.warming)
        life_h = min(expected_life_h(self.watchers[zone]), time_left * hours)
        return value * max(0.0, life_h - restart_h) / life_h - usd


def expected_life_h(watcher: Watcher) -> float:
    """Hours for which spot that is there now is expected to stay, by the learned rates at the ages ahead."""
    age_h = watcher.sight().age_s / 3600.0
    found, stays = 0.0, 1.0
    for place, rate in enumerate(watcher.law.by_age[HERE].tolist()):
        until_h = AGES_H[place + 1] if place + 1 < len(AGES_H) else math.inf
        if until_h <= age_h:
            continue
        lasts_h = until_h - max(age_h, AGES_H[place])
        kept = math.exp(-rate * lasts_h)
        found, stays = found + stays * (1.0 - kept) / rate, stays * kept
    return found


RULES: dict[str, Callable[[FleetTerms, int, Prior], FleetPlanner]] = {
    "up-failover": lambda terms, zones, prior: EagerFailover(terms, zones),
    "skynomad": SkyNomad,
}
