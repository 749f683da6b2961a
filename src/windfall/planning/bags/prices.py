"""What a task that is not done yet will cost, as a function of the time: the price of waiting and of certainty. Pure.

Worked backwards from the deadline for tasks of the mean length. At each moment there are three ways: on-demand, which
is sure and of which a late start fills less of each paid cycle; a new spot machine, which is cheap and may be taken,
after which the task is where it was but later; and, for a task on a machine that sleeps, to wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from windfall.planning.bags.packing import lease_usd
from windfall.planning.contract import ONDEMAND, SPOT, Market, Snapshot
from windfall.planning.offers import Offer

Array = NDArray[np.float64]

CELLS = 100
ZERO = np.zeros(1)
PARTS, WHOLE = 3, 3
# Before anything is known: interruptions an hour, and how soon a sleeper wakes. They weigh as much as so many events:
# little, because anything from once in ten hours to ten times an hour is seen.
USUAL_INTERRUPTIONS_PER_H = 0.5
USUAL_RESUMES_PER_H = 2.0
USUAL_WEIGHT = 0.3
GUESS_WEIGHT = 4.0
POOL_WEIGHT = 4.0
# A task that is late costs this many times what it would cost on demand in a cycle of its own.
LATE = 20.0
# How like the fates of two machines of one offer are that are rented at the same time.
TOGETHER = 0.5
MOST_TOGETHER = 50.0


class Law(Struct, frozen=True):
    """Rates a second at which an offer's machines are taken or put to sleep, and wake."""

    interrupts: float
    resumes: float


def exposed(snapshot: Snapshot) -> dict[str, Market]:
    """What was seen of each offer, with what goes on now: who is still up, or still asleep, counts with its time."""
    found = dict(snapshot.markets)
    for machine in snapshot.machines:
        seen = found.get(machine.offer.key, Market())
        if machine.asleep_since_t is not None:
            seen = replace(seen, asleep_s=seen.asleep_s + snapshot.t - machine.asleep_since_t)
        elif machine.awake_since_t is not None:
            seen = replace(seen, up_s=seen.up_s + snapshot.t - machine.awake_since_t)
        found[machine.offer.key] = seen
    return found


def learned(offer: Offer, markets: dict[str, Market], since_s: float = math.inf) -> Law:
    """The guess of the offer, or what is usual, corrected by what was seen of its pool and then of itself.

    `since_s`: how long it has been looked at. What is taken together with others tells less than what is taken alone.
    """
    pool = [market for key, market in sorted(markets.items()) if key.rpartition("/")[0] == offer.pool]
    own = markets.get(offer.key, Market())
    known = offer.interruptions_per_h is not None
    guess = max(offer.interruptions_per_h or 0.0, 1e-3) if known else USUAL_INTERRUPTIONS_PER_H
    ends = [_alone(market, since_s) for market in (*pool, own)]
    interrupts = _two_layers(guess / 3600.0, GUESS_WEIGHT if known else USUAL_WEIGHT, ends)
    if offer.when_taken == "terminate":
        return Law(interrupts, 0.0)
    known = offer.resumes_per_h is not None
    guess = max(offer.resumes_per_h or 0.0, 1e-3) if known else USUAL_RESUMES_PER_H
    wakes = [(market.woken, market.asleep_s) for market in (*pool, own)]
    return Law(interrupts, _two_layers(guess / 3600.0, GUESS_WEIGHT if known else USUAL_WEIGHT, wakes))


def _alone(market: Market, since_s: float) -> tuple[float, float]:
    """Machines of one offer often go together, for want of capacity: so many at once weigh as fewer would alone.

    How many go at once is learned from the spells in which they went; before the first, some of those that are there.
    """
    events = market.taken + market.slept
    at_once = market.up_s / since_s if since_s > 0.0 else 1.0
    thought = 1.0 + TOGETHER * (min(max(at_once, 1.0), MOST_TOGETHER) - 1.0)
    weight = (market.spells + 1.0) / (max(events, market.spells) + thought)
    return events * weight, market.up_s * weight


def _two_layers(guess: float, weight: float, seen: Sequence[tuple[float, float]]) -> float:
    """A rate from (events, seconds) of the pool, the offer's own last: a guess, then the pool, count as events."""
    *pool, own = seen
    rate = (weight + sum(events for events, _ in pool)) / (weight / guess + math.fsum(seconds for _, seconds in pool))
    return (POOL_WEIGHT + own[0]) / (POOL_WEIGHT / rate + own[1])


