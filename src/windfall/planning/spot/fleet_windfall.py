"""Windfall's own planner for a fleet: one programme per seat, and slack where it is worth most. Pure.

Each seat is planned like a single machine (`windfall`), under the law of its own claim. Every few hours work moves
between seats: a seat with steady spot takes work from one that would do it on demand. A seat that has finished its
share on a warm spot machine takes half of the largest share left. A seat takes only what on-demand could finish in
time there, so every seat keeps its safety net.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from windfall.planning.spot.fleet import (
    IDLE,
    Claim,
    Claims,
    FleetTerms,
    Pick,
    Seat,
    Zone,
    even_shares,
    fit_shares,
    move,
)
from windfall.planning.spot.law import LEARNING, PRIOR, Learning, Prior
from windfall.planning.spot.market import Market, State, Terms, guarded, is_safe, rescue_ticks, slack
from windfall.planning.spot.programme import NEVER, SPOT, costs
from windfall.planning.spot.windfall import Plan, best, grid_of, make_plan, plan_at, standing, steps_left

MAX_PLANS = 2
"""Neighbouring seats are alike enough to share a plan."""
PRICE_HALF_LIFE_H = 6.0
MOVE_WITHIN_H = 12.0
"""A move to a better zone must pay for itself within this time."""


class FleetWindfall:
    """Learns, plans and replans; deterministic."""

    def __init__(
        self, terms: FleetTerms, zones: int, prior: Prior = PRIOR, learning: Learning = LEARNING
    ) -> None:  # fmt: skip
        self.terms = terms
        self.claims = Claims(terms, zones, prior, learning)
        self.shares = even_shares(terms.work_ticks, terms.seats)
        self.usual_usd: float | None = None
        # With several seats a table holds twice the slack, because work may move, and there are several tables.
        self.grid = grid_of(terms.of_seat(0.0), tables=1 if terms.seats == 1 else 2 * MAX_PLANS)
        self.plans: list[Plan] = []
        self.planned: Terms = terms.of_seat(0.0)

    def observe(self, sight: Sequence[Zone], seats: Sequence[Seat]) -> None:
        self.claims.observe(sight, seats)
        prices = [claim.usd for claim in self.claims.claims if claim is not None]
        if prices:
            now, kept = sum(prices) / len(prices), 0.5 ** (self.terms.tick_s / 3600.0 / PRICE_HALF_LIFE_H)
            self.usual_usd = now if self.usual_usd is None else kept * self.usual_usd + (1.0 - kept) * now

    def choose(self, tick: int, left: int, seats: Sequence[Seat]) -> tuple[Pick, ...]:
        self.shares = fit_shares(self.shares, left)
        steps = steps_left(self.planned, self.grid, tick)
        if not self.plans or self.plans[0].programme.steps - steps >= len(self.plans[0].tables):
            self._plan(tick, steps)
            self._share_out(tick, steps, seats)
        self._take_over(tick, seats)
        picks = tuple(self._pick(place, seat, tick, steps) for place, seat in enumerate(seats))
        for place, (seat, pick) in enumerate(zip(seats, picks, strict=True)):
            self.shares[place] -= move(self.terms.changeover_ticks, seat, pick, tick)[1]
        return picks

    def _state(self, place: int, seat: Seat, tick: int) -> State:
        return State(tick, self.shares[place], seat.market, seat.warming)

    def _group(self, place: int) -> int:
        return place * min(MAX_PLANS, self.terms.seats) // self.terms.seats

    def _plan(self, tick: int, steps: int) -> None:
        """One plan per group of seats, under the law of the seat in the middle of the group."""
        self.planned = self.terms.of_seat(self.usual_usd if self.usual_usd is not None else self.terms.ondemand_usd)
        room = [self.terms.deadline_ticks - tick - share for share in self.shares]
        mean, most = sum(room) // len(room), max(room)
        high = min(steps, max(2 * mean, most) // self.grid.step if self.terms.seats > 1 else most // self.grid.step)
        low = 0 if self.terms.seats > 1 else high
        groups = [
            [place for place in range(self.terms.seats) if self._group(place) == group]
            for group in range(min(MAX_PLANS, self.terms.seats))
        ]
        watchers = [self.claims.seats[group[len(group) // 2]] for group in groups]
        self.plans = [make_plan(self.planned, self.grid, watcher, steps, low, max(0, high)) for watcher in watchers]

    def _share_out(self, tick: int, steps: int, seats: Sequence[Seat]) -> None:
        """Move slack from the seat where it is worth least to the one where it is worth most, a step at a time."""
        if self.terms.seats == 1:
            return
        curves = [self._worth(place, seat, tick, steps) for place, seat in enumerate(seats)]
        states = [self._state(place, seat, tick) for place, seat in enumerate(seats)]
        step, high = self.grid.step, curves[0].size - 1
        room = [min(max(0, slack(self.planned, state) // step), high) for state in states]
        least = [-(-rescue_ticks(self.planned, state) // step) for state in states]
        for turn in count():
            gains = [
                (float(curve[at] - curve[at + 1]) if at < high and self.shares[place] >= step else -float(NEVER), place)
                for place, (curve, at) in enumerate(zip(curves, room, strict=True))
            ]
            losses = [
                (float(curve[at - 1] - curve[at]) if at - 1 >= needed else float(NEVER), place)
                for place, (curve, at, needed) in enumerate(zip(curves, room, least, strict=True))
            ]
            (gain, to), (loss, source) = max(gains), min(losses)
            if gain <= max(0.0, loss) * 1.0001 + 1e-6 or to == source or turn > 50 * len(seats):
                return
            room[to] += 1
            room[source] -= 1
            self.shares[to] -= step
            self.shares[source] += step

    def _worth(self, place: int, seat: Seat, tick: int, steps: int) -> NDArray[np.float64]:
        """The expected cost of a seat's share to the deadline, by its slack."""
        plan, watcher = self.plans[self._group(place)], self.claims.seats[place]
        at = standing(self.planned, self.grid, watcher.sight(), self._state(place, seat, tick), steps)
        table = plan.tables[0][:, at.spell, at.age, plan.programme.row(at.market, at.warming)]
        return np.asarray(watcher.sight().belief @ table, np.float64)

    def _take_over(self, tick: int, seats: Sequence[Seat]) -> None:
        """A warm spot machine without work takes half of the largest share left in a seat without one."""
        warm = [seat.market is Market.SPOT and seat.warming == 0 for seat in seats]
        for place, seat in enumerate(seats):
            donors = [other for other in range(len(seats)) if not warm[other] and self.shares[other] > 1]
            if self.shares[place] or not warm[place] or not donors:
                continue
            donor = max(donors, key=lambda other: self.shares[other])
            most = self.terms.deadline_ticks - tick - rescue_ticks(self.planned, State(tick, 1, seat.market))
            moved = min(self.shares[donor] // 2, most)
            if moved > 0:
                self.shares[place] += moved
                self.shares[donor] -= moved

    def _pick(self, place: int, seat: Seat, tick: int, steps: int) -> Pick:
        state, claim, watcher = self._state(place, seat, tick), self.claims.claims[place], self.claims.seats[place]
        if state.left == 0:
            return IDLE
        if slack(self.planned, state) < 0:
            return Pick(Market.ONDEMAND)
        if self.terms.seats == 1:
            plan = plan_at(self.planned, self.grid, watcher.sight(), state, watcher.t)
        else:
            plan = self.plans[self._group(place)]
        at = standing(self.planned, self.grid, watcher.sight(), state, steps)
        at = replace(
            at, slack=min(at.slack, plan.programme.high)
        )  # taking work over may leave more slack than the table holds
        weighed = list(costs(plan.programme, plan.tables, at, watcher.sight().belief))
        if claim is not None:
            weighed[SPOT] += claim.usd - self.planned.spot_usd
        market = guarded(self.planned, state, claim is not None, best((weighed[0], weighed[1], weighed[2])))
        if market is not Market.SPOT or claim is None:
            return Pick(market)
        return Pick(Market.SPOT, self._zone(claim, seat, state))

    def _zone(self, claim: Claim, seat: Seat, state: State) -> int:
        """The zone of the claim, or a better one if the saving pays for the changeover."""
        if seat.market is not Market.SPOT:
            return claim.zone
        free = [
            (self.claims.score(zone, ranks[0]), zone, ranks[0]) for zone, ranks in enumerate(self.claims.free) if ranks
        ]
        if not free or not is_safe(self.planned, State(state.tick, state.left), Market.SPOT):
            return claim.zone
        score, zone, rank = min(free)
        tick_h = self.terms.tick_s / 3600.0
        lasts_h = 1.0 / max(1e-3, self.claims.zones[zone].ends_per_h(self.claims.ages[zone][rank]))
        saved = (self.claims.score(claim.zone, claim.rank - 1) - score) * min(
            state.left * tick_h, lasts_h, MOVE_WITHIN_H
        )
        if saved <= self.terms.changeover_ticks * tick_h * self.terms.ondemand_usd:
            return claim.zone
        ranks = self.claims.free[zone]
        ranks.pop(0)  # no longer free for the next seat
        return zone
