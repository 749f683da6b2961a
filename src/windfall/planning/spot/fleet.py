"""Work for several machines in several zones with changing prices: the rules, and a planner per seat. Pure.

A fleet has `seats`, each for one machine at a time: spot in one zone, on-demand, or none. The work is divisible and
keeps its progress, so each seat has a share of it and the safety net of `market`: if every seat can finish its share
on demand, the fleet meets its deadline. Shares may move between seats.

A seat's claim is the unit of capacity that it uses or would use: the n-th machine of a zone. A unit is available while
the zone has at least n machines, so a series of counts is n series of spells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from windfall.planning.spot.law import LEARNING, PRIOR, Learning, Prior
from windfall.planning.spot.market import Market, Planner, State, Terms, guarded
from windfall.planning.spot.sight import Watcher


class Zone(Struct, frozen=True):
    """One zone in one tick: machines available, those we have included, and the price of each in dollars an hour."""

    count: int
    usd: float


class FleetTerms(Struct, frozen=True, kw_only=True):
    """The work and its deadline; `work_ticks` are machine ticks of all seats together."""

    seats: int
    work_ticks: int
    deadline_ticks: int
    changeover_ticks: int
    tick_s: float
    ondemand_usd: float

    def of_seat(self, spot_usd: float) -> Terms:
        """The terms of one seat with an even share."""
        return Terms(
            work_ticks=-(-self.work_ticks // self.seats),
            deadline_ticks=self.deadline_ticks,
            changeover_ticks=self.changeover_ticks,
            tick_s=self.tick_s,
            spot_usd=spot_usd,
            ondemand_usd=self.ondemand_usd,
        )


class Seat(Struct, frozen=True):
    """The machine in a seat, if any; `since` is the tick of its start."""

    market: Market = Market.IDLE
    warming: int = 0
    zone: int = -1
    since: int = -1


class Pick(Struct, frozen=True):
    """What a seat does in the next tick."""

    market: Market
    zone: int = -1


IDLE, ONDEMAND = Pick(Market.IDLE), Pick(Market.ONDEMAND)


class Claim(Struct, frozen=True):
    """The unit that a seat has or would take: the `rank`-th machine of a zone, available for `age` ticks."""

    zone: int
    rank: int
    age: int
    usd: float


class FleetPlanner(Protocol):
    """Each tick calls `observe` with what is available and the seats, then `choose`. The past is only observed."""

    def observe(self, sight: Sequence[Zone], seats: Sequence[Seat]) -> None: ...

    def choose(self, tick: int, left: int, seats: Sequence[Seat]) -> tuple[Pick, ...]: ...


def after_loss(seats: Sequence[Seat], sight: Sequence[Zone]) -> tuple[Seat, ...]:
    """The seats after each zone has reclaimed what it no longer has, the machines started last first."""
    result = list(seats)
    for zone, offer in enumerate(sight):
        held = sorted((seat.since, place) for place, seat in enumerate(seats) if seat.zone == zone)
        for _, place in held[offer.count :]:
            result[place] = Seat()
    return tuple(result)


def move(changeover_ticks: int, seat: Seat, pick: Pick, tick: int) -> tuple[Seat, int]:
    """The seat after a tick, and the ticks of work done in it. Another zone is another machine."""
    if pick.market is Market.IDLE:
        return Seat(), 0
    goes_on = seat.market is pick.market and seat.zone == pick.zone
    warming, since = (seat.warming, seat.since) if goes_on else (changeover_ticks, tick)
    return Seat(pick.market, max(0, warming - 1), pick.zone, since), 0 if warming else 1


def even_shares(work_ticks: int, seats: int) -> list[int]:
    return [work_ticks // seats + (place < work_ticks % seats) for place in range(seats)]


def fit_shares(shares: Sequence[int], left: int) -> list[int]:
    """Shares that add up to `left`: added work goes to the smallest shares, finished work comes off the largest."""
    fitted, missing = list(shares), left - sum(shares)
    for _ in range(abs(missing)):
        place = fitted.index(min(fitted) if missing > 0 else max(fitted))
        fitted[place] += 1 if missing > 0 else -1
    return fitted


class Claims:
    """The claim of each seat, tick by tick; a watcher for each zone and, with `watch_seats`, for each seat."""

    def __init__(
        self, terms: FleetTerms, zones: int, prior: Prior, learning: Learning, *, watch_seats: bool = True
    ) -> None:
        self.terms = terms
        self.ages = [[-1] * terms.seats for _ in range(zones)]  # of each unit; -1 if not available
        self.zones = [Watcher(terms.tick_s, prior, learning) for _ in range(zones)]
        self.seats = [Watcher(terms.tick_s, prior, learning) for _ in range(terms.seats if watch_seats else 0)]
        self.claims: list[Claim | None] = [None] * terms.seats
        self.free: list[list[int]] = [[] for _ in range(zones)]  # unclaimed units
        self.sight: tuple[Zone, ...] = ()

    def observe(self, sight: Sequence[Zone], seats: Sequence[Seat]) -> None:
        self.sight = tuple(sight)
        for zone, offer in enumerate(sight):
            self.zones[zone].observe(offer.count > 0)
            self.ages[zone] = [age + 1 if rank < offer.count else -1 for rank, age in enumerate(self.ages[zone])]
        before, self.claims = self.claims, self._assign(seats)
        for watcher, old, new in zip(self.seats, before, self.claims, strict=False):
            lost = old is not None and sight[old.zone].count < old.rank
            watcher.observe(
                new is not None, replaced=lost and new is not None, age_ticks=new.age if new is not None else None
            )

    def _assign(self, seats: Sequence[Seat]) -> list[Claim | None]:
        """A seat with a machine keeps its unit, the oldest first; the others get the best free units, in order."""
        claims: list[Claim | None] = [None] * self.terms.seats
        self.free = []
        for zone, offer in enumerate(self.sight):
            held = sorted((seat.since, place) for place, seat in enumerate(seats) if seat.zone == zone)
            for index, (_, place) in enumerate(held):
                claims[place] = Claim(zone, index + 1, self.ages[zone][index], offer.usd)
            self.free.append(list(range(len(held), min(offer.count, self.terms.seats))))
        units = sorted((self.score(zone, rank), rank, zone) for zone, ranks in enumerate(self.free) for rank in ranks)
        for place in range(self.terms.seats):
            if claims[place] is None and units:
                _, rank, zone = units.pop(0)
                self.free[zone].remove(rank)
                claims[place] = Claim(zone, rank + 1, self.ages[zone][rank], self.sight[zone].usd)
        return claims

    def score(self, zone: int, rank: int) -> float:
        """Dollars an hour of a unit, plus the expected cost of its loss: a changeover on demand."""
        changeover_h = self.terms.changeover_ticks * self.terms.tick_s / 3600.0
        risk = self.zones[zone].ends_per_h(self.ages[zone][rank]) * changeover_h
        return self.sight[zone].usd + risk * self.terms.ondemand_usd


class SeatBySeat:
    """One single-machine planner per seat with an even share of the work: how the rivals run a fleet."""

    def __init__(
        self,
        terms: FleetTerms,
        zones: int,
        make: Callable[[Terms], Planner],
        prior: Prior = PRIOR,
        learning: Learning = LEARNING,
    ) -> None:
        self.terms, self.seat_terms = terms, terms.of_seat(0.0)
        self.planners = [make(self.seat_terms) for _ in range(terms.seats)]
        self.claims = Claims(terms, zones, prior, learning, watch_seats=False)
        self.shares = even_shares(terms.work_ticks, terms.seats)

    def observe(self, sight: Sequence[Zone], seats: Sequence[Seat]) -> None:
        self.claims.observe(sight, seats)
        for planner, claim in zip(self.planners, self.claims.claims, strict=True):
            planner.observe(claim is not None)

    def choose(self, tick: int, left: int, seats: Sequence[Seat]) -> tuple[Pick, ...]:
        self.shares = fit_shares(self.shares, left)
        picks = []
        for place, seat in enumerate(seats):
            claim = self.claims.claims[place]
            state = State(tick, self.shares[place], seat.market, seat.warming)
            if state.left == 0:
                picks.append(IDLE)
                continue
            market = guarded(self.seat_terms, state, claim is not None, self.planners[place].choose(state))
            pick = Pick(market, claim.zone if claim is not None and market is Market.SPOT else -1)
            self.shares[place] -= move(self.terms.changeover_ticks, seat, pick, tick)[1]
            picks.append(pick)
        return tuple(picks)