class Prices:
    """By the time of day: `task[i]` what one task costs that nobody runs, `asleep[i]` one that sleeps on its machine.

    `seconds` is the mean on a machine of speed 1, `wide` the cores that a task takes.
    """

    def __init__(
        self, snapshot: Snapshot, seconds: float, count: int, margin_s: float, task_class: str = "", wide: float = 1.0
    ) -> None:
        self.task_class, self.wide = task_class, wide
        self.t, self.by_t = snapshot.t, snapshot.deadline_t - margin_s
        self.cell_s = max((self.by_t - self.t) / CELLS, 1e-3)
        # Very short tasks are looked at by the armful.
        self.seconds = max(seconds, self.cell_s / 2)
        self.per_task = seconds / self.seconds
        self.count = max(1.0, count * self.per_task)
        markets = exposed(snapshot)
        markets = {offer.key: markets.get(offer.key, Market()) for offer in snapshot.offers if offer.market == SPOT}
        self.laws = {
            offer.key: learned(offer, markets, snapshot.t - snapshot.begun_t)
            for offer in snapshot.offers
            if offer.market == SPOT
        }
        self.spot = self._worthwhile([o for o in snapshot.offers if o.market == SPOT], snapshot)
        self.ondemand = [offer for offer in snapshot.offers if offer.market == ONDEMAND]
        self.rescue_s = min((o.lag_s + self.seconds / self.speed(o) for o in self.ondemand), default=0.0)
        self._solve()

    def _solve(self) -> None:
        cells = CELLS + 1
        late = LATE * max((lease_usd(o, o.lag_s + self.seconds) for o in self.ondemand or self.spot), default=1.0)
        self.task, self.asleep = np.full(cells + 1, late), np.full(cells + 1, late)
        self.sure = np.full(cells + 1, late)
        for offer in self.ondemand:
            self.sure[:cells] = np.minimum(self.sure[:cells], self._sure(offer))
        courses = [(offer, self._course(offer)) for offer in self.spot]
        resumes = max((self.laws[offer.key].resumes for offer in self.spot), default=0.0)
        stays = math.exp(-resumes * self.cell_s)
        for cell in range(cells - 1, -1, -1):
            risky = [self._risky(offer, cell, *course) for offer, course in courses]
            self.task[cell] = min(self.sure[cell], *risky) if risky else self.sure[cell]
            self.asleep[cell] = min(self.task[cell], stays * self.asleep[cell + 1])

    def _most(self, offer: Offer, at_t: float) -> int:
        """How many rows (see `_leases`) of tasks a core of a new machine can do; on spot, with time for a rescue."""
        until_t = self.by_t - (self.rescue_s if offer.market == SPOT else 0.0)
        rows = (until_t - at_t - offer.lag_s) / (self.seconds / self.speed(offer)) + 1e-9
        return max(0, int(rows) if rows < WHOLE else WHOLE + int((rows - WHOLE) * PARTS))

    def _leases(self, offer: Offer, most: int, count: float | None = None) -> Array:
        """The price per task of a machine with 1, 2, 3, 3 1/3, ... in a row on each core, while there are so many.

        Tasks are not all of the mean length: at the end of a long row a third of one is room for a short one. The
        later cycles are only paid if the machine is still there.
        """
        rows = self._rows(most)
        held_s = rows * (self.seconds / self.speed(offer)) + (offer.lag_s if offer.bills_boot else 0.0)
        cycles = np.maximum(1.0, np.ceil(np.maximum(held_s, offer.minimum_s) / offer.cycle_s - 1e-9))
        cycles = self.paid_cycles(offer, cycles)
        count = count or self.count
        machines = np.ceil(count / (rows * max(1.0, offer.cores / self.wide)) - 1e-9)
        result: Array = cycles * offer.price_usd * machines / count
        return result

    def _rows(self, most: int) -> Array:
        whole = np.arange(1.0, min(most, WHOLE) + 1.0)
        rows: Array = np.concatenate([whole, WHOLE + np.arange(1, most - WHOLE + 1) / PARTS]) if most > WHOLE else whole
        return rows

    def paid_cycles(self, offer: Offer, cycles: Array) -> Array:
        """How many of them are paid for on average: a machine that is gone begins no more, and may not pay its last."""
        rate = self.laws[offer.key].interrupts * offer.cycle_s if offer.market == SPOT else 0.0
        if rate < 1e-6:
            return cycles
        if offer.when_taken == "terminate" and offer.free_if_taken:
            ended: Array = np.expm1(-rate * cycles) / -math.expm1(rate)
            return ended
        result: Array = np.maximum(1.0, -np.expm1(-rate * cycles) / -math.expm1(-rate))
        return result

    def dearer_for_few(self, count: float) -> float:
        """How much more a rescue costs per task where so few may need one that they fill no machine."""
        many, few = self.count, max(1.0, count * self.per_task)
        if few >= many or not self.ondemand:
            return 1.0
        half = (self.t + self.by_t) / 2
        at_once = [(offer, self._most(offer, half)) for offer in self.ondemand]
        for_few, for_many = (
            min((float(self._leases(offer, most, number).min()) for offer, most in at_once if most), default=1.0)
            for number in (few, many)
        )
        return for_few / for_many

    def _sure(self, offer: Offer) -> Array:
        """By cells: the price per task of on-demand machines started then."""
        best = np.concatenate([[math.inf], np.minimum.accumulate(self._leases(offer, self._most(offer, self.t)))])
        until_s = self.by_t - self.t - offer.lag_s - np.arange(CELLS + 1) * self.cell_s
        rows = until_s / (self.seconds / self.speed(offer)) + 1e-9
        most = np.where(rows < WHOLE, rows, WHOLE + (rows - WHOLE) * PARTS)
        result: Array = best[np.maximum(most, 0.0).astype(int)]
        return result

    def _risky(self, offer: Offer, cell: int, leases: Array, ends: NDArray[np.int64], chances: Array) -> float:
        """A new machine with a row of tasks on each core; each may be cut short and then costs what it costs later."""
        most = self._most(offer, self.t + cell * self.cell_s)
        if not most:
            return math.inf
        after = self.asleep if offer.when_taken != "terminate" else self.task
        later = after[cell + 1 : cell + 1 + ends[most - 1]]
        losses = np.concatenate([ZERO, (chances[: len(later)] * later).cumsum()])
        mean_loss = losses[np.minimum(ends[:most], len(later))].cumsum() / np.arange(1.0, most + 1.0)
        return float((leases[:most] + mean_loss).min())

    def _course(self, offer: Offer) -> tuple[Array, NDArray[np.int64], Array]:
        """What does not depend on when a machine starts: leases, the cells in which its tasks end, and their risk."""
        leases = self._leases(offer, self._most(offer, self.t))
        ends = (offer.lag_s + self._rows(len(leases)) * (self.seconds / self.speed(offer))) / self.cell_s
        return leases, np.rint(ends).astype(int), self._chances(offer, CELLS + 2)

    def _chances(self, offer: Offer, cells: int) -> Array:
        """By cells: the chance to be taken in each, and not before."""
        rate = self.laws[offer.key].interrupts * self.cell_s
        result: Array = np.exp(-rate * np.arange(cells)) * -math.expm1(-rate)
        return result

    def losses(self, offer: Offer, from_t: float, cells: int) -> Array:
        """By cells since `from_t`: what interruptions up to then are expected to cost a task that runs so long."""
        after = self.asleep if offer.when_taken != "terminate" else self.task
        first = max(0, int((from_t - self.t) / self.cell_s)) + 1
        places = np.minimum(first + np.arange(cells), len(after) - 1)
        result: Array = np.concatenate([ZERO, np.cumsum(self._chances(offer, cells) * after[places])])
        return result

    def cell(self, t: float) -> int:
        return min(max(0, int((t - self.t) / self.cell_s)), CELLS)

    def waiting_pays(self, t: float) -> bool:
        """Whether a task on a sleeping machine is better left there for the present."""
        cell = self.cell(t)
        return bool(self.asleep[cell] < self.task[cell] - 1e-12)

    def gives_up_t(self) -> float:
        """When waiting stops to pay, if nothing happens until then."""
        given_up = np.flatnonzero(self.asleep[: CELLS + 1] >= self.task[: CELLS + 1] - 1e-12)
        later = given_up[given_up > 0]
        return self.t + float(later[0]) * self.cell_s if len(later) else math.inf

    def _worthwhile(self, offers: Sequence[Offer], snapshot: Snapshot) -> list[Offer]:
        """The spot offers that somebody would choose: of each boot lag and cycle the cheapest core by its risk."""
        best: dict[tuple[float, float, str], Offer] = {}
        for offer in [offer for offer in offers if snapshot.left_of(offer) > 0] or offers:
            kind = (offer.lag_s, offer.cycle_s, offer.when_taken)
            if kind not in best or self._risky_core_usd(offer) < self._risky_core_usd(best[kind]):
                best[kind] = offer
        return list(best.values())

    def _risky_core_usd(self, offer: Offer) -> float:
        return offer.price_usd / offer.cores / self.speed(offer) * (1.0 + 3600.0 * self.laws[offer.key].interrupts)

    def speed(self, offer: Offer) -> float:
        return offer.speed_for(self.task_class)
