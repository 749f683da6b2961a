"""The leases that a planning pass may buy next, and what each costs per task. Pure.

A pass of a large bag asks hundreds of times, and between two questions few machines change: prices of the others are
kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from windfall.planning.bags.packing import (
    CORE_FILL_RATIO,
    MAX_TASKS_PACKED_EXACTLY,
    Bin,
    Choice,
    Sizes,
    cycles_usd,
    fresh,
    sizes_on,
)
from windfall.planning.contract import SPOT
from windfall.planning.offers import Offer
from windfall.planning.room import market_key

if TYPE_CHECKING:
    from windfall.planning.bags.alike import Kind
    from windfall.planning.bags.planning_pass import PlanningPass

STEPS, STEPS_OF_UNNAMED = 12, 4
"""Steps in which a lease grows until the deadline; fewer for renewals in bags whose tasks come without names."""
LEASE_LENGTHS_TRIED = 3
"""Leases tried for each offer: the shortest that holds the longest task, and the next longer ones."""
MEAN_KEPT_WITHIN = 0.05
"""The mean length of many tasks is computed again when this share of them has been placed."""

Useless = set[tuple[str, str, float]]
"""Leases in which no task fits: name of the machine, offer, end."""

Needs = dict[tuple[str, str], tuple[float, ...]]
"""By offer: lengths of tasks for which longer leases are tried."""


class _Renewal(Struct, gc=False):
    """A longer lease of a machine, for tasks that take `mean_s` on average."""

    needs_s: tuple[float, ...]
    """Lengths of tasks for which leases were tried."""
    mean_s: float
    tasks: float
    """How many tasks fit; if fewer are left, the price per task is another one."""
    name: tuple[str, str, float]
    choice: Choice | None

    def holds(self, needs_s: tuple[float, ...], mean_s: float, count: int, useless: Useless) -> bool:
        """Whether the price would come out the same again."""
        if self.tasks > count or self.mean_s != mean_s or self.name in useless:
            return False
        return self.needs_s is needs_s or self.needs_s == needs_s[: len(self.needs_s)]


class Leases:
    """Prices leases for one planning pass."""

    def __init__(self, decided: PlanningPass) -> None:
        self._pass, self._prices = decided, decided.prices
        self._sizes: dict[tuple[str, str], Sizes] = {}
        self._steps_s: dict[tuple[tuple[str, str], int], float] = {}
        self._renewals_usd: dict[tuple[tuple[str, str], float, float], float] = {}
        self._priced: dict[tuple[Kind, int], _Renewal] = {}
        self._terms: tuple[Needs, float, int] | None = None
        """What the kept prices were last compared with."""
        self._mean_s, self._mean_of, self._is_large = 0.0, -1, False
        self._lost: tuple[tuple[int, int], float] = ((-1, -1), 0.0)
        """Tasks that spot is expected to lose, and for which numbers of tasks left and of machines that was counted."""

    def choices(self, left: Sequence[int], useless: Useless) -> list[Choice]:
        """A longer lease of each machine, and `LEASE_LENGTHS_TRIED` leases of a new machine of each offer."""
        waiting = np.flatnonzero(left)
        count = sum(left)
        mean_s = self._mean_of_rest(left, count)
        return [
            *self._renewals(waiting, count, mean_s, useless),
            *self._new_machines(waiting, count, mean_s, useless),
        ]

    def taken(self, kind: Kind, place: int) -> None:
        """The machine at this place has changed: forget its price."""
        self._priced.pop((kind, place), None)

    def sizes_on(self, offer: Offer) -> Sizes:
        """What a task of each item takes on a machine of this offer."""
        key = market_key(offer)
        if key not in self._sizes:
            self._sizes[key] = sizes_on(self._pass.items, offer)
        return self._sizes[key]

    def _renewals(self, waiting: NDArray[np.int64], count: int, mean_s: float, useless: Useless) -> list[Choice]:
        """A longer lease of each machine; equivalent machines are priced once."""
        kinds, needs = self._pass.kinds(), self._needs(waiting, mean_s)
        old, priced = self._outdated(kinds, needs, mean_s, count, useless), self._priced
        self._price_renewals(old, needs)
        for kind, place in old:
            priced[kind, place] = self._renewal(kind, place, needs[kind[0]], mean_s, count, useless)
        return [choice for entry in kinds if (choice := priced[entry].choice) is not None]

    def _outdated(
        self, kinds: Sequence[tuple[Kind, int]], needs: Needs, mean_s: float, count: int, useless: Useless
    ) -> list[tuple[Kind, int]]:
        """Those of these machines that have no price, or one that would come out different now."""
        terms, priced = (needs, mean_s, len(useless)), self._priced
        if terms == self._terms:
            return [kind for kind in kinds if (known := priced.get(kind)) is None or known.tasks > count]
        self._terms = terms
        kept = {kind: known for kind in kinds if (known := priced.get(kind)) is not None}
        self._priced = {
            kind: known for kind, known in kept.items() if known.holds(needs[kind[0][0]], mean_s, count, useless)
        }
        return [kind for kind in kinds if kind not in self._priced]

    def _needs(self, waiting: NDArray[np.int64], mean_s: float) -> Needs:
        """By offer of machines: lengths of tasks for which longer leases are tried."""
        needs: Needs = {}
        for key, offer in self._pass.rented.items():
            shortest_s, longest_s = self._span_s(offer, waiting)
            needs[key] = tuple(dict.fromkeys((shortest_s, mean_s / self._prices.speed(offer), longest_s)))
        return needs

    def _price_renewals(self, kinds: Sequence[tuple[Kind, int]], needs: Needs) -> None:
        """Price the shortest longer lease of many machines at once: one at a time takes most of a large plan."""
        decided, known = self._pass, self._renewals_usd
        new = dict[tuple[tuple[str, str], float, float], Offer]()
        for kind, place in kinds:
            offer = decided.bins[place].offer
            if kind[1] < decided.by_t and decided.may_rent(offer):
                key = (kind[0], kind[1], self._longer_t(kind, offer, needs[kind[0]][:1])[0])
                if key not in known:
                    new.setdefault(key, offer)
        while new:
            # Machines of one offer may be rented at different prices.
            offer = next(iter(new.values()))
            keys = [key for key, other in new.items() if other is offer or other == offer]
            usd = self._renewed_usd(offer, [key[1:] for key in keys])
            known.update(zip(keys, usd, strict=True))
            new = {key: other for key, other in new.items() if key not in known}

    def _longer_t(self, kind: Kind, offer: Offer, needs_s: Sequence[float]) -> tuple[float, ...]:
        """Ends of longer leases: by steps, until a task of each of these lengths fits."""
        _, keep_t, free_t, _ = kind
        step_s = self._step_s(offer, STEPS_OF_UNNAMED if self._pass.snapshot.groups else STEPS)
        return tuple([keep_t + step_s * math.ceil(max(1.0, (free_t + s - keep_t) / step_s)) for s in needs_s])

    def _renewal(
        self, kind: Kind, place: int, needs_s: tuple[float, ...], mean_s: float, count: int, useless: Useless
    ) -> _Renewal:
        """The shortest of these leases that holds a task of mean length and is not known to be useless."""
        bin = self._pass.bins[place]
        if not bin.keep_t < self._pass.by_t or not self._pass.may_rent(bin.offer):
            return _Renewal(needs_s, mean_s, 0.0, ("", "", 0.0), None)
        for tried, keep_t in enumerate(self._longer_t(kind, bin.offer, needs_s), 1):
            name = (bin.name, bin.offer.key, keep_t)
            if name in useless:
                continue
            longer = replace(bin, keep_t=keep_t, free_t=list(bin.free_t), placed=list(bin.placed))
            tasks, choice = self._scored(longer, self._renewal_usd(bin, keep_t), count, mean_s)
            if choice is not None:
                return _Renewal(needs_s[:tried], mean_s, tasks, name, choice)
        return _Renewal(needs_s, mean_s, 0.0, ("", "", 0.0), None)

    def _new_machines(self, waiting: NDArray[np.int64], count: int, mean_s: float, useless: Useless) -> list[Choice]:
        decided, found = self._pass, dict[tuple[object, int], Choice | None]()
        name = f"new-{len(decided.bins)}"
        for offer in decided.snapshot.offers:
            if decided.left.of(offer) <= 0 or not decided.may_rent(offer):
                continue
            step_s, key = self._step_s(offer, STEPS), market_key(offer)
            first = math.ceil((offer.lag_s + self._span_s(offer, waiting)[1]) / step_s)
            for steps in range(first, first + LEASE_LENGTHS_TRIED):
                if (name, offer.key, decided.t + steps * step_s) not in useless:
                    new = fresh(name, offer, decided.t, steps * step_s, decided.stretch(offer))
                    found[key, steps] = self._scored(new, self._lease_usd(offer, steps * step_s), count, mean_s)[1]
                if decided.t + steps * step_s >= decided.by_t:
                    break
        return [choice for choice in found.values() if choice is not None]

    def _returning(self, count: int, keep_t: float) -> float:
        """Tasks that spot machines are expected to lose, and that spare time of an on-demand lease can serve.

        A task that could begin again on spot for less than on demand counts for less.
        """
        decided, prices = self._pass, self._prices
        if not decided.risk_weight or count > MAX_TASKS_PACKED_EXACTLY:
            return 0.0
        known_for = (count, len(decided.bins))
        if self._lost[0] != known_for:
            self._lost = (known_for, decided.expected_lost())
        cell = prices.cell((decided.t + min(keep_t, decided.by_t)) / 2)
        ondemand_usd = float(prices.ondemand_usd[cell])
        return self._lost[1] * float(prices.waiting_usd[cell]) / ondemand_usd if ondemand_usd > 0.0 else 0.0

    def _mean_of_rest(self, left: Sequence[int], count: int) -> float:
        """The mean run time of the tasks that are left, or of all if the pass prices by that."""
        if not self._pass.price_by_rest:
            return self._pass.seconds
        self._is_large = self._is_large or count > MAX_TASKS_PACKED_EXACTLY
        if not self._is_large or not self._mean_of * (1.0 - MEAN_KEPT_WITHIN) <= count <= self._mean_of:
            items = self._pass.items
            self._mean_s = math.fsum(i.task.runtime_s * n for i, n in zip(items, left, strict=True)) / count
            self._mean_of = count
        return self._mean_s

    def _span_s(self, offer: Offer, waiting: NDArray[np.int64]) -> tuple[float, float]:
        """Seconds of the shortest and of the longest task that waits."""
        found = self.sizes_on(offer).arrays[0][waiting]
        return float(found.min()), float(found.max())

    def _lease_usd(self, offer: Offer, keep_s: float) -> float:
        """Expected dollars for a lease, which ends early if the machine is interrupted."""
        price = cycles_usd(offer, keep_s)
        cycles = np.array([max(1.0, price / offer.price_usd)])
        return float(self._prices.paid_cycles(offer, cycles)[0]) * offer.price_usd + offer.start_usd

    def _renewal_usd(self, bin: Bin, keep_t: float) -> float:
        """Expected dollars for more cycles of a machine that may be interrupted before they begin."""
        key = (market_key(bin.offer), bin.keep_t, keep_t)
        if key not in self._renewals_usd:
            self._renewals_usd[key] = self._renewed_usd(bin.offer, [(bin.keep_t, keep_t)])[0]
        return self._renewals_usd[key]

    def _renewed_usd(self, offer: Offer, spans: Sequence[tuple[float, float]]) -> list[float]:
        """The same for leases of an offer that end at the first moment of each span and would end at the second."""
        cycles = list[float]()
        for before_t, keep_t in spans:
            price = cycles_usd(offer, keep_t - before_t + offer.lag_s * (not offer.bills_boot))
            held = (before_t - self._pass.t) / offer.cycle_s
            cycles += (held, held + price / offer.price_usd)
        paid = self._prices.paid_cycles(offer, np.array(cycles))
        more: list[float] = ((paid[1::2] - paid[::2]) * offer.price_usd).tolist()
        return more

    def _step_s(self, offer: Offer, steps: int) -> float:
        """Seconds bought at once: whole billing cycles, at least the time that a lease can be of use over `steps`.

        That is until the deadline, or until one such machine alone has done everything.
        """
        key, decided = (market_key(offer), steps), self._pass
        if key not in self._steps_s:
            alone_s = offer.lag_s + decided.work_s / (offer.cores * self._prices.speed(offer))
            cycles = max(1, math.ceil(min(decided.by_t - decided.t, alone_s) / steps / offer.cycle_s))
            self._steps_s[key] = offer.cycle_s * cycles
        return self._steps_s[key]

    def _scored(self, bin: Bin, price: float, count: int, mean_s: float) -> tuple[float, Choice | None]:
        """How many tasks of mean length fit, and the choice with its price per task, interruptions included.

        None if no task fits.
        """
        decided, seconds = self._pass, mean_s / self._prices.speed(bin.offer)
        safe_t = decided.by_t - (self._prices.rescue_s if bin.offer.market == SPOT else 0.0)
        until_t = min(bin.keep_t, decided.t + (safe_t - decided.t) / bin.stretch)
        rows = [(until_t - free_t) / seconds for free_t in bin.free_t]
        fitting = sum(CORE_FILL_RATIO * row if row > 1.0 else 1.0 for row in rows if row >= 1.0) / decided.mean_cores
        if fitting <= 0.0:
            return 0.0, None
        fitting = max(fitting, 1.0)
        tasks = min(fitting, count + (self._returning(count, bin.keep_t) if bin.offer.market != SPOT else 0.0))
        risk_usd = 0.0
        if bin.offer.market == SPOT and decided.risk_weight:
            begin_t = min(bin.free_t)
            first_t = begin_t + seconds
            last_t = max(first_t, min(until_t, begin_t + tasks * seconds / len(rows)))
            middle_usd = decided.risk_usd(bin, (first_t + last_t) / 2)
            risk_usd = (decided.risk_usd(bin, first_t) + 2.0 * middle_usd + decided.risk_usd(bin, last_t)) / 4
        return fitting, Choice(bin, price, price / tasks + decided.risk_weight * risk_usd)
