"""The desk at which a bag is planned: what is to be done, what there is, and the buying of room for it. Pure.

Paid room is filled first. The rest is bought piece by piece: another cycle of a machine that is there, a new spot
machine, a new on-demand one, whichever costs least for a task, the chance and the price of losing it to an interruption
counted in (`bag_prices`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from windfall.planning.bags.packing import (
    TOLERANCE_S,
    Bin,
    Item,
    Placed,
    existing,
    expected,
    fill,
    fresh,
    is_awake,
    is_leaving,
    lease_usd,
    longest_first,
    ondemand_offers,
    spread,
    width,
)
from windfall.planning.bags.prices import Prices
from windfall.planning.bags.safety_net import Net, ident, left_of_each
from windfall.planning.contract import ONDEMAND, SPOT, Machine, Phase, Rejected, Snapshot, Task
from windfall.planning.offers import Offer

# Of the room in a row of tasks of unequal length so much is used.
TIGHT = 0.97
LONGEST_LEASE_STEPS = 3
# Room that begins sooner may cost so much more.
HARDLY = 0.25
# Spot that is away comes back after about as long as it has been away, and at first after about so long.
USUALLY_AWAY_S, ROOM_LEFT = 1800.0, 1.25


class Sleeper(Struct):
    """A machine that sleeps: its tasks, and the last moment at which they could wake there and need no rescue."""

    machine: Machine
    items: list[Item]
    limit_t: float


class Choice(Struct, frozen=True):
    """Room that could be bought: a new machine or another cycle of one that is there, and its price per task."""

    bin: Bin
    price_usd: float
    per_task_usd: float


def _likeness(bin: Bin) -> tuple[tuple[str, str], float, float, float]:
    """Machines that are alike in this are worth the same."""
    free_t = bin.free_t
    if len(free_t) == 1:
        return ident(bin.offer), bin.keep_t, free_t[0], free_t[0]
    return ident(bin.offer), bin.keep_t, min(free_t), max(free_t)


class Desk:
    """One look at a snapshot: what is to be done, what there is, what was decided. Rivals decide otherwise."""

    risk_weight = 1.0
    sure_only = False

    def __init__(
        self, snapshot: Snapshot, margin_s: float, forced: Sequence[Offer], before: Desk | None = None
    ) -> None:
        # A second look at the same: judged by the mean of all tasks and not of those that are left to place.
        self.by_rest, self.late = before is None, 0
        self.snapshot, self.t, self.margin_s = snapshot, snapshot.t, margin_s
        self.by_t = snapshot.deadline_t - margin_s
        self.left = left_of_each(snapshot)
        # Where the provider takes back all that we have it will not give more.
        self.leaving = {ident(offer) for offer in snapshot.offers if is_leaving(offer, snapshot.machines)}
        self.left |= dict.fromkeys(self.leaving, 0)
        self.bought_usd = 0.0
        self.awake = {m.id: m for m in snapshot.machines if is_awake(m)}
        self.bins = [existing(machine, snapshot) for machine in self.awake.values()]
        self.bins.sort(key=lambda bin: (bin.offer.market == SPOT, bin.name))
        self.places = {bin.name: place for place, bin in enumerate(self.bins)}
        for offer in forced:
            self._open(fresh(f"new-{len(self.bins)}", offer, self.t, offer.cycle_s))
        self.net = Net(snapshot, [], self.left, margin_s)
        self.sleepers = self._asleep()
        self.items = longest_first(self._waiting())
        self.waits: list[Sleeper] = []
        self.put_off: list[Item] = []
        self.put_off_usd = 0.0
        self.stranded: list[int] = []
        self.rejected: list[Rejected] = []
        everything = [*self.items, *(item for sleeper in self.sleepers for item in sleeper.items)]
        count = sum(item.count for item in everything)
        seconds = math.fsum(item.task.runtime_s * item.count for item in everything) / max(1, count)
        self.seconds = max(seconds, 1e-3)
        self.wide = sum(item.task.cores * item.count for item in everything) / max(1, count) or 1.0
        typical = max(everything, key=lambda item: item.count * item.task.runtime_s, default=None)
        task_class = typical.task.task_class if typical else ""
        if before is None:
            self.prices = Prices(snapshot, self.seconds, max(1, count), margin_s, task_class, self.wide)
        else:
            self.prices = before.prices

    # --- what there is to do ----------------------------------------------------------------------------------------

    def _waiting(self) -> list[Item]:
        """Tasks that run nowhere and are not bound to a machine that sleeps; alike ones together."""
        snapshot = self.snapshot
        bound = {entry.task for machine in snapshot.machines for entry in machine.running}
        bound |= {number for sleeper in self.sleepers for number in sleeper.machine.tasks()}
        found = [Item(group.task, group.count, []) for group in snapshot.groups]
        alike: dict[Task, Item] = {}
        for number, task in sorted(snapshot.tasks.items()):
            if number in bound:
                continue
            item = alike.setdefault(replace(task, id=-1), Item(task, 0, []))
            item.count += 1
            item.ids.append(number)
        return [self._due(item) for item in (*found, *alike.values()) if item.count]

    def _asleep(self) -> list[Sleeper]:
        found = []
        for machine in self.snapshot.machines:
            if is_awake(machine) or not machine.tasks():
                continue
            items = [self._due(Item(self.snapshot.tasks[number], 1, [number])) for number in machine.tasks()]
            asleep = machine.phase is Phase.HIBERNATED
            found.append(Sleeper(machine, items, self._limit_t(machine, items) if asleep else machine.ready_t))
        return [sleeper for sleeper in found if sleeper.machine.phase is Phase.HIBERNATED]

    def _due(self, item: Item) -> Item:
        """A task on spot must end so early that on-demand could still do it from the beginning."""
        item = expected(item)
        alone_s = self.net.alone_s(item)
        # A margin more than the net has: a task that is due ends a little before the net would have to be let down.
        item.due_t = self.by_t - self.margin_s - alone_s if math.isfinite(alone_s) else self.by_t
        return item

    def _limit_t(self, machine: Machine, items: Sequence[Item]) -> float:
        """Until when it may sleep on: awake by then, it ends its tasks while a rescue would still be in time."""
        left_s = {entry.task: entry.left_s for entry in machine.running}
        free_s = sorted([*left_s.values(), *[0.0] * (machine.offer.cores - len(left_s))])
        limit_t = math.inf
        for item in items:
            if item.ids[0] in left_s:
                end_s = left_s[item.ids[0]]
            else:
                end_s = free_s.pop(0) + item.task.seconds_on(machine.offer)
                free_s = sorted([*free_s, end_s])
            limit_t = min(limit_t, item.due_t - end_s)
        return limit_t

    # --- the decision -----------------------------------------------------------------------------------------------

    def decide(self, in_need: bool = False, as_queued: bool = False) -> None:
        """Paid room first, for what must be placed and then for what sleeps; the rest is bought.

        `in_need`: first of all in time, the longest first, whatever cycles that begins. `as_queued`: what waits for a
        machine that stays goes on waiting for it, in its order.
        """
        left = [item.count for item in self.items]
        in_need = in_need or as_queued
        if as_queued:
            self._queue(left)
        if not in_need:
            spread(self.bins, self.items, left, self.by_t)
        for bin in self.bins:
            paid_until_t = bin.keep_t
            bin.keep_t = math.inf if in_need else paid_until_t
            fill(bin, self.items, left, self.by_t)
            bin.keep_t = self._kept(bin, paid_until_t)
        for sleeper in self.sleepers:
            self._relieve(sleeper)
        left += [0] * (len(self.items) - len(left))
        gone = [sleeper for sleeper in self.sleepers if not self.worth_waiting(sleeper)]
        self.waits = [sleeper for sleeper in self.sleepers if sleeper not in gone]
        late = [item for sleeper in gone for item in sleeper.items]
        self.items, left = [*self.items, *late], [*left, *(item.count for item in late)]
        self._put_off(left)
        self._buy(left)
        self._secure(left)
        self._hurry(left)
        self.stranded = left

    def _queue(self, left: list[int]) -> None:
        """Put what waits for machines on demand where it waits."""
        places = {number: place for place, item in enumerate(self.items) for number in item.ids}
        for bin in [bin for bin in self.bins if bin.offer.market == ONDEMAND and bin.name in self.awake]:
            for place in [places[number] for number in self.awake[bin.name].waiting if number in places]:
                task, lane = self.items[place].task, bin.free_t.index(min(bin.free_t))
                if width(task, bin.offer) == 1 and left[place] > 0:
                    start_t, bin.free_t[lane] = bin.free_t[lane], bin.free_t[lane] + task.seconds_on(bin.offer)
                    bin.placed.append(Placed(place, 1, start_t, bin.free_t[lane]))
                    left[place] -= 1
                    self.late += bin.free_t[lane] > self.by_t + TOLERANCE_S

    def _kept(self, bin: Bin, paid_until_t: float) -> float:
        """To the end of the cycle in which its work ends; what that costs is noted."""
        late_s = bin.end_t() - paid_until_t
        if not math.isfinite(paid_until_t) or late_s <= 0.0:
            return paid_until_t
        cycles = math.ceil(late_s / bin.offer.cycle_s - 1e-9)
        self.bought_usd += cycles * bin.offer.price_usd
        return paid_until_t + cycles * bin.offer.cycle_s

    def worth_waiting(self, sleeper: Sleeper) -> bool:
        return self.t < sleeper.limit_t - 1e-6 and self.prices.waiting_pays(self.t)

    def _put_off(self, left: list[int]) -> None:
        """Spot is away and may come back: what would cost no more if it began later does not begin on demand now."""
        rest = [replace(item, count=count) for item, count in zip(self.items, left, strict=True) if count]
        if rest and self._spot_is_away():
            later_t, shared = self.t + self.pause_s(), self._together(sum(item.count for item in rest))
            doubtful = [replace(item, slack_s=item.slack_s * shared) for item in rest]
            if self.netted().holds(doubtful, later_t) and self.worth_putting_off(rest, later_t):
                self.put_off, self.put_off_usd = rest, self._sure_usd(rest, self.t)
                left[:] = [0] * len(left)

    def _together(self, count: int) -> float:
        """How much greater the doubt is of the longest of so many than of one: all of them are to be in time."""
        sure = min(max(self.snapshot.confidence, 0.5), 1.0 - 1e-9)
        alone = NormalDist().inv_cdf(sure)
        return NormalDist().inv_cdf(1.0 - (1.0 - sure) / max(1, count)) / alone if alone > 0.0 else 1.0

    def _spot_is_away(self) -> bool:
        """There is spot on offer, and all of it was refused when it was last asked for."""
        spot = [offer for offer in self.snapshot.offers if offer.market == SPOT]
        seen = [self.snapshot.markets.get(offer.key) for offer in spot]
        refused = [
            ident(offer) in self.leaving
            or (
                market is not None
                and market.refused_t is not None
                and market.refused_t >= (market.started_t or -math.inf)
            )
            for offer, market in zip(spot, seen, strict=True)
        ]
        return bool(spot) and all(refused) and not any(self.left[ident(offer)] > 0 for offer in spot)

    def _sure_usd(self, rest: Sequence[Item], at_t: float) -> float:
        """What on-demand machines for these tasks cost that are started then."""
        return float(self.prices.sure[self.prices.cell(at_t)]) * self.prices.per_task * sum(item.count for item in rest)

    def pause_s(self) -> float:
        """Until when to look again whether spot is back."""
        return max(self.margin_s, (self.by_t - self.snapshot.begun_t) / 24.0)

    def worth_putting_off(self, rest: Sequence[Item], later_t: float) -> bool:
        """Whether it is expected to cost less: spot may be back by then, sooner if it has not been away for long."""
        if self.sure_only:
            return False
        back = -math.expm1(-self.pause_s() / (USUALLY_AWAY_S + self._away_s()))
        later_usd = back * self._spot_usd(rest) + (1.0 - back) * self._sure_usd(rest, later_t)
        return later_usd <= self._sure_usd(rest, self.t) * (1.0 + 1e-9)

    def _away_s(self) -> float:
        """How long no spot machine could be had."""
        seen = [self.snapshot.markets.get(o.key) for o in self.snapshot.offers if o.market == SPOT]
        started = [market.started_t for market in seen if market is not None and market.started_t is not None]
        return max(0.0, self.t - max(started, default=self.snapshot.begun_t))

    def _spot_usd(self, rest: Sequence[Item]) -> float:
        """What these tasks would cost on the cheapest spot machines, with some room left over."""
        spot = [offer for offer in self.snapshot.offers if offer.market == SPOT]
        core_usd = min(o.price_usd / o.cycle_s / o.cores / self.prices.speed(o) for o in spot)
        seconds = math.fsum(item.count * item.task.runtime_s * item.task.cores for item in rest)
        return ROOM_LEFT * core_usd * seconds

    def wanted(self, choices: list[Choice]) -> list[Choice]:
        """Those that may be bought."""
        if self.sure_only:
            return [choice for choice in choices if choice.bin.offer.market == ONDEMAND]
        return choices

    def _relieve(self, sleeper: Sleeper) -> None:
        """What sleeps is taken over where there is room that is paid for anyway."""
        for item in longest_first(sleeper.items):
            for bin in self.bins:
                left = [1]
                if fill(bin, [item], left, self.by_t):
                    bin.placed[-1] = replace(bin.placed[-1], item=len(self.items))
                    self.items.append(item)
                    sleeper.items = [other for other in sleeper.items if other is not item]
                    break

    def _buy(self, left: list[int]) -> None:
        """Room for the rest, the cheapest per task first."""
        useless: set[tuple[str, str, float]] = set()
        while any(left):
            count = sum(left)
            choices = self.wanted(self._choices(left, useless))
            if not choices:
                return
            best = self.best(choices)
            self._note_other(best, choices, count)
            before = self._there(best.bin)
            placed = fill(best.bin, self.items, left, self.by_t)
            if not placed:
                useless.add((best.bin.name, best.bin.offer.key, best.bin.keep_t))
                continue
            self._take(best)
            # Of a large bag the next few machines are like this one.
            for more in self._alike(best.bin, before, count // (8 * placed)):
                fill(more, self.items, left, self.by_t)
                self._take(replace(best, bin=more))

    def _note_other(self, best: Choice, choices: Sequence[Choice], count: int) -> None:
        """The best of the other market, for who asks why not that."""
        others = [choice for choice in choices if choice.bin.offer.market != best.bin.offer.market]
        if others and not self.rejected:
            other = min(others, key=lambda choice: choice.per_task_usd)
            extra_usd = (other.per_task_usd - best.per_task_usd) * count
            self.rejected.append(Rejected(f"{count} tasks on {other.bin.offer.name}", extra_usd))

    def best(self, choices: Sequence[Choice]) -> Choice:
        """The cheapest per task, or, on spot, one that is hardly dearer and begins sooner: less is at risk later."""
        cheapest = min(choices, key=lambda c: (c.per_task_usd, c.bin.offer.key, c.bin.keep_t))
        # Where what is taken is not charged only time is lost.
        is_free = cheapest.bin.offer.when_taken == "terminate" and cheapest.bin.offer.free_if_taken
        if cheapest.bin.offer.market == ONDEMAND or is_free:
            return cheapest
        most_usd = cheapest.per_task_usd * (1.0 + HARDLY)
        near = [c for c in choices if c.per_task_usd <= most_usd and c.bin.offer.market == SPOT]
        return min(near, key=lambda c: (min(c.bin.free_t), c.per_task_usd, c.bin.offer.key, c.bin.keep_t))

    def _there(self, bin: Bin) -> Bin | None:
        """The machine of which this is a longer lease, where it is in the plan already."""
        place = self.places.get(bin.name)
        return None if place is None else self.bins[place]

    def _alike(self, bin: Bin, before: Bin | None, most: int) -> Iterator[Bin]:
        """More of the same: new machines where this one is new, else longer leases of those like it."""
        if before is None:
            for _ in range(min(most, self.left[ident(bin.offer)])):
                yield fresh(f"new-{len(self.bins)}", bin.offer, self.t, bin.keep_t - self.t)
            return
        same, keep_t = _likeness(before), before.keep_t
        for other in [o for o in self.bins if most and o.keep_t == keep_t and _likeness(o) == same][:most]:
            yield replace(other, keep_t=bin.keep_t, free_t=list(other.free_t), placed=list(other.placed))

    def _take(self, choice: Choice) -> None:
        self.bought_usd += choice.price_usd
        place = self.places.get(choice.bin.name)
        if place is None:
            self._add(choice.bin)
        else:
            self.bins[place] = choice.bin

    def _add(self, bin: Bin) -> None:
        self.places[bin.name] = len(self.bins)
        self.bins.append(bin)
        self.left[ident(bin.offer)] -= 1

    def _open(self, bin: Bin) -> None:
        """A machine that the net demands: paid for, whatever it is used for."""
        self._add(bin)
        self.bought_usd += bin.offer.price_usd

    def _choices(self, left: Sequence[int], useless: set[tuple[str, str, float]]) -> list[Choice]:
        """Another cycle of each machine, and a new machine of each offer for one, two or three."""
        waiting = [item for item, count in zip(self.items, left, strict=True) if count > 0]
        found: dict[tuple[object, ...], tuple[Bin, float]] = {}
        for bin in self.bins:
            # Machines alike are looked at once.
            if not bin.keep_t < self.by_t or (alike := _likeness(bin)) in found:
                continue
            shortest_s = min(item.task.seconds_on(bin.offer) for item in waiting)
            step_s = self._step_s(bin.offer)
            keep_t = bin.keep_t + step_s * math.ceil(max(1.0, (alike[2] + shortest_s - bin.keep_t) / step_s))
            if (bin.name, bin.offer.key, keep_t) not in useless:
                longer = replace(bin, keep_t=keep_t, free_t=list(bin.free_t), placed=list(bin.placed))
                found[alike] = longer, self._renewal_usd(bin, keep_t)
        name = f"new-{len(self.bins)}"
        for offer in self.snapshot.offers:
            if self.left[ident(offer)] <= 0:
                continue
            step_s = self._step_s(offer)
            longest_s = offer.lag_s + max(item.task.seconds_on(offer) for item in waiting)
            for steps in range(math.ceil(longest_s / step_s), math.ceil(longest_s / step_s) + LONGEST_LEASE_STEPS):
                if (name, offer.key, self.t + steps * step_s) not in useless:
                    new = fresh(name, offer, self.t, steps * step_s)
                    found[ident(offer), steps] = (new, self._expected_usd(offer, steps * step_s))
                if self.t + steps * step_s >= self.by_t:
                    break
        count = sum(left)
        mean_s = self.seconds
        if self.by_rest:
            mean_s = math.fsum(i.task.runtime_s * n for i, n in zip(self.items, left, strict=True)) / count
        scored = [self._scored(bin, price, count, mean_s) for bin, price in found.values()]
        return [choice for choice in scored if choice is not None]

    def _expected_usd(self, offer: Offer, keep_s: float) -> float:
        """The price of a lease that ends early if the machine does."""
        price = lease_usd(offer, keep_s)
        cycles = np.array([max(1.0, price / offer.price_usd)])
        return float(self.prices.paid_cycles(offer, cycles)[0]) * offer.price_usd

    def _renewal_usd(self, bin: Bin, keep_t: float) -> float:
        """The price of more cycles of a machine that may be gone before they begin."""
        offer = bin.offer
        price = lease_usd(offer, keep_t - bin.keep_t + offer.lag_s * (not offer.bills_boot))
        cycles = (bin.keep_t - self.t) / offer.cycle_s + np.array([0.0, price / offer.price_usd])
        before, after = self.prices.paid_cycles(offer, cycles)
        return float(after - before) * offer.price_usd

    def _step_s(self, offer: Offer) -> float:
        """What is bought at once: a billing cycle, or of short ones as many as are a twelfth of the time."""
        return offer.cycle_s * max(1, math.ceil((self.by_t - self.t) / 12.0 / offer.cycle_s))

    def _scored(self, bin: Bin, price: float, count: int, mean_s: float) -> Choice | None:
        """The price per task of the mean length, with what interruptions are expected to cost."""
        seconds = mean_s / self.prices.speed(bin.offer)
        until_t = min(bin.keep_t, self.by_t - (self.prices.rescue_s if bin.offer.market == SPOT else 0.0))
        rows = [(until_t - free_t) / seconds for free_t in bin.free_t]
        tasks = sum(TIGHT * row if row > 1.0 else 1.0 for row in rows if row >= 1.0) / self.wide
        if tasks <= 0.0:
            return None
        tasks = min(max(tasks, 1.0), float(count))
        risk = 0.0
        if bin.offer.market == SPOT:
            begin_t = min(bin.free_t)
            first_t = begin_t + seconds
            last_t = max(first_t, min(until_t, begin_t + tasks * seconds / len(rows)))
            ends_t = (first_t, (first_t + last_t) / 2, (first_t + last_t) / 2, last_t)
            risk = sum(self._risk(bin, end_t) for end_t in ends_t) / 4
        return Choice(bin, price, price / tasks + self.risk_weight * risk)

    def _risk(self, bin: Bin, end_t: float) -> float:
        """What a task that ends there at this time is expected to cost through interruptions before."""
        cells = max(1, round((end_t - self.t) / self.prices.cell_s))
        return float(self.prices.losses(bin.offer, self.t, cells)[-1])

    def _loss_usd(self, bin: Bin) -> float:
        if bin.offer.market != SPOT:
            return 0.0
        usd = 0.0
        for entry in bin.placed:
            seconds = self.items[entry.item].task.seconds_on(bin.offer)
            usd += entry.count * self._risk(bin, (entry.start_t + seconds + entry.end_t) / 2)
        return usd

    def _lost(self, bin: Bin, entry: Placed) -> float:
        """How many of these tasks interruptions are expected to cut short."""
        return entry.count * -math.expm1(-self.prices.laws[bin.offer.key].interrupts * (entry.end_t - self.t))

    def _secure(self, left: list[int]) -> None:
        """What no usual lease has room for: on-demand machines for as long as it takes."""
        for bin in self.bins:
            if any(left) and bin.offer.market == ONDEMAND:
                bin.keep_t = math.inf
                fill(bin, self.items, left, self.by_t)
        for offer in ondemand_offers(self.snapshot):
            while any(left) and self.left[ident(offer)] > 0:
                bin = fresh(f"new-{len(self.bins)}", offer, self.t, math.inf)
                if not fill(bin, self.items, left, self.by_t):
                    break
                self._open(bin)

    def _hurry(self, left: list[int]) -> None:
        """Late is better than never: what fits nowhere in time goes where it ends the soonest."""
        for place, item in enumerate(self.items):
            while left[place] > 0:
                bins = [bin for bin in self.bins if width(item.task, bin.offer) <= bin.offer.cores]
                new = [
                    fresh(f"new-{len(self.bins)}", offer, self.t, math.inf)
                    for offer in ondemand_offers(self.snapshot) or self.snapshot.offers
                    if self.left[ident(offer)] > 0 and width(item.task, offer) <= offer.cores
                ]
                if not bins and not new:
                    break
                best = min([*bins, *new], key=lambda bin: min(bin.free_t) + item.task.seconds_on(bin.offer))
                single = [min(left[place], 1 if item.ids else max(1, left[place] // 8))]
                taken = single[0]
                fill(replace(best, keep_t=math.inf, offer=replace(best.offer, market=ONDEMAND)), [item], single)
                best.placed[-1] = replace(best.placed[-1], item=place)
                self.late += taken - single[0]
                left[place] -= taken - single[0]
                if best.is_new and best not in self.bins:
                    self._open(best)

    def shortfall(self) -> tuple[int, int]:
        """Tasks that fit on no machine, and tasks that will be late."""
        return sum(self.stranded), self.late

    def cost_usd(self) -> float:
        """What is bought now, what interruptions are expected to cost, and what sleeps."""
        asleep_usd = float(self.prices.asleep[0]) * sum(len(sleeper.items) for sleeper in self.waits)
        lost = sum(self._lost(bin, entry) for bin in self.bins if bin.offer.market == SPOT for entry in bin.placed)
        losses_usd = sum(self._loss_usd(bin) for bin in self.bins) * self.prices.dearer_for_few(lost)
        return self.bought_usd + losses_usd + asleep_usd + self.put_off_usd

    # --- after the decision -----------------------------------------------------------------------------------------

    def at_risk(self) -> list[Item]:
        """Everything that would have to be rescued if all spot machines vanished."""
        found: dict[tuple[Task, float], Item] = {}
        sleeping = [item.ids[0] for sleeper in self.waits for item in sleeper.items]
        spot = [m for m in self.snapshot.machines if m.offer.market == SPOT and m.phase is not Phase.HIBERNATED]
        running = [entry.task for machine in spot for entry in machine.running]
        for number in (*sleeping, *running):
            item = expected(Item(self.snapshot.tasks[number], 1, []))
            key = replace(item.task, id=-1), item.slack_s
            found.setdefault(key, replace(item, count=0)).count += 1
        for bin in self.bins:
            for entry in bin.placed if bin.offer.market == SPOT else ():
                item = self.items[entry.item]
                key = replace(item.task, id=-1), item.slack_s
                found.setdefault(key, replace(item, count=0)).count += entry.count
        for item in self.put_off:
            found.setdefault((replace(item.task, id=-1), item.slack_s), replace(item, count=0)).count += item.count
        return longest_first(found.values())

    def netted(self) -> Net:
        """The net as it would hang after this plan."""
        return Net(self.snapshot, [bin for bin in self.bins if bin.offer.market == ONDEMAND], self.left, self.margin_s)
