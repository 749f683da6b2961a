"""Expected cost of an unfinished task as a function of time. Pure.

A dynamic programme, solved backwards from the deadline for tasks of mean length. At each moment there are three ways:
on-demand, which is certain, but a late start uses less of each paid cycle; a new spot machine, which is cheap but may
be interrupted, after which the task waits again, later; and, for a task on a hibernated machine, to wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from windfall.planning.bags.hibernated_prices import HibernatedPrices
from windfall.planning.bags.ondemand_prices import ondemand_usd
from windfall.planning.bags.packing import lease_usd
from windfall.planning.checkpoints import best_interval_s, save_s, share_left
from windfall.planning.contract import ONDEMAND, SPOT, Market, Snapshot
from windfall.planning.offers import Offer
from windfall.planning.spot.live import NEXT_HOUR_S, Learner, at_ages, observed_markets
from windfall.planning.spot.live import USUAL_INTERRUPTIONS_PER_H as USUAL_INTERRUPTIONS_PER_H
from windfall.planning.spot.live import USUAL_RESUMES_PER_H as USUAL_RESUMES_PER_H

Array = NDArray[np.float64]

CELLS = 100
"""Steps of time between now and the horizon."""
MIN_HORIZON_S, HORIZON_PER_WORK = 7200.0, 24.0
"""The horizon is the deadline, but not beyond two hours or 24 times what one machine alone would take: cells as long as
hours would price a task of seconds as one of hours."""
ZERO = np.zeros(1)
PARTS, WHOLE = 3, 3
"""Rows of tasks on a core are counted whole up to `WHOLE`, then in parts of 1 / `PARTS`."""
MAX_HAZARD = 3.0
"""Interruptions per cell of time above which more make no difference."""
WAITING_GAIN = 0.05
"""A task waits for a hibernated machine while that is expected to save this share of its price at least. Prices are
not more exact than that, and machines that are rented early may serve other tasks as well."""
LATE_PENALTY_FACTOR = 20.0
"""Cost of a late task, in on-demand leases of its own."""


class Course:
    """Leases of a spot offer by the cell in which the machine is requested, and what its tasks lose by interruptions.

    `most`: lengths of rows that are in time, by cell; `ends`: cells until the last task of each row ends; `leases_usd`:
    dollars per task by cell and length; `survival`: by cell, the chance that the machine is still there; `share_left`:
    the share of an interrupted task that has to run again.
    """

    def __init__(
        self, offer: Offer, most: list[int], ends: NDArray[np.int64], leases_usd: Array, survival: Array,
        share_left: float,
    ) -> None:  # fmt: skip
        self.offer = offer
        self._most, self._ends, self._leases_usd, self._share_left = most, ends, leases_usd, share_left
        self._survival, self._drops = survival, survival[:-1] - survival[1:]
        self._counts = np.arange(1.0, len(ends) + 1.0)
        cells = len(most)
        self._lost = np.zeros(cells + 1 + int(ends.max(initial=0)))
        """By cell: dollars that interruptions from there on cost, each with its chance; filled in backwards."""

    def usd(self, cell: int, next_lost_usd: float) -> float:
        """Expected dollars per task on a machine requested in this cell, with the later cost of interrupted tasks.

        `next_lost_usd`: for a task that is interrupted in the next cell. Cells are asked for from the last backwards.
        """
        lost = self._lost
        lost[cell] = lost[cell + 1] + self._drops[cell] * next_lost_usd * self._share_left
        most = self._most[cell]
        if not most:
            return math.inf
        losses = lost[cell] - lost[cell + self._ends[:most]]
        losses.cumsum(out=losses)
        losses /= self._counts[:most] * self._survival[cell]
        losses += self._leases_usd[cell, :most]
        return float(losses.min())


class Prices:
    """Expected dollars per task by time cell: `waiting_usd` for one that does not run, `hibernated_usd` (by key of the
    offer) for one on a hibernated machine, `ondemand_usd` for one that goes to on-demand.

    `seconds` is the mean run time at speed 1, `mean_cores` the mean number of cores that a task occupies.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        seconds: float,
        count: int,
        margin_s: float,
        task_class: str = "",
        mean_cores: float = 1.0,
    ) -> None:
        self.task_class, self.mean_cores = task_class, mean_cores
        self.t, self.by_t = snapshot.t, snapshot.deadline_t - margin_s
        alone_s = max(
            (o.lag_s + seconds * count * mean_cores / (o.cores * self.speed(o)) for o in snapshot.offers), default=0.0
        )
        self.by_t = min(self.by_t, self.t + max(MIN_HORIZON_S, HORIZON_PER_WORK * alone_s))
        self.cell_s = max((self.by_t - self.t) / CELLS, 1e-3)
        # Very short tasks are priced several at a time.
        self.seconds = max(seconds, self.cell_s / 2)
        self.per_task = seconds / self.seconds
        self.count = max(1.0, count * self.per_task)
        markets = observed_markets(snapshot)
        self._all_spot = spot = _spot_of(snapshot)
        markets = {offer.key: markets.get(offer.key, Market()) for offer in spot}
        learner = Learner(markets, snapshot.t - snapshot.begun_t, snapshot.t)
        self.rates = {offer.key: learner.rates(offer) for offer in spot}
        self._on_offer = {offer.key for offer in snapshot.offers}
        self._fates = {(offer.key, other.key): learner.shared_fate(offer, other) for offer in spot for other in spot}
        self.all_gone = {offer.key: self._all_gone(offer, snapshot) for offer in spot}
        self.spot = self._worthwhile([o for o in snapshot.offers if o.market == SPOT], snapshot)
        self.ondemand = [offer for offer in snapshot.offers if offer.market == ONDEMAND]
        self.rescue_s = min((o.lag_s + self.seconds / self.speed(o) for o in self.ondemand), default=0.0)
        self.share_left = {offer.key: self._share_left(offer, snapshot) for offer in self.spot}
        self._survival = {offer.key: self._survives(offer) for offer in spot}
        self._log_survival = {
            key: (np.arange(len(s), dtype=np.float64), np.log(s)) for key, s in self._survival.items()
        }
        self._solve()
        self._losses: dict[str, Array] = {}
        self._after_loss = {offer.key: self._loss_by_cell(offer) for offer in spot}

    def _all_gone(self, offer: Offer, snapshot: Snapshot) -> float:
        """The chance that no spot can be had when a machine of this offer is interrupted: all offers have gone."""
        keys = {other.key for other in snapshot.offers if other.market == SPOT}
        return math.prod(self._fates[offer.key, key] for key in sorted(keys))

    def exposure(self, offer: Offer, cores: Mapping[str, int]) -> float:
        """The expected number of spot cores, of these by key of their offer, that are lost with one of this offer."""
        lost = math.fsum(count * self._fates.get((offer.key, key), 0.0) for key, count in cores.items())
        return round(lost, 6)

    def _share_left(self, offer: Offer, snapshot: Snapshot) -> float:
        """The share of an interrupted task that has to run again: all of it, unless every task checkpoints."""
        tasks = [*snapshot.tasks.values(), *(group.task for group in snapshot.groups)]
        sizes_mb = [task.checkpoint_mb for task in tasks if task.checkpoint_mb is not None]
        if not tasks or len(sizes_mb) < len(tasks):
            return 1.0
        cost_s, run_s = save_s(math.fsum(sizes_mb) / len(sizes_mb)), self.seconds / self.speed(offer)
        return share_left(cost_s, best_interval_s(cost_s, run_s, self.rates[offer.key].ahead), run_s)

    def _solve(self) -> None:
        cells = CELLS + 1
        late = LATE_PENALTY_FACTOR * max(
            (lease_usd(o, o.lag_s + self.seconds) for o in self.ondemand or self.spot), default=1.0
        )
        self.ondemand_usd = np.minimum(late, np.append(self._ondemand_by_cell(), late))
        courses = [self._course(offer, cells) for offer in self.spot]
        returns, hibernated = self._returns(), self._hibernated_prices(cells, late)
        # As floats, and as arrays in the end: one at a time, those of an array take several times as long.
        ondemand, waiting, away = self.ondemand_usd.tolist(), [late] * (cells + 1), [late] * (cells + 1)
        for cell in range(cells - 1, -1, -1):
            next_usd, next_away_usd = waiting[cell + 1], away[cell + 1]
            risky = []
            for course in courses:
                by_cell, gone = hibernated.usd.get(course.offer.key), self.all_gone[course.offer.key]
                lost_usd = by_cell[cell + 1] if by_cell else gone * next_away_usd + (1.0 - gone) * next_usd
                risky.append(course.usd(cell, lost_usd))
            # To wait costs nothing but time: a young spell of capacity is riskier than it will be later.
            waiting[cell] = min(ondemand[cell], next_usd, *risky)
            away[cell] = min(ondemand[cell], (1.0 - returns) * next_away_usd + returns * next_usd)
            hibernated.step(cell, waiting[cell])
        self.waiting_usd, self.away_usd = np.array(waiting), np.array(away)
        self.hibernated_usd = {key: np.array(usd) for key, usd in hibernated.usd.items()}

    def _hibernated_prices(self, cells: int, late_usd: float) -> HibernatedPrices:
        offers = [offer for offer in self._all_spot if offer.when_taken != "terminate"]
        run_s = {offer.key: self.seconds / self.speed(offer) for offer in offers}
        return HibernatedPrices(offers, self.rates, run_s, self.cell_s, cells, late_usd)

    def _returns(self) -> float:
        """The chance that some spot offer whose capacity has gone is back after one cell of time."""
        there = [rates for key, rates in self.rates.items() if key in self._on_offer]
        per_s = [float(at_ages(rates.returns_by_age, NEXT_HOUR_S).mean()) for rates in there]
        return -math.expm1(-max(per_s, default=0.0) * self.cell_s)

    def _loss_by_cell(self, offer: Offer) -> Array:
        """By cell: dollars for a task that loses its machine then. If all spot goes together, none replaces it."""
        if offer.when_taken != "terminate":
            return self.hibernated_usd[offer.key]
        gone = self.all_gone[offer.key]
        result: Array = gone * self.away_usd + (1.0 - gone) * self.waiting_usd
        return result

    def _most(self, offer: Offer, at_t: float) -> int:
        """How many steps of `_rows` fit on a core of a machine requested at `at_t`; on spot, with time for a rescue."""
        until_t = self.by_t - (self.rescue_s if offer.market == SPOT else 0.0)
        rows = (until_t - at_t - offer.lag_s) / (self.seconds / self.speed(offer)) + 1e-9
        return max(0, int(rows) if rows < WHOLE else WHOLE + int((rows - WHOLE) * PARTS))

    def _leases(self, offer: Offer, most: int, count: float | None = None, cell: int = 0) -> Array:
        """The price per task of leases for 1, 2, 3, 3 1/3, ... tasks in a row on each core, requested in this cell.

        Thirds count because tasks differ in length: a short one fits at the end of a long row. Later cycles are only
        paid if the machine is not interrupted before.
        """
        cycles, machines = self._cycles(offer, most, count)
        result: Array = (self.paid_cycles(offer, cycles, cell) * offer.price_usd + offer.start_usd) * machines
        return result

    def _cycles(self, offer: Offer, most: int, count: float | None = None) -> tuple[Array, Array]:
        """Billing cycles of such leases, and machines per task."""
        rows = self._rows(most)
        held_s = rows * (self.seconds / self.speed(offer)) + (offer.lag_s if offer.bills_boot else 0.0)
        cycles = np.maximum(1.0, np.ceil(np.maximum(held_s, offer.minimum_s) / offer.cycle_s - 1e-9))
        count = count or self.count
        machines = np.ceil(count / (rows * max(1.0, offer.cores / self.mean_cores)) - 1e-9)
        return cycles, machines / count

    def _rows(self, most: int) -> Array:
        """The first `most` lengths of a row: 1, 2, 3, 3 1/3, ..."""
        whole = np.arange(1.0, min(most, WHOLE) + 1.0)
        rows: Array = np.concatenate([whole, WHOLE + np.arange(1, most - WHOLE + 1) / PARTS]) if most > WHOLE else whole
        return rows

    def paid_cycles(self, offer: Offer, cycles: Array, cell: int | NDArray[np.int64] = 0) -> Array:
        """Expected paid cycles of such leases: an interrupted machine begins no more, and its last may be free.

        Each lease counts with the mean hazard rate over its own length, from this cell on, or from each of these.
        """
        if offer.market != SPOT:
            return cycles
        cells, logs = self._log_survival[offer.key]
        ends = np.minimum(cell + cycles * (offer.cycle_s / self.cell_s), len(logs) - 1.0)
        lost = logs[cell] - np.interp(ends, cells, logs)
        rates = lost / np.maximum(cycles, 1e-12)
        rates = np.maximum(rates * self.given_up_share(offer), 1e-9)
        if offer.when_taken == "terminate" and offer.free_if_taken:
            ended: Array = np.expm1(-rates * cycles) / -np.expm1(rates)
            return ended
        result: Array = np.maximum(1.0, -np.expm1(-rates * cycles) / -np.expm1(-rates))
        return result

    def small_rescue_factor(self, count: float) -> float:
        """Factor on the price per task of a rescue of `count` tasks, too few to fill a machine; 1.0 for many."""
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

    def _ondemand_by_cell(self) -> Array:
        """By cell: dollars per task on on-demand machines requested then."""
        left_s: Array = self.by_t - self.t - np.arange(CELLS + 1, dtype=np.float64) * self.cell_s
        run_s = {offer.key: self.seconds / self.speed(offer) for offer in self.ondemand}
        return ondemand_usd(self.ondemand, self.count, run_s, self.mean_cores, left_s)

    def _course(self, offer: Offer, cells: int) -> Course:
        most = [self._most(offer, self.t + cell * self.cell_s) for cell in range(cells)]
        cycles, machines = self._cycles(offer, most[0])
        starts = np.arange(cells)[:, None]
        leases_usd = (self.paid_cycles(offer, cycles, starts) * offer.price_usd + offer.start_usd) * machines
        ends = (offer.lag_s + self._rows(len(cycles)) * (self.seconds / self.speed(offer))) / self.cell_s
        ends_after = np.rint(ends).astype(int)
        return Course(offer, most, ends_after, leases_usd, self._survival[offer.key], self.share_left[offer.key])

    def _survives(self, offer: Offer) -> Array:
        """By cell: the chance that capacity which is here now is still here, at most `MAX_HAZARD` lost in one cell."""
        middles_s = (np.arange(2 * CELLS + 4, dtype=np.float64) + 0.5) * self.cell_s
        hazard = np.minimum(self.rates[offer.key].ahead(middles_s) * self.cell_s, MAX_HAZARD)
        result: Array = np.exp(-np.concatenate([ZERO, hazard.cumsum()]))
        return result

    def _chances(self, offer: Offer, cells: int) -> Array:
        """By cell: the chance that the first interruption falls into it."""
        rates = self.rates[offer.key].ahead((np.arange(cells, dtype=np.float64) + 0.5) * self.cell_s) * self.cell_s
        result: Array = np.exp(rates - rates.cumsum()) * -np.expm1(-rates)
        return result

    def losses(self, offer: Offer, from_t: float, cells: int) -> Array:
        """By cells from `from_t` on: expected dollars that interruptions cost a task that runs until then."""
        after = self._after_loss[offer.key]
        first = max(0, int((from_t - self.t) / self.cell_s)) + 1
        places = np.minimum(first + np.arange(cells), len(after) - 1)
        share = self.share_left.get(offer.key, 1.0)
        result: Array = np.concatenate([ZERO, np.cumsum(self._chances(offer, cells) * after[places] * share)])
        return result

    def loss_usd(self, offer: Offer, cells: int) -> float:
        """Expected dollars that interruptions cost a task that runs for this number of cells from now on."""
        known = self._losses.get(offer.key, ZERO)
        if cells >= len(known):
            known = self._losses[offer.key] = self.losses(offer, self.t, max(cells, 2 * CELLS))
        return float(known[cells])

    def cell(self, t: float) -> int:
        """The cell of a moment; the first or the last one for moments outside."""
        return min(max(0, int((t - self.t) / self.cell_s)), CELLS)

    def hibernated_by_cell(self, offer: Offer) -> Array:
        """By cell: dollars for a task on a hibernated machine; of an offer that is gone, as on the best other one."""
        if offer.key in self.hibernated_usd:
            return self.hibernated_usd[offer.key]
        best: Array = np.minimum.reduce([self.waiting_usd, *self.hibernated_usd.values()])
        return best

    def given_up_share(self, offer: Offer) -> float:
        """The share of interruptions after which a machine is not used again: it does not resume while tasks wait.

        A machine that resumes is billed for the rest of its lease; tasks wait about as long as they run.
        """
        if offer.when_taken == "terminate":
            return 1.0
        return math.exp(-self.rates[offer.key].resumes_per_s * self.seconds / self.speed(offer))

    def stretch(self, offer: Offer) -> float:
        """Seconds that pass, on average, for each second that a machine of this offer is up.

        A hibernation counts with at most the run time of a task: it is not worth waiting longer than to begin again.
        """
        rates = self.rates.get(offer.key)
        if rates is None or offer.when_taken == "terminate":
            return 1.0
        most_s = self.seconds / self.speed(offer)
        return 1.0 + rates.interrupts_per_s * min(1.0 / max(rates.resumes_per_s, 1e-9), most_s)

    def resumes_after_s(self, offer: Offer) -> float:
        """Seconds until a hibernated machine of this offer resumes, on average; 0.0 if nothing is known of it."""
        rates = self.rates.get(offer.key)
        return 1.0 / max(rates.resumes_per_s, 1e-9) if rates is not None else 0.0

    def waiting_pays(self, offer: Offer, t: float) -> bool:
        """Whether a task on a hibernated machine of this offer is better left there at `t`."""
        cell = self.cell(t)
        return bool(self.hibernated_by_cell(offer)[cell] < self.waiting_usd[cell] * (1.0 - WAITING_GAIN))

    def give_up_t(self, offer: Offer) -> float:
        """When waiting for a hibernated machine stops paying if nothing happens before; infinite for never."""
        hibernated_usd = self.hibernated_by_cell(offer)[: CELLS + 1]
        given_up = np.flatnonzero(hibernated_usd >= self.waiting_usd[: CELLS + 1] * (1.0 - WAITING_GAIN))
        later = given_up[given_up > 0]
        return self.t + float(later[0]) * self.cell_s if len(later) else math.inf

    def _worthwhile(self, offers: Sequence[Offer], snapshot: Snapshot) -> list[Offer]:
        """One spot offer for each boot lag, cycle and way of interruption: the cheapest core, its risk included."""
        best: dict[tuple[float, float, str], Offer] = {}
        for offer in [offer for offer in offers if snapshot.left_of(offer) > 0] or offers:
            kind = (offer.lag_s, offer.cycle_s, offer.when_taken)
            if kind not in best or self._risky_core_usd(offer) < self._risky_core_usd(best[kind]):
                best[kind] = offer
        return list(best.values())

    def _risky_core_usd(self, offer: Offer) -> float:
        risk = 1.0 + 3600.0 * self.rates[offer.key].interrupts_per_s
        return offer.compared_usd / offer.cores / self.speed(offer) * risk

    def speed(self, offer: Offer) -> float:
        return offer.speed_for(self.task_class)


def _spot_of(snapshot: Snapshot) -> list[Offer]:
    """The spot offers, and those of machines that run and are no longer on offer."""
    machines = [machine.offer for machine in snapshot.machines]
    every = {offer.key: offer for offer in (*machines, *snapshot.offers) if offer.market == SPOT}
    on_offer = [offer.key for offer in snapshot.offers if offer.market == SPOT]
    return [every[key] for key in dict.fromkeys((*on_offer, *every))]
