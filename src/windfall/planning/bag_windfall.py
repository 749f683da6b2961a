"""Windfall's own planner of bags: the cheapest machines that leave a way out. Pure: a snapshot in, a plan out.

It fills what is paid for, then buys room for the rest piece by piece: another cycle of a machine that is there, a new
spot machine, a new on-demand one, whichever costs least for a task, the chance and the price of losing it to an
interruption counted in (`bag_prices`). A task that sleeps with its machine is waited for while that is cheaper than to
begin again. Whatever comes out must pass the safety net (`bag_net`); if it does not, on-demand machines are started
until it does, and the plan looks again before the net could be cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from windfall.errors import BadInput
from windfall.planning.bag_net import Net, ident, left_of_each, price_usd
from windfall.planning.bag_packing import (
    Bin,
    Item,
    existing,
    fill,
    fresh,
    is_awake,
    lease_usd,
    longest_first,
    ondemand_offers,
    width,
)
from windfall.planning.bag_prices import Prices
from windfall.planning.contract import ONDEMAND, SPOT, Machine, Phase, Plan, Rejected, Snapshot, Start, Task
from windfall.planning.offers import Offer

# Of the room in a row of tasks of unequal length so much is used.
TIGHT = 0.97
LONGEST_LEASE_STEPS = 3


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


class Desk:
    """One look at a snapshot: what is to be done, what there is, what was decided. Rivals decide otherwise."""

    risk_weight = 1.0

    def __init__(
        self, snapshot: Snapshot, margin_s: float, forced: Sequence[Offer], before: Desk | None = None
    ) -> None:
        # A second look at the same: judged by the mean of all tasks and not of those that are left to place.
        self.by_rest, self.late = before is None, 0
        self.snapshot, self.t, self.margin_s = snapshot, snapshot.t, margin_s
        self.by_t = snapshot.deadline_t - margin_s
        self.left = left_of_each(snapshot)
        self.bought_usd = 0.0
        self.awake = {m.id: m for m in snapshot.machines if is_awake(m)}
        self.bins = [existing(machine, snapshot) for machine in self.awake.values()]
        self.bins.sort(key=lambda bin: (bin.offer.market == SPOT, bin.name))
        for offer in forced:
            self._open(fresh(f"new-{len(self.bins)}", offer, self.t, offer.cycle_s))
        self.net = Net(snapshot, [], self.left, margin_s)
        self.sleepers = self._asleep()
        self.items = longest_first(self._waiting())
        self.waits: list[Sleeper] = []
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
        alone_s = self.net.alone_s(item)
        # A margin more than the net has: a task that is due ends a little before the net would have to be let down.
        item.due_t = self.by_t - self.margin_s - alone_s if math.isfinite(alone_s) else self.by_t
        item.task = self._paced(item.task, item.count)
        return item

    def _paced(self, task: Task, count: int) -> Task:
        """Many tasks in a row are late by less than each of them alone: the doubt grows with the root of the number."""
        if task.mean_s is None or task.mean_s >= task.runtime_s:
            return task
        in_a_row = max(1.0, min(float(count), (self.by_t - self.t) / max(task.mean_s, 1e-6)))
        return replace(task, runtime_s=task.mean_s + (task.runtime_s - task.mean_s) / math.sqrt(in_a_row), mean_s=None)

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

    def decide(self, in_need: bool = False) -> None:
        """Paid room first, for what must be placed and then for what sleeps; the rest is bought.

        `in_need`: first of all in time, the longest first, whatever cycles that begins.
        """
        left = [item.count for item in self.items]
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
        self._buy(left)
        self._secure(left)
        self._hurry(left)
        self.stranded = left

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

    def wanted(self, choices: list[Choice]) -> list[Choice]:
        """Those that may be bought."""
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
            best = min(choices, key=lambda choice: (choice.per_task_usd, choice.bin.offer.key, choice.bin.keep_t))
            self._note_other(best, choices, count)
            placed = fill(best.bin, self.items, left, self.by_t)
            if not placed:
                useless.add((best.bin.name, best.bin.offer.key, best.bin.keep_t))
                continue
            self._take(best)
            # Of a large bag the next few machines are like this one.
            for _ in range(min(count // (8 * placed), self.left[ident(best.bin.offer)]) if best.bin.is_new else 0):
                keep_s = best.bin.keep_t - self.t
                more = fresh(f"new-{len(self.bins)}", best.bin.offer, self.t, keep_s)
                fill(more, self.items, left, self.by_t)
                self._take(Choice(more, best.price_usd, best.per_task_usd))

    def _note_other(self, best: Choice, choices: Sequence[Choice], count: int) -> None:
        """The best of the other market, for who asks why not that."""
        others = [choice for choice in choices if choice.bin.offer.market != best.bin.offer.market]
        if others and not self.rejected:
            other = min(others, key=lambda choice: choice.per_task_usd)
            extra_usd = (other.per_task_usd - best.per_task_usd) * count
            self.rejected.append(Rejected(f"{count} tasks on {other.bin.offer.name}", extra_usd))

    def _take(self, choice: Choice) -> None:
        self.bought_usd += choice.price_usd
        if choice.bin.is_new and choice.bin.name not in {bin.name for bin in self.bins}:
            self.bins.append(choice.bin)
            self.left[ident(choice.bin.offer)] -= 1
            return
        self.bins = [choice.bin if bin.name == choice.bin.name else bin for bin in self.bins]

    def _open(self, bin: Bin) -> None:
        """A machine that the net demands: paid for, whatever it is used for."""
        self.bins.append(bin)
        self.left[ident(bin.offer)] -= 1
        self.bought_usd += bin.offer.price_usd

    def _choices(self, left: Sequence[int], useless: set[tuple[str, str, float]]) -> list[Choice]:
        """Another cycle of each machine, and a new machine of each offer for one, two or three."""
        waiting = [item for item, count in zip(self.items, left, strict=True) if count > 0]
        found: dict[tuple[object, ...], tuple[Bin, float]] = {}
        for bin in self.bins:
            if math.isfinite(bin.keep_t) and bin.keep_t < self.by_t:
                shortest_s = min(item.task.seconds_on(bin.offer) for item in waiting)
                steps = math.ceil(max(1.0, (min(bin.free_t) + shortest_s - bin.keep_t) / self._step_s(bin.offer)))
                keep_t = bin.keep_t + steps * self._step_s(bin.offer)
                price = lease_usd(bin.offer, keep_t - bin.keep_t + bin.offer.lag_s * (not bin.offer.bills_boot))
                # Machines alike are looked at once.
                alike = (ident(bin.offer), bin.keep_t, min(bin.free_t), max(bin.free_t))
                if alike not in found and (bin.name, bin.offer.key, keep_t) not in useless:
                    found[alike] = (
                        replace(bin, keep_t=keep_t, free_t=list(bin.free_t), placed=list(bin.placed)),
                        price,
                    )
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
        return sum(entry.count * self._risk(bin, (entry.start_t + entry.end_t) / 2) for entry in bin.placed)

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
        return self.bought_usd + sum(self._loss_usd(bin) for bin in self.bins) + asleep_usd

    # --- after the decision -----------------------------------------------------------------------------------------

    def at_risk(self) -> list[Item]:
        """Everything that would have to be rescued if all spot machines vanished."""
        found: dict[Task, Item] = {}
        sleeping = [item.ids[0] for sleeper in self.waits for item in sleeper.items]
        spot = [m for m in self.snapshot.machines if m.offer.market == SPOT and m.phase is not Phase.HIBERNATED]
        running = [entry.task for machine in spot for entry in machine.running]
        for number in (*sleeping, *running):
            task = self._paced(self.snapshot.tasks[number], 1)
            found.setdefault(replace(task, id=-1), Item(task, 0, [])).count += 1
        for bin in self.bins:
            for entry in bin.placed if bin.offer.market == SPOT else ():
                task = self.items[entry.item].task
                found.setdefault(replace(task, id=-1), Item(task, 0, [])).count += entry.count
        return longest_first(found.values())

    def netted(self) -> Net:
        """The net as it would hang after this plan."""
        return Net(self.snapshot, [bin for bin in self.bins if bin.offer.market == ONDEMAND], self.left, self.margin_s)


class Windfall:
    """The planner: with names where the snapshot has them, in numbers where it has groups."""

    names_up_to = 2_000.0

    def __init__(self, desk: type[Desk] = Desk, market: str | None = None, margin_s: float = 5.0) -> None:
        self.desk, self.market, self.margin_s = desk, market, margin_s

    def __call__(self, snapshot: Snapshot) -> Plan:
        snapshot, margin_s = bounded(snapshot), self.margin_s
        if len(snapshot.groups) > 1:
            # Tasks without names are taken in any order: the last to begin may be the longest.
            margin_s += max(group.task.runtime_s for group in snapshot.groups)
        if self.market is not None:
            snapshot = replace(snapshot, offers=tuple(o for o in snapshot.offers if o.market == self.market))
        if not snapshot.unfinished:
            return Plan(stop=[machine.id for machine in snapshot.machines], because=["nothing is left to do"])
        # A job that runs is never refused: late is better than never. Who wants to know before calls check_possible.
        forced: list[Offer] = []
        while True:
            desk = self._decided(snapshot, margin_s, forced)
            net, at_risk = desk.netted(), desk.at_risk()
            latest_t = net.latest_t(at_risk)
            if math.isinf(latest_t) and at_risk:
                at_risk = net.rescuable(at_risk)
                latest_t = net.latest_t(at_risk)
            more = None if latest_t > snapshot.t + 1e-6 else _cheapest_rescue(desk, at_risk)
            if more is None:
                return _written(desk, net, at_risk, latest_t, len(forced))
            # One by one while they are few, then by armfuls.
            forced += [more] * min(max(1, len(forced) // 2), desk.left[ident(more)])

    def _decided(self, snapshot: Snapshot, margin_s: float, forced: Sequence[Offer]) -> Desk:
        """Buying the cheapest piece each time is not always the cheapest whole, nor in time: it is tried in two ways."""
        desk = self.desk(snapshot, margin_s, forced)
        desk.decide()
        if desk.bought_usd <= 0.0 and not desk.late:
            return desk
        other = self.desk(snapshot, margin_s, forced, desk)
        other.decide(in_need=desk.late > 0)
        better = (*other.shortfall(), other.cost_usd()) < (*desk.shortfall(), desk.cost_usd() - 1e-9)
        return other if better else desk


def bounded(snapshot: Snapshot) -> Snapshot:
    """A job without a deadline is planned as if it had a distant one: cheapest first, in no hurry."""
    if math.isfinite(snapshot.deadline_t):
        return snapshot
    longest_s = max(
        [task.runtime_s for task in snapshot.tasks.values()] + [g.task.runtime_s for g in snapshot.groups] + [1.0]
    )
    lag_s = max((offer.lag_s for offer in snapshot.offers), default=0.0)
    return replace(snapshot, deadline_t=snapshot.t + 86_400.0 + 20.0 * (lag_s + longest_s))


def _cheapest_rescue(desk: Desk, at_risk: Sequence[Item]) -> Offer | None:
    """The next machine that the net needs now, or None where it holds or nothing more can be had that is in time."""
    critical = [item for item in at_risk if desk.net.alone_s(item) + desk.t >= desk.by_t - 1e-6] or at_risk[:1]
    for offer in ondemand_offers(desk.snapshot):
        if desk.left[ident(offer)] > 0 and fill(
            fresh("", offer, desk.t, math.inf), critical, [1] * len(critical), desk.by_t
        ):
            return offer
    return None


def _written(desk: Desk, net: Net, at_risk: Sequence[Item], latest_t: float, forced: int) -> Plan:
    """The decision as a plan."""
    snapshot, plan = desk.snapshot, Plan()
    queues = _queues(desk)
    for bin in desk.bins:
        if bin.is_new:
            plan.start.append(Start(bin.name, bin.offer))
            plan.assign[bin.name] = queues.get(bin.name, [])
    for machine in snapshot.machines:
        queue = queues.get(machine.id, [])
        if queue != list(machine.waiting):
            plan.assign[machine.id] = queue
    if latest_t > snapshot.t:
        plan.look_again_t = latest_t
    _release(desk, plan, net, at_risk)
    for sleeper in desk.waits:
        limit_t = min(sleeper.limit_t, max(desk.prices.gives_up_t(), snapshot.t + desk.margin_s))
        plan.look_again_t = min(plan.look_again_t, limit_t)
        plan.because.append(
            f"{sleeper.machine.id} sleeps with {len(sleeper.items)} tasks; they may wait until {sleeper.limit_t:.0f}"
        )
    _explain(desk, plan, net, at_risk, latest_t, forced)
    return plan


def _queues(desk: Desk) -> dict[str, list[int]]:
    """By machine: its tasks by name, in the order in which they are to begin."""
    names = [list(item.ids) for item in desk.items]
    queues: dict[str, list[int]] = {}
    for bin in desk.bins:
        queue: list[int] = []
        for entry in sorted(bin.placed, key=lambda entry: entry.start_t):
            ids = names[entry.item]
            queue += ids[: entry.count]
            del ids[: entry.count]
        queues[bin.name] = queue
    for sleeper in desk.waits:
        running = {entry.task for entry in sleeper.machine.running}
        queues[sleeper.machine.id] = [i.ids[0] for i in sleeper.items if i.ids[0] not in running]
    return queues


def _release(desk: Desk, plan: Plan, net: Net, at_risk: Sequence[Item]) -> None:
    """Idle machines end just before their next cycle, unless the net hangs on them."""
    used = {bin.name for bin in desk.bins if bin.placed}
    for machine in desk.snapshot.machines:
        if machine.running or machine.id in used or not is_awake(machine) or machine.phase is Phase.PENDING:
            continue
        at_t = machine.paid_until_t - min(desk.margin_s, machine.offer.cycle_s / 10.0)
        if at_t > desk.t + 1e-6:
            plan.look_again_t = min(plan.look_again_t, at_t)
            continue
        without = [bin for bin in net.bins if bin.name != machine.id]
        if machine.offer.market == ONDEMAND and at_risk:
            rest = Net(desk.snapshot, without, desk.left, desk.margin_s)
            if not rest.holds(at_risk, desk.t + desk.margin_s):
                plan.because.append(f"{machine.id} is idle and stays: the net hangs on it")
                continue
        net.bins = without
        plan.stop.append(machine.id)
        plan.because.append(f"{machine.id} is idle and its cycle ends")


def _explain(desk: Desk, plan: Plan, net: Net, at_risk: Sequence[Item], latest_t: float, forced: int) -> None:
    snapshot = desk.snapshot
    ends = [bin.end_t() for bin in desk.bins] + [
        snapshot.t + entry.left_s for machine in desk.awake.values() for entry in machine.running
    ]
    finish_t = max((end_t for end_t in ends if math.isfinite(end_t)), default=snapshot.t)
    plan.predicted_finish_t = finish_t
    plan.predicted_cost_usd = snapshot.spent_usd + desk.cost_usd()
    if plan.start:
        kinds: dict[str, int] = {}
        for start in plan.start:
            kind = f"{start.offer.name} ({start.offer.market})"
            kinds[kind] = kinds.get(kind, 0) + 1
        text = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        plan.because.append(f"start {text}: the cheapest room for {sum(i.count for i in desk.items)} tasks")
    if forced:
        plan.because.append(f"{forced} on-demand machines because the net demands them now")
    if math.isfinite(latest_t):
        plan.because.append(f"should all spot vanish, on-demand could still do the rest until {latest_t:.0f}")
    elif at_risk:
        plan.because.append("on-demand alone could not do the rest in time any more")
    if any(desk.stranded):
        plan.because.append(f"{sum(desk.stranded)} tasks fit on no machine that can be had")
    opened, missing = net.rescue(at_risk, snapshot.t)
    if at_risk and not any(missing):
        cost_usd = snapshot.spent_usd + price_usd(opened, snapshot.t)
        plan.rejected.append(Rejected("all on on-demand machines now", cost_usd))
    plan.rejected += [Rejected(r.what, (plan.predicted_cost_usd or 0.0) + r.cost_usd) for r in desk.rejected]


# --- deadlines that cannot be met -----------------------------------------------------------------------------------


def check_possible(snapshot: Snapshot, margin_s: float) -> None:
    """BadInput where all the machines there are could not do it; names the earliest deadline that they could."""
    if fits_by(snapshot, snapshot.deadline_t - margin_s):
        return
    earliest_t = earliest_deadline_t(snapshot, margin_s)
    asked_s = snapshot.deadline_t - snapshot.begun_t
    if math.isinf(earliest_t):
        raise BadInput(
            "some task fits on no machine on offer", hint="offer a machine with more memory, or raise the limits"
        )
    raise BadInput(
        f"no machines on offer can do it within {asked_s:.0f} s",
        hint=f"the earliest possible deadline is {math.ceil(earliest_t - snapshot.begun_t)} s",
    )


def fits_by(snapshot: Snapshot, by_t: float) -> bool:
    """Whether all machines of both markets together could finish by then, with luck."""
    items = longest_first(
        [Item(t, 1, []) for t in snapshot.tasks.values()] + [Item(g.task, g.count, []) for g in snapshot.groups]
    )
    left = [item.count for item in items]
    for offer in sorted(snapshot.offers, key=lambda offer: (-offer.speed_for(""), offer.key)):
        for _ in range(snapshot.left_of(offer)):
            if not any(left) or not fill(fresh("", offer, snapshot.t, math.inf), items, left, by_t):
                break
    return not any(left)


def earliest_deadline_t(snapshot: Snapshot, margin_s: float) -> float:
    """The earliest deadline that could be met, to the second."""
    low_s, high_s = 0.0, 1.0
    while not fits_by(snapshot, snapshot.t + high_s):
        low_s, high_s = high_s, 2.0 * high_s
        if high_s > 2.0**40:
            return math.inf
    while high_s - low_s > 0.5:
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (low_s, middle_s) if fits_by(snapshot, snapshot.t + middle_s) else (middle_s, high_s)
    return snapshot.t + high_s + margin_s
