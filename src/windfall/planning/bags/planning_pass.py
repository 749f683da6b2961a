"""One planning pass over a snapshot: choose machines for the unassigned tasks. Pure.

Time that is already paid for is filled first. The rest is bought piece by piece: another cycle of a machine that runs,
a new spot machine or a new on-demand one, whichever has the least expected cost per task. The expected cost includes
interruptions (`prices`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from windfall.planning.bags.absent_spot import spot_is_back, spot_is_refused
from windfall.planning.bags.alike import Alike, Kind
from windfall.planning.bags.hibernated import PaidTime, resume_limit_t, take_over
from windfall.planning.bags.late import place_late
from windfall.planning.bags.leases import Leases, Useless
from windfall.planning.bags.packing import (
    MAX_TASKS_PACKED_EXACTLY,
    TOLERANCE_S,
    Bin,
    Choice,
    HibernatedMachine,
    Item,
    Placed,
    Sizes,
    all_noticed,
    count_copies,
    cycles_usd,
    existing,
    expected,
    fill,
    fresh,
    is_usable,
    longest_first,
    merged,
    ondemand_offers,
    sizes_on,
    spread,
    width,
)
from windfall.planning.bags.prices import Prices
from windfall.planning.bags.queue_placing import keep_queues, share_queue
from windfall.planning.bags.safety_net import SafetyNet
from windfall.planning.contract import ONDEMAND, SPOT, Phase, Rejected, Snapshot, Task
from windfall.planning.offers import Offer
from windfall.planning.room import market_key

EARLY_SPOT_PREMIUM = 0.25
"""Prefer spot that starts sooner if it costs at most 25 % more per task."""
RENEWED_TOGETHER_PREMIUM = 0.02
"""In a large bag, machines whose renewals differ by at most this much per task are renewed at once."""
BATCHES, BATCHES_OF_UNNAMED = 8, 4
"""Of many equal machines, those for this part of the tasks are bought at once."""
SPREAD_PREMIUM = 0.05
"""A spot machine that would be lost together with all others is worth 5 % less than one that is lost alone."""
RESULTS_TO_WAIT_WITH, UNKNOWN_FACTOR = 8, 3.0
"""While fewer tasks than this have ended, others may take this many times their quantile."""
SPOT_COST_MARGIN = 1.25
"""Expected cost of spot over the price of the seconds that tasks use."""


class PlanningPass:
    """What is to be done, which machines there are, and what was decided. Rivals override single decisions."""

    risk_weight = 1.0
    ondemand_only = False
    shares_queue = True
    """Whether cores of spot machines are counted on as sharing one queue (`shared_queue`)."""

    def __init__(
        self, snapshot: Snapshot, margin_s: float, forced: Sequence[Offer], before: PlanningPass | None = None
    ) -> None:
        # A second pass over the same snapshot prices by the mean of all tasks, not of those left to place.
        self.price_by_rest, self.late = before is None, 0
        self.snapshot, self.t, self.margin_s = snapshot, snapshot.t, margin_s
        self.by_t = snapshot.deadline_t - margin_s
        self.left = snapshot.room()
        # A provider that reclaims all our machines of an offer has no more of them.
        self.noticed_offers = {market_key(offer) for offer in snapshot.offers if all_noticed(offer, snapshot.machines)}
        self.left.close(self.noticed_offers)
        self.bought_usd = 0.0
        self.awake = {m.id: m for m in snapshot.machines if is_usable(m)}
        self.bins = [existing(machine, snapshot) for machine in self.awake.values()]
        self.bins.sort(key=lambda bin: (bin.offer.market == SPOT, bin.name))
        self.free_before = {bin.name: tuple(bin.free_t) for bin in self.bins}
        """When the cores of each machine are free before this pass places anything."""
        self.places = {bin.name: place for place, bin in enumerate(self.bins)}
        self.rented = {market_key(bin.offer): bin.offer for bin in self.bins}
        """The offers of the machines in this pass."""
        self._alike_bins = Alike()
        self.spot_cores = Counter[str]()
        for bin in self.bins:
            self.spot_cores[bin.offer.key] += bin.offer.cores * (bin.offer.market == SPOT)
        for offer in forced:
            self.open(fresh(f"new-{len(self.bins)}", offer, self.t, offer.cycle_s))
        self.room_before = self.left.copy()
        self.safety_net = SafetyNet(snapshot, [], self.left, margin_s)
        self.hibernated_machines = self._find_hibernated()
        self.first: PlanningPass = self if before is None else before.first
        """The first pass over the same snapshot, and passes that its later ones may ask for again."""
        self.queued: PlanningPass | None = None
        self.rescue: PlanningPass | None = None
        self._all_items: list[Item] = longest_first(self._waiting()) if before is None else before._all_items
        self.items = list(self._all_items)
        self.left_hibernated: list[HibernatedMachine] = []
        self.postponed: list[Item] = []
        self.postponed_usd = 0.0
        self.stranded: list[int] = []
        self.begin_by_t = math.inf
        """When to plan again because tasks of a shared queue may not have begun in time."""
        self.rejected: list[Rejected] = []
        everything = [*self.items, *(item for hibernated in self.hibernated_machines for item in hibernated.items)]
        count = sum(item.count for item in everything)
        seconds = math.fsum(item.task.runtime_s * item.count for item in everything) / max(1, count)
        self.seconds = max(seconds, 1e-3)
        self.mean_cores = sum(item.task.cores * item.count for item in everything) / max(1, count) or 1.0
        self.work_s = self.seconds * count * self.mean_cores
        typical = max(everything, key=lambda item: item.count * item.task.runtime_s, default=None)
        task_class = typical.task.task_class if typical else ""
        if before is None:
            self.prices = Prices(snapshot, self.seconds, max(1, count), margin_s, task_class, self.mean_cores)
            self.hibernated_prices = self._prices_of_hibernated(task_class)
        else:
            self.prices, self.hibernated_prices = before.prices, before.hibernated_prices
        self.leases = Leases(self)
        for bin in self.bins:
            bin.stretch = self.stretch(bin.offer)

    def _prices_of_hibernated(self, task_class: str) -> Prices:
        """Prices for the tasks of hibernated machines as a bag of their own: few tasks do not fill a machine."""
        items = [item for hibernated in self.hibernated_machines for item in hibernated.items]
        if not items:
            return self.prices
        mean_s = math.fsum(item.task.runtime_s for item in items) / len(items)
        mean_cores = sum(item.task.cores for item in items) / len(items)
        return Prices(self.snapshot, mean_s, len(items), self.margin_s, task_class, mean_cores)

    def stretch(self, offer: Offer) -> float:
        """Seconds that pass for each second that a machine of this offer is up."""
        return self.prices.stretch(offer) if self.risk_weight else 1.0

    # --- tasks -------------------------------------------------------------------------------------------------------

    def _waiting(self) -> list[Item]:
        """Tasks that neither run nor are reserved for a hibernated machine, grouped by equal needs."""
        snapshot = self.snapshot
        bound = {entry.task for machine in snapshot.machines for entry in machine.running}
        bound |= {number for hibernated in self.hibernated_machines for number in hibernated.machine.tasks()}
        found = [Item(group.task, group.count, []) for group in snapshot.groups]
        alike: dict[Task, Item] = {}
        for number, task in sorted(snapshot.tasks.items()):
            if number in bound:
                continue
            item = alike.setdefault(replace(task, id=-1), Item(task, 0, []))
            item.count += 1
            item.ids.append(number)
        return merged([self._due(item) for item in (*found, *alike.values()) if item.count])

    def _find_hibernated(self) -> list[HibernatedMachine]:
        """Hibernated machines with the tasks that run nowhere else."""
        awake = {entry.task for machine in self.awake.values() for entry in machine.running}
        found = []
        for machine in self.snapshot.machines:
            if machine.phase is not Phase.HIBERNATED:
                continue
            alone = [number for number in machine.tasks() if number not in awake]
            if not alone:
                continue
            items = [self._due(Item(self.snapshot.tasks[number], 1, [number])) for number in alone]
            found.append(HibernatedMachine(machine, items, resume_limit_t(machine, items)))
        return found

    def _due(self, item: Item) -> Item:
        """The item with its due time on spot: early enough for on-demand to run the task again from its start."""
        item = expected(item)
        rescue_alone_s = self.safety_net.rescue_alone_s(item)
        # One margin earlier than the safety net needs, so that a task in time ends before a rescue has to begin.
        item.due_t = self.by_t - self.margin_s - rescue_alone_s if math.isfinite(rescue_alone_s) else self.by_t
        return item

    # --- the decision -----------------------------------------------------------------------------------------------

    def decide(self, in_need: bool = False, as_queued: bool = False, as_packed: bool = False) -> None:
        """Fill paid time with waiting tasks, then with hibernated ones; buy machines for the rest.

        `in_need`: be in time first, longest tasks first, whatever cycles that begins. `as_queued`: keep the queues of
        on-demand machines as they are. `as_packed`: keep all queues that end within paid time.
        """
        left = [item.count for item in self.items]
        in_need = in_need or as_queued
        if as_queued:
            self._queue(left)
        if as_packed:
            keep_queues(self, left)
        if not in_need:
            spread(self.bins, self.items, left, self.by_t)
        sizes: dict[tuple[str, str], Sizes] = {}
        for bin in self.bins:
            paid_until_t = bin.keep_t
            bin.keep_t = math.inf if in_need else paid_until_t
            if (key := market_key(bin.offer)) not in sizes:
                sizes[key] = sizes_on(self.items, bin.offer)
            fill(bin, self.items, left, self.by_t, sizes[key])
            bin.keep_t = self.kept(bin, paid_until_t)
        if self.hibernated_machines:
            paid = PaidTime(self.bins, self.by_t)
            for hibernated in self.hibernated_machines:
                take_over(self, hibernated, paid)
        left += [0] * (len(self.items) - len(left))
        given_up = [hibernated for hibernated in self.hibernated_machines if not self.worth_waiting(hibernated)]
        self.left_hibernated = [hibernated for hibernated in self.hibernated_machines if hibernated not in given_up]
        late = [item for hibernated in given_up for item in hibernated.items]
        self.items, left = [*self.items, *late], [*left, *(item.count for item in late)]
        share_queue(self, left)
        self._postpone(left)
        self._buy(left)
        self._buy_ondemand(left)
        place_late(self, left)
        self.stranded = left

    def decide_rescue(self) -> None:
        """Place every task that does not run on on-demand machines, as the safety net does: nothing waits for spot."""
        waiting = [item for hibernated in self.hibernated_machines for item in hibernated.items]
        self.items = longest_first([*self.items, *waiting])
        left = [item.count for item in self.items]
        self._buy_ondemand(left)
        for bin in self.bins:
            if bin.placed and bin.is_new:
                self.bought_usd += cycles_usd(bin.offer, bin.end_t() - self.t) - bin.offer.price_usd
        place_late(self, left)
        self.stranded = left

    def _queue(self, left: list[int]) -> None:
        """Place the tasks that are queued on on-demand machines where they are queued."""
        places = {number: place for place, item in enumerate(self.items) for number in item.ids}
        for bin in [bin for bin in self.bins if bin.offer.market == ONDEMAND and bin.name in self.awake]:
            for place in [places[number] for number in self.awake[bin.name].waiting if number in places]:
                task, lane = self.items[place].task, bin.free_t.index(min(bin.free_t))
                if width(task, bin.offer) == 1 and left[place] > 0:
                    start_t, bin.free_t[lane] = bin.free_t[lane], bin.free_t[lane] + task.seconds_on(bin.offer)
                    bin.placed.append(Placed(place, 1, start_t, bin.free_t[lane]))
                    left[place] -= 1
                    self.late += bin.free_t[lane] > self.by_t + TOLERANCE_S

    def kept(self, bin: Bin, paid_until_t: float) -> float:
        """The end of the billing cycle in which its work ends; cycles beyond the paid ones are added to the cost."""
        late_s = bin.end_t() - paid_until_t
        if not math.isfinite(paid_until_t) or late_s <= 0.0:
            return paid_until_t
        cycles = math.ceil(late_s / bin.offer.cycle_s - 1e-9)
        self.bought_usd += cycles * bin.offer.price_usd
        return paid_until_t + cycles * bin.offer.cycle_s

    def worth_waiting(self, hibernated: HibernatedMachine) -> bool:
        """Whether its tasks should wait for it to resume."""
        return self.t < hibernated.limit_t - 1e-6 and self.hibernated_prices.waiting_pays(
            hibernated.machine.offer, self.t
        )

    def _postpone(self, left: list[int]) -> None:
        """If spot is refused now, postpone tasks that are not expected to cost more if they begin later."""
        rest = [replace(item, count=count) for item, count in zip(self.items, left, strict=True) if count]
        if rest and spot_is_refused(self.snapshot, self.noticed_offers, self.left):
            later_t = self.t + self.review_pause_s()
            if self.safety_net_after().holds(rest, later_t) and self.worth_postponing(rest, later_t):
                if self._must_learn(rest):
                    rest[0] = replace(rest[0], count=rest[0].count - 1)
                    first = next(place for place, count in enumerate(left) if count)
                    left[:] = [int(place == first) for place in range(len(left))]
                else:
                    left[:] = [0] * len(left)
                self.postponed = [item for item in rest if item.count]
                self.postponed_usd = self._ondemand_usd(self.postponed, self.t)

    def _must_learn(self, rest: Sequence[Item]) -> bool:
        """Whether one of many waiting tasks begins on demand although it could wait for spot.

        Few have ended and none runs, and time passes in which it could have been seen that tasks take longer than is
        known: `UNKNOWN_FACTOR` times their quantile would be too long by now.
        """
        if not self.risk_weight or self.awake or not any(item.slack_s > 0.0 for item in rest):
            return False
        ended, waiting = self.snapshot.total - self.snapshot.unfinished, sum(item.count for item in rest)
        longest_s = max(self.safety_net.rescue_alone_s(item) for item in rest)
        return ended < RESULTS_TO_WAIT_WITH < waiting and self.by_t - self.t < UNKNOWN_FACTOR * longest_s

    def _ondemand_usd(self, rest: Sequence[Item], at_t: float) -> float:
        """Dollars for these tasks on on-demand machines that are started at `at_t`."""
        return (
            float(self.prices.ondemand_usd[self.prices.cell(at_t)])
            * self.prices.per_task
            * sum(item.count for item in rest)
        )

    def review_pause_s(self) -> float:
        """Seconds until the next review of refused spot."""
        return max(self.margin_s, (self.by_t - self.snapshot.begun_t) / 24.0)

    def worth_postponing(self, rest: Sequence[Item], later_t: float) -> bool:
        """Whether postponing is expected to cost no more; a short outage is likelier to end soon than a long one."""
        if self.ondemand_only:
            return False
        back = spot_is_back(self.snapshot, self.prices, self.review_pause_s())
        later_usd = back * self._spot_usd(rest) + (1.0 - back) * self._ondemand_usd(rest, later_t)
        return later_usd <= self._ondemand_usd(rest, self.t) * (1.0 + 1e-9)

    def _spot_usd(self, rest: Sequence[Item]) -> float:
        """Dollars for these tasks on the cheapest spot machines, with a margin."""
        spot = [offer for offer in self.snapshot.offers if offer.market == SPOT]
        core_usd = min(o.compared_usd / o.cycle_s / o.cores / self.prices.speed(o) for o in spot)
        seconds = math.fsum(item.count * item.task.runtime_s * item.task.cores for item in rest)
        return SPOT_COST_MARGIN * core_usd * seconds

    def wanted(self, choices: list[Choice]) -> list[Choice]:
        """The choices that this planner may buy."""
        return choices

    def _buy(self, left: list[int]) -> None:
        """Buy leases for the tasks that are left, the cheapest per task first."""
        useless: Useless = set()
        at_once = BATCHES_OF_UNNAMED if self.snapshot.groups else BATCHES
        is_large = sum(left) > MAX_TASKS_PACKED_EXACTLY
        self._alike_bins, self.leases = Alike(self.bins), Leases(self)
        while any(left):
            count = sum(left)
            choices = self.wanted(self._choices(left, useless))
            if not choices:
                return
            best = self.best(choices)
            self._note_other(best, choices, count)
            before, waiting = self._there(best.bin), list(left)
            sizes = self.leases.sizes_on(best.bin.offer)
            placed = fill(best.bin, self.items, left, self.by_t, sizes)
            if not placed:
                useless.add((best.bin.name, best.bin.offer.key, best.bin.keep_t))
                if before is not None and is_large:
                    self._renew_others(best, choices, left, useless)
                continue
            self._take(best)
            # In a large bag buy several at once: the next best choices would be the same.
            more = count // (at_once * placed)
            if before is None:
                more -= self._take_copies(best, min(more, self.left.of(best.bin.offer)), waiting, left)
            for another in self._alike(best.bin, before, more):
                fill(another, self.items, left, self.by_t, sizes)
                self._take(replace(best, bin=another))
            if before is not None and is_large:
                self._renew_others(best, choices, left, useless)
            share_queue(self, left)

    def _take_copies(self, best: Choice, most: int, before: Sequence[int], left: list[int]) -> int:
        """Take new machines that are filled just like this one, up to `most`; how many."""
        bin = best.bin
        copies = count_copies(bin, before, left, most)
        places = range(len(self.bins), len(self.bins) + copies)
        for place in places:
            copy = replace(bin, name=f"new-{place}", free_t=list(bin.free_t), placed=list(bin.placed))
            self.places[copy.name] = place
            self.bins.append(copy)
            self.bought_usd += best.price_usd
        if copies:
            self._alike_bins.add_copies(bin, places)
            self.spot_cores[bin.offer.key] += copies * bin.offer.cores * (bin.offer.market == SPOT)
            self.left.take(bin.offer, copies)
        return copies

    def _renew_others(self, best: Choice, choices: Sequence[Choice], left: list[int], useless: Useless) -> None:
        """Renew other machines of a large bag that cost hardly more: one a round would take too many rounds."""
        most_usd = best.per_task_usd * (1.0 + RENEWED_TOGETHER_PREMIUM)
        for choice in [c for c in choices if c is not best and not c.bin.is_new and c.per_task_usd <= most_usd]:
            if not any(left):
                return
            if fill(choice.bin, self.items, left, self.by_t, self.leases.sizes_on(choice.bin.offer)):
                self._take(choice)
            else:
                useless.add((choice.bin.name, choice.bin.offer.key, choice.bin.keep_t))

    def _note_other(self, best: Choice, choices: Sequence[Choice], count: int) -> None:
        """Note the best choice of the other market as the rejected alternative."""
        if self.rejected:
            return
        others = [choice for choice in choices if choice.bin.offer.market != best.bin.offer.market]
        if others:
            other = min(others, key=lambda choice: choice.per_task_usd)
            extra_usd = (other.per_task_usd - best.per_task_usd) * count
            self.rejected.append(Rejected(f"{count} tasks on {other.bin.offer.name}", extra_usd))

    def best(self, choices: Sequence[Choice]) -> Choice:
        """The cheapest per task; among spot leases at most `EARLY_SPOT_PREMIUM` dearer, the one that starts first."""
        least_usd = min([choice.per_task_usd for choice in choices])
        equal = [choice for choice in choices if choice.per_task_usd == least_usd]
        # A longer lease of a machine that runs is paid for later, and needs no boot.
        cheapest = min(equal, key=lambda c: (c.bin.is_new, c.bin.offer.key, c.bin.keep_t))
        # An interruption that is not billed costs only time: no need to start early.
        is_free = cheapest.bin.offer.when_taken == "terminate" and cheapest.bin.offer.free_if_taken
        if cheapest.bin.offer.market == ONDEMAND or is_free:
            return self._spread_over_offers(cheapest, choices)
        most_usd = cheapest.per_task_usd * (1.0 + EARLY_SPOT_PREMIUM)
        near = [c for c in choices if c.per_task_usd <= most_usd and c.bin.offer.market == SPOT]
        first_t = min([min(choice.bin.free_t) for choice in near])
        first = [choice for choice in near if min(choice.bin.free_t) == first_t]
        earliest = min(first, key=lambda c: (c.per_task_usd, c.bin.offer.key, c.bin.keep_t))
        return self._spread_over_offers(earliest, near)

    def _spread_over_offers(self, chosen: Choice, choices: Sequence[Choice]) -> Choice:
        """The chosen machine, or one of another spot offer that starts as soon and shares less of the others' fate."""
        if not self.risk_weight or not chosen.bin.is_new or chosen.bin.offer.market != SPOT:
            return chosen
        begin_t, cores = min(chosen.bin.free_t) + self.margin_s, max(1, self.spot_cores.total())
        alike = [c for c in choices if c.bin.is_new and c.bin.offer.market == SPOT and min(c.bin.free_t) <= begin_t]

        def price_usd(choice: Choice) -> float:
            share = self.prices.exposure(choice.bin.offer, self.spot_cores) / cores
            return choice.per_task_usd * (1.0 + SPREAD_PREMIUM * share)

        return min(alike, key=lambda c: (round(price_usd(c), 9), c is not chosen, c.bin.offer.key, c.bin.keep_t))

    def _there(self, bin: Bin) -> Bin | None:
        """The machine in this pass that this lease would extend; None for a new machine."""
        place = self.places.get(bin.name)
        return None if place is None else self.bins[place]

    def _alike(self, bin: Bin, before: Bin | None, most: int) -> Iterator[Bin]:
        """Up to `most` more of the same: new machines if this one is new, else longer leases of equivalent ones."""
        if before is None:
            for _ in range(min(most, self.left.of(bin.offer))):
                yield fresh(f"new-{len(self.bins)}", bin.offer, self.t, bin.keep_t - self.t, bin.stretch)
            return
        for other in [self.bins[place] for place in self._alike_bins.of(before)[:most]]:
            yield replace(other, keep_t=bin.keep_t, free_t=list(other.free_t), placed=list(other.placed))

    def _take(self, choice: Choice) -> None:
        self.bought_usd += choice.price_usd
        place = self.places.get(choice.bin.name)
        if place is None:
            self._add(choice.bin)
        else:
            self.leases.taken(self._alike_bins.change(self.bins[place], choice.bin, place), place)
            self.bins[place] = choice.bin

    def _add(self, bin: Bin) -> None:
        self._alike_bins.add(bin, len(self.bins))
        self.places[bin.name] = len(self.bins)
        self.rented.setdefault(market_key(bin.offer), bin.offer)
        self.bins.append(bin)
        self.spot_cores[bin.offer.key] += bin.offer.cores * (bin.offer.market == SPOT)
        self.left.take(bin.offer)

    def open(self, bin: Bin) -> None:
        """Add a machine that is rented whether or not tasks fill it, and its first cycle's price."""
        self._add(bin)
        self.bought_usd += bin.offer.price_usd + bin.offer.start_usd

    def _choices(self, left: Sequence[int], useless: Useless) -> list[Choice]:
        """The leases that may be bought next."""
        return self.leases.choices(left, useless)

    def kinds(self) -> list[tuple[Kind, int]]:
        """Each kind of machine with the place of its first one."""
        return self._alike_bins.firsts()

    def may_rent(self, offer: Offer) -> bool:
        """Whether this pass may buy leases of an offer at all."""
        return not self.ondemand_only or offer.market == ONDEMAND

    def risk_usd(self, bin: Bin, end_t: float) -> float:
        """Expected dollars that interruptions cost a task which ends there at `end_t`."""
        cells = max(1, round((end_t - self.t) / self.prices.cell_s))
        return self.prices.loss_usd(bin.offer, cells) * self.prices.per_task

    def _losses(self) -> tuple[float, float]:
        """The expected number of interrupted tasks of those placed on spot machines, and what that costs."""
        lost = usd = bin_usd = 0.0
        numbers, before = list[float](), None
        for bin in self.bins:
            if bin.offer.market != SPOT:
                continue
            # Of many machines that are bought at once, each is filled like the one before.
            if before is None or bin.offer is not before.offer or bin.placed != before.placed:
                numbers, bin_usd, before = [self._lost(bin, entry) for entry in bin.placed], self._loss_usd(bin), bin
            for number in numbers:
                lost += number
            usd += bin_usd
        return lost, usd

    def _loss_usd(self, bin: Bin) -> float:
        """Expected dollars that interruptions cost the tasks placed on this spot machine."""
        usd = 0.0
        for entry in bin.placed:
            seconds = self.items[entry.item].task.seconds_on(bin.offer)
            usd += entry.count * self.risk_usd(bin, (entry.start_t + seconds + entry.end_t) / 2)
        return usd

    def expected_lost(self) -> float:
        """The expected number of tasks on spot machines, running or placed, that are lost for good."""
        lost = 0.0
        for bin in self.bins:
            if bin.offer.market != SPOT:
                continue
            rate = self.prices.rates[bin.offer.key].interrupts_per_s
            left_s = [entry.left_s for entry in self.awake[bin.name].running] if bin.name in self.awake else []
            number = math.fsum(self._lost(bin, entry) for entry in bin.placed)
            number += math.fsum(-math.expm1(-rate * seconds) for seconds in left_s)
            lost += number * self.prices.given_up_share(bin.offer)
        return lost

    def _lost(self, bin: Bin, entry: Placed) -> float:
        """The expected number of these tasks that are interrupted."""
        return entry.count * -math.expm1(-self.prices.rates[bin.offer.key].interrupts_per_s * (entry.end_t - self.t))

    def _buy_ondemand(self, left: list[int]) -> None:
        """Place what fits into no usual lease on on-demand machines, leased for as long as it takes."""
        for bin in self.bins:
            if any(left) and bin.offer.market == ONDEMAND:
                bin.keep_t = math.inf
                fill(bin, self.items, left, self.by_t)
        for offer in ondemand_offers(self.snapshot):
            while any(left) and self.left.of(offer) > 0:
                bin = fresh(f"new-{len(self.bins)}", offer, self.t, math.inf)
                if not fill(bin, self.items, left, self.by_t):
                    break
                self.open(bin)

    def shortfall(self) -> tuple[int, int]:
        """The number of tasks that fit on no machine, and of tasks that will be late."""
        return sum(self.stranded), self.late

    def cost_usd(self) -> float:
        """Expected dollars from now on: leases bought, interruptions, hibernated and postponed tasks."""
        hibernated_usd = math.fsum(
            float(self.hibernated_prices.hibernated_by_cell(hibernated.machine.offer)[0])
            * self.hibernated_prices.per_task
            * len(hibernated.items)
            for hibernated in self.left_hibernated
        )
        lost, losses_usd = self._losses()
        losses_usd *= self.prices.small_rescue_factor(lost)
        return self.bought_usd + losses_usd + hibernated_usd + self.postponed_usd

    # --- after the decision -----------------------------------------------------------------------------------------

    def at_risk(self) -> list[Item]:
        """The tasks that would have to be rescued if all spot machines vanished, longest first."""
        found: dict[tuple[Task, float], Item] = {}
        hibernated = [item.ids[0] for hibernated in self.left_hibernated for item in hibernated.items]
        spot = [m for m in self.snapshot.machines if m.offer.market == SPOT and m.phase is not Phase.HIBERNATED]
        guarded = self.guarded()
        running = [entry.task for machine in spot for entry in machine.running if entry.task not in guarded]
        for number in (*hibernated, *running):
            item = expected(Item(self.snapshot.tasks[number], 1, []))
            key = replace(item.task, id=-1), item.slack_s
            found.setdefault(key, replace(item, count=0)).count += 1
        for bin in self.bins:
            for entry in bin.placed if bin.offer.market == SPOT else ():
                item = self.items[entry.item]
                key = replace(item.task, id=-1), item.slack_s
                found.setdefault(key, replace(item, count=0)).count += entry.count
        for item in self.postponed:
            found.setdefault((replace(item.task, id=-1), item.slack_s), replace(item, count=0)).count += item.count
        return longest_first(merged(found.values()))

    def guarded(self) -> set[int]:
        """Tasks that run on an on-demand machine, or will have their second attempt there: no loss of spot delays
        them."""
        ondemand = [machine for machine in self.awake.values() if machine.offer.market == ONDEMAND]
        return {
            number for m in ondemand for number in (*(entry.task for entry in m.running), *m.again)
        }  # fmt: skip

    def safety_net_after(self) -> SafetyNet:
        """The safety net as it will be once this pass is carried out."""
        return SafetyNet(
            self.snapshot, [bin for bin in self.bins if bin.offer.market == ONDEMAND], self.left, self.margin_s
        )
