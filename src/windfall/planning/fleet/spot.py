"""What spot machines are worth to a fleet, by the law of availability. Pure.

A task may be put on a spot machine only if it ends there before an on-demand machine would have to be ordered for it
(`latest`, and the margin of orders): if it is interrupted at any moment, it is still in time. The hazard rates that are
learned of the offers decide only whether that is cheap.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from windfall.planning.contract import Market
from windfall.planning.fleet.mix import JobKind, Mix, best_or_all, kinds_of, slack_s
from windfall.planning.fleet.model import Work
from windfall.planning.offers import Offer
from windfall.planning.spot.live import HazardRates, Learner, observed_markets

DETECTION_S, DETECTION_SHARE = 60.0, 0.02
"""Seconds until the loss of a machine is noticed, at most this part of the time that the job has."""


class SpotSide:
    """The spot offers of a fleet, numbered as in `Work.every`, and the chance that a task is interrupted there."""

    def __init__(self, work: Work) -> None:
        self.work = work
        first = len(work.offers)
        self.places = tuple(range(first, len(work.every)))
        markets = observed_markets(work.snapshot)
        learner = Learner({offer.key: markets.get(offer.key, Market()) for offer in work.spot}, t=work.t)
        self.rates: dict[int, HazardRates] = {place: learner.rates(work.every[place]) for place in self.places}
        kinds = kinds_of(work)
        self._may = tuple(kind for kind in kinds if self._has_time(kind))
        self._may_not = tuple(kind for kind in kinds if kind not in self._may)
        self.mix = best_or_all(self._may, tuple(self._with_risk(place) for place in self.places))
        """Of the streams that have time for spot; its offers are numbered from 0."""

    def ondemand_mix(self) -> Mix:
        """The on-demand offers for all streams, with the load of those that have no time for spot."""
        every = best_or_all(self._may + self._may_not, self.work.offers)
        rest = best_or_all(self._may_not, self.work.offers)
        return Mix(every.allowed, rest.load, rest.machines) if self._may else every

    def _has_time(self, kind: JobKind) -> bool:
        """Whether every task of such a job can be tried on spot before on-demand machines have to be ordered."""
        longest_s = max(run_s / self._speed(name) for run_s, name, *_ in kind.tasks)
        lag_s = min(offer.lag_s for offer in self.work.spot)
        return slack_s(kind, self.work.offers) >= lag_s + longest_s + detection_s(kind.span_s)

    def _speed(self, name: str) -> float:
        return max(offer.speed_for(name) for offer in self.work.spot)

    def _with_risk(self, place: int) -> Offer:
        """The offer at a price that counts what is lost of an hour, in whole percents so that answers come again."""
        offer = self.work.every[place]
        return replace(offer, price_usd=offer.price_usd / max(0.05, 1 - round(self.lost(place, 3600.0), 2)))

    def lost(self, place: int, seconds: float) -> float:
        """The chance that a machine of this offer is interrupted within these seconds."""
        return -math.expm1(-self.rates[place].interrupts_per_s * seconds)

    def cheapest_share(self, offer: Offer) -> float:
        """What a second of work costs on the cheapest spot offer, over the same on this one; at most 1."""
        prices = (_second_usd(self.work.every[place]) for place in self.places)
        own = _second_usd(offer)
        return min([1.0, *(price / own for price in prices)]) if own > 0 else 1.0


def detection_s(span_s: float) -> float:
    """How long before the last moment a task must have ended on spot, in a job that has this time."""
    return min(DETECTION_S, DETECTION_SHARE * span_s)


def _second_usd(offer: Offer) -> float:
    """Of one core, at the speed of tasks without a class."""
    return offer.price_usd / (offer.cycle_s * offer.cores * offer.speed_for(""))
